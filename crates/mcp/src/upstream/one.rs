//! One configured server, running or not.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use contract::tool::ToolSpec;
use executor::clock::now_ms;
use tokio::sync::watch;

use super::cache::CatalogFile;
use super::lifecycle::{Action, Event, Lifecycle, Phase, Restart};
use super::listing::{Listing, Millis};
use super::start::Attempted;
use super::status::LastFailure;
use crate::client::{Server, ServerSpec, Transport};

/// How one server is looked after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamOptions {
    /// Where the last listing is kept, so that it can be shown before the server runs; nowhere where none is given.
    pub cache_dir: Option<PathBuf>,
    /// How long a process may go without a call before it is stopped; for ever where none is given. A server at an
    /// address is not ours to stop.
    pub idle_stop: Option<Duration>,
    pub restart: Restart,
}

impl UpstreamOptions {
    pub const DEFAULT: Self =
        Self { cache_dir: None, idle_stop: Some(Duration::from_secs(10 * 60)), restart: Restart::DEFAULT };
}

/// How long a stop may take: the server's own end, its being told, its being killed.
const STOP_DEADLINE: Duration = Duration::from_secs(5);

/// A tool source whose server is started when somebody needs it.
pub struct Upstream {
    pub(super) me: Weak<Self>,
    pub(super) spec: ServerSpec,
    pub(super) options: UpstreamOptions,
    pub(super) file: Option<CatalogFile>,
    /// Held for as long as it takes to look or to change something; never while anybody waits.
    state: Mutex<State>,
    changes: watch::Sender<u64>,
    /// Whoever wants to hear of changes of any server of a group.
    with_progress_sink: Option<Arc<watch::Sender<u64>>>,
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream").field("spec", &self.spec).field("phase", &self.state().lifecycle.phase()).finish()
    }
}

pub(super) struct State {
    pub(super) lifecycle: Lifecycle,
    /// When the phase was entered.
    pub(super) since: Millis,
    /// The number of the last start; what belongs to another is too late.
    pub(super) number: u64,
    pub(super) attempt: Option<Attempted>,
    pub(super) connection: Option<Arc<Server>>,
    pub(super) in_flight: usize,
    pub(super) last_used: Instant,
    pub(super) listing: Option<Arc<Listing>>,
    pub(super) trouble: Option<LastFailure>,
}

/// Why a server cannot be had. It is for operators and cells alike, so it holds nothing of the server's own log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    #[error("it could not be started: {0}")]
    NotStarted(Arc<str>),
    #[error("it failed {failures} times in a row and is left alone for another {seconds} s; the last time: {last}")]
    GivenUp { failures: u32, seconds: u64, last: Arc<str> },
    #[error("it is started again in {seconds} s, after this: {last}; call again then")]
    BackingOff { seconds: u64, last: Arc<str> },
    #[error("it was stopped while it was being started; call again")]
    Stopped,
    #[error("this program is shutting down")]
    Retired,
}

impl Upstream {
    /// Nothing is started; the last listing is read where there is one.
    pub fn new(spec: ServerSpec, options: UpstreamOptions) -> Arc<Self> {
        Self::with_progress_sink(spec, options, None)
    }

    pub(super) fn with_progress_sink(
        spec: ServerSpec,
        options: UpstreamOptions,
        with_progress_sink: Option<Arc<watch::Sender<u64>>>,
    ) -> Arc<Self> {
        let file = options.cache_dir.as_ref().map(|folder| CatalogFile::of(folder, &spec));
        let mut state = State {
            lifecycle: Lifecycle::new(options.restart),
            since: now_ms(),
            number: 0,
            attempt: None,
            connection: None,
            in_flight: 0,
            last_used: Instant::now(),
            listing: None,
            trouble: None,
        };
        match file.as_ref().map(CatalogFile::read) {
            Some(Ok(listing)) => {
                state.listing = listing.map(Arc::new);
                state.trouble = file.as_ref().and_then(CatalogFile::read_trouble);
            }
            Some(Err(error)) => state.trouble = Some(LastFailure::new(error.to_string())),
            None => {}
        }
        let (state, changes) = (Mutex::new(state), watch::Sender::new(0));
        Arc::new_cyclic(|me| Self { me: me.clone(), spec, options, file, state, changes, with_progress_sink })
    }

    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Moves whenever the tools are others than before.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Sees to it that there is a listing, a remembered one at least; starts the server only where there is none.
    pub async fn listed(&self) -> Result<(), Unavailable> {
        if self.state().listing.is_some() {
            return Ok(());
        }
        self.hold().await.map(drop)
    }

    /// Has the server list its tools now: started where it does not run, whatever became of it before.
    pub async fn refresh(&self) -> Result<(), Unavailable> {
        let running = {
            let mut state = self.state();
            let running = matches!(state.lifecycle.phase(), Phase::Running { .. });
            if self.on(&mut state, Event::TriedNow) == Action::Start {
                self.begin(&mut state);
            }
            running
        };
        let held = self.hold().await?;
        match running {
            true => self.relist(held.server()).await.map_err(|why| Unavailable::NotStarted(why.into())),
            false => Ok(()),
        }
    }

    /// Stops the server; the next call starts it again.
    pub async fn stop(&self) {
        self.leave(Event::Stop).await;
    }

    /// Stops the server for good.
    pub async fn retire(&self) {
        self.leave(Event::Retire).await;
    }

    async fn leave(&self, event: Event) {
        let gone = {
            let mut state = self.state();
            match self.on(&mut state, event) {
                Action::Disconnect => part(&mut state).map(|server| server.gone()),
                Action::Nothing | Action::Start | Action::WaitUntil(_) | Action::Refuse => None,
            }
        };
        if let Some(gone) = gone {
            // Past it a keeper is still at work, or nobody can help.
            drop(tokio::time::timeout(STOP_DEADLINE, gone).await);
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn on(&self, state: &mut State, event: Event) -> Action {
        let before = state.lifecycle.phase();
        let action = state.lifecycle.on(event, Instant::now(), chance());
        if state.lifecycle.phase() != before {
            state.since = now_ms();
        }
        action
    }

    /// How long the process may be idle; none where it may for ever.
    pub(super) fn idle_stop(&self) -> Option<Duration> {
        match self.spec.transport {
            Transport::Stdio { .. } => self.options.idle_stop,
            Transport::Http { .. } => None,
        }
    }

    /// Puts a fresh listing in place of the one before.
    pub(super) fn publish(&self, server: &Server, tools: Vec<ToolSpec>) {
        let listing = Arc::new(Listing { tools, left_out: server.left_out(), listed_at: now_ms(), remembered: false });
        let before = self.state().listing.replace(Arc::clone(&listing));
        if let Some(file) = self.file.clone() {
            let (listing, me) = (Arc::clone(&listing), self.me.clone());
            tokio::task::spawn_blocking(move || {
                file.forget_trouble();
                if let (Err(error), Some(me)) = (file.write(&listing), me.upgrade()) {
                    me.state().trouble =
                        Some(LastFailure::new(format!("its list of tools cannot be remembered: {error}")));
                }
            });
        }
        if before.is_none_or(|before| before.tools != listing.tools) {
            self.changes.send_modify(|times| *times += 1);
            if let Some(group) = &self.with_progress_sink {
                group.send_modify(|times| *times += 1);
            }
        }
    }
}

/// Takes leave of the connection, or of the start that is under way.
pub(super) fn part(state: &mut State) -> Option<Arc<Server>> {
    if let Some(attempt) = state.attempt.take() {
        attempt.abort();
    }
    let server = state.connection.take()?;
    server.hang_up();
    Some(server)
}

/// A number between nought and one. Without randomness every wait is the longest.
fn chance() -> f64 {
    getrandom::u32().map_or(1.0, |number| f64::from(number) / f64::from(u32::MAX))
}
