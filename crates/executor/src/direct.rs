//! A tool call without a cell around it: a run of one call, through the same door.

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

/// The only call of such a run.
pub(crate) const CALL: u32 = 1;

/// How soon an answer that somebody gave is seen.
const LOOK_EVERY: Duration = Duration::from_millis(50);

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
        updates: ProgressSink,
    ) -> Result<DirectCall, getrandom::Error> {
        let (journal, request) = self.open(store, tool_call_id, id, input, updates)?;
        let called = self.call(&journal, &request).await;
        let end = finish(&journal, self.seen_to_its_end(&journal, &request, called).await).await;
        Ok(DirectCall { run_id: journal.run_id().to_owned(), end })
    }

    /// The same for whoever cannot ask again: a parked call is held on to for so long, and then called off.
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
            let following = self.seen_to_its_end(&journal, &request, end);
            end = tokio::time::timeout_at(deadline.into(), following).await.unwrap_or(CallEnd::Parked(state));
            let CallEnd::Parked(state) = end else { break };
            if Instant::now() >= deadline {
                return Ok(DirectCall { run_id: journal.run_id().to_owned(), end: cancel(&journal, state).await });
            }
            tokio::time::sleep(LOOK_EVERY).await;
            end = self.look(&journal, request.clone(), state).await;
        }
        Ok(DirectCall { run_id: journal.run_id().to_owned(), end: finish(&journal, end).await })
    }

    /// Follows a call that is away. Whoever does not wait for it any more does not want it.
    async fn seen_to_its_end(&self, journal: &Journal, request: &CallRequest, mut end: CallEnd) -> CallEnd {
        while let CallEnd::Parked(PendingState::Running) = end {
            let wanted = Wanted { executor: self, journal, over: false };
            match self.follow(journal, request).await {
                Some(followed) => {
                    wanted.no_more();
                    end = followed;
                }
                None => {
                    wanted.no_more();
                    return end;
                }
            }
        }
        end
    }

    /// Whether whoever a call is parked with has answered by now; if so, goes on with it.
    async fn look(&self, journal: &Journal, mut request: CallRequest, state: PendingState) -> CallEnd {
        let calls = match journal.store().calls(journal.run_id()).await {
            Ok(calls) => calls,
            Err(error) => return CallEnd::Stopped(error.into()),
        };
        let Some(row) = calls.iter().find(|row| row.call == CALL) else { return CallEnd::Parked(state) };
        // What hooks and defaults made of the input is what was asked about.
        if let Some(input) = &row.input {
            request.input = contract::json::read(input).unwrap_or(Value::Null);
        }
        if row.state == CallState::Away && row.outcome.is_none() {
            return CallEnd::Parked(state);
        }
        match self.next(journal, &request, row).await {
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
        let journal = Journal::new(store.clone(), self.held(&format!("tc_{}", random_name()?), tool_call_id));
        let row = CallRow::requested(CALL, Method::Call.as_str(), id, input.to_string(), tool_call_id, now_ms());
        // The first call of a journal always has room: a message from a client is far smaller than a journal may be.
        let _always = journal.opened(row);
        let parent = tool_call_id.to_owned();
        Ok((
            journal,
            CallRequest { call: CALL, id: id.to_owned(), input, parent, updates, states: StateSink::default() },
        ))
    }

    fn held(&self, run_id: &str, tool_call_id: &str) -> FencedRun {
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

/// A call that somebody waits for: dropped before it is over, it is called off.
struct Wanted<'a> {
    executor: &'a Executor,
    journal: &'a Journal,
    over: bool,
}

impl Wanted<'_> {
    fn no_more(mut self) {
        self.over = true;
    }
}

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.executor.cancel(self.journal.run_id(), &self.journal.calls());
        }
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

/// Ends the run of a call that is still parked: nobody can say yes to it any more, and what comes is late.
async fn cancel(journal: &Journal, parked: PendingState) -> CallEnd {
    let written = journal.commit(Durability::Synced, |change| change.state = Some(RunState::Failed)).await;
    if let Err(error) = written {
        return CallEnd::Stopped(error);
    }
    // The approval is void; where that cannot be written now, whoever sweeps next does it.
    drop(journal.store().expire(now_ms()).await);
    CallEnd::Parked(parked)
}
