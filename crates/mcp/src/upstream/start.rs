//! Getting hold of a running server: started once for all who want it, with one deadline for them all.

use std::sync::Arc;
use std::time::{Duration, Instant};

use executor::ToolSource;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::lifecycle::{Action, Event, Phase};
use super::one::{State, Unavailable, Upstream, part};
use super::status::LastFailure;
use crate::client::{ConnectError, Server};

/// How long a call waits for a server that is left alone after a failure. Past it the caller is better told.
const PATIENCE: Duration = Duration::from_secs(5);

/// A start under way, for all who wait for it.
#[derive(Debug)]
pub(super) struct Attempted {
    told: Told,
    task: AbortHandle,
}

type Told = watch::Receiver<Option<Result<(), Arc<str>>>>;

impl Attempted {
    pub(super) fn abort(&self) {
        self.task.abort();
    }
}

/// A running server that is not stopped for idleness while this is held.
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

/// What whoever wants the server does next.
enum Step {
    Go(Held),
    Join(Told),
    Sleep(Instant),
}

impl Upstream {
    /// The server, running; started where it must be. All who come while it starts share that start and its deadline.
    pub(super) async fn hold(&self) -> Result<Held, Unavailable> {
        loop {
            match self.step()? {
                Step::Go(held) => return Ok(held),
                Step::Sleep(until) => tokio::time::sleep_until(until.into()).await,
                Step::Join(mut told) => match told.wait_for(Option::is_some).await.as_deref() {
                    Ok(Some(Err(why))) => return Err(Unavailable::NotStarted(Arc::clone(why))),
                    Ok(_) => {}
                    // Nobody is left to tell: the start was called off.
                    Err(_) => return Err(Unavailable::Stopped),
                },
            }
        }
    }

    fn step(&self) -> Result<Step, Unavailable> {
        let upstream = self.me.upgrade().ok_or(Unavailable::Retired)?;
        let mut state = self.state();
        // A call may find out before whoever minds the connection does.
        if let Some(why) = state.connection.as_ref().and_then(|server| server.why_closed()) {
            let number = state.number;
            self.fell(&mut state, number, &why.to_string());
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
        state.attempt.as_ref().map(|attempt| Step::Join(attempt.told.clone())).ok_or(Unavailable::Stopped)
    }

    /// Starts the server in a task of its own: a caller that goes away does not take the start with it.
    pub(super) fn begin(&self, state: &mut State) {
        state.number += 1;
        let (number, me, spec) = (state.number, self.me.clone(), self.spec.clone());
        let (tell, told) = watch::channel(None);
        let task = tokio::spawn(async move {
            let connected = Server::connect(spec).await;
            if let Some(me) = me.upgrade() {
                let came_to = me.connected(number, connected);
                tell.send_replace(Some(came_to));
            }
        });
        state.attempt = Some(Attempted { told, task: task.abort_handle() });
    }

    fn connected(&self, number: u64, connected: Result<Arc<Server>, ConnectError>) -> Result<(), Arc<str>> {
        let mut state = self.state();
        if state.number != number || state.lifecycle.phase() != Phase::Starting {
            // Called off meanwhile; dropping the server ends it.
            return Err("it was stopped while it was being started".into());
        }
        state.attempt = None;
        match connected {
            Ok(server) => {
                self.on(&mut state, Event::Started);
                state.last_used = Instant::now();
                state.connection = Some(Arc::clone(&server));
                drop(state);
                self.publish(&server, server.tools());
                self.mind(number, &server);
                Ok(())
            }
            Err(error) => {
                self.on(&mut state, Event::StartFailed);
                let why: Arc<str> = error.why.to_string().into();
                let trouble = LastFailure { stderr: error.stderr, ..LastFailure::new(why.to_string()) };
                if let (Some(file), trouble) = (self.file.clone(), trouble.clone()) {
                    // For whoever asks how it is without starting it; where it cannot be written, they start it.
                    tokio::task::spawn_blocking(move || drop(file.write_trouble(&trouble)));
                }
                state.trouble = Some(trouble);
                Err(why)
            }
        }
    }

    /// The connection ended without our doing; nothing where it is another's by now, or was ended by us.
    pub(super) fn fell(&self, state: &mut State, number: u64, why: &str) {
        if state.number != number || state.connection.is_none() {
            return;
        }
        self.on(state, Event::Ended);
        if let Some(server) = part(state) {
            state.trouble =
                Some(LastFailure { stderr: server.stderr_tail(), ..LastFailure::new(format!("it ran, but {why}")) });
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
    state.trouble.as_ref().map_or_else(|| "nothing is known of it".into(), |trouble| trouble.message.as_str().into())
}
