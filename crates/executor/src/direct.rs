//! Direct tool calls, made without a cell: each is a run of one call, on the same path as the calls of cells.

use std::time::{Duration, Instant};

use contract::cell::PendingState;
use contract::frame::Method;
use serde_json::{Value, json};
use store::{CallRow, CallState, Durability, FencedRun, NewRun, RunState, Store, StoredReply};

use crate::clock::now_ms;
use crate::door::Executor;
use crate::journal::Journal;
use crate::listener::{ProgressSink, StateSink};
use crate::random::random_name;
use crate::request::{CallEnd, CallRequest};

/// The number of the only call of such a run.
pub(crate) const CALL: u32 = 1;

/// How often the store is polled for the outcome of a parked call.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A direct call that has settled, is parked, or was stopped.
#[derive(Debug)]
pub struct DirectCall {
    /// The run of the call. Together with the call's number, 1, it is the token that settles a parked call.
    pub run_id: String,
    pub end: CallEnd,
}

impl Executor {
    /// Makes one call. A parked call is settled by its token like any other;
    /// [`resume_direct_call`](Self::resume_direct_call) then returns its outcome.
    pub async fn call_directly(
        &self,
        store: &Store,
        tool_call_id: &str,
        id: &str,
        input: Value,
        updates: ProgressSink,
    ) -> Result<DirectCall, getrandom::Error> {
        let (journal, request) = self.open(store, tool_call_id, id, input, updates)?;
        let called = self.call(&journal, &request).await;
        let end = finish(&journal, self.follow_to_end(&journal, &request, called).await).await;
        Ok(DirectCall { run_id: journal.run_id().to_owned(), end })
    }

    /// Makes one call for a caller that cannot ask for its outcome later: waits up to `hold` while the call is parked,
    /// then cancels it.
    pub async fn call_directly_within(
        &self,
        store: &Store,
        tool_call_id: &str,
        id: &str,
        input: Value,
        updates: ProgressSink,
        hold: Duration,
    ) -> Result<DirectCall, getrandom::Error> {
        let (journal, request) = self.open(store, tool_call_id, id, input, updates)?;
        let mut end = self.call(&journal, &request).await;
        let deadline = Instant::now() + hold;
        while let CallEnd::Parked(state) = end {
            let following = self.follow_to_end(&journal, &request, end);
            end = tokio::time::timeout_at(deadline.into(), following).await.unwrap_or(CallEnd::Parked(state));
            let CallEnd::Parked(state) = end else { break };
            if Instant::now() >= deadline {
                return Ok(DirectCall { run_id: journal.run_id().to_owned(), end: cancel(&journal, state).await });
            }
            tokio::time::sleep(POLL_INTERVAL).await;
            end = self.poll(&journal, request.clone(), state).await;
        }
        Ok(DirectCall { run_id: journal.run_id().to_owned(), end: finish(&journal, end).await })
    }

    /// Follows a call until it settles or waits for something else. If this future is dropped, the call is cancelled,
    /// because its caller no longer waits for it.
    async fn follow_to_end(&self, journal: &Journal, request: &CallRequest, mut end: CallEnd) -> CallEnd {
        while let CallEnd::Parked(PendingState::Running) = end {
            let guard = CancelOnDrop { executor: self, journal, disarmed: false };
            match self.follow(journal, request).await {
                Some(followed) => {
                    guard.disarm();
                    end = followed;
                }
                None => {
                    guard.disarm();
                    return end;
                }
            }
        }
        end
    }

    /// Polls the store for a parked call, and resumes the call if there is an outcome or a decision.
    async fn poll(&self, journal: &Journal, mut request: CallRequest, state: PendingState) -> CallEnd {
        let calls = match journal.store().calls(journal.run_id()).await {
            Ok(calls) => calls,
            Err(error) => return CallEnd::Stopped(error.into()),
        };
        let Some(row) = calls.iter().find(|row| row.call == CALL) else { return CallEnd::Parked(state) };
        // The approval is for the input after hooks and defaults.
        if let Some(input) = &row.input {
            request.input = contract::json::read(input).unwrap_or(Value::Null);
        }
        if row.state == CallState::Away && row.outcome.is_none() {
            return CallEnd::Parked(state);
        }
        match self.advance(journal, &request, row).await {
            CallEnd::Parked(_) => CallEnd::Parked(state),
            end @ (CallEnd::Settled(_) | CallEnd::Stopped(_)) => end,
        }
    }

    fn open(
        &self,
        store: &Store,
        tool_call_id: &str,
        id: &str,
        input: Value,
        updates: ProgressSink,
    ) -> Result<(Journal, CallRequest), getrandom::Error> {
        let journal = Journal::new(store.clone(), self.new_run(&format!("tc_{}", random_name()?), tool_call_id));
        let row = CallRow::requested(CALL, Method::Call.as_str(), id, input.to_string(), tool_call_id, now_ms());
        // The first call of a journal always fits: a message from a client is far smaller than a journal may be.
        let _always = journal.opened(row);
        let parent = tool_call_id.to_owned();
        Ok((
            journal,
            CallRequest { call: CALL, id: id.to_owned(), input, parent, updates, states: StateSink::default() },
        ))
    }

    fn new_run(&self, run_id: &str, tool_call_id: &str) -> FencedRun {
        let now = now_ms();
        FencedRun::new(NewRun {
            run_id: run_id.to_owned(),
            scope: self.scope.as_ref().clone(),
            tool_call_id: tool_call_id.to_owned(),
            holder: String::new(),
            lease_until: 0,
            expires_at: now + self.approval_ms,
            catalog: String::new(),
            tables: std::sync::Arc::from([]),
            definition: json!({"kind": "call"}).to_string(),
        })
    }
}

/// Cancels the calls of a direct run when it is dropped, unless it was disarmed.
struct CancelOnDrop<'a> {
    executor: &'a Executor,
    journal: &'a Journal,
    disarmed: bool,
}

impl CancelOnDrop<'_> {
    fn disarm(mut self) {
        self.disarmed = true;
    }
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if !self.disarmed {
            self.executor.cancel(self.journal.run_id(), &self.journal.calls());
        }
    }
}

/// Writes how a call ended. The run of a parked call becomes `Waiting`, and expires if nothing resumes it.
pub(crate) async fn finish(journal: &Journal, end: CallEnd) -> CallEnd {
    let state = match &end {
        CallEnd::Settled(outcome) => {
            journal.settled(CALL, Some(outcome.to_json()), StoredReply::Resolved("null".to_owned()));
            if outcome.is_error() { RunState::Failed } else { RunState::Completed }
        }
        CallEnd::Parked(_) => RunState::Waiting,
        CallEnd::Stopped(_) => return end,
    };
    match journal.commit(Durability::Relaxed, |change| change.state = Some(state)).await {
        Ok(()) => end,
        Err(error) => CallEnd::Stopped(error),
    }
}

/// Ends the run of a call that is still parked. Its approval becomes void, and a later outcome is ignored.
async fn cancel(journal: &Journal, parked: PendingState) -> CallEnd {
    let written = journal.commit(Durability::Synced, |change| change.state = Some(RunState::Failed)).await;
    if let Err(error) = written {
        return CallEnd::Stopped(error);
    }
    // Voids the approval. If that fails now, the next sweep does it.
    drop(journal.store().expire(now_ms()).await);
    CallEnd::Parked(parked)
}
