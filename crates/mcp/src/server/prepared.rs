//! The server's settings and tool sources, and what is prepared from them for each principal: an executor, a
//! configuration and a tool list, cached until the offered tools change.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use catalog::policy::Provider;
use catalog::{Catalog, EntryPoint, Surface, SurfaceChoice, SurfaceError, SurfaceOptions, SurfaceReport};
use codemode::run_telemetry;
use contract::cell::Telemetry;
use contract::config::pattern::Pattern;
use contract::config::{self, AgentsConfig};
use contract::scope::Scope;
use executor::run::{Host, LocalTools, PrepareError, PreparedRun, RunRequest, prepare};
use executor::{Executor, Hook, ToolSource};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::approvals::{ApprovalHook, ApprovalPolicy};
use super::principal::{Principal, PrincipalScope};
use super::progress::Progress;
use super::tools::{self, Listing, Tool, ToolPrefix};
use super::{CALL_AT_MOST, SEARCH_AT_MOST_MS, SUSPEND_TIME, TURN_AT_MOST_MS};

/// The settings that the server is started with. [`OfferedSources`] may replace its policy later.
#[derive(Clone, Debug)]
pub struct Settings {
    pub config: AgentsConfig,
    pub approval_policy: ApprovalPolicy,
    /// Tools that need no approval even if `approval_policy` covers them.
    pub exempt: Vec<Pattern>,
    pub tool_prefix: ToolPrefix,
    /// The surface that the operator asks for, instead of the configured one.
    pub surface: Option<SurfaceChoice>,
    /// The provider of the clients' models, whose rules in `tools.byProvider` apply.
    pub provider: Provider,
    /// Whether the agents' own tools run in a sandbox, for which policy has separate lists.
    pub sandboxed: bool,
    /// Whether this process can run cells.
    pub runtime_available: bool,
    /// The key that seals state carried by clients: the same in every process that shares the store.
    pub seal: [u8; 32],
    /// The folder that the client works in, if there is one client and it started this process.
    pub project: Option<String>,
}

/// The part of the settings that may change while the server runs.
#[derive(Clone, Debug)]
pub struct CallPolicy {
    pub config: AgentsConfig,
    pub approval_policy: ApprovalPolicy,
    pub exempt: Vec<Pattern>,
}

impl Settings {
    fn with(&self, policy: &CallPolicy) -> Self {
        let CallPolicy { config, approval_policy, exempt } = policy.clone();
        Self { config, approval_policy, exempt, ..self.clone() }
    }

    /// Returns how tools are shown. `auto` shows code mode until the tools of all servers are known: it would otherwise
    /// show the tools of the first servers and hide them again.
    fn surface_options(&self, servers: ServerReadiness) -> SurfaceOptions {
        let wanted = match self.surface {
            Some(SurfaceChoice::Auto) if servers == ServerReadiness::Starting => Some(SurfaceChoice::Code),
            wanted => wanted,
        };
        let prefix_bytes = self.tool_prefix.as_str().len();
        SurfaceOptions { entry: EntryPoint::Mcp, wanted, prefix_bytes, ..SurfaceOptions::default() }
    }

    /// Returns the scope that a principal's calls are made for.
    pub(crate) fn scope(&self, principal: &Principal) -> Scope {
        Scope { sandboxed: self.sandboxed, ..principal.scope() }
    }
}

/// Whether the tools of all servers that are started with this one are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServerReadiness {
    Starting,
    /// Every server is ready or has failed.
    Settled,
}

/// The tool sources that are currently offered.
#[derive(Clone, Debug, Default)]
pub struct OfferedSources {
    pub sources: Vec<Arc<dyn ToolSource>>,
    /// Core tools and plugins.
    pub local: LocalTools,
    /// The policy for new turns of runs, if it has changed since the server was started.
    pub policy: Option<Arc<CallPolicy>>,
    /// Why the configuration cannot be used, if it has become invalid since the server was started. No cell is started
    /// then; suspended ones continue with the former policy.
    pub invalid: Option<Arc<str>>,
    /// Whether every source that is started with the server is ready or has failed.
    pub settled: bool,
}

impl OfferedSources {
    fn readiness(&self) -> ServerReadiness {
        if self.settled { ServerReadiness::Settled } else { ServerReadiness::Starting }
    }
}

/// What is prepared for one principal.
#[derive(Debug)]
pub(crate) struct PreparedTools {
    executor: Executor,
    /// The plugins' hooks.
    hooks: Vec<Arc<dyn Hook>>,
    asked_about: ApprovalHook,
    pub(crate) config: config::CodeMode,
    pub(crate) tool_search: config::ToolSearch,
    /// How long an `exec` waits for pending calls.
    exec_hold_ms: u64,
    pub(crate) surface: Surface,
    /// What the surface shows and costs.
    pub(crate) report: SurfaceReport,
    /// The tools that a client lists.
    pub(crate) listing: Arc<Listing>,
    prefix: ToolPrefix,
}

impl PreparedTools {
    fn new(
        settings: &Settings,
        (sources, local, servers): (Vec<Arc<dyn ToolSource>>, LocalTools, ServerReadiness),
        principal: &Principal,
        previous_catalog: Option<Arc<Catalog>>,
    ) -> Result<Self, PrepareError> {
        let hooks = local.hooks.clone();
        let host = Host {
            local,
            runtime_available: settings.runtime_available,
            surface: settings.surface_options(servers),
            ..Host::new(settings.config.clone(), sources)
        };
        let (scope, provider) = (settings.scope(principal), settings.provider.clone());
        let mut run = prepare(&host, &RunRequest { scope, provider, previous_catalog, ..RunRequest::default() })?;
        let config = &mut run.config.code_mode;
        config.enabled = true;
        config.limits.max_wait_ms = config.limits.max_wait_ms.min(TURN_AT_MOST_MS);
        let exec_hold_ms = if config.has_own_timeout { config.limits.timeout_ms } else { TURN_AT_MOST_MS };
        let search_timeout = &mut run.config.tool_search.code_timeout_ms;
        *search_timeout = (*search_timeout).min(SEARCH_AT_MOST_MS);
        let (catalog, prefix) = (run.executor.catalog(), &settings.tool_prefix);
        let listing = tools::listing(&run.surface, catalog, &run.config, exec_hold_ms, prefix)?;
        let code = tools::code_mode_tools(catalog, &run.config.code_mode, exec_hold_ms, prefix);
        let report = SurfaceReport::new((&run.surface, run.chosen_by), &listing.visible, &code, catalog);
        let visible: Vec<String> = run.surface.names().iter().map(|name| prefix.name(name)).collect();
        // A tool outside the catalog cannot be called, so it needs no approval.
        let asked_about = settings.approval_policy.hook_for(&settings.exempt, run.executor.catalog().tools());
        Ok(Self {
            listing: Arc::new(listing),
            exec_hold_ms,
            config: run.config.code_mode,
            tool_search: run.config.tool_search,
            executor: run.executor.with_visible_tools(visible),
            hooks,
            surface: run.surface,
            report,
            asked_about,
            prefix: prefix.clone(),
        })
    }

    /// Returns the tool that a client calls by this name.
    pub(crate) fn tool(&self, name: &str) -> Option<Tool> {
        Tool::find(&self.surface, self.prefix.strip(name)?)
    }

    pub(crate) fn prefix(&self) -> &ToolPrefix {
        &self.prefix
    }

    /// Returns how long an `exec` that must be answered by `until` waits for pending calls. `None` if `timeoutMs` is
    /// configured and says so itself.
    pub(crate) fn exec_hold(&self, until: Instant) -> Option<Duration> {
        if self.config.has_own_timeout {
            return None;
        }
        // The call may have waited for servers or a worker before.
        let rest = CALL_AT_MOST.saturating_sub(Duration::from_millis(self.exec_hold_ms));
        Some(until.saturating_duration_since(Instant::now()).saturating_sub(rest))
    }

    /// Returns the telemetry of a call that starts no run.
    pub(crate) fn telemetry(&self) -> Telemetry {
        run_telemetry::without_run(&self.executor)
    }

    /// Returns the executor for one control call, which reports progress of its tool calls to the client.
    pub(crate) fn executor(&self, progress: &Progress) -> Executor {
        // Plugins' hooks may change the input, so they run before a person is asked about it.
        let mut hooks = self.hooks.clone();
        hooks.extend::<[Arc<dyn Hook>; 2]>([Arc::new(self.asked_about.clone()), Arc::new(progress.clone())]);
        let progress = progress.clone();
        self.executor.clone().with_hooks(hooks).with_progress_sink(move |update| progress.send_update(&update))
    }
}

/// Returns how long an `exec` may take: a configured `timeoutMs` keeps its meaning, also above [`CALL_AT_MOST`].
pub(crate) fn exec_at_most(config: &config::CodeMode) -> Duration {
    if config.has_own_timeout {
        CALL_AT_MOST.max(Duration::from_millis(config.limits.timeout_ms) + SUSPEND_TIME)
    } else {
        CALL_AT_MOST
    }
}

/// Reports how `cellmate mcp` would show the tools of a run that was prepared with [`EntryPoint::Mcp`].
pub fn surface_report(run: &PreparedRun) -> Result<SurfaceReport, SurfaceError> {
    let (catalog, prefix) = (run.executor.catalog(), ToolPrefix::default());
    let code_mode = &run.config.code_mode;
    let hold_ms = if code_mode.has_own_timeout { code_mode.limits.timeout_ms } else { TURN_AT_MOST_MS };
    let listing = tools::listing(&run.surface, catalog, &run.config, hold_ms, &prefix)?;
    let code = tools::code_mode_tools(catalog, code_mode, hold_ms, &prefix);
    Ok(SurfaceReport::new((&run.surface, run.chosen_by), &listing.visible, &code, catalog))
}

/// Caches the [`PreparedTools`] of each principal until the offered tools change.
#[derive(Debug)]
pub(crate) struct Cache {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    offered: watch::Receiver<OfferedSources>,
    prepared: HashMap<Principal, Arc<PreparedTools>>,
    /// The most recent catalog of any principal. What it has parsed of unchanged tools is reused.
    previous_catalog: Option<Arc<Catalog>>,
    /// The surface of each principal that was logged last.
    reported: HashMap<Principal, SurfaceReport>,
}

/// Logs which surface a principal has, and what the other ways to show its tools would cost.
fn log_surface(principal: &Principal, prepared: &PreparedTools) {
    let SurfaceReport { surface, chosen_by, tools, visible_tools, visible_bytes, direct_bytes, code_bytes } =
        prepared.report;
    let (principal, chosen_by) = (principal.name(), chosen_by.as_str());
    tracing::info!(
        principal,
        surface,
        chosen_by,
        tools,
        visible_tools,
        visible_bytes,
        direct_bytes,
        code_bytes,
        "surface chosen"
    );
    if let Some(note) = prepared.surface.note() {
        tracing::warn!(principal, "{note}");
    }
}

impl Cache {
    pub(crate) fn new(offered: watch::Receiver<OfferedSources>) -> Self {
        Self {
            state: Mutex::new(State {
                offered,
                prepared: HashMap::new(),
                previous_catalog: None,
                reported: HashMap::new(),
            }),
        }
    }

    /// Returns what each principal was last shown, even if it is outdated.
    pub(crate) fn shown(&self) -> HashMap<Principal, Arc<PreparedTools>> {
        self.state.lock().prepared.clone()
    }

    /// Returns what is prepared for a principal, and prepares it if necessary. The lock is held while preparing,
    /// because concurrent callers need the same result.
    pub(crate) fn get(&self, settings: &Settings, principal: &Principal) -> Result<Arc<PreparedTools>, PrepareError> {
        let mut state = self.state.lock();
        let state = &mut *state;
        // If the sender is dropped, the offered tools can no longer change.
        if state.offered.has_changed().unwrap_or(false) {
            state.offered.mark_unchanged();
            state.prepared.clear();
        }
        if let Some(prepared) = state.prepared.get(principal) {
            return Ok(Arc::clone(prepared));
        }
        let (offered, policy) = {
            let offered = state.offered.borrow();
            ((offered.sources.clone(), offered.local.clone(), offered.readiness()), offered.policy.clone())
        };
        let settings = policy.map_or(Cow::Borrowed(settings), |policy| Cow::Owned(settings.with(&policy)));
        let prepared = PreparedTools::new(&settings, offered, principal, state.previous_catalog.take());
        let prepared = Arc::new(prepared.inspect_err(|error| {
            tracing::error!(principal = principal.name(), %error, "no tools can be shown");
        })?);
        if state.reported.get(principal) != Some(&prepared.report) {
            log_surface(principal, &prepared);
            state.reported.insert(principal.clone(), prepared.report.clone());
        }
        state.previous_catalog = Some(Arc::clone(prepared.executor.catalog()));
        state.prepared.insert(principal.clone(), Arc::clone(&prepared));
        Ok(prepared)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use contract::config::AgentsConfig;
    use serde_json::{Value, json};

    use super::{CALL_AT_MOST, exec_at_most};

    #[test]
    fn a_configured_timeout_may_exceed_the_longest_call() {
        let at_most = |tools: Value| {
            let config = AgentsConfig::resolve(&tools, &Value::Null).unwrap();
            exec_at_most(&config.tools("local").code_mode)
        };
        assert_eq!(at_most(json!({})), CALL_AT_MOST);
        assert_eq!(at_most(json!({"codeMode": {"timeoutMs": 1_000}})), CALL_AT_MOST);
        assert_eq!(at_most(json!({"codeMode": {"timeoutMs": 60_000}})), Duration::from_secs(61));
    }
}
