//! A cell's calls: read, made through the executor's door, brought back as events.

use std::time::Duration;

use contract::cell::PendingState;
use contract::error::ErrorCode;
use contract::frame::{Failure, HostCall, Method, ReplyValue};
use contract::ids::CallId;
use contract::json;
use contract::limits::MAX_QUERY_BYTES;
use contract::tool::InputHash;
use executor::clock::now_ms;
use executor::{CallEnd, CallRequest, Outcome, ProgressSink, Reserved, StateSink};
use serde_json::Value;
use store::{CallRow, CallState, CommitError, StoredReply};
use tokio::time::Instant;

use super::Driver;
use crate::bridge::{self, Request};
use crate::cell::Event;
use crate::replay::recorded_target;

/// What a task of a run's brought back.
pub(super) struct TaskDone {
    pub(super) call: CallId,
    pub(super) what: TaskResult,
    pub(super) took: Duration,
}

pub(super) enum TaskResult {
    TimerFired,
    Replied {
        reply: ReplyValue,
        /// The memory that the reply takes, where it takes much.
        held: Option<Reserved>,
    },
    Parked(PendingState),
    Decided,
    /// Whoever waits may be told how it stands.
    WaitNow,
    /// What others have brought meanwhile.
    Looked {
        arrived: Vec<CallId>,
        decided: Vec<CallId>,
    },
    Stopped(CommitError),
    /// There was nothing to bring.
    Nothing,
}

impl Driver {
    pub(super) fn took(&mut self, done: TaskDone) -> Event {
        let TaskDone { call, what, took } = done;
        self.tool_time += took;
        match what {
            TaskResult::TimerFired => {
                self.timers.remove(&call);
                self.settle(call, ReplyValue::Resolved(b"null".to_vec()), None)
            }
            TaskResult::Replied { reply, held } => {
                self.asking.remove(&call);
                self.settle(call, reply, held)
            }
            TaskResult::WaitNow => Event::Wait,
            TaskResult::Parked(state) => {
                if state == PendingState::Approval {
                    // A word given before this was known here was not heard.
                    self.look_for_decision(call);
                }
                if state == PendingState::Running {
                    self.follow(call);
                }
                Event::Parked(call, state)
            }
            TaskResult::Decided => Event::Decided(call),
            TaskResult::Looked { arrived, decided } => {
                self.looking = false;
                arrived.into_iter().for_each(|call| self.fetch_outcome(call));
                for call in decided {
                    self.calls.spawn(async move { TaskDone { call, what: TaskResult::Decided, took: Duration::ZERO } });
                }
                Event::Woke
            }
            TaskResult::Stopped(error) => self.stopped(error),
            TaskResult::Nothing => Event::Woke,
        }
    }

    /// What the run does could not be written.
    pub(super) fn stopped(&mut self, error: CommitError) -> Event {
        if let CommitError::Quota(exceeded) = error {
            // There is no room for its journal. That it failed, and why, can be written.
            let code = Some(ErrorCode::RuntimeUnavailable);
            return Event::Lost(Failure { code, message: exceeded.to_string(), place: None });
        }
        // A store that is away now is no end: whoever takes the run next goes on from what is written.
        self.run.journal.mark_lost();
        self.taken_over |= matches!(error, CommitError::Fenced);
        let message = format!("the run cannot go on here: {error}");
        Event::Lost(Failure { code: Some(ErrorCode::InternalError), message, place: None })
    }

    fn settle(&mut self, call: CallId, reply: ReplyValue, held: Option<Reserved>) -> Event {
        let (reply, held) = match self.run.journal.has_room_for(text_of(&reply).len()) {
            Err(full) if text_of(&reply).len() > MAX_SMALL_REPLY => (not_kept(full.code(), &full), None),
            _ => (reply, held),
        };
        match held {
            Some(held) => self.reserved.insert(call, held),
            None => self.reserved.remove(&call),
        };
        self.run.journal.settled(call.0, None, StoredReply::from(&reply));
        Event::Settled(call, reply)
    }

    pub(super) fn dispatch(&mut self, call: &HostCall) {
        let request = match self.refused.remove(&call.id) {
            Some(rejection) => Request::Answered(rejection),
            None => Request::read(self.run.executor.catalog(), self.run.face.view(), &self.run.search, call),
        };
        self.count(call.method, &request);
        match request {
            Request::Answered(reply) => {
                self.run.journal.forget_payload(call.id.0);
                self.bring(call.id, reply);
            }
            Request::Tool { id, input } => {
                let request = self.request(call.id, id, input, self.parent_of(call.id));
                self.make(request, |executor, journal, request| async move { executor.call(&journal, &request).await });
            }
        }
    }

    /// A person has decided: makes the call, or tells the cell that it is not made.
    pub(super) fn go_on(&mut self, call: CallId) {
        let Some(request) = self.journaled(call) else { return };
        if self.run.journal.call(call.0).is_some_and(|row| row.state != CallState::Approval) {
            // Its tool asked while it was at work, and hears the word by itself.
            return;
        }
        self.make(request, |executor, journal, request| async move {
            match executor.decisions_for(&journal, request.call).await {
                Ok(Some(said)) => executor.decided(&journal, &request, &said).await,
                // Where the store is away, it is asked again with the next look.
                Ok(None) | Err(_) => CallEnd::Parked(PendingState::Approval),
            }
        });
    }

    /// Somebody else has settled the call: the store has the outcome.
    pub(super) fn fetch_outcome(&mut self, call: CallId) {
        let Some(request) = self.journaled(call) else { return };
        self.make(request, |executor, journal, request| async move {
            let known = journal.call(request.call).and_then(|row| row.outcome);
            let outcome = match known {
                Some(outcome) => Some(outcome),
                // Where the store is away, it is asked again with the next look.
                None => {
                    let row = journal.store().call(journal.run_id(), request.call).await.ok().flatten();
                    row.and_then(|row| row.outcome)
                }
            };
            match outcome {
                Some(outcome) => executor.record_outcome(&journal, &request, Outcome::from_json(&outcome)).await,
                None => CallEnd::Parked(PendingState::Client),
            }
        });
    }

    /// A reply that the journal has already.
    pub(super) fn bring(&mut self, call: CallId, reply: ReplyValue) {
        let what = TaskResult::Replied { reply, held: None };
        self.calls.spawn(async move { TaskDone { call, what, took: Duration::ZERO } });
    }

    /// The tool works on, and says how far it is only to who asks. Where it cannot be asked now, the next to wait tries
    /// again.
    pub(super) fn follow(&mut self, call: CallId) {
        let Some(request) = self.journaled(call) else { return };
        self.make(request, |executor, journal, request| async move { executor.follow(&journal, &request).await });
    }

    /// The run is over: nobody wants what its tools still work on.
    pub(super) fn cancel(&self) {
        self.run.executor.cancel(&self.run.id, &self.run.journal.calls());
    }

    /// The host stopped while the call was being made.
    pub(super) fn repeat(&mut self, call: CallId) {
        let Some(request) = self.journaled(call) else { return };
        self.make(request, |executor, journal, request| async move { executor.again(&journal, &request).await });
    }

    pub(super) fn set_timer(&mut self, call: CallId, after_ms: u64) {
        let timer = self.calls.spawn(async move {
            tokio::time::sleep(Duration::from_millis(after_ms)).await;
            TaskDone { call, what: TaskResult::TimerFired, took: Duration::ZERO }
        });
        self.timers.insert(call, timer);
    }

    fn make<F, E>(
        &mut self,
        request: CallRequest,
        how: impl FnOnce(executor::Executor, std::sync::Arc<executor::Journal>, CallRequest) -> F + Send + 'static,
    ) where
        F: Future<Output = E> + Send,
        E: Into<Option<CallEnd>>,
    {
        let (executor, journal) = (self.run.executor.clone(), std::sync::Arc::clone(&self.run.journal));
        let (call, tool, data) = (CallId(request.call), request.id.clone(), self.run.data.clone());
        self.calls.spawn(async move {
            let began = Instant::now();
            let what = match how(executor, journal, request).await.into() {
                Some(CallEnd::Settled(outcome)) => {
                    let reply = bridge::reply(outcome, &tool);
                    match data.reserve(text_of(&reply).len(), 0) {
                        Ok(held) => TaskResult::Replied { reply, held: Some(held) },
                        Err(refused) => TaskResult::Replied { reply: not_kept(refused.code(), &refused), held: None },
                    }
                }
                Some(CallEnd::Parked(state)) => TaskResult::Parked(state),
                Some(CallEnd::Stopped(error)) => TaskResult::Stopped(error),
                None => TaskResult::Nothing,
            };
            TaskDone { call, what, took: began.elapsed() }
        });
    }

    fn request(&self, call: CallId, id: String, input: Value, parent: String) -> CallRequest {
        let tell = self.tell.clone();
        // Where that many wait to be told, one that is not looks to the model as if its tool were at work.
        let states = StateSink::to(move |state| {
            let _told = tell.try_send((call, state));
        });
        CallRequest { call: call.0, id, input, parent, updates: ProgressSink::default(), states }
    }

    /// Where a call was asked for: queued or parked, it may be made much later.
    fn parent_of(&self, call: CallId) -> String {
        self.run.journal.call(call.0).map_or_else(|| self.parent.clone(), |row| row.parent)
    }

    /// A call as the journal has it.
    fn journaled(&self, call: CallId) -> Option<CallRequest> {
        let row = self.run.journal.call(call.0)?;
        let input = json::read(row.input.as_deref().unwrap_or(&row.payload)).unwrap_or(Value::Null);
        Some(self.request(call, row.tool_id.unwrap_or(row.target), input, row.parent))
    }

    fn count(&mut self, method: Method, request: &Request) {
        match method {
            Method::Search => self.telemetry.search_count += 1,
            Method::Describe => self.telemetry.describe_count += 1,
            // `$api()` reads the catalog as `describe` does.
            Method::Namespace if matches!(request, Request::Answered(ReplyValue::Resolved(_))) => {
                self.telemetry.describe_count += 1;
            }
            Method::Call | Method::Namespace => self.telemetry.call_count += 1,
            Method::Yield | Method::Timer => {}
        }
        let ids = &mut self.telemetry.nested_tool_ids;
        if let Request::Tool { id, .. } = request
            && ids.len() < MAX_NESTED_IDS
            && !ids.contains(id)
        {
            ids.push(id.clone());
        }
    }
}

const MAX_NESTED_IDS: usize = 1024;

/// A reply of this length is kept whatever the journal has come to: a rejection is no longer.
const MAX_SMALL_REPLY: usize = 4 << 10;

fn text_of(reply: &ReplyValue) -> &[u8] {
    match reply {
        ReplyValue::Resolved(text) | ReplyValue::Rejected(text) => text,
    }
}

/// A tool answered, and there is no room for what it said.
fn not_kept(code: &str, why: &dyn std::fmt::Display) -> ReplyValue {
    bridge::reject_as(code, &format!("the tool was called, but its result is not kept: {why}"), "")
}

/// A call that a cell has just made.
pub(super) fn row(call: &HostCall, leg: i64, parent: &str) -> CallRow {
    let now = now_ms();
    let due_at = (call.method == Method::Timer).then(|| {
        let after = std::str::from_utf8(&call.payload).ok().and_then(|text| text.parse::<f64>().ok());
        now.saturating_add(after.unwrap_or(0.0) as i64)
    });
    let payload = match call.method {
        Method::Describe => String::new(),
        // A query that is longer is refused, whoever reads it.
        Method::Search if call.payload.len() > MAX_QUERY_BYTES => String::new(),
        _ => String::from_utf8_lossy(&call.payload).into_owned(),
    };
    let target = recorded_target(&call.target);
    let row = CallRow::requested(call.id.0, call.method.as_str(), &target, payload, parent, now);
    // Of the bytes themselves: a leg that is run again is compared by them.
    CallRow { leg, due_at, input_hash: InputHash::of(&call.payload).to_string(), ..row }
}
