//! `exec` and `wait`: starts runs, and finds them by id and scope in this process or in the store.

mod awaken;
mod end;
mod fork;
mod inner;
mod leases;
mod news;
mod outside;
mod recent;
mod said;

use std::sync::Arc;
use std::time::Duration;

use contract::cell::CellResult;
use contract::config;
use contract::error::ErrorCode;
use contract::frame::Failure;
use executor::clock::now_ms;
use executor::{Executor, Journal, random_name};
use store::{RunRow, RunState, Store};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::definition::Definition;
use crate::driver::{Command, Driver, Run, failed, failed_with};
use crate::face::RunMode;
use crate::input::ExecInput;
use crate::pool::Pool;
use crate::recorded;
use awaken::WakeError;
use inner::RunRegistry;

pub use outside::decide;
pub use recent::Recent;
pub(crate) use said::{snapshot_expired, stopped_unreported};

/// How long `wait` pauses before it looks again for a run that is just being released here.
const RELEASE_PAUSE: Duration = Duration::from_millis(10);

/// How often `wait` checks a run that another process holds, if it is not notified: that process may have died.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The tools `exec` and `wait`.
#[derive(Clone, Debug)]
pub struct CodeMode {
    inner: Arc<RunRegistry>,
}

impl CodeMode {
    /// Creates the tools and starts their background tasks, such as lease renewal, which run until the last clone is
    /// dropped. Must be called in a Tokio runtime.
    pub fn new(pool: Pool, store: Store) -> Result<Self, getrandom::Error> {
        Self::with_lease(pool, store, leases::LEASE)
    }

    /// Creates the tools with a lease of this length: it determines how soon other processes can take over the runs of
    /// a process that died.
    pub fn with_lease(pool: Pool, store: Store, lease: Duration) -> Result<Self, getrandom::Error> {
        let watch = store.watch();
        let inner = Arc::new(RunRegistry::new(pool, store, lease)?);
        tokio::spawn(leases::renew(Arc::downgrade(&inner), lease));
        tokio::spawn(leases::sync_clock(Arc::downgrade(&inner)));
        tokio::spawn(leases::sweep(Arc::downgrade(&inner)));
        tokio::spawn(news::listen(Arc::downgrade(&inner), watch));
        Ok(Self { inner })
    }

    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    /// Runs a cell until it ends, yields, waits only for people or clients, or its time is over.
    pub async fn exec(
        &self,
        executor: &Executor,
        config: &config::CodeMode,
        tool_call_id: &str,
        input: ExecInput,
    ) -> CellResult {
        self.exec_begun(executor, config, tool_call_id, input, |_| {}).await
    }

    pub(crate) async fn exec_begun(
        &self,
        executor: &Executor,
        config: &config::CodeMode,
        tool_call_id: &str,
        input: ExecInput,
        began: impl FnOnce(&str) + Send,
    ) -> CellResult {
        match self.begin(executor, config, RunMode::CodeMode, tool_call_id, input).await {
            Ok((run_id, reported)) => {
                began(&run_id);
                match reported.await {
                    Ok(result) => result,
                    // Another process has taken over the run.
                    Err(_) => self.wait(executor, config, tool_call_id, &run_id).await,
                }
            }
            Err(failure) => failed_with(&failure),
        }
    }

    /// Starts a run. Returns its id, and the channel that receives the result of its first turn.
    pub(crate) async fn begin(
        &self,
        executor: &Executor,
        config: &config::CodeMode,
        face: RunMode,
        tool_call_id: &str,
        input: ExecInput,
    ) -> Result<(String, oneshot::Receiver<CellResult>), Failure> {
        let refuse = |code, message: &str| Failure { code: Some(code), message: message.to_owned(), place: None };
        if !config.languages.allow(input.language) {
            let message = format!("this run's cells may not be written in {}", input.language.as_str());
            return Err(refuse(ErrorCode::UnsupportedLanguage, &message));
        }
        match self.inner.has_room_for(config.max_live_runs).await {
            Ok(true) => {}
            Ok(false) => {
                let message = "too many cells are waiting; finish some with `wait` before starting more";
                return Err(refuse(ErrorCode::RuntimeUnavailable, message));
            }
            Err(error) => {
                let message =
                    format!("the store is unavailable, so the cell was not started; try again later ({error})");
                return Err(refuse(ErrorCode::RuntimeUnavailable, &message));
            }
        }
        fault::point("exec.before_start").map_err(|error| said::internal(&error.to_string()))?;
        let (Ok(name), Ok(seed)) = (random_name(), inner::random_seed()) else {
            return Err(refuse(ErrorCode::RuntimeUnavailable, "cannot read system randomness; try again later"));
        };
        let run_id = format!("{}{name}", face.run_prefix());
        let definition = Definition::new(input, seed, config.limits.clamped(), config.snapshot_ttl_seconds);
        let tables = executor.catalog().tables_for(face.view());
        let kept = (definition.to_json(), definition.expires_at(now_ms()));
        let held = self.inner.new_run(run_id.clone(), executor.scope().as_ref().clone(), tool_call_id, &tables, kept);
        let journal = Journal::new(self.inner.store.clone(), held).with_lease(self.inner.lease.clone());
        let run = self.inner.run(run_id.clone(), definition, config.search, executor, tables, journal);
        let (listener, reported) = oneshot::channel();
        let driver = Driver::new(Run { face, ..run }, tool_call_id.to_owned(), listener);
        self.inner.launch(run_id.clone(), driver, None);
        Ok((run_id, reported))
    }

    /// Resumes a waiting cell, or returns the result of one that has ended.
    pub async fn wait(
        &self,
        executor: &Executor,
        config: &config::CodeMode,
        tool_call_id: &str,
        run_id: &str,
    ) -> CellResult {
        let deadline = Instant::now() + Duration::from_millis(config.limits.max_wait_ms);
        let mut late = false;
        let mut news = self.inner.news();
        loop {
            let row = match self.inner.store.run(run_id).await {
                // Only cells of code mode can be resumed; those of Tool Search end within one turn.
                Ok(row) => row
                    .filter(|row| row.scope.admits(executor.scope()))
                    .filter(|row| row.run_id.starts_with(RunMode::CodeMode.run_prefix())),
                Err(error) => return failed(ErrorCode::InternalError, &error.to_string()),
            };
            let Some(row) = row else { return said::no_such_run() };
            match self.ended(&row).await {
                Ok(None) => {}
                Ok(Some(result)) => return result,
                Err(error) => return failed(ErrorCode::InternalError, &error.to_string()),
            }
            if late {
                return self.inner.held_elsewhere(&row).await;
            }
            let (listener, reported) = oneshot::channel();
            let command = Command::Wait { tool_call_id: tool_call_id.to_owned(), executor: executor.clone(), listener };
            match self.inner.send_or_wake(executor, config, &row, command).await {
                Ok(()) => {
                    if let Ok(result) = reported.await {
                        return result;
                    }
                    // The driver released the run just then: it is in the store.
                    tokio::time::sleep(RELEASE_PAUSE).await;
                }
                Err(WakeError::HeldElsewhere) => news::wait_for_change(&mut news, run_id, POLL_INTERVAL).await,
                Err(WakeError::Locked(failure)) => return failed_with(&failure),
                Err(WakeError::Failed(failure)) => return self.inner.wake_failed(&row, &failure).await,
            }
            late = Instant::now() >= deadline;
        }
    }

    /// Releases the runs of a process that is about to end, so that the next process need not wait for their leases to
    /// expire. Calls in progress end as after a crash.
    pub async fn shut_down(&self) -> Result<(), store::StoreError> {
        self.inner.store.release(&self.inner.holder).await?;
        Ok(())
    }

    /// Returns the number of runs that have a driver in this process.
    pub fn live_runs(&self) -> usize {
        self.inner.lock().len()
    }

    /// Returns the result of a run that is over. `None` if it can continue.
    async fn ended(&self, row: &RunRow) -> Result<Option<CellResult>, store::StoreError> {
        let now = now_ms();
        if !row.state.is_over() && row.expires_at <= now {
            // If the run has a driver, the driver ends it. Otherwise this expires it.
            self.inner.store.expire(now).await?;
            let state = self.inner.store.run(&row.run_id).await?.map(|row| row.state);
            return Ok((state == Some(RunState::Expired)).then(snapshot_expired));
        }
        let recorded = || row.result.as_deref().and_then(recorded::from_json);
        Ok(match row.state {
            RunState::Running | RunState::Waiting => None,
            RunState::Expired => Some(snapshot_expired()),
            RunState::Aborted => Some(recorded().unwrap_or_else(said::aborted)),
            RunState::Completed | RunState::Failed => Some(recorded().unwrap_or_else(said::unreadable_result)),
        })
    }
}
