//! `exec` and `wait`: runs found by their ids and scopes, in this process or in the store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use contract::cell::{CellResult, WaitingReason};
use contract::config;
use contract::error::ErrorCode;
use contract::frame::Failure;
use contract::ids::CallId;
use contract::limits::MAX_CATALOG_BYTES;
use contract::tables::CatalogTables;
use executor::clock::now_ms;
use executor::{CallToken, Executor, Journal, Outcome};
use store::{
    Approval, Decision, DecisionRefused, Held, LeaseError, NewRun, RunRow, RunState, SettleRefused, Settled, Store,
};
use tokio::sync::{mpsc, oneshot};

use crate::definition::Definition;
use crate::driver::{Command, Driver, Left, Run, failed, failed_with, reopened, resumed};
use crate::input::ExecInput;
use crate::pool::Pool;
use crate::recorded;

/// How long a process that says nothing keeps its runs.
const LEASE_MS: i64 = 3_000;
const RENEW_EVERY: Duration = Duration::from_millis(1_000);

/// How long a run's end is kept at hand; the store has it for longer.
const COUNT_KEPT: Duration = Duration::from_millis(500);

/// The two tools.
#[derive(Clone, Debug)]
pub struct CodeMode {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    pool: Pool,
    store: Store,
    /// Who this process is to others that use the same store.
    holder: String,
    live: Mutex<HashMap<String, mpsc::Sender<Command>>>,
    counted: Mutex<(Option<Instant>, u64)>,
}

impl CodeMode {
    /// Needs a runtime: leases are renewed on a task of their own, for as long as anybody holds this.
    pub fn new(pool: Pool, store: Store) -> Result<Self, getrandom::Error> {
        let holder = random_hex::<16>()?;
        let inner = Arc::new(Inner { pool, store, holder, live: Mutex::default(), counted: Mutex::default() });
        tokio::spawn(renew_leases(Arc::downgrade(&inner)));
        Ok(Self { inner })
    }

    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    /// Runs a cell until it ends, yields, or outlasts its budget.
    pub async fn exec(
        &self,
        executor: &Executor,
        config: &config::CodeMode,
        tool_call_id: &str,
        input: ExecInput,
    ) -> CellResult {
        if !config.languages.allow(input.language) {
            let message = format!("this run's cells may not be written in {}", input.language.as_str());
            return failed(ErrorCode::UnsupportedLanguage, &message);
        }
        if self.inner.count_live().await >= config.max_live_runs {
            return failed(
                ErrorCode::RuntimeUnavailable,
                "too many cells are waiting; finish some with `wait` before starting more",
            );
        }
        let (Ok(name), Ok(seed)) = (random_hex::<16>(), random_seed()) else {
            return failed(ErrorCode::RuntimeUnavailable, "the system has no randomness to give");
        };
        let run_id = format!("cm_{name}");
        let definition = Definition::new(input, seed, config.limits.clamped(), config.snapshot_ttl_seconds);
        let tables = executor.catalog().tables().clone();
        let now = now_ms();
        let held = Held::new(NewRun {
            run_id: run_id.clone(),
            scope: executor.scope().as_ref().clone(),
            tool_call_id: tool_call_id.to_owned(),
            holder: self.inner.holder.clone(),
            lease_until: now + LEASE_MS,
            expires_at: now.saturating_add_unsigned(config.snapshot_ttl_seconds.saturating_mul(1000)),
            catalog: tables.hash().to_string(),
            tables: tables.shared(),
            definition: definition.to_json(),
        });
        let run = self.inner.run(
            run_id.clone(),
            definition,
            config,
            executor,
            tables,
            Journal::new(self.inner.store.clone(), held),
        );
        let (tell, told) = oneshot::channel();
        let driver = Driver::new(run, tool_call_id.to_owned(), tell);
        self.inner.launch(run_id, driver, None);
        last_word(told.await)
    }

    /// Goes on with a cell that was waiting.
    pub async fn wait(
        &self,
        executor: &Executor,
        config: &config::CodeMode,
        tool_call_id: &str,
        run_id: &str,
    ) -> CellResult {
        let deadline = Instant::now() + Duration::from_millis(config.limits.max_wait_ms);
        loop {
            let row = match self.inner.store.run(run_id).await {
                Ok(row) => row.filter(|row| row.scope.admits(executor.scope())),
                Err(error) => return failed(ErrorCode::InternalError, &error.to_string()),
            };
            let Some(row) = row else { return no_such_run() };
            if let Some(result) = self.ended(&row).await {
                return result;
            }
            let (tell, told) = oneshot::channel();
            let command = Command::Wait { tool_call_id: tool_call_id.to_owned(), listener: tell };
            let heard = match self.inner.send(run_id, command).await {
                Ok(()) => Ok(()),
                Err(command) => self.inner.awaken(executor, config, &row, command).await,
            };
            let late = Instant::now() >= deadline;
            match heard {
                // Who let go of the run in this very moment drops what it was asked: ask again.
                Ok(()) => match told.await {
                    Err(_) if !late => {}
                    told => return last_word(told),
                },
                // Somebody else has it: look again.
                Err(Asleep::Held) if !late => tokio::time::sleep(Duration::from_millis(50)).await,
                Err(Asleep::Held) => return self.inner.held_elsewhere(&row).await,
                Err(Asleep::Failed(failure)) => return self.inner.bury(&row, &failure).await,
            }
        }
    }

    /// Brings the outcome of a parked call, from anywhere and at any time.
    pub async fn settle(&self, token: &CallToken, outcome: &Outcome) -> Result<Settled, SettleRefused> {
        let settled = self.inner.store.settle(&token.run, token.call, &outcome.to_json()).await?;
        drop(self.inner.send(&token.run, Command::Arrived(CallId(token.call))).await);
        Ok(settled)
    }

    /// Records a person's word on a call. `by` is who said it.
    pub async fn decide(&self, approval_id: &str, decision: &Decision, by: &str) -> Result<Approval, DecisionRefused> {
        let approval = self.inner.store.decide(approval_id, decision, by, now_ms()).await?;
        drop(self.inner.send(&approval.run_id, Command::Decided(CallId(approval.call))).await);
        Ok(approval)
    }

    /// Ends a run, whatever it is doing, wherever it is. Whether there was anything to end.
    pub async fn abort(&self, run_id: &str) -> bool {
        if self.inner.send(run_id, Command::Abort).await.is_ok() {
            return true;
        }
        let Ok(Some(row)) = self.inner.store.run(run_id).await else { return false };
        if row.state.is_over() {
            return false;
        }
        let failure =
            Failure { code: Some(ErrorCode::Aborted), message: "the run was aborted".to_owned(), place: None };
        self.inner.bury(&row, &failure).await;
        true
    }

    /// Ends every run of a session.
    pub async fn end_session(&self, session_id: &str) -> usize {
        let runs = self.inner.store.runs_of_session(session_id).await.unwrap_or_default();
        let live: Vec<String> = self.inner.lock().keys().cloned().collect();
        let mut ended = 0;
        for run_id in runs.iter().chain(live.iter().filter(|run| !runs.contains(run))) {
            // A run that is not written yet has its scope only in this process.
            let ours = runs.contains(run_id);
            ended += usize::from(ours && self.abort(run_id).await);
        }
        ended
    }

    /// Runs that have somebody working on them in this process.
    pub fn live_runs(&self) -> usize {
        self.inner.lock().len()
    }

    /// What there is to say of a run that does not go on.
    async fn ended(&self, row: &RunRow) -> Option<CellResult> {
        let expired = !row.state.is_over() && row.state == RunState::Waiting && row.expires_at <= now_ms();
        if expired {
            // It is put away now, and by anybody else who sweeps meanwhile.
            drop(self.inner.store.expire(now_ms()).await);
        }
        match row.state {
            _ if expired => Some(snapshot_expired()),
            RunState::Expired => Some(snapshot_expired()),
            RunState::Aborted => Some(failed(ErrorCode::Aborted, "the run was aborted")),
            RunState::Completed | RunState::Failed => Some(
                row.result
                    .as_deref()
                    .and_then(recorded::from_json)
                    .unwrap_or_else(|| failed(ErrorCode::InternalError, "the run's result cannot be read")),
            ),
            RunState::Running | RunState::Waiting => None,
        }
    }
}

/// Why a stored run cannot be gone on with.
enum Asleep {
    Held,
    Failed(Failure),
}

impl Inner {
    fn run(
        &self,
        id: String,
        definition: Definition,
        config: &config::CodeMode,
        executor: &Executor,
        tables: CatalogTables,
        journal: Journal,
    ) -> Run {
        Run {
            id,
            definition: Arc::new(definition),
            search: config.search,
            pool: self.pool.clone(),
            executor: executor.clone(),
            journal: Arc::new(journal),
            tables,
        }
    }

    /// Puts a driver to work, to be found by its run's id until it has nothing left to do. What it is woken for
    /// is there before it is: it would find nothing to do otherwise, and leave.
    fn launch(self: &Arc<Self>, run_id: String, driver: Driver, first: Option<Command>) {
        let (commands, mut received) = mpsc::channel(16);
        // A new channel has room for one.
        first.into_iter().for_each(|first| drop(commands.try_send(first)));
        self.lock().insert(run_id.clone(), commands);
        let inner = Arc::clone(self);
        tokio::spawn(async move {
            let left = driver.drive(&mut received).await;
            inner.lock().remove(&run_id);
            // Who asked in the meantime finds the run in the store.
            received.close();
            while let Some(command) = received.recv().await {
                if let (Command::Wait { listener, .. }, Left::Over(result)) = (command, &left) {
                    drop(listener.send(result.as_ref().clone()));
                }
            }
        });
    }

    /// Gives a command to whoever works on the run here, or gives it back.
    async fn send(&self, run_id: &str, command: Command) -> Result<(), Command> {
        let commands = self.lock().get(run_id).cloned();
        match commands {
            Some(commands) => commands.send(command).await.map_err(|refused| refused.0),
            None => Err(command),
        }
    }

    async fn awaken(
        self: &Arc<Self>,
        executor: &Executor,
        config: &config::CodeMode,
        row: &RunRow,
        first: Command,
    ) -> Result<(), Asleep> {
        let now = now_ms();
        let held = match self.store.take(&row.run_id, &self.holder, now, now + LEASE_MS).await {
            Ok(held) => held,
            Err(LeaseError::HeldElsewhere { .. } | LeaseError::Unknown) => return Err(Asleep::Held),
            Err(LeaseError::Store(error)) => return Err(Asleep::Failed(internal(&error.to_string()))),
        };
        // What was read before the run was taken may be old.
        let stored = |error: store::StoreError| Asleep::Failed(internal(&error.to_string()));
        let row = self.store.run(&row.run_id).await.map_err(stored)?.ok_or(Asleep::Held)?;
        let definition = Definition::from_json(&row.definition).ok_or_else(|| unreadable("its definition"))?;
        let snapshot = self.store.open_snapshot(&held, &row).map_err(|error| unreadable(&error.to_string()))?;
        let tables = self.store.tables(&row.catalog, MAX_CATALOG_BYTES).await.map_err(stored)?;
        let tables = CatalogTables::from_bytes(tables.ok_or_else(|| unreadable("its catalog is gone"))?);
        let legs = self.store.legs(&row.run_id).await.map_err(stored)?;
        let calls = self.store.calls(&row.run_id).await.map_err(stored)?;
        let journal = Journal::resumed(self.store.clone(), held, &calls);
        let run = self.run(row.run_id.clone(), definition, config, executor, tables, journal);
        let driver = resumed(run, &row, snapshot, &legs, calls).await.map_err(Asleep::Failed)?;
        self.launch(row.run_id.clone(), driver, Some(first));
        Ok(())
    }

    /// Another process works on the run, and its results come through the store: the model waits again.
    async fn held_elsewhere(&self, row: &RunRow) -> CellResult {
        let calls = self.store.calls(&row.run_id).await.unwrap_or_default();
        let now = u64::try_from(now_ms().saturating_sub(row.created_at)).unwrap_or(0);
        let open = calls.iter().filter_map(|call| reopened(call, row.created_at));
        CellResult::Waiting {
            run_id: row.run_id.clone(),
            reason: WaitingReason::PendingTools,
            pending_tool_calls: open.map(|call| call.pending(now)).collect(),
            output: Vec::new(),
            telemetry: serde_json::from_str(&row.progress).unwrap_or_default(),
        }
    }

    /// Ends a run that nobody can go on with, and says why.
    async fn bury(&self, row: &RunRow, failure: &Failure) -> CellResult {
        let result = failed_with(failure);
        let aborted = failure.code == Some(ErrorCode::Aborted);
        // Taking it leaves whoever may still hold it unable to write.
        let now = now_ms();
        if let Ok(mut held) = self.store.take(&row.run_id, &self.holder, now, now + LEASE_MS).await {
            let change = store::Change {
                state: Some(if aborted { RunState::Aborted } else { RunState::Failed }),
                result: Some(recorded::to_json(&result)),
                ..store::Change::default()
            };
            drop(self.store.commit(&mut held, &change, store::Durability::Synced, now).await);
        }
        result
    }

    async fn count_live(&self) -> u64 {
        {
            let counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
            if counted.0.is_some_and(|when| when.elapsed() < COUNT_KEPT) {
                return counted.1;
            }
        }
        let count = self.store.live_runs().await.unwrap_or(0);
        *self.counted.lock().unwrap_or_else(PoisonError::into_inner) = (Some(Instant::now()), count);
        count
    }

    /// Held for one look-up, never across an await.
    fn lock(&self) -> MutexGuard<'_, HashMap<String, mpsc::Sender<Command>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn renew_leases(inner: std::sync::Weak<Inner>) {
    loop {
        tokio::time::sleep(RENEW_EVERY).await;
        let Some(inner) = inner.upgrade() else { return };
        if inner.lock().is_empty() {
            continue;
        }
        // One that fails is tried again before the lease is over; one that fails for long loses the runs.
        drop(inner.store.renew(&inner.holder, now_ms() + LEASE_MS).await);
    }
}

fn last_word(told: Result<CellResult, oneshot::error::RecvError>) -> CellResult {
    told.unwrap_or_else(|_| failed(ErrorCode::InternalError, "the run stopped without a word; `wait` goes on with it"))
}

fn no_such_run() -> CellResult {
    failed(ErrorCode::InvalidInput, "no such run; `wait` takes the `runId` of an `exec` that answered `waiting`")
}

fn snapshot_expired() -> CellResult {
    failed(ErrorCode::SnapshotExpired, "the cell waited too long and was put away for good; run it again with `exec`")
}

fn unreadable(what: &str) -> Asleep {
    Asleep::Failed(Failure {
        code: Some(ErrorCode::SnapshotRestoreFailed),
        message: format!("the suspended cell cannot be resumed: {what}"),
        place: None,
    })
}

fn internal(message: &str) -> Failure {
    Failure { code: Some(ErrorCode::InternalError), message: message.to_owned(), place: None }
}

fn random_hex<const BYTES: usize>() -> Result<String, getrandom::Error> {
    let mut random = [0; BYTES];
    getrandom::fill(&mut random)?;
    Ok(random.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}")))
}

fn random_seed() -> Result<u64, getrandom::Error> {
    let mut random = [0; 8];
    getrandom::fill(&mut random)?;
    Ok(u64::from_le_bytes(random))
}
