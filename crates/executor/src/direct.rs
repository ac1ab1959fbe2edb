//! A tool call without a cell around it: a run of one call, through the same door.

use contract::cell::PendingState;
use contract::frame::Method;
use contract::tool::InputHash;
use serde_json::{Value, json};
use store::{CallRow, CallState, CommitError, Durability, Held, LeaseError, NewRun, RunState, Store, StoredReply};

use crate::clock::now_ms;
use crate::door::{CallEnd, CallRequest, Executor};
use crate::journal::Journal;
use crate::source::{Outcome, Updates};

/// The only call of such a run.
const CALL: u32 = 1;

/// Nobody holds such a run for longer than a step of its takes.
const HOLDER: &str = "";

/// A direct call that was made, or that waits for somebody.
#[derive(Debug)]
pub struct DirectCall {
    /// With the call's number, 1, what it is settled by where it is parked.
    pub run_id: String,
    pub end: CallEnd,
}

impl Executor {
    /// Makes one call. A parked one is settled by its token like any other, and told of by whoever asks then.
    pub async fn call_directly(
        &self,
        store: &Store,
        tool_call_id: &str,
        id: &str,
        input: Value,
        updates: Updates,
    ) -> Result<DirectCall, getrandom::Error> {
        let run_id = run_id()?;
        let journal = Journal::new(store.clone(), self.held(&run_id, tool_call_id));
        let payload = input.to_string();
        journal.opened(CallRow {
            call: CALL,
            leg: 0,
            method: Method::Call.as_str().to_owned(),
            target: id.to_owned(),
            input_hash: InputHash::of(payload.as_bytes()).to_string(),
            payload,
            tool_id: None,
            input: None,
            tool_hash: None,
            state: CallState::Requested,
            attempt: 0,
            due_at: None,
            since: now_ms(),
            settle_order: None,
            outcome: None,
            reply: None,
            parent: tool_call_id.to_owned(),
        });
        let parent = tool_call_id.to_owned();
        let request = CallRequest { call: CALL, id: id.to_owned(), input, parent, updates };
        let end = match self.call(&journal, &request).await {
            CallEnd::Settled(outcome) => finish(&journal, outcome).await,
            parked @ (CallEnd::Parked(_) | CallEnd::Stopped(_)) => parked,
        };
        Ok(DirectCall { run_id, end })
    }

    /// Goes on with a call that was parked: with a person's word, or an outcome that was brought meanwhile. Where
    /// there is neither yet, it stays parked.
    pub async fn go_on_directly(&self, store: &Store, run_id: &str, updates: Updates) -> DirectCall {
        let end = match self.parked(store, run_id, updates).await {
            Ok((journal, request, row)) => match self.next(&journal, &request, &row).await {
                CallEnd::Settled(outcome) => finish(&journal, outcome).await,
                parked @ (CallEnd::Parked(_) | CallEnd::Stopped(_)) => parked,
            },
            Err(error) => CallEnd::Stopped(error),
        };
        DirectCall { run_id: run_id.to_owned(), end }
    }

    /// The call as the store has it. Whoever takes it is the only one to go on with it.
    async fn parked(
        &self,
        store: &Store,
        run_id: &str,
        updates: Updates,
    ) -> Result<(Journal, CallRequest, CallRow), CommitError> {
        let row = store.run(run_id).await?.filter(|row| row.scope.admits(&self.scope)).ok_or(CommitError::Fenced)?;
        let now = now_ms();
        let held = match store.take(run_id, HOLDER, now, now).await {
            Ok(held) => held,
            Err(LeaseError::Store(error)) => return Err(error.into()),
            Err(LeaseError::Unknown | LeaseError::HeldElsewhere { .. }) => return Err(CommitError::Fenced),
        };
        let calls = store.calls(run_id).await?;
        let journal = Journal::resumed(store.clone(), held, &calls);
        let call = calls.into_iter().find(|call| call.call == CALL).ok_or(CommitError::Fenced)?;
        let input = serde_json::from_str(call.input.as_deref().unwrap_or(&call.payload)).unwrap_or(Value::Null);
        let request = CallRequest { call: CALL, id: call.target.clone(), input, parent: row.tool_call_id, updates };
        Ok((journal, request, call))
    }

    async fn next(&self, journal: &Journal, request: &CallRequest, row: &CallRow) -> CallEnd {
        match (&row.outcome, row.state) {
            (Some(outcome), _) => self.arrived(journal, request, Outcome::from_json(outcome)).await,
            (None, CallState::Approval) => match self.word_on(journal, request.call).await {
                Ok(Some(approval)) => self.decided(journal, request, &approval).await,
                Ok(None) => CallEnd::Parked(PendingState::Approval),
                Err(error) => CallEnd::Stopped(error.into()),
            },
            (None, CallState::Dispatched) => self.again(journal, request).await,
            (None, _) => CallEnd::Parked(PendingState::Client),
        }
    }

    fn held(&self, run_id: &str, tool_call_id: &str) -> Held {
        let now = now_ms();
        Held::new(NewRun {
            run_id: run_id.to_owned(),
            scope: self.scope.as_ref().clone(),
            tool_call_id: tool_call_id.to_owned(),
            holder: HOLDER.to_owned(),
            lease_until: 0,
            expires_at: now + self.approval_ms,
            catalog: String::new(),
            tables: std::sync::Arc::from([]),
            definition: json!({"kind": "call"}).to_string(),
        })
    }
}

async fn finish(journal: &Journal, outcome: Outcome) -> CallEnd {
    journal.settled(CALL, Some(outcome.to_json()), StoredReply::Resolved("null".to_owned()));
    let state = if outcome.is_error() { RunState::Failed } else { RunState::Completed };
    match journal.commit(Durability::Relaxed, |change| change.state = Some(state)).await {
        Ok(()) => CallEnd::Settled(outcome),
        Err(error) => CallEnd::Stopped(error),
    }
}

fn run_id() -> Result<String, getrandom::Error> {
    let mut random = [0; 16];
    getrandom::fill(&mut random)?;
    Ok(random.iter().fold("tc_".to_owned(), |text, byte| text + &format!("{byte:02x}")))
}
