//! Ends that come from outside: an abort, the end of a session, a cell that does not come back.

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

/// A run may be put away or woken while it is being ended; then it is looked for again.
const ATTEMPTS: usize = 8;

/// How a run was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// By whoever worked on it in this process, who has told its tools.
    Here,
    /// Nobody here worked on it.
    Buried,
}

impl CodeMode {
    /// Ends a run, whatever it is doing, wherever it is. Whether there was anything to end. When this returns, the
    /// end is written, and what worked on the run's behalf in this process has been told to stop.
    pub async fn abort(&self, run_id: &str) -> bool {
        self.abort_run(run_id).await.is_some()
    }

    /// The same, and what works on the run's behalf elsewhere is told to stop, too: tools that were left working when
    /// another process ended.
    pub async fn abort_with(&self, executor: &Executor, run_id: &str) -> bool {
        let ended = self.abort_run(run_id).await;
        if ended == Some(Ended::Buried)
            && let Ok(calls) = self.inner.store.open_calls(run_id).await
        {
            executor.cancel(run_id, &calls);
        }
        ended.is_some()
    }

    async fn abort_run(&self, run_id: &str) -> Option<Ended> {
        for _ in 0..ATTEMPTS {
            let (done, ended) = oneshot::channel();
            let alone = self.inner.alone_with(run_id).await;
            let heard = self.inner.send(run_id, Command::Abort(done)).await.is_ok();
            if heard {
                drop(alone);
                // Either way it is over here.
                drop(ended.await);
            }
            let row = self.inner.store.run(run_id).await.ok().flatten()?;
            if row.state.is_over() {
                return (heard && row.state == RunState::Aborted).then_some(Ended::Here);
            }
            if !heard {
                let message = "the run was aborted".to_owned();
                let failure = Failure { code: Some(ErrorCode::Aborted), message, place: None };
                if self.inner.bury(&row, &failure).await.is_ok() {
                    return Some(Ended::Buried);
                }
                // It ended meanwhile, or that could not be written: another look tells.
            }
        }
        None
    }

    /// Ends every run of a session.
    pub async fn end_session(&self, session_id: &str) -> usize {
        let mut runs = self.inner.store.runs_of_session(session_id).await.unwrap_or_default();
        // A run that is not written yet is known only to this process.
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

    /// Ends a run that nobody here works on, and says why. Whoever holds it elsewhere can write no more, and stops.
    pub(super) async fn bury(&self, row: &RunRow, failure: &Failure) -> Result<CellResult, CommitError> {
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
        let mut held = match self.store.seize(&row.run_id, &self.holder, self.lease_until()).await {
            Ok(held) => held,
            Err(LeaseError::Store(error)) => return Err(error.into()),
            Err(LeaseError::Unknown | LeaseError::HeldElsewhere { .. }) => return Err(CommitError::Fenced),
        };
        fault::point("abort.after_seize")?;
        self.store.commit(&mut held, &change, Durability::Synced, now).await?;
        Ok(result)
    }
}
