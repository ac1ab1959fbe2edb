//! What a process has of its runs: who works on which, and how they are reached.

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

/// How long a count of all runs is good for, as long as it is far from the cap.
const COUNT_KEPT: Duration = Duration::from_millis(500);

/// News that a slow listener may be behind by. Whoever missed some looks for itself.
const NEWS_KEPT: usize = 1024;

/// Runs that share a lock to be woken under. More would only cost memory.
const WAKING: usize = 64;

#[derive(Debug)]
pub(super) struct RunRegistry {
    pub(super) pool: Pool,
    pub(super) store: Store,
    /// Who this process is to others that use the same store.
    pub(super) holder: String,
    /// How long its runs are its own without a word to the store.
    pub(super) lease: LeaseClock,
    live: Mutex<BTreeMap<String, Live>>,
    /// Runs that were taken and have nobody working on them yet.
    coming: Mutex<Vec<String>>,
    /// What other processes did to runs, for whoever waits for one.
    news: broadcast::Sender<RunChange>,
    /// A run is woken by one caller at a time: who comes meanwhile finds it awake.
    waking: [AsyncMutex<()>; WAKING],
    counted: Mutex<Counted>,
    /// What unfinished calls of all runs take of this process's memory.
    data: DataBudget,
}

#[derive(Clone, Debug)]
pub(super) struct Live {
    pub(super) session_id: String,
    journal: Arc<Journal>,
    commands: mpsc::Sender<Command>,
}

/// When all runs were counted, and how many there can be by now.
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
            coming: Mutex::default(),
            news: broadcast::Sender::new(NEWS_KEPT),
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

    /// Puts a driver to work, to be found by its run's id until it has nothing left to do.
    pub(super) fn launch(self: &Arc<Self>, run_id: String, driver: Driver, first: Option<Command>) {
        let (commands, mut received) = mpsc::channel(16);
        if let Some(first) = first {
            // There is room: nobody else knows the channel yet.
            drop(commands.try_send(first));
        }
        let live = Live { session_id: driver.session_id().to_owned(), journal: driver.journal(), commands };
        self.lock().insert(run_id.clone(), live);
        let inner = Arc::clone(self);
        tokio::spawn(async move {
            let left = driver.drive(&mut received).await;
            inner.lock().remove(&run_id);
            // Who asked in the meantime is told the end, or finds the run in the store.
            received.close();
            while let Some(command) = received.recv().await {
                if let (Command::Wait { listener, .. }, DriverExit::Over(result)) = (command, &left) {
                    drop(listener.send(result.as_ref().clone()));
                }
            }
        });
    }

    /// A run of ours that is not written yet.
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

    /// Looks at the store's clock, where it has one: leases are told by it, for all who share the store.
    pub(super) async fn set_clock(&self) {
        let asked = now_ms();
        if let Ok(Some(told)) = self.store.server_clock().await {
            self.lease.adjust_to_store(told, asked, now_ms());
        }
    }

    /// Runs that this process works on, or is about to.
    pub(super) fn held_runs(&self) -> Vec<String> {
        let mut runs: Vec<String> = self.lock().keys().cloned().collect();
        runs.extend(self.coming.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned());
        runs
    }

    /// Prolongs what this process works on. Only what it has lost, or cannot ask about, stays without a lease.
    pub(super) async fn renew(&self) -> Result<(), StoreError> {
        let began = Instant::now();
        let runs = self.held_runs();
        if !runs.is_empty() {
            self.store.renew(&self.holder, &runs, self.lease_until()).await?;
            for run_id in self.store.lost(&self.holder, &runs).await? {
                if let Some(live) = self.lock().get(&run_id) {
                    live.journal.mark_lost();
                } else if self.coming.lock().unwrap_or_else(PoisonError::into_inner).contains(&run_id) {
                    // It is just being put to work: the clock must not say that it may.
                    return Ok(());
                }
            }
        }
        self.lease.renewed_at(began);
        Ok(())
    }

    /// A run that is being taken is kept, too, for as long as this is.
    pub(super) fn keeps(&self, run_id: &str) -> ClaimGuard<'_> {
        self.coming.lock().unwrap_or_else(PoisonError::into_inner).push(run_id.to_owned());
        ClaimGuard { coming: &self.coming, run_id: run_id.to_owned() }
    }

    /// Something came for runs, from elsewhere: whoever works on them here, or waits for them, looks.
    pub(super) fn hear(&self, news: RunChange) {
        for (run_id, live) in self.lock().iter() {
            if news == RunChange::Perhaps || news == RunChange::Of(run_id.clone()) {
                // Who has too much to do already looks when it has done it.
                drop(live.commands.try_send(Command::StoreProbe));
            }
        }
        // There may be nobody who waits.
        drop(self.news.send(news));
    }

    pub(super) fn news(&self) -> broadcast::Receiver<RunChange> {
        self.news.subscribe()
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
    ) -> Result<(), WakeError> {
        let _alone = self.alone_with(&row.run_id).await;
        match self.send(&row.run_id, command).await {
            Ok(()) => Ok(()),
            Err(command) => self.awaken(executor, config, row, command).await,
        }
    }

    /// While this is held nobody else wakes or buries the run in this process.
    pub(super) async fn alone_with(&self, run_id: &str) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        let mut spread = DefaultHasher::new();
        run_id.hash(&mut spread);
        let place = usize::try_from(spread.finish() % WAKING as u64).unwrap_or(0);
        match self.waking.get(place) {
            Some(lock) => Some(lock.lock().await),
            None => None,
        }
    }

    /// Whether one more run fits under the cap. A count is asked for when the last one is old, or when the runs
    /// started since then could make the difference.
    pub(super) async fn has_room_for(&self, max_live_runs: u64) -> Result<bool, StoreError> {
        {
            let mut counted = self.counted();
            if counted.at.is_some_and(|when| when.elapsed() < COUNT_KEPT) && counted.at_most < max_live_runs {
                counted.at_most += 1;
                return Ok(true);
            }
        }
        // A run that is not written yet is only here.
        let here = self.lock().len() as u64;
        let count = self.store.live_runs().await?.max(here);
        let has_room = count < max_live_runs;
        *self.counted() = Counted { at: Some(Instant::now()), at_most: count + u64::from(has_room) };
        Ok(has_room)
    }

    /// Held for one look, never across an await.
    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Held for one look-up, never across an await.
    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See [`RunRegistry::keeps`].
#[derive(Debug)]
pub(super) struct ClaimGuard<'a> {
    coming: &'a Mutex<Vec<String>>,
    run_id: String,
}

impl Drop for ClaimGuard<'_> {
    fn drop(&mut self) {
        let mut coming = self.coming.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = coming.iter().position(|run_id| *run_id == self.run_id) {
            coming.swap_remove(place);
        }
    }
}

pub(super) fn random_seed() -> Result<u64, getrandom::Error> {
    let mut random = [0; 8];
    executor::fill_random(&mut random)?;
    Ok(u64::from_le_bytes(random))
}
