//! Resumes a parked direct call, possibly in another process.

use contract::cell::PendingState;
use serde_json::Value;
use store::{CallRow, CallState, CommitError, LeaseError, Store};

use crate::clock::now_ms;
use crate::direct::{CALL, DirectCall, finish};
use crate::door::Executor;
use crate::journal::Journal;
use crate::listener::{ProgressSink, StateSink};
use crate::request::{CallEnd, CallRequest};
use crate::source::Outcome;

/// The holder of the lease. It is empty because the run is held only during one step.
const HOLDER: &str = "";

impl Executor {
    /// Resumes a parked direct call with a decision or an outcome that was stored since. If there is neither, the call
    /// stays parked.
    pub async fn resume_direct_call(&self, store: &Store, run_id: &str, updates: ProgressSink) -> DirectCall {
        let end = match self.take_parked(store, run_id, updates).await {
            Ok((journal, request, row)) => finish(&journal, self.advance(&journal, &request, &row).await).await,
            Err(error) => CallEnd::Stopped(error),
        };
        DirectCall { run_id: run_id.to_owned(), end }
    }

    /// Takes over the run and loads its call from the store. From then on, no other process can write the run.
    async fn take_parked(
        &self,
        store: &Store,
        run_id: &str,
        updates: ProgressSink,
    ) -> Result<(Journal, CallRequest, CallRow), CommitError> {
        let row = store.run(run_id).await?.filter(|row| row.scope.admits(&self.scope)).ok_or(CommitError::Fenced)?;
        let now = now_ms();
        let held = match store.take(run_id, HOLDER, now, now).await {
            Ok(held) => held,
            Err(LeaseError::Store(error)) => return Err(error.into()),
            Err(LeaseError::Unknown | LeaseError::HeldElsewhere { .. }) => return Err(CommitError::Fenced),
        };
        let calls = store.calls(run_id).await?;
        let totals = store.journal_totals(run_id).await?;
        let journal = Journal::resumed(store.clone(), held, &calls, totals);
        let call = calls.into_iter().find(|call| call.call == CALL).ok_or(CommitError::Fenced)?;
        let input = contract::json::read(call.input.as_deref().unwrap_or(&call.payload)).unwrap_or(Value::Null);
        let (id, parent, states) = (call.target.clone(), row.tool_call_id, StateSink::default());
        let request = CallRequest { call: CALL, id, input, parent, updates, states };
        Ok((journal, request, call))
    }

    /// Advances a parked call according to its stored state.
    pub(crate) async fn advance(&self, journal: &Journal, request: &CallRequest, row: &CallRow) -> CallEnd {
        match (&row.outcome, row.state) {
            (Some(outcome), _) => self.record_outcome(journal, request, Outcome::from_json(outcome)).await,
            (None, CallState::Approval) => match self.decisions_for(journal, request.call).await {
                Ok(Some(said)) => self.resume_decided(journal, request, &said).await,
                Ok(None) => CallEnd::Parked(PendingState::Approval),
                Err(error) => CallEnd::Stopped(error.into()),
            },
            (None, CallState::Dispatched) => self.retry(journal, request).await,
            (None, CallState::Away) => {
                self.follow(journal, request).await.unwrap_or(CallEnd::Parked(PendingState::Running))
            }
            (None, _) => CallEnd::Parked(PendingState::Client),
        }
    }
}
