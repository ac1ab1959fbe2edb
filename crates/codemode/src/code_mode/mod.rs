//! The interface to runs: `exec` and `wait`, and what people and host programs do with runs.

mod abort;
mod decisions;
mod exec;
mod fork;
mod wait;

use std::sync::Arc;
use std::time::Duration;

use contract::cell::CellResult;
use contract::config;
use contract::frame::Failure;
use contract::ids::{ApprovalId, RunId};
use contract::scope::Scope;
use executor::clock::now_ms;
use executor::{CallToken, Executor, Outcome};
use serde_json::Value;
use store::{
    Approval, Decision, DecisionError, Millis, RecordedDecision, RunState, SettleError, SettleResult, Store, StoreError,
};
use tokio::sync::oneshot;

use crate::definition::Definition;
use crate::failure::failed_with;
use crate::input::{ExecInput, wait_input};
use crate::mode::RunMode;
use crate::pool::Pool;
use crate::registry::{DEFAULT_LEASE, RunChanges, RunRegistry};
use crate::replay::ForkError;
use crate::run_telemetry::without_run;

pub use decisions::decide;
pub use exec::ExecRequest;

/// The tools `exec` and `wait`, and the runs of this process.
#[derive(Clone, Debug)]
pub struct CodeMode {
    registry: Arc<RunRegistry>,
}

/// A recent run and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecentRun {
    pub run_id: RunId,
    pub state: RunState,
    pub started_at: Millis,
    /// When it last made progress; for a run that is over, when it ended.
    pub moved_at: Millis,
    pub source: String,
}

impl CodeMode {
    /// Creates the tools and starts their background tasks, such as lease renewal, which run until the last clone is
    /// dropped. Must be called in a Tokio runtime.
    pub fn new(pool: Pool, store: Store) -> Result<Self, getrandom::Error> {
        Self::with_lease(pool, store, DEFAULT_LEASE)
    }

    /// Creates the tools with a lease of this length: it determines how soon other processes can take over the runs of
    /// a process that died.
    pub fn with_lease(pool: Pool, store: Store, lease: Duration) -> Result<Self, getrandom::Error> {
        Ok(Self { registry: RunRegistry::start(pool, store, lease)? })
    }

    /// Returns the store that holds the runs.
    pub fn store(&self) -> &Store {
        &self.registry.store
    }

    /// Runs a cell until it ends, yields, waits only for people or clients, or its time is over.
    ///
    /// The request is an [`ExecInput`], or the JSON input of a model, which the hooks of the executor see.
    pub async fn exec<'a>(
        &self,
        executor: &Executor,
        config: &config::CodeMode,
        tool_call_id: &str,
        request: impl Into<ExecRequest<'a>>,
    ) -> CellResult {
        exec::exec(&self.registry, executor, config, tool_call_id, request.into()).await
    }

    /// Starts a run. Returns its id, and the channel that receives the result of its first turn.
    pub(crate) async fn start(
        &self,
        executor: &Executor,
        config: &config::CodeMode,
        mode: RunMode,
        tool_call_id: &str,
        cell: ExecInput,
    ) -> Result<(RunId, oneshot::Receiver<CellResult>), Failure> {
        exec::start(&self.registry, executor, config, mode, tool_call_id, (cell, None)).await
    }

    /// Resumes a waiting cell, or returns the result of one that has ended.
    pub async fn wait(
        &self,
        executor: &Executor,
        config: &config::CodeMode,
        tool_call_id: &str,
        run_id: &RunId,
    ) -> CellResult {
        wait::wait(&self.registry, executor, config, tool_call_id, run_id).await
    }

    /// Returns the `waiting` result of a run of this scope as the store has it, without resuming it. `None` if there is
    /// no such run, or if it has ended.
    pub async fn waiting(&self, executor: &Executor, run_id: &RunId) -> Option<CellResult> {
        wait::waiting(&self.registry, executor, run_id).await
    }

    /// Runs `wait` with the JSON input of a model, `{ runId }`.
    pub async fn wait_json(
        &self,
        executor: &Executor,
        config: &config::CodeMode,
        tool_call_id: &str,
        input: &Value,
    ) -> CellResult {
        match wait_input(input) {
            Ok(run_id) => self.wait(executor, config, tool_call_id, &run_id).await,
            Err(failure) => failed_with(&failure).with_telemetry(without_run(executor)),
        }
    }

    /// Aborts a run, in any state and in any process. Returns whether there was a run to abort.
    ///
    /// When this returns, the end is written, and the run's calls in this process are cancelled.
    pub async fn abort(&self, run_id: &RunId) -> bool {
        abort::abort(&self.registry, None, run_id).await.is_some()
    }

    /// Aborts a run, and also cancels calls that were left running when another process ended.
    pub async fn abort_with(&self, executor: &Executor, run_id: &RunId) -> bool {
        abort::abort_with_calls(&self.registry, executor, run_id).await.is_some()
    }

    /// Aborts every run of a session. Returns how many were aborted.
    pub async fn end_session(&self, session_id: &str) -> usize {
        abort::end_session(&self.registry, session_id).await
    }

    /// Settles a parked call. Any process that uses the store can do so, at any time.
    pub async fn settle(&self, token: &CallToken, outcome: &Outcome) -> Result<SettleResult, SettleError> {
        decisions::settle(&self.registry, token, outcome).await
    }

    /// Records a person's decision about a call and notifies its run, and the runs of other calls that a new standing
    /// approval covers. `by` is the person.
    pub async fn decide(
        &self,
        approval_id: &ApprovalId,
        decision: &Decision,
        by: &str,
    ) -> Result<RecordedDecision, DecisionError> {
        decisions::decide_and_notify(&self.registry, approval_id, decision, by).await
    }

    /// Records one decision for all open requests of a run. Requests that are decided elsewhere in the meantime keep
    /// that decision. The result includes requests of other runs that a new standing approval covers.
    pub async fn decide_all(
        &self,
        run_id: &RunId,
        decision: &Decision,
        by: &str,
    ) -> Result<Vec<Approval>, DecisionError> {
        decisions::decide_all(&self.registry, run_id, decision, by).await
    }

    /// Creates a run of the same scope with the first `at` legs of another run, and returns its id.
    ///
    /// `wait` resumes the new run: it replays those legs from the record and runs the rest live. Approvals of the
    /// original run do not apply to it.
    pub async fn fork(
        &self,
        scope: &Scope,
        config: &config::CodeMode,
        tool_call_id: &str,
        run_id: &RunId,
        at: usize,
    ) -> Result<RunId, ForkError> {
        fork::fork(&self.registry, scope, config, tool_call_id, run_id, at).await
    }

    /// Returns the newest runs of a scope that `wait` has a result for: those in progress, and those that ended after
    /// `since`. Runs that are not written yet are not included.
    ///
    /// For clients that lost the response with a run's id.
    pub async fn recent(&self, scope: &Scope, since: Millis, limit: u32) -> Result<Vec<RecentRun>, StoreError> {
        let rows = self.store().recent_runs(scope, since, limit).await?;
        let cells = rows.into_iter().filter(|row| row.run_id.starts_with(RunMode::CodeMode.run_prefix()));
        Ok(cells
            .map(|row| RecentRun {
                run_id: row.run_id,
                state: row.state,
                started_at: row.created_at,
                moved_at: row.updated_at,
                source: Definition::from_json(&row.definition).map(|definition| definition.source).unwrap_or_default(),
            })
            .collect())
    }

    /// Returns the newest runs of a scope that are running or waiting. Runs that are not written yet are not included.
    pub async fn live(&self, scope: &Scope, limit: u32) -> Result<Vec<RecentRun>, StoreError> {
        // A waiting run whose time is over can no longer be resumed.
        self.store().expire(now_ms()).await?;
        self.recent(scope, Millis::MAX, limit).await
    }

    /// Returns whether `wait` knows a run of this scope. A run that is not written yet is not known.
    pub async fn has_run(&self, scope: &Scope, run_id: &RunId) -> Result<bool, StoreError> {
        let row = self.store().run(run_id).await?;
        let is_cell = run_id.starts_with(RunMode::CodeMode.run_prefix());
        Ok(row.is_some_and(|row| is_cell && row.scope.admits(scope)))
    }

    /// Subscribes to changes of runs, to wait for them without polling the store.
    pub fn run_changes(&self) -> RunChanges {
        self.registry.changes()
    }

    /// Returns the number of runs that have a driver in this process.
    pub fn live_runs(&self) -> usize {
        self.registry.live_runs()
    }

    /// Releases the runs of a process that is about to end, so that the next process need not wait for their leases to
    /// expire. Calls in progress end as after a crash.
    pub async fn shut_down(&self) -> Result<(), StoreError> {
        self.registry.store.release(&self.registry.holder).await?;
        Ok(())
    }
}
