//! What a process has of its runs: who works on which, and how they are reached.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use contract::config::{self, SearchLimits};
use contract::tables::CatalogTables;
use executor::{Executor, Journal, random_name};
use store::{RunRow, Store};
use tokio::sync::{Mutex as AsyncMutex, mpsc};

use super::awaken::Asleep;
use crate::definition::Definition;
use crate::driver::{Command, Driver, Left, Run};
use crate::face::Face;
use crate::pool::Pool;

/// How long a count of all runs is good for, as long as it is far from the cap.
const COUNT_KEPT: Duration = Duration::from_millis(500);

/// Runs that share a lock to be woken under. More would only cost memory.
const WAKING: usize = 64;

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) pool: Pool,
    pub(super) store: Store,
    /// Who this process is to others that use the same store.
    pub(super) holder: String,
    live: Mutex<HashMap<String, Live>>,
    /// A run is woken by one caller at a time: who comes meanwhile finds it awake.
    waking: [AsyncMutex<()>; WAKING],
    spread: RandomState,
    counted: Mutex<Counted>,
}

#[derive(Clone, Debug)]
pub(super) struct Live {
    pub(super) session_id: String,
    commands: mpsc::Sender<Command>,
}

/// When all runs were counted, and how many there can be by now.
#[derive(Debug, Default)]
struct Counted {
    at: Option<Instant>,
    at_most: u64,
}

impl Inner {
    pub(super) fn new(pool: Pool, store: Store) -> Result<Self, getrandom::Error> {
        Ok(Self {
            pool,
            store,
            holder: random_name()?,
            live: Mutex::default(),
            waking: std::array::from_fn(|_| AsyncMutex::default()),
            spread: RandomState::new(),
            counted: Mutex::default(),
        })
    }

    pub(super) fn run(
        &self,
        id: String,
        definition: Definition,
        search: SearchLimits,
        executor: &Executor,
        tables: CatalogTables,
        journal: Journal,
    ) -> Run {
        Run {
            id,
            face: Face::CodeMode,
            definition: Arc::new(definition),
            search,
            pool: self.pool.clone(),
            executor: executor.clone(),
            journal: Arc::new(journal),
            tables,
        }
    }

    /// Puts a driver to work, to be found by its run's id until it has nothing left to do.
    pub(super) fn launch(self: &Arc<Self>, run_id: String, driver: Driver, first: Option<Command>) {
        let (commands, mut received) = mpsc::channel(16);
        if let Some(first) = first {
            // There is room: nobody else knows the channel yet.
            drop(commands.try_send(first));
        }
        let live = Live { session_id: driver.session_id().to_owned(), commands };
        self.lock().insert(run_id.clone(), live);
        let inner = Arc::clone(self);
        tokio::spawn(async move {
            let left = driver.drive(&mut received).await;
            inner.lock().remove(&run_id);
            // Who asked in the meantime is told the end, or finds the run in the store.
            received.close();
            while let Some(command) = received.recv().await {
                if let (Command::Wait { listener, .. }, Left::Over(result)) = (command, &left) {
                    drop(listener.send(result.as_ref().clone()));
                }
            }
        });
    }

    /// Gives a command to whoever works on the run here, or gives it back.
    pub(super) async fn send(&self, run_id: &str, command: Command) -> Result<(), Command> {
        let commands = self.lock().get(run_id).map(|live| live.commands.clone());
        match commands {
            Some(commands) => commands.send(command).await.map_err(|refused| refused.0),
            None => Err(command),
        }
    }

    /// Gives a command to whoever works on the run, and wakes it where nobody does.
    pub(super) async fn reach(
        self: &Arc<Self>,
        executor: &Executor,
        config: &config::CodeMode,
        row: &RunRow,
        command: Command,
    ) -> Result<(), Asleep> {
        let _alone = self.alone_with(&row.run_id).await;
        match self.send(&row.run_id, command).await {
            Ok(()) => Ok(()),
            Err(command) => self.awaken(executor, config, row, command).await,
        }
    }

    /// While this is held nobody else wakes or buries the run in this process.
    pub(super) async fn alone_with(&self, run_id: &str) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        let place = usize::try_from(self.spread.hash_one(run_id) % WAKING as u64).unwrap_or(0);
        match self.waking.get(place) {
            Some(lock) => Some(lock.lock().await),
            None => None,
        }
    }

    /// Whether one more run fits under the cap. A count is asked for when the last one is old, or when the runs
    /// started since then could make the difference.
    pub(super) async fn has_room_for(&self, max_live_runs: u64) -> bool {
        {
            let mut counted = self.counted();
            if counted.at.is_some_and(|when| when.elapsed() < COUNT_KEPT) && counted.at_most < max_live_runs {
                counted.at_most += 1;
                return true;
            }
        }
        // A run that is not written yet is only here.
        let here = self.lock().len() as u64;
        let count = self.store.live_runs().await.unwrap_or(0).max(here);
        let has_room = count < max_live_runs;
        *self.counted() = Counted { at: Some(Instant::now()), at_most: count + u64::from(has_room) };
        has_room
    }

    /// Held for one look, never across an await.
    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Held for one look-up, never across an await.
    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<String, Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn random_seed() -> Result<u64, getrandom::Error> {
    let mut random = [0; 8];
    getrandom::fill(&mut random)?;
    Ok(u64::from_le_bytes(random))
}
