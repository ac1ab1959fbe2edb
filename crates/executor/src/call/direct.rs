//! Direct tool calls, made without a cell: each is a run of one call, on the same path as the calls of cells.

use std::time::{Duration, Instant};

use contract::cell::PendingState;
use contract::frame::Method;
use contract::ids::{CallId, RunId};
use serde_json::{Value, json};
use store::{
    CallRow, CallState, Change, CommitError, Durability, FencedRun, LeaseError, NewRun, RunState, Store, StoreError,
    StoredReply,
};
use telemetry::LogIgnored;
use tracing::Instrument;

use super::approval::decisions_for;
use super::context::{Call, CallContext};
use super::resume::{advance, follow};
use super::{CallEnd, CallRequest, dispatch, parked};
use crate::clock::now_ms;
use crate::journal::Journal;
use crate::outcome::Outcome;
use crate::sink::{ProgressSink, StateSink};
use crate::{random_name, run_name};

/// The number of the only call of such a run.
const CALL: CallId = CallId(1);

/// How often the store is polled for the outcome of a parked call. Any process may store the outcome, a `Watch` would
/// take a database connection for each call, and the notifications of this process are above this crate (`codemode`).
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The holder of a new run: it is held only while this process makes its call, and no other process looks for it.
const NO_HOLDER: &str = "";

/// How long a process that resumes a parked call holds its run, unless it renews that. Another process that looks for
/// the same call must not take it in the meantime.
const RESUME_LEASE_MS: i64 = 120_000;

/// How often the lease of a resumed run, and the expiry of any direct run, are renewed while its call is being made.
const RENEWAL: Duration = Duration::from_secs(40);

/// The outcome of a call that its caller cancelled.
const CANCELLED: &str = "the call was cancelled before it was made";
const CANCELLED_WHILE_RUNNING: &str = "the call was cancelled while its tool was working; it may have taken effect";

/// A direct call that has settled, is parked, or was stopped.
#[derive(Debug)]
pub struct DirectCall {
    /// The run of the call. Together with the call's number, 1, it is the token that settles a parked call.
    pub run_id: RunId,
    pub end: CallEnd,
}

/// A request to make a direct call.
#[derive(Clone, Debug)]
pub struct DirectRequest {
    pub tool_call_id: String,
    /// The tool's id.
    pub id: String,
    pub input: Value,
    pub updates: ProgressSink,
    /// Receives the call's state changes. If it is not set, the tool cannot ask questions while it is running.
    pub states: StateSink,
    /// The name under which the caller finds the call again while it is parked.
    pub name: Option<String>,
}

impl DirectRequest {
    pub fn new(tool_call_id: &str, id: &str, input: Value, updates: ProgressSink) -> Self {
        let (tool_call_id, id) = (tool_call_id.to_owned(), id.to_owned());
        Self { tool_call_id, id, input, updates, states: StateSink::default(), name: None }
    }
}

/// The run of a new direct call, which is not made yet.
#[derive(Debug)]
pub struct DirectRun {
    journal: Journal,
    request: CallRequest,
}

impl DirectRun {
    /// Starts a run for one call. Nothing is written yet.
    pub(crate) fn open(context: &CallContext, store: &Store, request: DirectRequest) -> Result<Self, getrandom::Error> {
        let DirectRequest { tool_call_id: parent, id, input, updates, states, name } = request;
        let run_id = RunId::new(format!("tc_{}", run_name()?));
        let journal = Journal::new(store.clone(), new_run(context, &run_id, &parent, name.as_deref()));
        let row = CallRow::requested(CALL, Method::Call.as_str(), &id, input.to_string(), &parent, now_ms());
        // The first call of a journal always fits: a message from a client is far smaller than a journal may be.
        journal.opened(row).log_ignored("open the journal of a direct call");
        Ok(Self { journal, request: CallRequest { call: CALL, id, input, parent, updates, states } })
    }

    pub fn run_id(&self) -> &RunId {
        self.journal.run_id()
    }

    /// Makes the call. If `cancelled` completes first, the call is cancelled at its source.
    pub(crate) async fn make(self, context: &CallContext, cancelled: impl Future<Output = ()>) -> DirectCall {
        let call = Call { context, journal: &self.journal, request: &self.request };
        let made = async { follow_to_end(call, dispatch::start(call).await).await };
        let end = until_cancelled(call, NO_HOLDER, made, cancelled).instrument(call.span_in_run()).await;
        DirectCall { run_id: call.run_id().clone(), end }
    }

    /// Makes the call, waits up to `hold` while it is parked, then cancels it.
    pub(crate) async fn make_within(self, context: &CallContext, hold: Duration) -> DirectCall {
        let call = Call { context, journal: &self.journal, request: &self.request };
        let end = make_within(call, hold).instrument(call.span_in_run()).await;
        DirectCall { run_id: call.run_id().clone(), end }
    }
}

/// Returns the waiting runs of parked direct calls that were made under this name, oldest first.
pub(crate) async fn parked_calls(context: &CallContext, store: &Store, name: &str) -> Result<Vec<RunId>, StoreError> {
    store.waiting_runs(&context.scope, &definition(Some(name)), now_ms()).await
}

/// Drives a call to its end and writes that, unless the caller cancels it before.
async fn until_cancelled(
    call: Call<'_>,
    holder: &str,
    made: impl Future<Output = CallEnd>,
    cancelled: impl Future<Output = ()>,
) -> CallEnd {
    let end = tokio::select! {
        biased;
        end = made => end,
        () = cancelled => return cancel_running(call).await,
        never = renew(call, holder) => match never {},
    };
    finish(call.journal, end).await
}

/// Renews the run's lease and expiry: a tool that runs as a task may take an hour.
async fn renew(call: Call<'_>, holder: &str) -> std::convert::Infallible {
    loop {
        tokio::time::sleep(RENEWAL).await;
        let (store, now) = (call.store(), now_ms());
        store.prolong(call.run_id(), now + call.context.approval_ms).await.log_ignored("prolong a direct call");
        if holder != NO_HOLDER {
            let renewed = store.renew(holder, std::slice::from_ref(call.run_id()), now + RESUME_LEASE_MS).await;
            renewed.map(drop).log_ignored("renew the lease of a direct call");
        }
    }
}

/// Records a call that its caller has cancelled. Dropping the call's future has cancelled it at its source.
async fn cancel_running(call: Call<'_>) -> CallEnd {
    let state = call.journal.call(CALL).map(|row| row.state);
    let was_made = matches!(state, Some(CallState::Dispatched | CallState::Away));
    let outcome = Outcome::Failed((if was_made { CANCELLED_WHILE_RUNNING } else { CANCELLED }).to_owned());
    let end = call.record_outcome(outcome.clone()).await;
    call.journal.settled(CALL, Some(outcome.to_json()), StoredReply::Resolved("null".to_owned()));
    match call.journal.commit(Durability::Relaxed, |change| change.state = Some(RunState::Aborted)).await {
        Ok(()) => {
            // Voids an approval request. If that fails now, the next sweep does it.
            call.store().expire(now_ms()).await.log_ignored("void the approval of a cancelled call");
            end
        }
        Err(error) => CallEnd::Stopped(error),
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
/// parked. If another process resumes it, the result is [`CommitError::Fenced`].
pub(crate) async fn resume(
    context: &CallContext,
    store: &Store,
    run_id: &RunId,
    (updates, states): (ProgressSink, StateSink),
    cancelled: impl Future<Output = ()>,
) -> DirectCall {
    let end = match take_parked(context, store, run_id, (updates, states)).await {
        Ok((journal, request, row, holder)) => {
            let call = Call { context, journal: &journal, request: &request };
            let advanced = async {
                match begin(call, &row).await {
                    Ok(()) => follow_to_end(call, advance(call, &row).await).await,
                    Err(error) => CallEnd::Stopped(error),
                }
            };
            until_cancelled(call, &holder, advanced, cancelled).instrument(call.span_in_run()).await
        }
        Err(error) => CallEnd::Stopped(error),
    };
    DirectCall { run_id: run_id.clone(), end }
}

/// Writes that the run is in progress again, if its call can be continued: others then no longer find it as parked.
async fn begin(call: Call<'_>, row: &CallRow) -> Result<(), CommitError> {
    let waits = row.outcome.is_none()
        && match row.state {
            CallState::Approval => decisions_for(call.journal, CALL).await?.is_none(),
            CallState::Parked => true,
            _ => false,
        };
    if waits {
        return Ok(());
    }
    call.journal.commit(Durability::Relaxed, |change| change.state = Some(RunState::Running)).await
}

/// Takes over the run and loads its call from the store. From then on, no other process can write the run.
async fn take_parked(
    context: &CallContext,
    store: &Store,
    run_id: &RunId,
    (updates, states): (ProgressSink, StateSink),
) -> Result<(Journal, CallRequest, CallRow, String), CommitError> {
    let row = store.run(run_id).await?.filter(|row| row.scope.admits(&context.scope)).ok_or(CommitError::Fenced)?;
    let now = now_ms();
    // The run's own id is a name that no other holder has, together with a random part.
    let holder = random_name().map_or_else(|_| run_id.to_string(), |name| format!("{run_id}:{name}"));
    let held = match store.take(run_id, &holder, now, now + RESUME_LEASE_MS).await {
        Ok(held) => held,
        Err(LeaseError::Store(error)) => return Err(error.into()),
        Err(LeaseError::Unknown | LeaseError::HeldElsewhere { .. }) => return Err(CommitError::Fenced),
    };
    let calls = store.calls(run_id).await?;
    let totals = store.journal_totals(run_id).await?;
    let journal = Journal::resumed(store.clone(), held, &calls, totals);
    let call = calls.into_iter().find(|call| call.call == CALL).ok_or(CommitError::Fenced)?;
    let input = contract::json::read(call.input.as_deref().unwrap_or(&call.payload)).unwrap_or(Value::Null);
    let (id, parent) = (call.target.clone(), row.tool_call_id);
    let request = CallRequest { call: CALL, id, input, parent, updates, states };
    Ok((journal, request, call, holder))
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

fn definition(name: Option<&str>) -> String {
    match name {
        Some(name) => json!({"kind": "call", "name": name}).to_string(),
        None => json!({"kind": "call"}).to_string(),
    }
}

fn new_run(context: &CallContext, run_id: &RunId, tool_call_id: &str, name: Option<&str>) -> FencedRun {
    let now = now_ms();
    FencedRun::new(NewRun {
        run_id: run_id.clone(),
        scope: context.scope.as_ref().clone(),
        tool_call_id: tool_call_id.to_owned(),
        holder: NO_HOLDER.to_owned(),
        lease_until: 0,
        expires_at: now + context.approval_ms,
        catalog: String::new(),
        tables: std::sync::Arc::from([]),
        definition: definition(name),
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
    let change = |change: &mut Change| {
        change.state = Some(state);
        // Any process may resume a parked call.
        change.release = true;
    };
    match journal.commit(Durability::Relaxed, change).await {
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

#[cfg(test)]
mod tests;
