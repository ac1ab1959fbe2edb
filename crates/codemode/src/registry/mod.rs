//! The registry of a process's runs: their drivers, their leases, and how to send them commands.
//!
//! `wake` gives a stored run a driver; `background` renews leases, and passes on notifications of other processes.

mod background;
mod wake;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use catalog::Catalog;
use contract::cell::{CellResult, Telemetry};
use contract::config::{self, SearchLimits};
use contract::error::ErrorCode;
use contract::frame::Failure;
use contract::ids::RunId;
use contract::scope::Scope;
use contract::tables::CatalogTables;
use executor::clock::now_ms;
use executor::{DataBudget, Executor, Journal, LeaseClock, random_name};
use parking_lot::Mutex;
use serde_json::json;
use store::{
    Change, CommitError, Durability, EntryKind, FencedRun, LeaseError, Millis, NewEntry, NewRun, RunChange, RunRow,
    RunState, Store, StoreError,
};
use telemetry::LogIgnored;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Mutex as AsyncMutex, broadcast, mpsc};
use tokio::time::Instant;
use tracing::Instrument;

use crate::definition::Definition;
use crate::driver::{Command, Driver, DriverExit, Run};
use crate::effects;
use crate::failure::failed_with;
use crate::mode::RunMode;
use crate::pool::Pool;
use crate::run_telemetry::of_stored_run;
use crate::stored_result;

pub(crate) use background::DEFAULT_LEASE;
pub(crate) use wake::WakeError;

/// How long a count of all runs is used, as long as it is far from the cap.
const COUNT_TTL: Duration = Duration::from_millis(500);

/// How many notifications a slow `wait` may be behind. A `wait` that missed some reads the store.
const CHANGES_CAPACITY: usize = 1024;

/// The number of locks for waking runs; runs with the same hash share one. More would only cost memory.
const WAKE_LOCKS: usize = 64;

/// The runs of this process, and what they share.
#[derive(Debug)]
pub(crate) struct RunRegistry {
    pub(crate) pool: Pool,
    pub(crate) store: Store,
    /// The name of this process among those that use the same store.
    pub(crate) holder: String,
    /// The lease that all runs of this process share.
    pub(crate) lease: LeaseClock,
    live: Mutex<BTreeMap<RunId, LiveRun>>,
    /// Runs that this process is taking over and that have no driver yet.
    claiming: Mutex<Vec<RunId>>,
    /// Notifies waiting callers that other processes have changed runs.
    changes: broadcast::Sender<RunChange>,
    /// Held while a run is woken: only one caller wakes a run, and the others then find its driver.
    waking: [AsyncMutex<()>; WAKE_LOCKS],
    counted: Mutex<RunCount>,
    /// The memory budget for unfinished calls of all runs in this process.
    data: DataBudget,
}

/// A run that has a driver in this process.
#[derive(Clone, Debug)]
struct LiveRun {
    session_id: String,
    journal: Arc<Journal>,
    commands: mpsc::Sender<Command>,
}

/// When all runs were last counted, and the most there can be since.
#[derive(Debug, Default)]
struct RunCount {
    at: Option<Instant>,
    at_most: u64,
}

impl RunRegistry {
    /// Creates the registry and starts its background tasks, which run until the last reference to it is dropped.
    pub(crate) fn start(pool: Pool, store: Store, lease: Duration) -> Result<Arc<Self>, getrandom::Error> {
        let watch = store.watch();
        let registry = Arc::new(Self {
            pool,
            store,
            holder: random_name()?,
            lease: LeaseClock::new(lease),
            live: Mutex::default(),
            claiming: Mutex::default(),
            changes: broadcast::Sender::new(CHANGES_CAPACITY),
            waking: std::array::from_fn(|_| AsyncMutex::default()),
            counted: Mutex::default(),
            data: DataBudget::default(),
        });
        background::spawn(&registry, lease, watch);
        Ok(registry)
    }

    /// Puts together what a run consists of. The run is one of code mode, unless the caller changes that.
    pub(crate) fn run(
        &self,
        id: RunId,
        definition: Definition,
        search: SearchLimits,
        executor: &Executor,
        tables: CatalogTables,
        journal: Journal,
    ) -> Run {
        Run {
            id,
            mode: RunMode::CodeMode,
            definition: Arc::new(definition),
            search,
            pool: self.pool.for_principal(&executor.scope().agent_id),
            executor: executor.clone(),
            journal: Arc::new(journal),
            data: self.data.for_run(),
            max_heap_bytes: u64::MAX,
            tables,
        }
    }

    /// Spawns a driver and registers it by its run's id until it ends.
    pub(crate) fn launch(self: &Arc<Self>, run_id: RunId, driver: Driver, first: Option<Command>) {
        let (commands, mut received) = mpsc::channel(16);
        if let Some(first) = first {
            // The channel has space: nothing else has a sender yet.
            commands.try_send(first).log_ignored("send a driver its first command");
        }
        let live = LiveRun { session_id: driver.session_id().to_owned(), journal: driver.journal(), commands };
        self.live.lock().insert(run_id.clone(), live);
        let registry = Arc::clone(self);
        let span = driver.span();
        let drive = async move {
            let exit = driver.drive(&mut received).await;
            registry.live.lock().remove(&run_id);
            // Callers whose command was still queued receive the end, or find the run in the store.
            received.close();
            while let Some(command) = received.recv().await {
                if let (Command::Wait { listener, .. }, DriverExit::Over(result)) = (command, &exit) {
                    // The caller may be gone.
                    drop(listener.send(result.as_ref().clone()));
                }
            }
        };
        tokio::spawn(drive.instrument(span));
    }

    /// Creates a run that this process holds. It is not written yet.
    pub(crate) fn new_run(
        &self,
        run_id: RunId,
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
            tables: tables.shared_bytes(),
            definition,
        })
    }

    pub(crate) fn lease_until(&self) -> Millis {
        self.lease.until_ms()
    }

    /// Synchronizes with the store's clock, if it has one: all processes that share the store use it for leases.
    pub(crate) async fn set_clock(&self) {
        let asked = now_ms();
        match self.store.server_clock().await {
            Ok(Some(store_ms)) => self.lease.adjust_to_store(store_ms, asked, now_ms()),
            Ok(None) => {}
            error @ Err(_) => error.log_ignored("read the store's clock"),
        }
    }

    /// Returns the runs that have a driver in this process, and those that are about to.
    pub(crate) fn held_runs(&self) -> Vec<RunId> {
        let mut runs: Vec<RunId> = self.live.lock().keys().cloned().collect();
        runs.extend(self.claiming.lock().iter().cloned());
        runs
    }

    /// Renews the leases of this process's runs, and marks the runs that it has lost.
    pub(crate) async fn renew(&self) -> Result<(), StoreError> {
        let began = Instant::now();
        let runs = self.held_runs();
        if !runs.is_empty() {
            self.store.renew(&self.holder, &runs, self.lease_until()).await?;
            for run_id in self.store.lost(&self.holder, &runs).await? {
                if let Some(live) = self.live.lock().get(&run_id) {
                    live.journal.mark_lost();
                } else if self.claiming.lock().contains(&run_id) {
                    // The run is just getting a driver, so the lease clock must not allow it to make calls.
                    return Ok(());
                }
            }
        }
        self.lease.renewed_at(began);
        Ok(())
    }

    /// Marks a run as being taken over. Its lease is renewed as long as the guard lives.
    pub(crate) fn claim(&self, run_id: &RunId) -> ClaimGuard<'_> {
        self.claiming.lock().push(run_id.clone());
        ClaimGuard { claiming: &self.claiming, run_id: run_id.clone() }
    }

    /// Notifies drivers and waiting callers that another process has changed runs.
    pub(crate) fn on_run_change(&self, change: RunChange) {
        for (run_id, live) in self.live.lock().iter() {
            if change == RunChange::Unknown || change == RunChange::Run(run_id.clone()) {
                // A driver whose queue is full polls the store when it handles the queued commands.
                live.commands.try_send(Command::PollStore).log_expected("notify a driver of a change");
            }
        }
        self.announce(change);
    }

    /// Notifies waiting callers of a change. Drivers are not notified: they are sent what they need as a command.
    pub(crate) fn announce(&self, change: RunChange) {
        // An error means that no caller waits.
        drop(self.changes.send(change));
    }

    /// Subscribes to changes of runs.
    pub(crate) fn changes(&self) -> RunChanges {
        RunChanges(self.changes.subscribe())
    }

    /// Sends a command to the run's driver in this process. Returns the command if there is none.
    pub(crate) async fn send(&self, run_id: &RunId, command: Command) -> Result<(), Command> {
        let commands = self.live.lock().get(run_id).map(|live| live.commands.clone());
        match commands {
            Some(commands) => commands.send(command).await.map_err(|refused| refused.0),
            None => Err(command),
        }
    }

    /// Sends a command to the run's driver, and wakes the run if it has none.
    pub(crate) async fn send_or_wake(
        self: &Arc<Self>,
        executor: &Executor,
        config: &config::CodeMode,
        row: &RunRow,
        command: Command,
    ) -> Result<(), WakeError> {
        let _lock = self.lock_run(&row.run_id).await;
        match self.send(&row.run_id, command).await {
            Ok(()) => Ok(()),
            Err(command) => wake::wake(self, executor, config, row, command).await,
        }
    }

    /// Locks a run. While the guard lives, no other task of this process wakes or finalizes the run.
    pub(crate) async fn lock_run(&self, run_id: &RunId) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        let mut spread = DefaultHasher::new();
        run_id.hash(&mut spread);
        let index = usize::try_from(spread.finish() % WAKE_LOCKS as u64).unwrap_or(0);
        match self.waking.get(index) {
            Some(lock) => Some(lock.lock().await),
            None => None,
        }
    }

    /// Returns whether one more run fits under the cap. The runs are counted again when the last count is old, or when
    /// the runs started since could exceed the cap.
    pub(crate) async fn has_room_for(&self, max_live_runs: u64) -> Result<bool, StoreError> {
        {
            let mut counted = self.counted.lock();
            if counted.at.is_some_and(|when| when.elapsed() < COUNT_TTL) && counted.at_most < max_live_runs {
                counted.at_most += 1;
                return Ok(true);
            }
        }
        // A run that is not written yet is only in this process.
        let here = self.live.lock().len() as u64;
        let count = self.store.live_runs().await?.max(here);
        let has_room = count < max_live_runs;
        *self.counted.lock() = RunCount { at: Some(Instant::now()), at_most: count + u64::from(has_room) };
        Ok(has_room)
    }

    /// Returns how many runs have a driver in this process.
    pub(crate) fn live_runs(&self) -> usize {
        self.live.lock().len()
    }

    /// Returns the runs of a session that have a driver in this process.
    pub(crate) fn live_runs_of_session(&self, session_id: &str) -> Vec<RunId> {
        let live = self.live.lock();
        live.iter().filter(|(_, live)| live.session_id == session_id).map(|(run_id, _)| run_id.clone()).collect()
    }

    /// Ends a run that has no driver in this process, and stores why. If another process holds the run, it can write no
    /// more and stops.
    pub(crate) async fn finalize_stored_run(
        &self,
        row: &RunRow,
        failure: &Failure,
        catalog: Option<&Catalog>,
    ) -> Result<CellResult, CommitError> {
        let telemetry = of_stored_run(row);
        let telemetry = Telemetry { snapshots: telemetry.snapshots.of_ended_run(), ..telemetry };
        let aborted = failure.code == Some(ErrorCode::Aborted);
        fault::point("abort.before_take")?;
        let mut held = match self.store.take_forcibly(&row.run_id, &self.holder, self.lease_until()).await {
            Ok(held) => held,
            Err(LeaseError::Store(error)) => return Err(error.into()),
            Err(LeaseError::Unknown | LeaseError::HeldElsewhere { .. }) => return Err(CommitError::Fenced),
        };
        fault::point("abort.after_take")?;
        // Read after the run was taken, so that no other process dispatches further calls.
        let effects = effects::of_stored_run(&self.store, &row.run_id, catalog).await;
        let result = effects.added_to(failed_with(failure).with_telemetry(telemetry));
        let now = now_ms();
        let entry = json!({"note": "ended", "runId": row.run_id, "result": result});
        let change = Change {
            state: Some(if aborted { RunState::Aborted } else { RunState::Failed }),
            result: Some(stored_result::to_json(&result)),
            entries: vec![NewEntry::new(now, EntryKind::Note, &entry)],
            ..Change::default()
        };
        self.store.commit(&mut held, &change, Durability::Synced, now).await?;
        Ok(result)
    }
}

/// Keeps a run in the list of those being taken over; see [`RunRegistry::claim`].
#[derive(Debug)]
pub(crate) struct ClaimGuard<'a> {
    claiming: &'a Mutex<Vec<RunId>>,
    run_id: RunId,
}

impl Drop for ClaimGuard<'_> {
    fn drop(&mut self) {
        let mut claiming = self.claiming.lock();
        if let Some(index) = claiming.iter().position(|run_id| *run_id == self.run_id) {
            claiming.swap_remove(index);
        }
    }
}

/// A subscription to the store's changes of runs: those that other processes made, and the decisions and outcomes that
/// this process stored.
///
/// Subscribe before reading the store, so that no change between the two is missed.
#[derive(Debug)]
pub struct RunChanges(broadcast::Receiver<RunChange>);

impl RunChanges {
    /// Waits until the run may have changed, at most for `at_most`. After that time the caller checks the run, too:
    /// notifications may be lost, and an approval that expires causes none.
    pub async fn wait(&mut self, run_id: &RunId, at_most: Duration) {
        self.wait_any(std::slice::from_ref(run_id), at_most).await;
    }

    /// Waits like [`Self::wait`], until one of these runs may have changed.
    pub async fn wait_any(&mut self, run_ids: &[RunId], at_most: Duration) {
        let changed = async {
            loop {
                match self.0.recv().await {
                    Ok(RunChange::Run(changed)) if !run_ids.contains(&changed) => {}
                    Ok(_) | Err(RecvError::Lagged(_)) => return,
                    // The registry is dropped; only the time is left.
                    Err(RecvError::Closed) => std::future::pending().await,
                }
            }
        };
        drop(tokio::time::timeout(at_most, changed).await);
    }
}

pub(crate) fn random_seed() -> Result<u64, getrandom::Error> {
    let mut random = [0; 8];
    executor::fill_random(&mut random)?;
    Ok(u64::from_le_bytes(random))
}
