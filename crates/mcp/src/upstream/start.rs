//! Starts a server on demand. All callers that need it at the same time share one start and its deadline.

use std::sync::Arc;
use std::time::{Duration, Instant};

use executor::ToolSource;
use process::{Action, Event, MayFinish, Phase};
use telemetry::LogIgnored;
use tokio::sync::watch;

use super::cache::LastFailure;
use super::monitor;
use super::supervisor::{StartAttempt, StartOutcome, State, Supervisor, restart_delay};
use crate::client::{ConnectError, ConnectFailure, Server};

/// The longest remaining back-off that a call waits for; otherwise it fails at once.
const MAX_BACKOFF_WAIT: Duration = Duration::from_secs(5);

/// Why a server is unavailable. Operators and cells read it, so it contains nothing of the server's standard error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    #[error("the server could not be started: {0}")]
    NotStarted(Arc<str>),
    #[error("the server was running, but {0}")]
    ToolsNotListed(Arc<str>),
    #[error(
        "the server failed {failures} times in a row and is not started for another {seconds} s; last failure: {last}"
    )]
    NotRestarted { failures: u32, seconds: u64, last: Arc<str> },
    #[error("the server can be started again in {seconds} s; last failure: {last}; call again then")]
    BackingOff { seconds: u64, last: Arc<str> },
    #[error("the server was not ready within {seconds} s and is still starting")]
    StillStarting { seconds: u64 },
    #[error("the server is not started again so soon after its last failure: {0}")]
    FailedRecently(Arc<str>),
    #[error("the server was stopped during its start; call again")]
    Stopped,
    #[error("this program is shutting down")]
    ShuttingDown,
    #[error("the server was removed from the configuration, or its entry has changed; run a new cell")]
    Removed,
}

/// Keeps the running server from being stopped as idle.
#[derive(Debug)]
pub(super) struct ServerGuard {
    supervisor: Arc<Supervisor>,
    server: Arc<Server>,
}

impl ServerGuard {
    pub(super) fn server(&self) -> &Arc<Server> {
        &self.server
    }
}

impl Drop for ServerGuard {
    fn drop(&mut self) {
        self.supervisor.release();
    }
}

/// The next step of a caller that needs the server.
enum Step {
    Go(ServerGuard),
    Join(StartOutcome),
    Sleep(Instant),
}

/// Returns the running server, and starts it if necessary. Callers that arrive during a start share it and its
/// deadline.
pub(super) async fn acquire(supervisor: &Arc<Supervisor>) -> Result<ServerGuard, Unavailable> {
    loop {
        match step(supervisor)? {
            Step::Go(running) => return Ok(running),
            Step::Sleep(until) => tokio::time::sleep_until(until.into()).await,
            Step::Join(mut outcome) => match outcome.wait_for(Option::is_some).await.as_deref() {
                Ok(Some(Err(why))) => return Err(Unavailable::NotStarted(Arc::clone(why))),
                Ok(_) => {}
                // The sender was dropped: the start was cancelled.
                Err(_) => return Err(Unavailable::Stopped),
            },
        }
    }
}

/// Lists the server's tools now, and starts the server if it does not run, even if the supervisor has
/// stopped restarting it.
pub(super) async fn refresh(supervisor: &Arc<Supervisor>) -> Result<(), Unavailable> {
    let was_running = {
        let mut state = supervisor.state();
        let was_running = matches!(state.lifecycle.phase(), Phase::Running { .. });
        if supervisor.on(&mut state, Event::ForceStart) == Action::Start {
            begin(supervisor, &mut state);
        }
        was_running
    };
    let running = acquire(supervisor).await?;
    match was_running {
        true => supervisor.relist(running.server()).await.map_err(|why| Unavailable::ToolsNotListed(why.into())),
        false => Ok(()),
    }
}

fn step(supervisor: &Arc<Supervisor>) -> Result<Step, Unavailable> {
    let mut state = supervisor.state();
    if state.removed {
        return Err(Unavailable::Removed);
    }
    // A call may notice the end of the connection before its monitor does.
    if let Some(why) = state.connection.as_ref().and_then(|server| server.why_closed()) {
        let number = state.number;
        supervisor.on_disconnect(&mut state, number, &why.to_string());
    }
    match supervisor.on(&mut state, Event::Needed) {
        Action::Start => begin(supervisor, &mut state),
        Action::WaitUntil(until) => return sleep_or_back_off(&state, until),
        Action::Refuse => return Err(refusal_reason(&state)),
        Action::Nothing | Action::Disconnect => {}
    }
    if let Some(server) = state.connection.clone() {
        state.in_flight += 1;
        return Ok(Step::Go(ServerGuard { supervisor: Arc::clone(supervisor), server }));
    }
    state.attempt.as_ref().map(|attempt| Step::Join(attempt.outcome.clone())).ok_or(Unavailable::Stopped)
}

/// Starts the server in a separate task, so that the start continues if its caller is dropped.
fn begin(supervisor: &Supervisor, state: &mut State) {
    state.number += 1;
    let (number, me, spec) = (state.number, supervisor.me.clone(), supervisor.spec.clone());
    let (sender, outcome) = watch::channel(None);
    match state.lifecycle.restarts() {
        0 => tracing::debug!(server = %spec.name, "starting an MCP server"),
        restarts => {
            let failures = state.lifecycle.failures();
            tracing::info!(server = %spec.name, restarts, failures, "restarting an MCP server");
        }
    }
    // Set if the server may finish its download, although its start is cancelled.
    let may_finish = MayFinish::default();
    let connecting = Server::connect_with(spec, may_finish.clone());
    let task = tokio::spawn(async move {
        let connected = connecting.await;
        if let Some(me) = me.upgrade() {
            let result = on_connect(&me, number, connected);
            sender.send_replace(Some(result));
        }
    });
    state.attempt = Some(StartAttempt { outcome, task: task.abort_handle(), may_finish });
}

/// Records the outcome of a start, and monitors the connection if it succeeded.
fn on_connect(
    supervisor: &Arc<Supervisor>,
    number: u64,
    connected: Result<Arc<Server>, ConnectError>,
) -> Result<(), Arc<str>> {
    let mut state = supervisor.state();
    if state.number != number || state.lifecycle.phase() != Phase::Starting {
        // The start was cancelled; dropping the server ends it.
        return Err("it was stopped during its start".into());
    }
    state.attempt = None;
    match connected {
        Ok(server) => {
            supervisor.on(&mut state, Event::Started);
            state.last_used = Instant::now();
            state.connection = Some(Arc::clone(&server));
            let restarts = state.lifecycle.restarts();
            drop(state);
            tracing::info!(
                server = %supervisor.name(),
                transport = supervisor.spec.transport.as_str(),
                revision = server.revision(),
                restarts,
                "started an MCP server"
            );
            supervisor.publish(&server, server.tools());
            monitor::spawn(supervisor, number, &server);
            Ok(())
        }
        Err(error) => {
            supervisor.on(&mut state, Event::StartFailed);
            log_failed_start(supervisor, &state, &error);
            let failure = LastFailure::of_connecting(&error);
            let why: Arc<str> = failure.message.as_str().into();
            if let Some(file) = supervisor.file.clone() {
                // For status queries that do not start the server. If the write fails, they lack the reason. Standard error
                // is left out: only the reader of the configuration knows all secrets of the server.
                let failure = LastFailure { stderr: String::new(), ..failure.clone() };
                tokio::task::spawn_blocking(move || {
                    file.write_failure(&failure).log_ignored("store a server's failure");
                });
            }
            state.last_failure = Some(failure);
            Err(why)
        }
    }
}

fn log_failed_start(supervisor: &Supervisor, state: &State, error: &ConnectError) {
    let server = supervisor.name();
    if let ConnectFailure::LoginNeeded { .. } = error.why {
        tracing::info!(%server, "an MCP server needs a login");
        return;
    }
    let restart_in_ms = restart_delay(state.lifecycle.phase()).map(|delay| delay.as_millis());
    tracing::warn!(%server, reason = error.reason(), restart_in_ms, "an MCP server could not be started");
}

/// Lets a caller sleep until the end of the back-off, or fails if that is too far off.
fn sleep_or_back_off(state: &State, until: Instant) -> Result<Step, Unavailable> {
    let left = until.saturating_duration_since(Instant::now());
    if left <= MAX_BACKOFF_WAIT {
        tracing::debug!(delay_ms = left.as_millis(), "a call waits until an MCP server may be restarted");
        return Ok(Step::Sleep(until));
    }
    Err(Unavailable::BackingOff { seconds: left.as_secs() + 1, last: last_failure_message(state) })
}

fn refusal_reason(state: &State) -> Unavailable {
    match state.lifecycle.phase() {
        Phase::Failed { until } => Unavailable::NotRestarted {
            failures: state.lifecycle.failures(),
            seconds: until.saturating_duration_since(Instant::now()).as_secs() + 1,
            last: last_failure_message(state),
        },
        Phase::Stopped | Phase::Starting | Phase::Running { .. } | Phase::BackingOff { .. } | Phase::Retired => {
            Unavailable::ShuttingDown
        }
    }
}

pub(super) fn last_failure_message(state: &State) -> Arc<str> {
    state.last_failure.as_ref().map_or_else(|| "unknown".into(), |failure| failure.message.as_str().into())
}
