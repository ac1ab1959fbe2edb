//! What one principal's calls are made with: prepared once, and again when the servers behind us change.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use catalog::{Catalog, Registry, Surface};
use contract::config;
use executor::run::{Host, PrepareError, RunRequest, prepare};
use executor::{Executor, Hook, ToolSource};
use serde_json::Value;
use tokio::sync::watch;

use super::TURN_AT_MOST_MS;
use super::asking::ApprovalHook;
use super::principal::Principal;
use super::progress::Progress;
use super::settings::{Offered, Settings};
use super::tools;

#[derive(Debug)]
pub(crate) struct Prepared {
    executor: Executor,
    asked_about: ApprovalHook,
    pub(crate) config: config::CodeMode,
    /// The tools a client is shown, in the protocol's shape.
    pub(crate) listed: Arc<Vec<Value>>,
}

impl Prepared {
    fn new(
        settings: &Settings,
        sources: Vec<Arc<dyn ToolSource>>,
        principal: &Principal,
        former: Option<Arc<Catalog>>,
    ) -> Result<Self, PrepareError> {
        let host = Host {
            config: settings.config.clone(),
            sources,
            hooks: Vec::new(),
            ask: Vec::new(),
            namespaces: Registry::default(),
            namespace_config: Value::Null,
            runtime_available: true,
        };
        let mut run = prepare(&host, &RunRequest { scope: principal.scope(), former, ..RunRequest::default() })?;
        let config = &mut run.config.code_mode;
        config.enabled = true;
        config.limits.timeout_ms = config.limits.timeout_ms.min(TURN_AT_MOST_MS);
        config.limits.max_wait_ms = config.limits.max_wait_ms.min(TURN_AT_MOST_MS);
        // Always these two, also while no server has a tool to offer: what a client lists must not come and go.
        let shown = Surface::CodeMode.visible_tools(&run.config, run.executor.catalog());
        // What is not in the catalog cannot be called, so nobody is asked about it.
        let asked_about = settings.asking.about(&settings.pass, run.executor.catalog().tools());
        Ok(Self {
            listed: Arc::new(tools::listed(&shown, &run.config.code_mode, &settings.tool_prefix)),
            config: run.config.code_mode,
            executor: run.executor,
            asked_about,
        })
    }

    /// For one control call, whose client hears what its tools do.
    pub(crate) fn executor(&self, progress: &Progress) -> Executor {
        let hooks: Vec<Arc<dyn Hook>> = vec![Arc::new(self.asked_about.clone()), Arc::new(progress.clone())];
        let heard = progress.clone();
        self.executor.clone().with_hooks(hooks).with_progress_sink(move |update| heard.heard(&update))
    }
}

/// One for each principal, until what is offered changes.
#[derive(Debug)]
pub(crate) struct Cache {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    offered: watch::Receiver<Offered>,
    prepared: HashMap<Principal, Arc<Prepared>>,
    /// The last catalog there was, whoever's: what it knows of tools is not read again.
    former: Option<Arc<Catalog>>,
}

impl Cache {
    pub(crate) fn new(offered: watch::Receiver<Offered>) -> Self {
        Self { state: Mutex::new(State { offered, prepared: HashMap::new(), former: None }) }
    }

    /// What every principal was last shown, current or not.
    pub(crate) fn shown(&self) -> HashMap<Principal, Arc<Prepared>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).prepared.clone()
    }

    /// Held while it prepares: who comes meanwhile wants the same.
    pub(crate) fn get(&self, settings: &Settings, principal: &Principal) -> Result<Arc<Prepared>, PrepareError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        // One whose sender is gone changes no more.
        if state.offered.has_changed().unwrap_or(false) {
            state.offered.mark_unchanged();
            state.prepared.clear();
        }
        if let Some(prepared) = state.prepared.get(principal) {
            return Ok(Arc::clone(prepared));
        }
        let sources = state.offered.borrow().sources.clone();
        let prepared = Arc::new(Prepared::new(settings, sources, principal, state.former.take())?);
        state.former = Some(Arc::clone(prepared.executor.catalog()));
        state.prepared.insert(principal.clone(), Arc::clone(&prepared));
        Ok(prepared)
    }
}
