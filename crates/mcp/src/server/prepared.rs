//! The server's settings and tool sources, and what is prepared from them for each principal: an executor, a
//! configuration and a tool list, cached until the offered tools change.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use catalog::Catalog;
use codemode::run_telemetry;
use contract::cell::Telemetry;
use contract::config::pattern::Pattern;
use contract::config::{self, AgentsConfig};
use executor::run::{Host, LocalTools, PrepareError, RunRequest, prepare};
use executor::{Executor, Hook, ToolSource};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use super::approvals::{ApprovalHook, ApprovalPolicy};
use super::principal::Principal;
use super::progress::Progress;
use super::tools::{self, Tool, ToolPrefix};
use super::{CALL_AT_MOST, SUSPEND_TIME, TURN_AT_MOST_MS};

/// The settings that the server is started with. [`OfferedSources`] may replace its policy later.
#[derive(Clone, Debug)]
pub struct Settings {
    pub config: AgentsConfig,
    pub approval_policy: ApprovalPolicy,
    /// Tools that need no approval even if `approval_policy` covers them.
    pub exempt: Vec<Pattern>,
    pub tool_prefix: ToolPrefix,
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

/// What is prepared for one principal.
#[derive(Debug)]
pub(crate) struct Prepared {
    executor: Executor,
    /// The plugins' hooks.
    hooks: Vec<Arc<dyn Hook>>,
    asked_about: ApprovalHook,
    pub(crate) config: config::CodeMode,
    /// How long an `exec` waits for pending calls.
    exec_hold_ms: u64,
    /// The tools that a client lists, as protocol JSON.
    pub(crate) listed: Arc<Vec<Value>>,
}

impl Prepared {
    fn new(
        settings: &Settings,
        (sources, local): (Vec<Arc<dyn ToolSource>>, LocalTools),
        principal: &Principal,
        former: Option<Arc<Catalog>>,
    ) -> Result<Self, PrepareError> {
        let hooks = local.hooks.clone();
        let host = Host { local, ..Host::new(settings.config.clone(), sources) };
        let mut run = prepare(&host, &RunRequest { scope: principal.scope(), former, ..RunRequest::default() })?;
        let config = &mut run.config.code_mode;
        config.enabled = true;
        config.limits.max_wait_ms = config.limits.max_wait_ms.min(TURN_AT_MOST_MS);
        let exec_hold_ms = if config.has_own_timeout { config.limits.timeout_ms } else { TURN_AT_MOST_MS };
        // Always list both tools, even while no upstream server offers any: the client's tool list must stay stable.
        let catalog = run.executor.catalog();
        let listed = tools::listed(catalog, &run.config.code_mode, exec_hold_ms, &settings.tool_prefix);
        // A tool outside the catalog cannot be called, so it needs no approval.
        let asked_about = settings.approval_policy.hook_for(&settings.exempt, run.executor.catalog().tools());
        Ok(Self {
            listed: Arc::new(listed),
            exec_hold_ms,
            config: run.config.code_mode,
            executor: run
                .executor
                .with_visible_tools([Tool::Exec, Tool::Wait].map(|tool| settings.tool_prefix.name(tool))),
            hooks,
            asked_about,
        })
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

/// One [`Prepared`] for each principal, until the offered tools change.
#[derive(Debug)]
pub(crate) struct Cache {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    offered: watch::Receiver<OfferedSources>,
    prepared: HashMap<Principal, Arc<Prepared>>,
    /// The most recent catalog of any principal. What it has parsed of unchanged tools is reused.
    former: Option<Arc<Catalog>>,
}

impl Cache {
    pub(crate) fn new(offered: watch::Receiver<OfferedSources>) -> Self {
        Self { state: Mutex::new(State { offered, prepared: HashMap::new(), former: None }) }
    }

    /// Returns what each principal was last shown, even if it is outdated.
    pub(crate) fn shown(&self) -> HashMap<Principal, Arc<Prepared>> {
        self.state.lock().prepared.clone()
    }

    /// Returns what is prepared for a principal, and prepares it if necessary. The lock is held while preparing,
    /// because concurrent callers need the same result.
    pub(crate) fn get(&self, settings: &Settings, principal: &Principal) -> Result<Arc<Prepared>, PrepareError> {
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
            ((offered.sources.clone(), offered.local.clone()), offered.policy.clone())
        };
        let settings = policy.map_or(Cow::Borrowed(settings), |policy| Cow::Owned(settings.with(&policy)));
        let prepared = Arc::new(Prepared::new(&settings, offered, principal, state.former.take())?);
        state.former = Some(Arc::clone(prepared.executor.catalog()));
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
