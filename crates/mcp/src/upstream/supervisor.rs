//! The state of one configured server, and the changes to it that every part of this module shares.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use catalog::UnavailableServer;
use contract::tool::ToolSpec;
use executor::clock::now_ms;
use parking_lot::{Mutex, MutexGuard};
use process::{Action, Event, Lifecycle, MayFinish, Phase, Restart, jitter};
use telemetry::LogIgnored;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use super::cache::{CacheFile, LastFailure, Listing, Millis};
use crate::client::{Server, ServerSpec, Transport};

/// Options for managing a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamOptions {
    /// The folder that caches the last listing, so that tools can be shown before the server runs. `None`: no cache.
    pub cache_dir: Option<PathBuf>,
    /// How long a server process may be idle before it is stopped. `None`: never. Remote servers are never stopped.
    pub idle_stop: Option<Duration>,
    pub restart: Restart,
}

impl UpstreamOptions {
    pub const DEFAULT: Self =
        Self { cache_dir: None, idle_stop: Some(Duration::from_secs(10 * 60)), restart: Restart::DEFAULT };
}

/// How long a stop may take: closing the server's input, SIGTERM and SIGKILL together.
const STOP_DEADLINE: Duration = Duration::from_secs(5);

/// A start that is stopped after this time is stored as a failure.
const LONG_START_MS: Millis = 9_500;

/// The outcome of a start, once it is known.
pub(super) type StartOutcome = watch::Receiver<Option<Result<(), Arc<str>>>>;

/// A start in progress, shared by all callers that wait for it.
#[derive(Debug)]
pub(super) struct StartAttempt {
    pub(super) outcome: StartOutcome,
    pub(super) task: AbortHandle,
    /// Set if the server may finish its download when the start is cancelled.
    pub(super) may_finish: MayFinish,
}

/// Supervises one configured server.
pub(super) struct Supervisor {
    pub(super) me: Weak<Self>,
    pub(super) spec: ServerSpec,
    pub(super) file: Option<CacheFile>,
    options: UpstreamOptions,
    /// Locked only to read or change the state, never across an await.
    state: Mutex<State>,
    changes: watch::Sender<u64>,
    /// Notified when no call is in progress any more.
    unused: Notify,
    /// The counter of changes of all servers of the group.
    group_changes: Option<Arc<watch::Sender<u64>>>,
}

impl fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervisor").field("spec", &self.spec).field("phase", &self.state().lifecycle.phase()).finish()
    }
}

/// The mutable state of a server.
pub(super) struct State {
    pub(super) lifecycle: Lifecycle,
    /// When the phase was entered.
    pub(super) since: Millis,
    /// The number of the last start. Events of an earlier start are ignored.
    pub(super) number: u64,
    pub(super) attempt: Option<StartAttempt>,
    pub(super) connection: Option<Arc<Server>>,
    pub(super) in_flight: usize,
    pub(super) last_used: Instant,
    pub(super) listing: Option<Arc<Listing>>,
    pub(super) last_failure: Option<LastFailure>,
    /// Whether the server is no longer configured: then no new call is made.
    pub(super) removed: bool,
}

impl State {
    /// Ends the connection, or the start in progress. Returns the server that was connected.
    pub(super) fn disconnect(&mut self) -> Option<Arc<Server>> {
        if let Some(attempt) = self.attempt.take() {
            attempt.task.abort();
        }
        let server = self.connection.take()?;
        server.hang_up();
        Some(server)
    }
}

impl Supervisor {
    /// Creates the supervisor and reads the cached listing, if there is one. The server is not started.
    pub(super) fn new(
        spec: ServerSpec,
        options: UpstreamOptions,
        group_changes: Option<Arc<watch::Sender<u64>>>,
    ) -> Arc<Self> {
        spec.register_secrets();
        let file = options.cache_dir.as_ref().map(|folder| CacheFile::of(folder, &spec));
        let mut state = State {
            lifecycle: Lifecycle::new(options.restart),
            since: now_ms(),
            number: 0,
            attempt: None,
            connection: None,
            in_flight: 0,
            last_used: Instant::now(),
            listing: None,
            last_failure: None,
            removed: false,
        };
        match file.as_ref().map(CacheFile::read) {
            Some(Ok(listing)) => {
                state.listing = listing.map(Arc::new);
                state.last_failure = file.as_ref().and_then(CacheFile::read_failure);
            }
            Some(Err(error)) => {
                tracing::warn!(server = %spec.name, %error, "a cached tool list is not used");
                state.last_failure = Some(LastFailure::new(error.to_string()));
            }
            None => {}
        }
        let (state, changes) = (Mutex::new(state), watch::Sender::new(0));
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            spec,
            options,
            file,
            state,
            changes,
            unused: Notify::new(),
            group_changes,
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.spec.name
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Returns a counter that increases whenever the tools change.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Returns the last listing, from the server or from the cache file.
    pub(super) fn listing(&self) -> Option<Arc<Listing>> {
        self.state().listing.clone()
    }

    /// Returns why there is no listing, in a few words, if there is none.
    pub(super) fn why_unlisted(&self) -> Option<String> {
        let state = self.state();
        if state.listing.is_some() {
            return None;
        }
        Some(match (&state.last_failure, state.lifecycle.phase()) {
            (Some(failure), phase) if phase != Phase::Starting => failure.message.clone(),
            _ => format!("{}; try again later", UnavailableServer::STARTING),
        })
    }

    /// Passes an event to the life cycle and returns what it decides.
    pub(super) fn on(&self, state: &mut State, event: Event) -> Action {
        let before = state.lifecycle.phase();
        let action = state.lifecycle.on(event, Instant::now(), jitter());
        if state.lifecycle.phase() != before {
            state.since = now_ms();
        }
        action
    }

    /// Returns how long the server process may be idle, or `None` if there is no limit.
    pub(super) fn idle_stop(&self) -> Option<Duration> {
        match self.spec.transport {
            Transport::Stdio { .. } => self.options.idle_stop,
            Transport::Http { .. } => None,
        }
    }

    /// Replaces the listing, caches it and announces a change.
    pub(super) fn publish(&self, server: &Server, tools: Vec<ToolSpec>) {
        let listing = Arc::new(Listing { tools, left_out: server.left_out(), listed_at: now_ms(), remembered: false });
        tracing::info!(
            server = %self.name(),
            tools = listing.tools.len(),
            left_out = listing.left_out.len(),
            "listed the tools of an MCP server"
        );
        let before = self.state().listing.replace(Arc::clone(&listing));
        if let Some(file) = self.file.clone() {
            let (listing, me) = (Arc::clone(&listing), self.me.clone());
            tokio::task::spawn_blocking(move || {
                file.remove_failure();
                if let (Err(error), Some(me)) = (file.write(&listing), me.upgrade()) {
                    tracing::warn!(server = %me.name(), %error, "the tool list of an MCP server cannot be cached");
                    let message = format!("its tool list cannot be cached: {error}");
                    me.state().last_failure = Some(LastFailure::new(message));
                }
            });
        }
        if before.is_none_or(|before| before.tools != listing.tools) {
            self.changes.send_modify(|times| *times += 1);
            if let Some(group) = &self.group_changes {
                group.send_modify(|times| *times += 1);
            }
        }
    }

    /// Lists the tools again. If that fails, the previous listing stays.
    pub(super) async fn relist(&self, server: &Server) -> Result<(), String> {
        match server.relist().await {
            Ok(tools) => {
                self.publish(server, tools);
                Ok(())
            }
            Err(error) => {
                let why = format!("its tools cannot be listed again: {}", error.why);
                let failure = LastFailure { stderr: error.stderr, ..LastFailure::new(why.clone()) };
                self.state().last_failure = Some(failure);
                Err(why)
            }
        }
    }

    /// Handles an unexpected end of a connection. It does nothing if the connection was ended by this process or has
    /// been replaced.
    pub(super) fn on_disconnect(&self, state: &mut State, number: u64, why: &str) {
        if state.number != number || state.connection.is_none() {
            return;
        }
        self.on(state, Event::Ended);
        tracing::warn!(
            server = %self.name(),
            reason = why,
            restart_in_ms = restart_delay(state.lifecycle.phase()).map(|delay| delay.as_millis()),
            "the connection to an MCP server was lost"
        );
        if let Some(server) = state.disconnect() {
            state.last_failure = Some(LastFailure {
                stderr: server.stderr_tail(),
                ..LastFailure::new(format!("the connection was lost: {why}"))
            });
        }
    }

    /// Stops the server, and waits until its processes have ended.
    pub(super) async fn stop(&self, event: Event) {
        let exited = {
            let mut state = self.state();
            self.remember_unfinished_start(&mut state);
            match self.on(&mut state, event) {
                Action::Disconnect => state.disconnect().map(|server| server.exited()),
                Action::Nothing | Action::Start | Action::WaitUntil(_) | Action::Refuse => None,
            }
        };
        if let Some(exited) = exited {
            tracing::info!(server = %self.name(), "stopped an MCP server");
            if tokio::time::timeout(STOP_DEADLINE, exited).await.is_err() {
                // A keeper may still end the processes.
                tracing::warn!(server = %self.name(), "the processes of an MCP server did not end in time");
            }
        }
    }

    /// Stores that a start has taken long, if it has: it ends before its limit, so nothing else would say so.
    fn remember_unfinished_start(&self, state: &mut State) {
        let took = now_ms().saturating_sub(state.since);
        if state.lifecycle.phase() != Phase::Starting || state.listing.is_some() || took < LONG_START_MS {
            return;
        }
        let message = format!("it was stopped after {} s, before it was ready", took / 1_000);
        let failure = LastFailure { timed_out: true, ..LastFailure::new(message) };
        if let Some(file) = &self.file {
            file.write_failure(&failure).log_ignored("store a server's failure");
        }
        state.last_failure = Some(failure);
    }

    /// Refuses new calls, waits for those in progress, at most for `patience`, and stops the server permanently.
    pub(super) async fn remove(&self, patience: Duration) {
        self.state().removed = true;
        let drained = tokio::time::timeout(patience, self.wait_until_unused()).await;
        drained.log_expected("wait for the calls of a server that is removed");
        self.stop(Event::Retire).await;
    }

    /// Waits until no call is in progress.
    async fn wait_until_unused(&self) {
        loop {
            // Created before the check, so that it completes for a call that ends between the check and the wait.
            let unused = self.unused.notified();
            if self.state().in_flight == 0 {
                return;
            }
            unused.await;
        }
    }

    /// Records that a call has ended.
    pub(super) fn release(&self) {
        let mut state = self.state();
        state.in_flight = state.in_flight.saturating_sub(1);
        state.last_used = Instant::now();
        if state.in_flight == 0 {
            self.unused.notify_waiters();
        }
    }

    /// Stops the server if it has not been used for the configured time since its start with this number.
    pub(super) fn stop_if_idle(&self, number: u64) {
        let Some(idle_stop) = self.idle_stop() else { return };
        let mut state = self.state();
        let idle = state.number == number && state.in_flight == 0 && state.last_used.elapsed() >= idle_stop;
        if idle && self.on(&mut state, Event::Idle) == Action::Disconnect {
            state.disconnect();
            tracing::info!(server = %self.name(), "stopped an idle MCP server");
        }
    }
}

/// Returns how long a failed server is not started.
pub(super) fn restart_delay(phase: Phase) -> Option<Duration> {
    match phase {
        Phase::BackingOff { until } | Phase::Failed { until } => Some(until.saturating_duration_since(Instant::now())),
        Phase::Stopped | Phase::Starting | Phase::Running { .. } | Phase::Retired => None,
    }
}
