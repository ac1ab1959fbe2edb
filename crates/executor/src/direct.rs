//! A tool call without a cell around it: a run of one call, through the same door.

use contract::frame::Method;
use contract::tool::InputHash;
use serde_json::{Value, json};
use store::{CallRow, CallState, Durability, Held, NewRun, RunState, Store, StoredReply};

use crate::clock::now_ms;
use crate::door::{CallEnd, CallRequest, Executor};
use crate::journal::Journal;
use crate::source::Updates;

/// The only call of such a run.
pub(crate) const CALL: u32 = 1;

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
        let end = finish(&journal, self.call(&journal, &request).await).await;
        Ok(DirectCall { run_id, end })
    }

    fn held(&self, run_id: &str, tool_call_id: &str) -> Held {
        let now = now_ms();
        Held::new(NewRun {
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

/// Writes how a call ended. One that is parked waits from now on, and is put away when nobody comes for it.
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

fn run_id() -> Result<String, getrandom::Error> {
    let mut random = [0; 16];
    getrandom::fill(&mut random)?;
    Ok(random.iter().fold("tc_".to_owned(), |text, byte| text + &format!("{byte:02x}")))
}
