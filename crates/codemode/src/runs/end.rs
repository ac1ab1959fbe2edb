//! Ends runs from outside: an abort, the end of a session, a cell that cannot be resumed.

use contract::cell::CellResult;
use contract::error::ErrorCode;
use contract::frame::Failure;
use executor::Executor;
use executor::clock::now_ms;
use serde_json::json;
use store::{Change, CommitError, Durability, Entry, EntryKind, LeaseError, RunRow, RunState};
use tokio::sync::oneshot;

use super::CodeMode;
use super::inner::RunRegistry;
use crate::driver::{Command, failed_with};
use crate::recorded;

/// How often an abort is tried. The run may be suspended or woken in the meantime, and must then be found again.
const ATTEMPTS: usize = 8;

/// Where a run was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// By its driver in this process, which has cancelled its calls.
    ByDriver,
    /// In the store: it had no driver in this process.
    InStore,
}

impl CodeMode {
    /// Aborts a run, in any state and in any process. Returns whether there was a run to abort.
    ///
    /// When this returns, the end is written, and the run's calls in this process are cancelled.
    pub async fn abort(&self, run_id: &str) -> bool {
        self.abort_run(run_id).await.is_some()
    }

    /// Aborts a run, and also cancels calls that were left running when another process ended.
    pub async fn abort_with(&self, executor: &Executor, run_id: &str) -> bool {
        let ended = self.abort_run(run_id).await;
        if ended == Some(Ended::InStore)
            && let Ok(calls) = self.inner.store.open_calls(run_id).await
        {
            executor.cancel(run_id, &calls);
        }
        ended.is_some()
    }

    async fn abort_run(&self, run_id: &str) -> Option<Ended> {
        for _ in 0..ATTEMPTS {
            let (done, ended) = oneshot::channel();
            let lock = self.inner.lock_run(run_id).await;
            let has_driver = self.inner.send(run_id, Command::Abort(done)).await.is_ok();
            if has_driver {
                drop(lock);
                // An error means that the driver dropped the sender: the run is over here.
                drop(ended.await);
            }
            let row = self.inner.store.run(run_id).await.ok().flatten()?;
            if row.state.is_over() {
                return (has_driver && row.state == RunState::Aborted).then_some(Ended::ByDriver);
            }
            if !has_driver {
                let message = "the run was aborted".to_owned();
                let failure = Failure { code: Some(ErrorCode::Aborted), message, place: None };
                if self.inner.finalize_stored_run(&row, &failure).await.is_ok() {
                    return Some(Ended::InStore);
                }
                // The run has ended in the meantime, or the write failed: the next attempt tells which.
            }
        }
        None
    }

    /// Aborts every run of a session. Returns how many were aborted.
    pub async fn end_session(&self, session_id: &str) -> usize {
        let mut runs = self.inner.store.runs_of_session(session_id).await.unwrap_or_default();
        // A run that is not written yet is only in this process.
        let here: Vec<String> = self.inner.of_session(session_id);
        runs.extend(here);
        runs.sort_unstable();
        runs.dedup();
        let mut ended = 0;
        for run_id in &runs {
            ended += usize::from(self.abort(run_id).await);
        }
        ended
    }
}

impl RunRegistry {
    fn of_session(&self, session_id: &str) -> Vec<String> {
        let live = self.lock();
        live.iter().filter(|(_, live)| live.session_id == session_id).map(|(run_id, _)| run_id.clone()).collect()
    }

    /// Ends a run that has no driver in this process, and stores why. If another process holds the run, it can write no
    /// more and stops.
    pub(super) async fn finalize_stored_run(&self, row: &RunRow, failure: &Failure) -> Result<CellResult, CommitError> {
        let result = failed_with(failure);
        let aborted = failure.code == Some(ErrorCode::Aborted);
        let now = now_ms();
        let entry = json!({"note": "ended", "runId": row.run_id, "result": result});
        let change = Change {
            state: Some(if aborted { RunState::Aborted } else { RunState::Failed }),
            result: Some(recorded::to_json(&result)),
            entries: vec![Entry { at: now, kind: EntryKind::Note, entry }],
            ..Change::default()
        };
        fault::point("abort.before_bury")?;
        let mut held = match self.store.take_forcibly(&row.run_id, &self.holder, self.lease_until()).await {
            Ok(held) => held,
            Err(LeaseError::Store(error)) => return Err(error.into()),
            Err(LeaseError::Unknown | LeaseError::HeldElsewhere { .. }) => return Err(CommitError::Fenced),
        };
        fault::point("abort.after_seize")?;
        self.store.commit(&mut held, &change, Durability::Synced, now).await?;
        Ok(result)
    }
}
