//! What `cellmate mcp` and `cellmate gateway` share: the start from the configuration to the offered tools, reloading,
//! signals, and the orderly shutdown.

use std::time::Duration;

use catalog::{EntryPoint, Surface, SurfaceOptions};
use client_config::{ConfigError, Places, Problem, TOOL_LISTS, load};
use codemode::CodeMode;
use codemode::pool::{Launch, Pool, PoolError, PoolOptions};
use executor::clock::now_ms;
use http_server::{Principal, StoredTokens};
use mcp::server::{ApprovalPolicy, McpService, OfferedSources, Settings, ToolPrefix};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use store::Store;
use telemetry::LogIgnored;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::arguments::ServingArguments;
use super::reload::{OfferedServers, Reloader, check_command};
use crate::engine::Engine;
use crate::local_tools::local_tools;
use crate::log::CONSOLE;
use crate::policy::{self, BadSettings, CallPolicy};
use crate::state::{State, StateError, store_check};
use crate::{log, render, unmatched};

/// How long active cells may take to suspend at shutdown, and how often that is checked.
const SUSPEND_TIMEOUT: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Settings(#[from] BadSettings),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Pool(#[from] PoolError),
    #[error("cannot read system randomness: {0}")]
    Randomness(#[from] getrandom::Error),
    #[error("{0}")]
    Local(String),
    #[error("cannot install signal handlers: {0}")]
    Signals(std::io::Error),
}

/// How a command serves its clients.
#[derive(Clone, Copy, Debug)]
pub(super) struct Service {
    /// The command, for the log.
    pub(super) command: &'static str,
    pub(super) transport: &'static str,
    /// Whose default surface decides whether cells must be possible.
    pub(super) entry: EntryPoint,
    /// The sections of the configuration that are read only at the start.
    pub(super) fixed_sections: &'static [&'static str],
}

/// A process that offers the configured tools, and is ready for clients.
pub(super) struct RunningHost {
    pub(super) places: Places,
    /// The settings that the process was started with.
    pub(super) settings: serde_json::Value,
    pub(super) state: State,
    pub(super) policy: CallPolicy,
    pub(super) runtime_available: bool,
    pub(super) code_mode: CodeMode,
    pub(super) tokens: StoredTokens,
    pub(super) offered: watch::Receiver<OfferedSources>,
    service: Service,
    key: [u8; 32],
    current: OfferedServers,
    reloading: JoinHandle<()>,
}

impl RunningHost {
    /// Reads the configuration, opens the store, starts the workers and offers the tools. No server is started.
    pub(super) async fn new(arguments: &ServingArguments, service: Service) -> Result<Self, StartError> {
        raise_open_file_limit();
        let places = arguments.config.places();
        let loaded = load(&places)?;
        for problem in &loaded.problems {
            render::note(&format!("cellmate: {problem}"));
        }
        let policy = policy::read(&loaded.settings)?.with(&arguments.policy);
        let store_settings = arguments.store.choose(&loaded.settings, &places)?;
        start_log(service, &store_settings.state, &loaded.problems);
        let unused = policy::unused_notice(&loaded.settings, &check_command(&places));
        let provider = match service.entry {
            EntryPoint::Mcp => policy.provider_note(Principal::local().name()),
            // The provider of a turn is known.
            EntryPoint::Contract => None,
        };
        let (folder, lists) = (store_settings.state.folder(), store_settings.state.path(TOOL_LISTS));
        let known = unmatched::known_tools(&loaded, &policy, &places, Some(folder), Some(lists));
        let patterns = unmatched::warnings(&loaded.settings, &known).into_iter().map(|warning| warning.message);
        for note in provider.into_iter().chain(unused).chain(patterns) {
            tracing::warn!(target: CONSOLE, "{note}");
            render::note(&format!("cellmate: {note}"));
        }
        let (state, key) = (store_settings.state.clone(), store_settings.key()?);
        let memory_limit_bytes = policy.config.largest_memory_limit();
        let options =
            PoolOptions { jail: arguments.jail.policy(), memory_limit_bytes, ..PoolOptions::new(Launch::ThisProgram) };
        let (pool, store) = tokio::join!(Pool::start(options), store_settings.open());
        let (pool, runtime_available) = pool_or_none(pool, arguments, service.entry, &policy)?;
        let store = store?;
        warn_of_clock(&store).await;
        let tokens = StoredTokens::new(store.clone());
        let local = local_tools(&policy, &loaded.settings, &places, Some(state.folder())).map_err(StartError::Local)?;
        let Engine { code_mode, servers, local, .. } =
            Engine::new(pool, store, &loaded, local, &state, arguments.idle_stop())?;
        let (offer, offered) = watch::channel(OfferedSources { local: local.tools, ..OfferedSources::default() });
        let current = OfferedServers::start(servers, local.plugins, offer);
        let settings = loaded.settings.clone();
        let reloader = Reloader {
            places: places.clone(),
            loaded,
            state_folder: state.folder().to_owned(),
            current: current.clone(),
            approvals: arguments.approvals(),
            memory_limit_bytes,
            fixed: service.fixed_sections,
        };
        let reloading = tokio::spawn(reloader.watch());
        tokio::spawn(release_memory());
        let asking = arguments.approvals().apply_to(policy.asking);
        let policy = CallPolicy { asking, ..policy };
        Ok(Self {
            places,
            settings,
            state,
            policy,
            runtime_available,
            code_mode,
            tokens,
            offered,
            service,
            key,
            current,
            reloading,
        })
    }

    /// Returns the MCP server of this process.
    pub(super) fn mcp_service(
        &self,
        arguments: &ServingArguments,
        tool_prefix: ToolPrefix,
        project: Option<String>,
    ) -> McpService {
        let settings = Settings {
            config: self.policy.config.clone(),
            approval_policy: self.approval_policy(),
            exempt: self.policy.pass.clone(),
            tool_prefix,
            surface: arguments.surface(),
            provider: self.policy.provider.clone(),
            sandboxed: self.policy.sandboxed,
            runtime_available: self.runtime_available,
            seal: self.key,
            project,
        };
        McpService::new(self.code_mode.clone(), settings, self.offered.clone())
    }

    pub(super) fn approval_policy(&self) -> ApprovalPolicy {
        self.policy.asking.clone()
    }

    /// Suspends the cells that can be suspended and releases all leases, so that the next process need not wait for them
    /// to expire. Then stops servers and plugins. `is_idle` says whether no cell is active.
    pub(super) async fn shut_down(self, is_idle: impl Fn() -> bool) {
        tracing::info!("shutting down");
        self.reloading.abort();
        let suspending = async {
            while !is_idle() {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        if tokio::time::timeout(SUSPEND_TIMEOUT, suspending).await.is_err() {
            tracing::info!("cells still wait, for a timer or a call; each continues with the next `wait`");
        }
        if let Err(error) = self.code_mode.shut_down().await {
            tracing::warn!(target: CONSOLE, error = telemetry::error_chain(&error), "cannot release the leases of runs");
            eprintln!("cellmate: cannot release runs, so their leases expire in a few seconds instead: {error}");
        }
        self.current.stop().await;
        tracing::info!("{} stopped", self.service.command);
    }
}

/// Returns the workers, or a pool without any if the tools that are shown need none: Tool Search then shows the tools
/// that take no code. Code mode fails instead, because it must never show all tools.
fn pool_or_none(
    started: Result<Pool, PoolError>,
    arguments: &ServingArguments,
    entry: EntryPoint,
    policy: &CallPolicy,
) -> Result<(Pool, bool), PoolError> {
    let error = match started {
        Ok(pool) => return Ok((pool, true)),
        Err(error) => error,
    };
    let options = SurfaceOptions { entry, wanted: arguments.surface(), ..SurfaceOptions::default() };
    let may_be_code = |agent: &str| Surface::may_be_code_mode(policy.config.tools(agent), &options);
    let serves_agents = matches!(entry, EntryPoint::Contract);
    if may_be_code(Principal::local().name()) || (serves_agents && policy.config.agent_ids().any(may_be_code)) {
        return Err(error);
    }
    tracing::warn!(target: CONSOLE, %error, "cells cannot be run");
    render::note(&format!("cellmate: {error}; tools that need no code are served"));
    Ok((Pool::without_workers(&error), false))
}

/// Opens the log file and writes how the process was started.
fn start_log(service: Service, state: &State, problems: &[Problem]) {
    if let Err(error) = log::open_file(state.folder()) {
        // The server works without a log file.
        tracing::warn!(%error, folder = %state.folder().display(), "cannot write a log file");
    }
    let Service { command, transport, .. } = service;
    tracing::info!(version = env!("CELLMATE_VERSION"), transport, pid = std::process::id(), "{command} started");
    for problem in problems {
        tracing::warn!(target: CONSOLE, %problem, "part of the configuration cannot be used");
    }
}

/// How often memory that a large call or result took is returned to the system.
const RELEASE_EVERY: Duration = Duration::from_secs(5);

async fn release_memory() {
    loop {
        tokio::time::sleep(RELEASE_EVERY).await;
        // Off the async threads: it takes some milliseconds if much memory is free.
        tokio::task::spawn_blocking(sandbox::release_free_memory).await.log_ignored("return free memory");
    }
}

/// Warns if this machine's clock differs from the database server's: leases depend on both.
async fn warn_of_clock(store: &Store) {
    let asked = now_ms();
    let Ok(Some(clock)) = store.server_clock().await else { return };
    let skew = store_check::skew(clock, asked, now_ms());
    if skew.abs() > store_check::MAX_SKEW_MS {
        let warning = store_check::skew_warning(skew);
        tracing::warn!(target: CONSOLE, skew_ms = skew, "{warning}");
        eprintln!("cellmate: {warning}");
    }
}

/// The open files to allow. A running MCP server takes four, and the usual soft limit of 1,024 is too low for many.
const OPEN_FILES: u64 = 8_192;

fn raise_open_file_limit() {
    let now = getrlimit(Resource::Nofile);
    let max = now.maximum.map_or(OPEN_FILES, |maximum| maximum.min(OPEN_FILES));
    if now.current.is_some_and(|current| current < max) {
        // If this fails, fewer servers can run at once, and each that cannot be started reports it.
        let raised = Rlimit { current: Some(max), maximum: now.maximum };
        setrlimit(Resource::Nofile, raised).log_ignored("raise the limit of open files");
    }
}

/// Returns a token that SIGTERM or SIGINT cancels, after `begin_shutdown`.
pub(super) fn stop_on_signals(begin_shutdown: impl FnOnce() + Send + 'static) -> Result<CancellationToken, StartError> {
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate()).map_err(StartError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(StartError::Signals)?;
    let stopping = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        begin_shutdown();
        stopping.cancel();
    });
    Ok(stop)
}
