//! Direct tool calls, made without a cell: each is a run of one call, on the same path as the calls of cells.

use std::time::{Duration, Instant};

use contract::cell::PendingState;
use contract::frame::Method;
use contract::ids::{CallId, RunId};
use serde_json::{Value, json};
use store::{CallRow, CallState, CommitError, Durability, FencedRun, LeaseError, NewRun, RunState, Store, StoredReply};
use telemetry::LogIgnored;
use tracing::Instrument;

use super::context::{Call, CallContext};
use super::resume::{advance, follow};
use super::{CallEnd, CallRequest, dispatch, parked};
use crate::clock::now_ms;
use crate::journal::Journal;
use crate::random_name;
use crate::sink::{ProgressSink, StateSink};

/// The number of the only call of such a run.
const CALL: CallId = CallId(1);

/// How often the store is polled for the outcome of a parked call.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The holder of the lease. It is empty because the run is held only during one step.
const HOLDER: &str = "";

/// A direct call that has settled, is parked, or was stopped.
#[derive(Debug)]
pub struct DirectCall {
    /// The run of the call. Together with the call's number, 1, it is the token that settles a parked call.
    pub run_id: RunId,
    pub end: CallEnd,
}

/// The run of a new direct call.
pub(crate) struct DirectRun {
    journal: Journal,
    request: CallRequest,
}

impl DirectRun {
    /// Starts a run for one call. Nothing is written yet.
    pub(crate) fn open(
        context: &CallContext,
        store: &Store,
        tool_call_id: &str,
        id: &str,
        input: Value,
        updates: ProgressSink,
    ) -> Result<Self, getrandom::Error> {
        let run_id = RunId::new(format!("tc_{}", random_name()?));
        let journal = Journal::new(store.clone(), new_run(context, &run_id, tool_call_id));
        let row = CallRow::requested(CALL, Method::Call.as_str(), id, input.to_string(), tool_call_id, now_ms());
        // The first call of a journal always fits: a message from a client is far smaller than a journal may be.
        journal.opened(row).log_ignored("open the journal of a direct call");
        let parent = tool_call_id.to_owned();
        let states = StateSink::default();
        Ok(Self { journal, request: CallRequest { call: CALL, id: id.to_owned(), input, parent, updates, states } })
    }

    /// Makes the call.
    pub(crate) async fn make(self, context: &CallContext) -> DirectCall {
        let call = Call { context, journal: &self.journal, request: &self.request };
        let made = async { finish(call.journal, follow_to_end(call, dispatch::start(call).await).await).await };
        let end = made.instrument(call.span()).await;
        DirectCall { run_id: call.run_id().clone(), end }
    }

    /// Makes the call, waits up to `hold` while it is parked, then cancels it.
    pub(crate) async fn make_within(self, context: &CallContext, hold: Duration) -> DirectCall {
        let call = Call { context, journal: &self.journal, request: &self.request };
        let end = make_within(call, hold).instrument(call.span()).await;
        DirectCall { run_id: call.run_id().clone(), end }
    }
}

async fn make_within(call: Call<'_>, hold: Duration) -> CallEnd {
    let mut end = dispatch::start(call).await;
    let deadline = Instant::now() + hold;
    while let CallEnd::Parked(state) = end {
        let following = follow_to_end(call, end);
        end = tokio::time::timeout_at(deadline.into(), following).await.unwrap_or(CallEnd::Parked(state));
        let CallEnd::Parked(state) = end else { break };
        if Instant::now() >= deadline {
            return cancel(call.journal, state).await;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
        end = poll(call, state).await;
    }
    finish(call.journal, end).await
}

/// Resumes a parked direct call with a decision or an outcome that was stored since. If there is neither, the call stays
/// parked.
pub(crate) async fn resume(context: &CallContext, store: &Store, run_id: &RunId, updates: ProgressSink) -> DirectCall {
    let end = match take_parked(context, store, run_id, updates).await {
        Ok((journal, request, row)) => {
            let call = Call { context, journal: &journal, request: &request };
            let advanced = async { finish(&journal, advance(call, &row).await).await };
            advanced.instrument(call.span()).await
        }
        Err(error) => CallEnd::Stopped(error),
    };
    DirectCall { run_id: run_id.clone(), end }
}

/// Takes over the run and loads its call from the store. From then on, no other process can write the run.
async fn take_parked(
    context: &CallContext,
    store: &Store,
    run_id: &RunId,
    updates: ProgressSink,
) -> Result<(Journal, CallRequest, CallRow), CommitError> {
    let row = store.run(run_id).await?.filter(|row| row.scope.admits(&context.scope)).ok_or(CommitError::Fenced)?;
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

/// Follows a call until it settles or waits for something else. If this future is dropped, the call is cancelled,
/// because its caller no longer waits for it.
async fn follow_to_end(call: Call<'_>, mut end: CallEnd) -> CallEnd {
    while let CallEnd::Parked(PendingState::Running) = end {
        let guard = CancelOnDrop { call, disarmed: false };
        let followed = follow(call).await;
        guard.disarm();
        match followed {
            Some(followed) => end = followed,
            None => return end,
        }
    }
    end
}

/// Polls the store for a parked call, and resumes the call if there is an outcome or a decision.
async fn poll(call: Call<'_>, state: PendingState) -> CallEnd {
    let calls = match call.store().calls(call.run_id()).await {
        Ok(calls) => calls,
        Err(error) => return CallEnd::Stopped(error.into()),
    };
    let Some(row) = calls.iter().find(|row| row.call == CALL) else { return CallEnd::Parked(state) };
    let mut request = call.request.clone();
    // The approval is for the input after hooks and defaults.
    if let Some(input) = &row.input {
        request.input = contract::json::read(input).unwrap_or(Value::Null);
    }
    if row.state == CallState::Away && row.outcome.is_none() {
        return CallEnd::Parked(state);
    }
    match advance(Call { request: &request, ..call }, row).await {
        CallEnd::Parked(_) => CallEnd::Parked(state),
        end @ (CallEnd::Settled(_) | CallEnd::Stopped(_)) => end,
    }
}

fn new_run(context: &CallContext, run_id: &RunId, tool_call_id: &str) -> FencedRun {
    let now = now_ms();
    FencedRun::new(NewRun {
        run_id: run_id.clone(),
        scope: context.scope.as_ref().clone(),
        tool_call_id: tool_call_id.to_owned(),
        holder: String::new(),
        lease_until: 0,
        expires_at: now + context.approval_ms,
        catalog: String::new(),
        tables: std::sync::Arc::from([]),
        definition: json!({"kind": "call"}).to_string(),
    })
}

/// Cancels the calls of a direct run when it is dropped, unless it was disarmed.
struct CancelOnDrop<'a> {
    call: Call<'a>,
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
            parked::cancel(self.call.context, self.call.run_id(), &self.call.journal.calls());
        }
    }
}

/// Writes how a call ended. The run of a parked call becomes `Waiting`, and expires if nothing resumes it.
async fn finish(journal: &Journal, end: CallEnd) -> CallEnd {
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
    journal.store().expire(now_ms()).await.log_ignored("void the approval of a cancelled call");
    CallEnd::Parked(parked)
}
