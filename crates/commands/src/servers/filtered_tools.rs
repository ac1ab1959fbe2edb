//! A server's tools, without those that its configuration excludes.

use std::sync::Arc;

use catalog::UnavailableServer;
use catalog::policy::matches_glob;
use client_config::ServerEntry;
use contract::tool::{Operation, ToolSpec};
use executor::{AuthorizedCall, CallFuture, CancelFuture, ParkedCall, ToolSource};

use crate::call_progress;

/// Counts a server's own tools. Operations on its resources and prompts are no tools of its own.
pub(crate) fn count_tools(tools: &[ToolSpec]) -> usize {
    tools.iter().filter(|tool| tool.operation == Operation::Tool).count()
}

#[derive(Debug)]
pub(crate) struct FilteredTools {
    source: Arc<dyn ToolSource>,
    entry: ServerEntry,
}

impl FilteredTools {
    pub(crate) fn new(source: Arc<dyn ToolSource>, entry: &ServerEntry) -> Self {
        Self { source, entry: entry.clone() }
    }

    fn offers(&self, tool: &ToolSpec) -> bool {
        // OpenClaw's `toolFilter` has globs; other clients have names only.
        let named = |names: &[String]| names.iter().any(|name| matches_glob(name, tool.id.name()));
        self.entry.only_tools.as_deref().is_none_or(named) && !named(&self.entry.without_tools)
    }
}

impl ToolSource for FilteredTools {
    fn tools(&self) -> Vec<ToolSpec> {
        let mut tools = self.source.tools();
        tools.retain(|tool| self.offers(tool));
        tools
    }

    fn identity(&self) -> Option<String> {
        self.source.identity()
    }

    /// Models read the reason, so it must not contain the secrets that the server was given.
    fn unavailable(&self) -> Option<UnavailableServer> {
        let UnavailableServer { name, reason } = self.source.unavailable()?;
        Some(UnavailableServer { name, reason: self.entry.without_secrets(&reason) })
    }

    /// Needs no filter: only tools that are offered are authorized.
    fn call(&self, call: AuthorizedCall) -> CallFuture<'_> {
        let open = call_progress::begin(call.id());
        Box::pin(async move {
            let _open = open;
            self.source.call(call).await
        })
    }

    fn follow(&self, parked: ParkedCall) -> CallFuture<'_> {
        self.source.follow(parked)
    }

    fn cancel(&self, parked: ParkedCall) -> CancelFuture<'_> {
        self.source.cancel(parked)
    }
}
