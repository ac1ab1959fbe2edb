//! `exec` and `wait`: runs found by their ids and scopes, in this process or in the store.

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
pub(crate) use said::{snapshot_expired, without_a_word};

/// How long a run that is just being let go of here is left alone before another look.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// How long one that somebody else holds is, without news of it: they may have died.
const LOOK_ELSEWHERE: Duration = Duration::from_millis(250);

/// The two tools.
#[derive(Clone, Debug)]
pub struct CodeMode {
    inner: Arc<RunRegistry>,
}

impl CodeMode {
    /// Needs a runtime: leases are renewed on a task of their own, for as long as anybody holds this.
    pub fn new(pool: Pool, store: Store) -> Result<Self, getrandom::Error> {
        Self::with_lease(pool, store, leases::LEASE)
    }

    /// The same, for whoever wants the runs of a process that died to be taken over sooner, or later.
    pub fn with_lease(pool: Pool, store: Store, lease: Duration) -> Result<Self, getrandom::Error> {
        let watch = store.watch();
        let inner = Arc::new(RunRegistry::new(pool, store, lease)?);
        tokio::spawn(leases::keep(Arc::downgrade(&inner), lease));
        tokio::spawn(leases::keep_time(Arc::downgrade(&inner)));
        tokio::spawn(leases::put_away(Arc::downgrade(&inner)));
        tokio::spawn(news::listen(Arc::downgrade(&inner), watch));
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
            Ok((run_id, told)) => {
                began(&run_id);
                match told.await {
                    Ok(result) => result,
                    // Another has taken the run, and goes on with it.
                    Err(_) => self.wait(executor, config, tool_call_id, &run_id).await,
                }
            }
            Err(failure) => failed_with(&failure),
        }
    }

    /// Starts a run: its id, and where its first turn's result arrives.
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
                let message = format!("a run could not be kept now, so it is not begun; try again later ({error})");
                return Err(refuse(ErrorCode::RuntimeUnavailable, &message));
            }
        }
        fault::point("exec.before_start").map_err(|error| said::internal(&error.to_string()))?;
        let (Ok(name), Ok(seed)) = (random_name(), inner::random_seed()) else {
            return Err(refuse(ErrorCode::RuntimeUnavailable, "the system has no randomness to give"));
        };
        let run_id = format!("{}{name}", face.run_prefix());
        let definition = Definition::new(input, seed, config.limits.clamped(), config.snapshot_ttl_seconds);
        let tables = executor.catalog().tables_for(face.view());
        let kept = (definition.to_json(), definition.expires_at(now_ms()));
        let held = self.inner.new_run(run_id.clone(), executor.scope().as_ref().clone(), tool_call_id, &tables, kept);
        let journal = Journal::new(self.inner.store.clone(), held).under(self.inner.lease.clone());
        let run = self.inner.run(run_id.clone(), definition, config.search, executor, tables, journal);
        let (tell, told) = oneshot::channel();
        let driver = Driver::new(Run { face, ..run }, tool_call_id.to_owned(), tell);
        self.inner.launch(run_id.clone(), driver, None);
        Ok((run_id, told))
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
        let mut late = false;
        let mut news = self.inner.news();
        loop {
            let row = match self.inner.store.run(run_id).await {
                // Only cells of code mode can be gone on with; others answer once.
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
            let (tell, told) = oneshot::channel();
            let command =
                Command::Wait { tool_call_id: tool_call_id.to_owned(), executor: executor.clone(), listener: tell };
            match self.inner.reach(executor, config, &row, command).await {
                Ok(()) => {
                    if let Ok(result) = told.await {
                        return result;
                    }
                    // It was put away just then: it is in the store.
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
                Err(WakeError::FencedRun) => news::of(&mut news, run_id, LOOK_ELSEWHERE).await,
                Err(WakeError::Locked(failure)) => return failed_with(&failure),
                Err(WakeError::Failed(failure)) => return self.inner.could_not(&row, &failure).await,
            }
            late = Instant::now() >= deadline;
        }
    }

    /// For a process that is about to end: lets go of its runs, so that the next one need not wait for their
    /// leases to run out. Calls still under way end as a crash would end them.
    pub async fn leave(&self) -> Result<(), store::StoreError> {
        self.inner.store.release(&self.inner.holder).await?;
        Ok(())
    }

    /// Runs that have somebody working on them in this process.
    pub fn live_runs(&self) -> usize {
        self.inner.lock().len()
    }

    /// What there is to say of a run that does not go on.
    async fn ended(&self, row: &RunRow) -> Result<Option<CellResult>, store::StoreError> {
        let now = now_ms();
        if !row.state.is_over() && row.expires_at <= now {
            // Whoever works on it sees to its end; where nobody does, this is it.
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
