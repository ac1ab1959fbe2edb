//! Prepares a run with the configured servers and tool policy, for the `cellmate tools` commands.

use std::sync::Arc;

use catalog::Registry;
use clap::Args;
use client_config::{Loaded, Places, ServerEntry, display};
use contract::scope::Scope;
use contract::tool::ToolSpec;
use executor::run::{Host, PreparedRun, RunRequest, prepare};
use executor::{Executor, ToolSource};
use mcp::server::Principal;
use serde_json::Value;

use crate::policy::{self, CallPolicy};
use crate::render;
use crate::servers::{FilteredTools, ProbeResult, probe_all};
use crate::shared_arguments::ConfigArguments;

/// The agent whose run it is, and the configuration.
#[derive(Debug, Args)]
pub(super) struct RunArguments {
    /// Use this agent's policy and standing approvals.
    #[arg(long, default_value_t = Principal::local().name().to_owned(), value_name = "ID")]
    agent: String,
    #[command(flatten)]
    config: ConfigArguments,
}

impl RunArguments {
    pub(super) fn places(&self) -> Places {
        self.config.places()
    }

    pub(super) fn loaded(&self) -> Result<Loaded, String> {
        client_config::load(&self.places()).map_err(|error| error.to_string())
    }

    /// Starts these servers and prepares a run with their tools. Fails only if the configuration is invalid.
    pub(super) async fn ready(
        &self,
        loaded: &Loaded,
        servers: Vec<ServerEntry>,
        session: &str,
    ) -> Result<Ready, String> {
        let policy = policy::read(&loaded.settings).map_err(|error| error.to_string())?;
        let results = probe_all(servers, self.places().tool_lists()).await;
        let host = Host {
            config: policy.config.clone(),
            sources: results.iter().filter_map(filtered).collect(),
            hooks: Vec::new(),
            ask: Vec::new(),
            namespaces: Registry::default(),
            namespace_config: Value::Null,
            runtime_available: true,
        };
        let scope = Scope { agent_id: self.agent.clone(), session_id: session.to_owned(), ..Scope::default() };
        let run = prepare(&host, &RunRequest { scope, ..RunRequest::default() }).map_err(|error| error.to_string())?;
        Ok(Ready { run, results, policy })
    }
}

fn filtered(result: &ProbeResult) -> Option<Arc<dyn ToolSource>> {
    let source: Arc<dyn ToolSource> = result.server.as_ref().ok()?.clone();
    Some(Arc::new(FilteredTools::new(source, &result.entry)))
}

/// A run that can start, and its servers, which are stopped when this is dropped.
pub(super) struct Ready {
    pub(super) run: PreparedRun,
    pub(super) results: Vec<ProbeResult>,
    policy: CallPolicy,
}

impl Ready {
    /// Returns the tools that policy lets the run see.
    pub(super) fn tools(&self) -> &[ToolSpec] {
        self.run.executor.catalog().tools()
    }

    /// Returns an executor that asks for the same approvals as it would for a cell's calls.
    pub(super) fn executor(&self) -> Executor {
        let asked = self.policy.asking.hook_for(&self.policy.pass, self.tools());
        self.run.executor.clone().with_hooks(vec![Arc::new(asked)])
    }
}

/// Prints the servers that could not be started to standard error.
pub(super) fn report_failures(results: &[ProbeResult]) {
    for result in results {
        if let Err(failure) = &result.server {
            let (name, why) = (display::plain(&result.entry.name), &failure.why);
            render::note(&format!("problem: server `{name}`: {why}; run `cellmate servers test` for details"));
        }
    }
}
