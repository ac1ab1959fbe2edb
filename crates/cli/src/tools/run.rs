//! A run with what is configured: the servers, and the policy about their tools.

use std::sync::Arc;

use catalog::Registry;
use contract::config::AgentsConfig;
use contract::scope::Scope;
use contract::tool::ToolSpec;
use executor::ToolSource;
use executor::run::{Host, PreparedRun, RunRequest, prepare};
use serde_json::Value;

use crate::config::{Loaded, ServerEntry};
use crate::servers::{Met, Offered, meet};

/// A run that can begin, and the servers it has; they end when this is dropped.
pub(super) struct Ready {
    pub(super) run: PreparedRun,
    pub(super) met: Vec<Met>,
    sources: Vec<Arc<dyn ToolSource>>,
}

impl Ready {
    /// What the run may see.
    pub(super) fn tools(&self) -> Vec<ToolSpec> {
        let all = self.sources.iter().flat_map(|source| source.tools());
        all.filter(|tool| self.run.executor.catalog().get(tool.id.as_str()).is_some()).collect()
    }
}

/// Starts these servers and prepares a run with their tools. The error is about the configuration.
pub(super) async fn ready(loaded: &Loaded, servers: Vec<ServerEntry>, agent: &str) -> Result<Ready, String> {
    let setting = |key: &str| loaded.settings.get(key).unwrap_or(&Value::Null);
    let config = AgentsConfig::resolve(setting("tools"), setting("agents"))
        .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
    let met = meet(servers, None).await;
    let offered = |met: &Met| {
        let source: Arc<dyn ToolSource> = met.server.as_ref().ok()?.clone();
        let offered: Arc<dyn ToolSource> = Arc::new(Offered::new(source, &met.entry));
        Some(offered)
    };
    let sources: Vec<Arc<dyn ToolSource>> = met.iter().filter_map(offered).collect();
    let host = Host {
        config,
        sources: sources.clone(),
        hooks: Vec::new(),
        ask: Vec::new(),
        namespaces: Registry::default(),
        namespace_config: Value::Null,
        runtime_available: true,
    };
    let request =
        RunRequest { scope: Scope { agent_id: agent.to_owned(), ..Scope::default() }, ..RunRequest::default() };
    let run = prepare(&host, &request).map_err(|error| error.to_string())?;
    Ok(Ready { run, met, sources })
}

/// Servers that could not be started, said where people read.
pub(super) fn complain(met: &[Met]) {
    for met in met {
        if let Err(missed) = &met.server {
            eprintln!("problem: server `{}`: {}; `cellmate servers test` says more", met.entry.name, missed.why);
        }
    }
}
