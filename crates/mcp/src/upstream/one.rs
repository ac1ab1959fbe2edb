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
use super::start::StartAttempt;
use super::status::LastFailure;
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

/// A configured server as a tool source. The server is started when it is needed.
pub struct Upstream {
    pub(super) me: Weak<Self>,
    pub(super) spec: ServerSpec,
    pub(super) options: UpstreamOptions,
    pub(super) file: Option<CatalogFile>,
    /// Locked only to read or change the state, never across an await.
    state: Mutex<State>,
    changes: watch::Sender<u64>,
    /// The counter of changes of all servers of the group.
    group_changes: Option<Arc<watch::Sender<u64>>>,
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
    /// The number of the last start. Events of an earlier start are ignored.
    pub(super) number: u64,
    pub(super) attempt: Option<StartAttempt>,
    pub(super) connection: Option<Arc<Server>>,
    pub(super) in_flight: usize,
    pub(super) last_used: Instant,
    pub(super) listing: Option<Arc<Listing>>,
    pub(super) trouble: Option<LastFailure>,
}

/// Why a server is unavailable. Operators and cells read it, so it contains nothing of the server's standard error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    #[error("the server could not be started: {0}")]
    NotStarted(Arc<str>),
    #[error(
        "the server failed {failures} times in a row and is not started for another {seconds} s; last failure: {last}"
    )]
    GivenUp { failures: u32, seconds: u64, last: Arc<str> },
    #[error("the server can be started again in {seconds} s; last failure: {last}; call again then")]
    BackingOff { seconds: u64, last: Arc<str> },
    #[error("the server was stopped during its start; call again")]
    Stopped,
    #[error("this program is shutting down")]
    Retired,
}

impl Upstream {
    /// Reads the cached listing, if there is one. The server is not started.
    pub fn new(spec: ServerSpec, options: UpstreamOptions) -> Arc<Self> {
        Self::in_group(spec, options, None)
    }

    pub(super) fn in_group(
        spec: ServerSpec,
        options: UpstreamOptions,
        group_changes: Option<Arc<watch::Sender<u64>>>,
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
        Arc::new_cyclic(|me| Self { me: me.clone(), spec, options, file, state, changes, group_changes })
    }

    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Returns a counter that increases whenever the tools change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Ensures that there is a listing, possibly a cached one. It starts the server only if there is none.
    pub async fn listed(&self) -> Result<(), Unavailable> {
        if self.state().listing.is_some() {
            return Ok(());
        }
        self.hold().await.map(drop)
    }

    /// Lists the server's tools now, and starts the server if it does not run, even if it was given up before.
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

    /// Stops the server permanently.
    pub async fn retire(&self) {
        self.leave(Event::Retire).await;
    }

    async fn leave(&self, event: Event) {
        let gone = {
            let mut state = self.state();
            match self.on(&mut state, event) {
                Action::Disconnect => disconnect(&mut state).map(|server| server.gone()),
                Action::Nothing | Action::Start | Action::WaitUntil(_) | Action::Refuse => None,
            }
        };
        if let Some(gone) = gone {
            // After the timeout a keeper may still end the processes.
            drop(tokio::time::timeout(STOP_DEADLINE, gone).await);
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

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
        let before = self.state().listing.replace(Arc::clone(&listing));
        if let Some(file) = self.file.clone() {
            let (listing, me) = (Arc::clone(&listing), self.me.clone());
            tokio::task::spawn_blocking(move || {
                file.forget_trouble();
                if let (Err(error), Some(me)) = (file.write(&listing), me.upgrade()) {
                    me.state().trouble = Some(LastFailure::new(format!("its tool list cannot be cached: {error}")));
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
}

/// Ends the connection, or the start in progress. Returns the server that was connected.
pub(super) fn disconnect(state: &mut State) -> Option<Arc<Server>> {
    if let Some(attempt) = state.attempt.take() {
        attempt.abort();
    }
    let server = state.connection.take()?;
    server.hang_up();
    Some(server)
}

/// Returns a random number between zero and one. Without system randomness it returns one, so that waits are longest.
fn jitter() -> f64 {
    getrandom::u32().map_or(1.0, |number| f64::from(number) / f64::from(u32::MAX))
}
