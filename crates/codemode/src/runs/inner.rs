//! The registry of a process's runs: their drivers, their leases, and how to send them commands.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use contract::config::{self, SearchLimits};
use contract::scope::Scope;
use contract::tables::CatalogTables;
use executor::clock::now_ms;
use executor::{DataBudget, Executor, Journal, LeaseClock, random_name};
use store::{FencedRun, Millis, NewRun, RunChange, RunRow, Store, StoreError};
use tokio::sync::{Mutex as AsyncMutex, broadcast, mpsc};
use tokio::time::Instant;

use super::awaken::WakeError;
use crate::definition::Definition;
use crate::driver::{Command, Driver, DriverExit, Run};
use crate::face::RunMode;
use crate::pool::Pool;

/// How long a count of all runs is used, as long as it is far from the cap.
const COUNT_TTL: Duration = Duration::from_millis(500);

/// How many notifications a slow `wait` may be behind. A `wait` that missed some reads the store.
const NEWS_CAPACITY: usize = 1024;

/// The number of locks for waking runs; runs with the same hash share one. More would only cost memory.
const WAKE_LOCKS: usize = 64;

#[derive(Debug)]
pub(super) struct RunRegistry {
    pub(super) pool: Pool,
    pub(super) store: Store,
    /// The name of this process among those that use the same store.
    pub(super) holder: String,
    /// The lease that all runs of this process share.
    pub(super) lease: LeaseClock,
    live: Mutex<BTreeMap<String, Live>>,
    /// Runs that this process is taking over and that have no driver yet.
    claiming: Mutex<Vec<String>>,
    /// Notifies waiting callers that other processes have changed runs.
    news: broadcast::Sender<RunChange>,
    /// Held while a run is woken: only one caller wakes a run, and the others then find its driver.
    waking: [AsyncMutex<()>; WAKE_LOCKS],
    counted: Mutex<Counted>,
    /// The memory budget for unfinished calls of all runs in this process.
    data: DataBudget,
}

#[derive(Clone, Debug)]
pub(super) struct Live {
    pub(super) session_id: String,
    journal: Arc<Journal>,
    commands: mpsc::Sender<Command>,
}

/// When all runs were last counted, and the most there can be since.
#[derive(Debug, Default)]
struct Counted {
    at: Option<Instant>,
    at_most: u64,
}

impl RunRegistry {
    pub(super) fn new(pool: Pool, store: Store, lease: Duration) -> Result<Self, getrandom::Error> {
        Ok(Self {
            pool,
            store,
            holder: random_name()?,
            lease: LeaseClock::new(lease),
            live: Mutex::default(),
            claiming: Mutex::default(),
            news: broadcast::Sender::new(NEWS_CAPACITY),
            waking: std::array::from_fn(|_| AsyncMutex::default()),
            counted: Mutex::default(),
            data: DataBudget::default(),
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
            face: RunMode::CodeMode,
            definition: Arc::new(definition),
            search,
            pool: self.pool.for_principal(&executor.scope().agent_id),
            executor: executor.clone(),
            journal: Arc::new(journal),
            data: self.data.for_run(),
            tables,
        }
    }

    /// Spawns a driver and registers it by its run's id until it ends.
    pub(super) fn launch(self: &Arc<Self>, run_id: String, driver: Driver, first: Option<Command>) {
        let (commands, mut received) = mpsc::channel(16);
        if let Some(first) = first {
            // The channel has space: nothing else has a sender yet.
            drop(commands.try_send(first));
        }
        let live = Live { session_id: driver.session_id().to_owned(), journal: driver.journal(), commands };
        self.lock().insert(run_id.clone(), live);
        let inner = Arc::clone(self);
        tokio::spawn(async move {
            let left = driver.drive(&mut received).await;
            inner.lock().remove(&run_id);
            // Callers whose command was still queued receive the end, or find the run in the store.
            received.close();
            while let Some(command) = received.recv().await {
                if let (Command::Wait { listener, .. }, DriverExit::Over(result)) = (command, &left) {
                    drop(listener.send(result.as_ref().clone()));
                }
            }
        });
    }

    /// Creates a run that this process holds. It is not written yet.
    pub(super) fn new_run(
        &self,
        run_id: String,
        scope: Scope,
        tool_call_id: &str,
        tables: &CatalogTables,
        (definition, expires_at): (String, Millis),
    ) -> FencedRun {
        FencedRun::new(NewRun {
            run_id,
            scope,
            tool_call_id: tool_call_id.to_owned(),
            holder: self.holder.clone(),
            lease_until: self.lease_until(),
            expires_at,
            catalog: tables.hash().to_string(),
            tables: tables.shared(),
            definition,
        })
    }

    pub(super) fn lease_until(&self) -> Millis {
        self.lease.until_ms()
    }

    /// Synchronizes with the store's clock, if it has one: all processes that share the store use it for leases.
    pub(super) async fn set_clock(&self) {
        let asked = now_ms();
        if let Ok(Some(store_ms)) = self.store.server_clock().await {
            self.lease.adjust_to_store(store_ms, asked, now_ms());
        }
    }

    /// Returns the runs that have a driver in this process, and those that are about to.
    pub(super) fn held_runs(&self) -> Vec<String> {
        let mut runs: Vec<String> = self.lock().keys().cloned().collect();
        runs.extend(self.claiming.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned());
        runs
    }

    /// Renews the leases of this process's runs, and marks the runs that it has lost.
    pub(super) async fn renew(&self) -> Result<(), StoreError> {
        let began = Instant::now();
        let runs = self.held_runs();
        if !runs.is_empty() {
            self.store.renew(&self.holder, &runs, self.lease_until()).await?;
            for run_id in self.store.lost(&self.holder, &runs).await? {
                if let Some(live) = self.lock().get(&run_id) {
                    live.journal.mark_lost();
                } else if self.claiming.lock().unwrap_or_else(PoisonError::into_inner).contains(&run_id) {
                    // The run is just getting a driver, so the lease clock must not allow it to make calls.
                    return Ok(());
                }
            }
        }
        self.lease.renewed_at(began);
        Ok(())
    }

    /// Marks a run as being taken over. Its lease is renewed as long as the guard lives.
    pub(super) fn claim(&self, run_id: &str) -> ClaimGuard<'_> {
        self.claiming.lock().unwrap_or_else(PoisonError::into_inner).push(run_id.to_owned());
        ClaimGuard { claiming: &self.claiming, run_id: run_id.to_owned() }
    }

    /// Notifies drivers and waiting callers that another process has changed runs.
    pub(super) fn on_run_change(&self, news: RunChange) {
        for (run_id, live) in self.lock().iter() {
            if news == RunChange::Unknown || news == RunChange::Run(run_id.clone()) {
                // A driver whose queue is full polls the store when it handles the queued commands.
                drop(live.commands.try_send(Command::PollStore));
            }
        }
        // It is not an error if no caller waits.
        drop(self.news.send(news));
    }

    pub(super) fn news(&self) -> broadcast::Receiver<RunChange> {
        self.news.subscribe()
    }

    /// Sends a command to the run's driver in this process. Returns the command if there is none.
    pub(super) async fn send(&self, run_id: &str, command: Command) -> Result<(), Command> {
        let commands = self.lock().get(run_id).map(|live| live.commands.clone());
        match commands {
            Some(commands) => commands.send(command).await.map_err(|refused| refused.0),
            None => Err(command),
        }
    }

    /// Sends a command to the run's driver, and wakes the run if it has none.
    pub(super) async fn send_or_wake(
        self: &Arc<Self>,
        executor: &Executor,
        config: &config::CodeMode,
        row: &RunRow,
        command: Command,
    ) -> Result<(), WakeError> {
        let _lock = self.lock_run(&row.run_id).await;
        match self.send(&row.run_id, command).await {
            Ok(()) => Ok(()),
            Err(command) => self.awaken(executor, config, row, command).await,
        }
    }

    /// Locks a run. While the guard lives, no other task of this process wakes or finalizes the run.
    pub(super) async fn lock_run(&self, run_id: &str) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        let mut spread = DefaultHasher::new();
        run_id.hash(&mut spread);
        let place = usize::try_from(spread.finish() % WAKE_LOCKS as u64).unwrap_or(0);
        match self.waking.get(place) {
            Some(lock) => Some(lock.lock().await),
            None => None,
        }
    }

    /// Returns whether one more run fits under the cap. The runs are counted again when the last count is old, or when
    /// the runs started since could exceed the cap.
    pub(super) async fn has_room_for(&self, max_live_runs: u64) -> Result<bool, StoreError> {
        {
            let mut counted = self.counted();
            if counted.at.is_some_and(|when| when.elapsed() < COUNT_TTL) && counted.at_most < max_live_runs {
                counted.at_most += 1;
                return Ok(true);
            }
        }
        // A run that is not written yet is only in this process.
        let here = self.lock().len() as u64;
        let count = self.store.live_runs().await?.max(here);
        let has_room = count < max_live_runs;
        *self.counted() = Counted { at: Some(Instant::now()), at_most: count + u64::from(has_room) };
        Ok(has_room)
    }

    /// Locks the count. The guard is never held across an await.
    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the map of drivers. The guard is never held across an await.
    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a run in the list of those being taken over; see [`RunRegistry::claim`].
#[derive(Debug)]
pub(super) struct ClaimGuard<'a> {
    claiming: &'a Mutex<Vec<String>>,
    run_id: String,
}

impl Drop for ClaimGuard<'_> {
    fn drop(&mut self) {
        let mut claiming = self.claiming.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = claiming.iter().position(|run_id| *run_id == self.run_id) {
            claiming.swap_remove(place);
        }
    }
}

pub(super) fn random_seed() -> Result<u64, getrandom::Error> {
    let mut random = [0; 8];
    executor::fill_random(&mut random)?;
    Ok(u64::from_le_bytes(random))
}
