//! Prepares a run: decides which tools it has, which of them the model sees, and how. Read [`prepare`] first; its
//! numbered steps are those of OpenClaw's code mode (`docs/internals/contract.md`).

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use catalog::policy::{Decision, Policy, Provider, RunScope, layers};
use catalog::{
    Catalog, CatalogError, ChosenBy, ChosenSurface, NamespaceError, Registry, RunContext, Surface, SurfaceConditions,
    SurfaceError, SurfaceOptions, UnavailableServer, VisibleTool,
};
use contract::config::pattern::Pattern;
use contract::config::policy::Lists;
use contract::config::{AgentsConfig, ToolsConfig};
use contract::scope::Scope;
use contract::tool::{Source, ToolId};
use serde_json::Value;

use crate::call::hooks::Hook;
use crate::executor::Executor;
use crate::source::{Routes, ToolSource};

/// The configuration, tool sources and hooks that a process offers to all its runs.
///
/// Whatever [`prepare`] builds from it for a run belongs to that run alone.
#[derive(Clone, Debug)]
pub struct Host {
    pub config: AgentsConfig,
    /// Core tools and plugins, which claim ids before the other sources.
    pub local: LocalTools,
    /// MCP servers, in the order in which they may claim an id.
    pub sources: Vec<Arc<dyn ToolSource>>,
    /// Patterns of the tools whose calls a person must approve.
    pub approval_patterns: Vec<Pattern>,
    /// Whether this process can run cells.
    pub runtime_available: bool,
    /// How tools are shown to models. The default is what OpenClaw does.
    pub surface: SurfaceOptions,
}

impl Host {
    /// Returns a host that can run cells, with these sources and neither core tools nor plugins.
    pub fn new(config: AgentsConfig, sources: Vec<Arc<dyn ToolSource>>) -> Self {
        Self {
            config,
            local: LocalTools::default(),
            sources,
            approval_patterns: Vec::new(),
            runtime_available: true,
            surface: SurfaceOptions::default(),
        }
    }
}

/// The tools of this process itself, core tools and plugins, with the plugins' hooks and namespaces.
#[derive(Clone, Debug, Default)]
pub struct LocalTools {
    pub sources: Vec<Arc<dyn ToolSource>>,
    pub hooks: Vec<Arc<dyn Hook>>,
    pub namespaces: Registry,
    /// The part of the configuration that plugins' namespaces may read.
    pub namespace_config: Value,
    /// Work that must be done before a run is prepared.
    pub preparations: Vec<Arc<dyn Preparation>>,
}

/// Work that must be done before a run is prepared, such as creating the scopes of plugins' namespaces.
pub trait Preparation: fmt::Debug + Send + Sync {
    /// Does the work for runs of this scope, unless it is done. If the future is dropped, the work continues.
    fn make_ready<'a>(&'a self, scope: &'a Scope) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;
}

impl LocalTools {
    /// Does all preparations for runs of this scope, within a time limit. The run lacks what is not ready by then, such
    /// as a namespace.
    pub async fn make_ready(&self, scope: &Scope, limit: Duration) {
        let all =
            futures_util::future::join_all(self.preparations.iter().map(|preparation| preparation.make_ready(scope)));
        if !self.preparations.is_empty() && tokio::time::timeout(limit, all).await.is_err() {
            tracing::debug!("some namespaces are not ready; they are offered when they are");
        }
    }
}

/// A client's request to start a run.
#[derive(Clone, Debug, Default)]
pub struct RunRequest {
    pub scope: Scope,
    /// Whose rules in `tools.byProvider` apply. If it is not known, those of all providers apply together.
    pub provider: Provider,
    pub tools: RequestedTools,
    /// Tools that the client sent with the request.
    pub client_tools: Vec<Arc<dyn ToolSource>>,
    /// The catalog of an earlier run. Tools that did not change since are not analyzed again.
    pub previous_catalog: Option<Arc<Catalog>>,
}

/// Which tools a client requests for a run.
#[derive(Clone, Debug, Default)]
pub enum RequestedTools {
    /// All tools that policy allows.
    #[default]
    All,
    /// The tools that the run's own allow and deny lists leave; the last and narrowest policy layer.
    Lists(Lists),
    /// No tools: the client set `disableTools`, or calls the model without an agent.
    None,
}

/// A run that is ready to start.
#[derive(Clone, Debug)]
pub struct PreparedRun {
    pub surface: Surface,
    pub chosen_by: ChosenBy,
    /// The tools that the model sees.
    pub visible: Vec<VisibleTool>,
    /// Makes the run's tool calls.
    pub executor: Executor,
    pub config: ToolsConfig,
    /// Namespaces that could not be set up, with the reasons; for the operator.
    pub refused_namespaces: Vec<NamespaceError>,
}

#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    #[error(transparent)]
    Surface(#[from] SurfaceError),
}

/// Prepares a run from the configuration and the request. Fails closed: no step falls back to showing more tools.
pub fn prepare(host: &Host, request: &RunRequest) -> Result<PreparedRun, PrepareError> {
    // 1. The agent's configuration and the policy of this run.
    let config = host.config.tools(&request.scope.agent_id).clone();
    let policy = run_policy(&host.config, request);
    // 2 and 3. All tools: core, plugin, MCP and client tools.
    let sources: Vec<Arc<dyn ToolSource>> =
        [&host.local.sources, &host.sources, &request.client_tools].into_iter().flatten().cloned().collect();
    let (routes, all) = Routes::collect(&sources);
    // 4. The tools that this run may see.
    let effective = match request.tools {
        RequestedTools::None => Vec::new(),
        RequestedTools::All | RequestedTools::Lists(_) => policy.effective(all),
    };
    // 5. The surface: none, direct tools, Tool Search or code mode.
    let conditions = SurfaceConditions {
        options: &host.surface,
        runtime_available: host.runtime_available,
        allows_nothing: matches!(request.tools, RequestedTools::None) || policy.allows_nothing(),
    };
    let ChosenSurface { surface, by: chosen_by } = Surface::choose(&config, effective.clone(), &conditions)?;
    // 6. The run's own catalog, and the namespaces whose tools are all in it.
    let unavailable = match request.tools {
        RequestedTools::None => Vec::new(),
        RequestedTools::All | RequestedTools::Lists(_) => unavailable(&sources, &policy),
    };
    let catalog = Catalog::new(effective)?.with_unavailable(unavailable);
    let catalog = if config.search_meaning { catalog } else { catalog.without_meaning() };
    let catalog = match &request.previous_catalog {
        Some(previous) => catalog.reusing_index_of(previous),
        None => catalog,
    };
    let context = RunContext { scope: &request.scope, config: &host.local.namespace_config };
    let namespaces = host.local.namespaces.visible(&catalog, &context);
    let refused_namespaces = namespaces.refused().to_vec();
    let catalog = Arc::new(catalog.with_namespaces(namespaces));
    // 7 and 8. The visible tools of that surface, and nothing else.
    let visible = surface.visible_tools(&config, &catalog, host.surface.exec_hold);
    let executor = Executor::new(catalog, routes, request.scope.clone())
        .with_visible_tools(visible.iter().map(|tool| tool.name.clone()))
        .with_hooks(host.local.hooks.clone())
        .with_approval_patterns(host.approval_patterns.clone())
        .with_approval_ms(approval_ms(&config));
    Ok(PreparedRun { surface, chosen_by, visible, executor, config, refused_namespaces })
}

/// Returns how long a person has to answer: as long as a suspended run is kept.
fn approval_ms(config: &ToolsConfig) -> i64 {
    i64::try_from(config.code_mode.snapshot_ttl_seconds.saturating_mul(1000)).unwrap_or(i64::MAX)
}

/// Returns the servers that cannot be reached now, for the model to know of. Their tools are not known, so a server is
/// included only if the policy would allow every tool of it.
fn unavailable(sources: &[Arc<dyn ToolSource>], policy: &Policy) -> Vec<UnavailableServer> {
    let is_allowed = |server: &UnavailableServer| {
        let any = ToolId::parse(&format!("{}:{}:*", Source::Mcp.as_str(), server.name));
        any.is_ok_and(|any| policy.explain(&any) == Decision::Allowed)
    };
    sources.iter().filter_map(|source| source.unavailable()).filter(is_allowed).collect()
}

/// Returns the policy of a run. An agent whose `sandbox.mode` is not `off` is sandboxed, whatever the entry point says.
pub fn run_policy(config: &AgentsConfig, request: &RunRequest) -> Policy {
    let unrestricted = Lists::default();
    let run = RunScope {
        provider: &request.provider,
        sandboxed: request.scope.sandboxed || config.is_sandboxed(&request.scope.agent_id),
        lists: match &request.tools {
            RequestedTools::Lists(lists) => lists,
            RequestedTools::All | RequestedTools::None => &unrestricted,
        },
    };
    let tools = config.tools(&request.scope.agent_id);
    Policy::from(layers(&tools.policy, &run))
}
