//! A server's tools, without those that its configuration excludes.

use std::sync::Arc;

use client_config::ServerEntry;
use contract::tool::ToolSpec;
use executor::{AuthorizedCall, CallFuture, CancelFuture, ParkedCall, ToolSource};

#[derive(Debug)]
pub(crate) struct FilteredTools {
    source: Arc<dyn ToolSource>,
    only: Option<Vec<String>>,
    without: Vec<String>,
}

impl FilteredTools {
    pub(crate) fn new(source: Arc<dyn ToolSource>, entry: &ServerEntry) -> Self {
        Self { source, only: entry.only_tools.clone(), without: entry.without_tools.clone() }
    }

    fn offers(&self, tool: &ToolSpec) -> bool {
        let named = |names: &[String]| names.iter().any(|name| name == tool.id.name());
        self.only.as_deref().is_none_or(named) && !named(&self.without)
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

    /// Needs no filter: only tools that are offered are authorized.
    fn call(&self, call: AuthorizedCall) -> CallFuture<'_> {
        self.source.call(call)
    }

    fn follow(&self, parked: ParkedCall) -> CallFuture<'_> {
        self.source.follow(parked)
    }

    fn cancel(&self, parked: ParkedCall) -> CancelFuture<'_> {
        self.source.cancel(parked)
    }
}
