//! Starts a server on demand. All callers that need it at the same time share one start and its deadline.

use std::sync::Arc;
use std::time::{Duration, Instant};

use executor::ToolSource;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::lifecycle::{Action, Event, Phase};
use super::one::{State, Unavailable, Upstream, disconnect};
use super::status::LastFailure;
use crate::client::{ConnectError, Server};

/// How long a call waits for a server that backs off after a failure. If the wait is longer, the call fails at once.
const PATIENCE: Duration = Duration::from_secs(5);

/// A start in progress, shared by all callers that wait for it.
#[derive(Debug)]
pub(super) struct StartAttempt {
    outcome: StartOutcome,
    task: AbortHandle,
}

type StartOutcome = watch::Receiver<Option<Result<(), Arc<str>>>>;

impl StartAttempt {
    pub(super) fn abort(&self) {
        self.task.abort();
    }
}

/// A running server. It is not stopped for idleness while this is held.
#[derive(Debug)]
pub(super) struct Held {
    upstream: Arc<Upstream>,
    server: Arc<Server>,
}

impl Held {
    pub(super) fn server(&self) -> &Arc<Server> {
        &self.server
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.upstream.state();
        state.in_flight = state.in_flight.saturating_sub(1);
        state.last_used = Instant::now();
    }
}

/// The next step of a caller that needs the server.
enum Step {
    Go(Held),
    Join(StartOutcome),
    Sleep(Instant),
}

impl Upstream {
    /// Returns the running server, and starts it if necessary. Callers that arrive during a start share it and its
    /// deadline.
    pub(super) async fn hold(&self) -> Result<Held, Unavailable> {
        loop {
            match self.step()? {
                Step::Go(held) => return Ok(held),
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

    fn step(&self) -> Result<Step, Unavailable> {
        let upstream = self.me.upgrade().ok_or(Unavailable::Retired)?;
        let mut state = self.state();
        // A call may notice the end of the connection before its monitor does.
        if let Some(why) = state.connection.as_ref().and_then(|server| server.why_closed()) {
            let number = state.number;
            self.on_disconnect(&mut state, number, &why.to_string());
        }
        match self.on(&mut state, Event::Wanted) {
            Action::Start => self.begin(&mut state),
            Action::WaitUntil(until) => return wait(&state, until),
            Action::Refuse => return Err(refused(&state)),
            Action::Nothing | Action::Disconnect => {}
        }
        if let Some(server) = state.connection.clone() {
            state.in_flight += 1;
            drop(state);
            return Ok(Step::Go(Held { upstream, server }));
        }
        state.attempt.as_ref().map(|attempt| Step::Join(attempt.outcome.clone())).ok_or(Unavailable::Stopped)
    }

    /// Starts the server in a separate task, so that the start continues if its caller is dropped.
    pub(super) fn begin(&self, state: &mut State) {
        state.number += 1;
        let (number, me, spec) = (state.number, self.me.clone(), self.spec.clone());
        let (sender, outcome) = watch::channel(None);
        let task = tokio::spawn(async move {
            let connected = Server::connect(spec).await;
            if let Some(me) = me.upgrade() {
                let result = me.connected(number, connected);
                sender.send_replace(Some(result));
            }
        });
        state.attempt = Some(StartAttempt { outcome, task: task.abort_handle() });
    }

    fn connected(&self, number: u64, connected: Result<Arc<Server>, ConnectError>) -> Result<(), Arc<str>> {
        let mut state = self.state();
        if state.number != number || state.lifecycle.phase() != Phase::Starting {
            // The start was cancelled; dropping the server ends it.
            return Err("it was stopped during its start".into());
        }
        state.attempt = None;
        match connected {
            Ok(server) => {
                self.on(&mut state, Event::Started);
                state.last_used = Instant::now();
                state.connection = Some(Arc::clone(&server));
                drop(state);
                self.publish(&server, server.tools());
                self.monitor(number, &server);
                Ok(())
            }
            Err(error) => {
                self.on(&mut state, Event::StartFailed);
                let why: Arc<str> = error.why.to_string().into();
                let trouble = LastFailure { stderr: error.stderr, ..LastFailure::new(why.to_string()) };
                if let (Some(file), trouble) = (self.file.clone(), trouble.clone()) {
                    // For status queries that do not start the server. If the write fails, they lack the reason.
                    tokio::task::spawn_blocking(move || drop(file.write_trouble(&trouble)));
                }
                state.trouble = Some(trouble);
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
        if let Some(server) = disconnect(state) {
            state.trouble = Some(LastFailure {
                stderr: server.stderr_tail(),
                ..LastFailure::new(format!("the connection was lost: {why}"))
            });
        }
    }
}

fn wait(state: &State, until: Instant) -> Result<Step, Unavailable> {
    let left = until.saturating_duration_since(Instant::now());
    if left <= PATIENCE {
        return Ok(Step::Sleep(until));
    }
    Err(Unavailable::BackingOff { seconds: left.as_secs() + 1, last: last(state) })
}

fn refused(state: &State) -> Unavailable {
    match state.lifecycle.phase() {
        Phase::Failed { until } => Unavailable::GivenUp {
            failures: state.lifecycle.failures(),
            seconds: until.saturating_duration_since(Instant::now()).as_secs() + 1,
            last: last(state),
        },
        Phase::Stopped | Phase::Starting | Phase::Running { .. } | Phase::BackingOff { .. } | Phase::Retired => {
            Unavailable::Retired
        }
    }
}

fn last(state: &State) -> Arc<str> {
    state.trouble.as_ref().map_or_else(|| "unknown".into(), |trouble| trouble.message.as_str().into())
}
