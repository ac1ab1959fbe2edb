//! A cell's calls: reads them, makes them through the executor, and turns their results into events. Picks up outcomes
//! and decisions that other processes stored, and state changes of calls in progress.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use contract::cell::{OutputItem, PendingState};
use contract::error::ErrorCode;
use contract::frame::{Failure, HostCall, Method, ReplyValue};
use contract::ids::CallId;
use contract::json;
use contract::limits::MAX_QUERY_BYTES;
use contract::tool::ContentHash;
use executor::clock::now_ms;
use executor::{
    CallEnd, CallRequest, Executor, Journal, Outcome, ProgressSink, RESULT_DROPPED, Reservation, RunDataBudget,
    StateSink,
};
use serde_json::Value;
use store::{CallRow, CallState, CommitError, StoreError, StoredReply, ValueWrite};
use telemetry::LogIgnored;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tracing::Instrument;

use super::task::{SessionResult, TaskCompletion, TaskResult};
use super::{Driver, Ownership};
use crate::bridge::{self, BridgeRequest, MAX_SMALL_REPLY};
use crate::cell::Event;
use crate::failure::{commit_message, failure};
use crate::mode::RunMode;
use crate::output::OutputRequest;
use crate::output_reader::{OutputReader, ReadError, may_refer};
use crate::replay::recorded_target;
use crate::run_telemetry::MAX_NESTED_IDS;
use crate::session_values::{
    Decision, Freshness, Operation, Refusal, Sizes, conflict, kept, loaded, read_sizes, refuse, unavailable,
};

/// How long a `wait` is delayed for a call in progress whose question was just answered in another process. Twice
/// `POLL_INTERVAL` of `executor::call::elicitation`, after which the call has read its answer; change both together.
const ANSWER_DELAY: Duration = Duration::from_millis(500);

/// Output of a leg up to this size needs no reservation until a result shows it.
const SMALL_OUTPUT_BYTES: usize = 64 << 10;

/// The calls of a run that read and write session values.
#[derive(Default)]
pub(super) struct SessionCalls {
    queue: VecDeque<HostCall>,
    /// Whether a task works on the first call.
    busy: bool,
    sizes: Option<Sizes>,
}

impl Driver {
    /// Handles the result of a task.
    pub(super) fn on_task_done(&mut self, done: TaskCompletion) -> Event {
        let TaskCompletion { call, what, elapsed } = done;
        self.tool_time += elapsed;
        self.under_way.remove(&call);
        match what {
            TaskResult::TimerFired => {
                self.timers.remove(&call);
                self.settle(call, ReplyValue::Resolved(b"null".to_vec()), None)
            }
            TaskResult::Replied { reply, held } => {
                self.asking.remove(&call);
                self.settle(call, reply, held)
            }
            TaskResult::OutputRead { reply, held } => {
                // Until now the payload was needed to make the call again after a crash.
                self.run.journal.forget_payload(call);
                self.settle(call, reply, held)
            }
            TaskResult::WaitNow => Event::Wait,
            TaskResult::Parked(state) => {
                if state == PendingState::Approval {
                    // A decision that was made before the call was parked here was not delivered.
                    self.look_for_decision(call);
                }
                if state == PendingState::Running {
                    self.follow(call);
                }
                Event::Parked(call, state)
            }
            TaskResult::Decided => Event::Decided(call),
            TaskResult::Polled { arrived, decided } => {
                self.polling = false;
                arrived.into_iter().for_each(|call| self.fetch_outcome(call));
                for call in decided {
                    self.spawn(async move { TaskCompletion::instant(call, TaskResult::Decided) });
                }
                Event::Woke
            }
            TaskResult::Session(done) => self.on_session_done(call, done),
            TaskResult::Stopped(error) => self.stopped(error),
            TaskResult::Nothing => Event::Woke,
        }
    }

    /// Returns the event for a failed write of the journal.
    pub(super) fn stopped(&mut self, error: CommitError) -> Event {
        if let CommitError::Quota(exceeded) = error {
            // The journal exceeds a quota. The failure of the run and its reason can still be written.
            return Event::Lost(failure(ErrorCode::RuntimeUnavailable, exceeded.to_string()));
        }
        // An unreachable store does not end the run: the next process that takes it over continues from what is
        // written.
        self.run.journal.mark_lost();
        if matches!(error, CommitError::Fenced) {
            self.ownership = Ownership::TakenOver;
        }
        let what = "the run cannot continue in this process";
        let message = commit_message("write the journal", &error, what, "call `wait` to try again");
        Event::Lost(failure(ErrorCode::InternalError, message))
    }

    /// Spawns a task of the run, and logs it in the turn in progress.
    pub(super) fn spawn(&mut self, task: impl Future<Output = TaskCompletion> + Send + 'static) -> AbortHandle {
        let span = if self.turn.is_none() { &self.span } else { &self.turn };
        self.calls.spawn(task.instrument(span.clone()))
    }

    pub(super) fn settle(&mut self, call: CallId, reply: ReplyValue, held: Option<Reservation>) -> Event {
        let (reply, held) = match self.run.journal.check_room_for_reply(call, text_of(&reply).len()) {
            Err(full) if text_of(&reply).len() > MAX_SMALL_REPLY => (not_kept(full.code(), &full), None),
            _ => (reply, held),
        };
        match held {
            Some(held) => self.reserved.insert(call, held),
            None => self.reserved.remove(&call),
        };
        self.run.journal.settled(call, None, StoredReply::from(&reply));
        Event::Settled(call, reply)
    }

    /// Handles a state change of a call in progress.
    pub(super) fn on_call_state(&mut self, call: CallId, state: PendingState) -> Event {
        match state {
            PendingState::Approval => self.asking.insert(call),
            _ => self.asking.remove(&call),
        };
        Event::Parked(call, state)
    }

    /// Checks the store for a decision about the call, which this process may have missed.
    pub(super) fn look_for_decision(&mut self, call: CallId) {
        let (executor, journal) = (self.run.executor.clone(), Arc::clone(&self.run.journal));
        self.spawn(async move {
            // If the store is unreachable, the next poll asks again.
            let decisions = executor.decisions_for(&journal, call).await;
            let what = match decisions {
                Ok(Some(_)) => TaskResult::Decided,
                Ok(None) => TaskResult::Nothing,
                error @ Err(_) => {
                    error.log_ignored("look for a decision");
                    TaskResult::Nothing
                }
            };
            TaskCompletion::instant(call, what)
        });
    }

    /// Delays a `wait` while a call in progress has a question that was just answered in another process. The call
    /// receives the answer after a short delay; before that, the question would still look unanswered.
    pub(super) fn wait_after_answers(&mut self) {
        let journal = Arc::clone(&self.run.journal);
        self.spawn(async move {
            let asked = journal.store().approvals_of_run(journal.run_id()).await.unwrap_or_else(|error| {
                tracing::warn!(%error, "cannot look for answers to questions");
                Vec::new()
            });
            let now = now_ms();
            let under_way = [CallState::Dispatched, CallState::Away];
            let in_progress = |call: CallId| journal.call(call).is_some_and(|row| under_way.contains(&row.state));
            if asked.iter().any(|one| one.question.is_some() && !one.is_open(now) && in_progress(one.call)) {
                tokio::time::sleep(ANSWER_DELAY).await;
            }
            TaskCompletion::instant(CallId(0), TaskResult::WaitNow)
        });
    }

    /// Polls the store for outcomes and decisions from other processes. Only one poll runs at a time.
    pub(super) fn poll_store(&mut self) {
        if self.polling || !self.run.journal.waits_for_others() {
            return;
        }
        self.polling = true;
        let journal = Arc::clone(&self.run.journal);
        self.spawn(async move {
            let (arrived, decided) = settled_and_decided(&journal).await.unwrap_or_else(|error| {
                tracing::warn!(%error, "cannot poll the store for outcomes and decisions");
                Default::default()
            });
            TaskCompletion::instant(CallId(0), TaskResult::Polled { arrived, decided })
        });
    }

    pub(super) fn dispatch(&mut self, call: &HostCall) {
        let request = match self.refused.remove(&call.id) {
            Some(rejection) => BridgeRequest::Answered(rejection),
            None if call.method == Method::Output => return self.read_output(call),
            None if call.method == Method::State => return self.use_session_value(call),
            None => BridgeRequest::read(self.run.executor.catalog(), self.run.mode.view(), &self.run.search, call),
        };
        self.count(call.method, &request);
        match request {
            BridgeRequest::Answered(reply) => {
                self.run.journal.forget_payload(call.id);
                self.queue_reply(call.id, reply);
            }
            BridgeRequest::Tool { id, input } => {
                let request = self.request(call.id, id, input, self.parent_of(call.id));
                if may_refer(&call.payload) {
                    return self.spawn_call_with_outputs(request, call.payload.len());
                }
                self.spawn_call(request, |executor, journal, request| async move {
                    executor.call(&journal, &request).await
                });
            }
        }
    }

    /// Resumes a call after a person's decision: makes the call, or rejects it.
    pub(super) fn resume_decided(&mut self, call: CallId) {
        let Some(request) = self.journaled(call) else { return };
        if self.run.journal.call(call).is_some_and(|row| row.state != CallState::Approval) {
            // The call is in progress and its tool asked a question; the tool receives the answer by itself.
            return;
        }
        self.spawn_call(request, |executor, journal, request| async move {
            match executor.decisions_for(&journal, request.call).await {
                Ok(Some(decisions)) => executor.resume_decided(&journal, &request, &decisions).await,
                Ok(None) => CallEnd::Parked(PendingState::Approval),
                // If the store is unreachable, the next poll asks again.
                error @ Err(_) => {
                    error.log_ignored("load a decision");
                    CallEnd::Parked(PendingState::Approval)
                }
            }
        });
    }

    /// Loads the outcome of a call that was settled through the store.
    pub(super) fn fetch_outcome(&mut self, call: CallId) {
        let Some(request) = self.journaled(call) else { return };
        self.spawn_call(request, |executor, journal, request| async move {
            let known = journal.call(request.call).and_then(|row| row.outcome);
            let outcome = match known {
                Some(outcome) => Some(outcome),
                // If the store is unreachable, the next poll asks again.
                None => {
                    let row = journal.store().call(journal.run_id(), request.call).await.unwrap_or_else(|error| {
                        tracing::warn!(%error, "cannot load the outcome of a call");
                        None
                    });
                    row.and_then(|row| row.outcome)
                }
            };
            match outcome {
                Some(outcome) => executor.record_outcome(&journal, &request, Outcome::from_json(&outcome)).await,
                None => CallEnd::Parked(PendingState::Client),
            }
        });
    }

    /// Queues a reply that needs no tool call, as the result of a task.
    pub(super) fn queue_reply(&mut self, call: CallId, reply: ReplyValue) {
        let event = self.settle(call, reply, None);
        self.answered.push_back(event);
    }

    /// Follows a call whose tool must be asked for its outcome. If the tool cannot be asked now, the next `wait` tries
    /// again.
    pub(super) fn follow(&mut self, call: CallId) {
        let Some(request) = self.journaled(call) else { return };
        self.spawn_call(request, |executor, journal, request| async move { executor.follow(&journal, &request).await });
    }

    /// Cancels the unfinished calls of a run that is over.
    pub(super) fn cancel(&self) {
        self.run.executor.cancel(&self.run.id, &self.run.journal.calls());
    }

    /// Retries a call that was in progress when the host stopped.
    pub(super) fn retry(&mut self, call: CallId) {
        let Some(request) = self.journaled(call) else { return };
        self.spawn_call(request, |executor, journal, request| async move { executor.retry(&journal, &request).await });
    }

    pub(super) fn set_timer(&mut self, call: CallId, after_ms: u64) {
        let timer = self.spawn(async move {
            tokio::time::sleep(Duration::from_millis(after_ms)).await;
            TaskCompletion::instant(call, TaskResult::TimerFired)
        });
        self.timers.insert(call, timer);
    }

    /// Spawns a task that makes or resumes a call and turns its end into a reply.
    fn spawn_call<F, E>(
        &mut self,
        request: CallRequest,
        how: impl FnOnce(Executor, Arc<Journal>, CallRequest) -> F + Send + 'static,
    ) where
        F: Future<Output = E> + Send,
        E: Into<Option<CallEnd>>,
    {
        let (executor, journal) = (self.run.executor.clone(), Arc::clone(&self.run.journal));
        let (call, tool, data) = (request.call, request.id.clone(), self.run.data.clone());
        let began = Instant::now();
        self.under_way.insert(call, began);
        self.spawn(async move {
            let what = ended(how(executor, journal, request).await.into(), &tool, &data);
            TaskCompletion { call, what, elapsed: began.elapsed() }
        });
    }

    fn request(&self, call: CallId, id: String, input: Value, parent: String) -> CallRequest {
        let changes = self.states.clone();
        // If the channel is full, the change is lost: the model sees the call as running.
        let states = StateSink::to(move |state| {
            changes.try_send((call, state)).log_ignored("report the state of a call");
        });
        CallRequest { call, id, input, parent, updates: ProgressSink::default(), states }
    }

    /// Returns the control call that a call was requested in. A queued or parked call may be made in a later one.
    fn parent_of(&self, call: CallId) -> String {
        self.run.journal.parent_of(call).unwrap_or_else(|| self.parent.clone())
    }

    /// Rebuilds the request of a call from the journal.
    fn journaled(&self, call: CallId) -> Option<CallRequest> {
        let row = self.run.journal.call(call)?;
        let input = json::read(row.input.as_deref().unwrap_or(&row.payload)).unwrap_or(Value::Null);
        Some(self.request(call, row.tool_id.unwrap_or(row.target), input, row.parent))
    }

    fn count(&mut self, method: Method, request: &BridgeRequest) {
        match method {
            Method::Search => self.telemetry.search_count += 1,
            Method::Describe => self.telemetry.describe_count += 1,
            // `$api()` reads the catalog as `describe` does.
            Method::Namespace if matches!(request, BridgeRequest::Answered(ReplyValue::Resolved(_))) => {
                self.telemetry.describe_count += 1;
            }
            Method::Call | Method::Namespace => self.telemetry.call_count += 1,
            Method::Yield | Method::Timer | Method::Output | Method::State => {}
        }
        let ids = &mut self.telemetry.nested_tool_ids;
        if let BridgeRequest::Tool { id, .. } = request
            && ids.len() < MAX_NESTED_IDS
            && !ids.contains(id)
        {
            ids.push(id.clone());
        }
    }

    /// Answers a call of the guest's `output` object from the store.
    pub(super) fn read_output(&mut self, call: &HostCall) {
        let request = OutputRequest::read(&call.target, &call.payload);
        let (id, target, reader) = (call.id, call.target.clone(), self.output_reader());
        self.spawn(async move {
            let read = match request {
                Ok(request) => reader.answer(request).await,
                Err(bad) => Err(ReadError::Invalid(bad.0)),
            };
            let what = match read {
                Ok((reply, held)) => TaskResult::OutputRead { reply: ReplyValue::Resolved(reply), held: Some(held) },
                Err(error) => TaskResult::OutputRead { reply: error.reply(&target), held: None },
            };
            TaskCompletion::instant(id, what)
        });
    }

    /// Makes a tool call after its references to stored outputs are replaced by their contents.
    pub(super) fn spawn_call_with_outputs(&mut self, request: CallRequest, payload_bytes: usize) {
        let (executor, journal) = (self.run.executor.clone(), Arc::clone(&self.run.journal));
        let (call, data, reader) = (request.call, self.run.data.clone(), self.output_reader());
        let began = Instant::now();
        self.under_way.insert(call, began);
        self.spawn(async move {
            let mut request = request;
            let what = match reader.fill(&mut request.input, payload_bytes).await {
                // The memory is reserved until the call has ended.
                Ok(_held) => ended(Some(executor.call(&journal, &request).await), &request.id, &data),
                Err(error) => TaskResult::Replied { reply: error.reply(&request.id), held: None },
            };
            TaskCompletion { call, what, elapsed: began.elapsed() }
        });
    }

    pub(super) fn output_reader(&self) -> OutputReader {
        OutputReader {
            journal: Arc::clone(&self.run.journal),
            scope: Arc::clone(self.run.executor.scope()),
            cache: self.read_cache.clone(),
            data: self.run.data.clone(),
        }
    }

    /// Reserves memory for a leg's output until a result shows or stores it.
    pub(super) fn hold_output(&mut self, output: &[OutputItem]) -> Result<(), Failure> {
        let data = |item: &OutputItem| match item {
            OutputItem::Image(media) | OutputItem::Audio(media) => media.data.len(),
            OutputItem::Text { .. } | OutputItem::Json { .. } | OutputItem::Stored(_) => 0,
        };
        let bytes: usize = output.iter().map(|item| size_of::<OutputItem>() + item.bytes() + data(item)).sum();
        if bytes <= SMALL_OUTPUT_BYTES {
            return Ok(());
        }
        match self.run.data.reserve(bytes, 0) {
            Ok(held) => {
                self.held_output.push(held);
                Ok(())
            }
            Err(refused) => {
                let message = format!("the cell waits with {bytes} bytes of output that cannot be kept: {refused}");
                Err(failure(ErrorCode::RuntimeUnavailable, message))
            }
        }
    }

    /// Carries out a call of `store`, `load`, `forget` or `keys`, after those that the cell made before.
    pub(super) fn use_session_value(&mut self, call: &HostCall) {
        self.session_calls.queue.push_back(call.clone());
        self.advance_session_calls(Freshness::Earlier);
    }

    /// Handles the result of a task for the first call.
    pub(super) fn on_session_done(&mut self, call: CallId, done: SessionResult) -> Event {
        self.session_calls.busy = false;
        match done {
            SessionResult::Read(sizes) => {
                self.session_calls.sizes = Some(sizes);
                self.advance_session_calls(Freshness::Fresh);
                Event::Woke
            }
            SessionResult::Replied { reply, held } => {
                self.session_calls.queue.pop_front();
                let event = self.settle_session_call(call, reply, held);
                self.advance_session_calls(Freshness::Earlier);
                event
            }
            SessionResult::Stopped(error) => self.stopped(error),
        }
    }

    /// Answers calls until one needs the store. `freshness` is that of the sizes for the first call.
    fn advance_session_calls(&mut self, mut freshness: Freshness) {
        while !self.session_calls.busy
            && let Some(call) = self.session_calls.queue.front()
        {
            let commits = self.run.journal.value_commits();
            self.session_calls.sizes.take_if(|sizes| freshness == Freshness::Earlier && sizes.as_of != commits);
            let uncommitted = |key: &str| self.run.journal.uncommitted_value(key);
            let sizes = self.session_calls.sizes.as_ref().map(|sizes| (sizes, freshness));
            let operation = match self.run.mode {
                RunMode::CodeMode => Operation::read(call),
                RunMode::ToolSearch(_) => Err(Refusal::ToolSearch),
            };
            let decision = operation
                .map_or_else(Decision::Refuse, |operation| operation.decide(&self.run.id, call.id, uncommitted, sizes));
            let id = call.id;
            let (reply, held) = match decision {
                Decision::Refuse(refusal) => (refuse(&refusal, &call.target), None),
                Decision::Reply(reply) => kept(&self.run.journal, &self.run.data, reply, &call.target),
                // The value takes memory until the next commit.
                Decision::Write { write, reply } => {
                    let held = self.reserved.remove(&id);
                    (self.write_session_value(id, write, reply), held)
                }
                Decision::WriteIf { write, reply } => return self.spawn_write(id, write, reply),
                Decision::Load(key) => return self.spawn_load(id, key),
                Decision::Read => return self.spawn_read(id),
            };
            self.session_calls.queue.pop_front();
            let event = self.settle_session_call(id, reply, held);
            self.answered.push_back(event);
            freshness = Freshness::Earlier;
        }
    }

    /// Settles a call and then drops its payload: as long as the call has no reply, it may have to be made again.
    fn settle_session_call(&mut self, call: CallId, reply: ReplyValue, held: Option<Reservation>) -> Event {
        let event = self.settle(call, reply, held);
        self.run.journal.forget_payload(call);
        event
    }

    fn write_session_value(&mut self, call: CallId, write: ValueWrite, reply: String) -> ReplyValue {
        if let Some(sizes) = &mut self.session_calls.sizes {
            match &write.value {
                Some(value) => sizes.set(&write.key, value.len(), &write.version),
                None => sizes.remove(&write.key),
            }
        }
        self.run.journal.write_value(call, write, StoredReply::Resolved(reply.clone()));
        ReplyValue::Resolved(reply.into_bytes())
    }

    fn spawn_write(&mut self, call: CallId, write: ValueWrite, reply: String) {
        self.spawn_session(call, |journal, _| async move {
            let conflict = conflict(&write);
            match journal.write_value_if(write).await {
                Ok(None) => SessionResult::Replied { reply: ReplyValue::Resolved(reply.into_bytes()), held: None },
                Ok(Some(_)) => SessionResult::Replied { reply: conflict, held: None },
                Err(error) => SessionResult::Stopped(error),
            }
        });
    }

    fn spawn_load(&mut self, call: CallId, key: String) {
        self.spawn_session(call, |journal, data| async move {
            match journal.store().session_value(journal.session(), &key).await {
                Ok(found) => {
                    let found = found.map_or("null".to_owned(), |found| loaded(&found.value, &found.version));
                    let (reply, held) = kept(&journal, &data, found, "load");
                    SessionResult::Replied { reply, held }
                }
                Err(error) => SessionResult::Replied { reply: unavailable(&error, "load"), held: None },
            }
        });
    }

    fn spawn_read(&mut self, call: CallId) {
        let function = self.session_calls.queue.front().map(|call| call.target.clone()).unwrap_or_default();
        self.spawn_session(call, |journal, _| async move {
            match read_sizes(&journal).await {
                Ok(sizes) => SessionResult::Read(sizes),
                Err(error) => SessionResult::Replied { reply: unavailable(&error, &function), held: None },
            }
        });
    }

    fn spawn_session<F: Future<Output = SessionResult> + Send>(
        &mut self,
        call: CallId,
        work: impl FnOnce(Arc<Journal>, RunDataBudget) -> F + Send + 'static,
    ) {
        self.session_calls.busy = true;
        let (journal, data) = (Arc::clone(&self.run.journal), self.run.data.clone());
        self.spawn(async move { TaskCompletion::instant(call, TaskResult::Session(work(journal, data).await)) });
    }
}

/// Turns the end of a call into the result of its task, and reserves memory for the reply.
pub(super) fn ended(end: Option<CallEnd>, tool: &str, data: &RunDataBudget) -> TaskResult {
    match end {
        Some(CallEnd::Settled(outcome)) => {
            let reply = bridge::reply(outcome, tool);
            match data.reserve(text_of(&reply).len(), 0) {
                Ok(held) => TaskResult::Replied { reply, held: Some(held) },
                Err(refused) => TaskResult::Replied { reply: not_kept(refused.code(), &refused), held: None },
            }
        }
        Some(CallEnd::Parked(state)) => TaskResult::Parked(state),
        Some(CallEnd::Stopped(error)) => TaskResult::Stopped(error),
        None => TaskResult::Nothing,
    }
}

fn text_of(reply: &ReplyValue) -> &[u8] {
    match reply {
        ReplyValue::Resolved(text) | ReplyValue::Rejected(text) => text,
    }
}

/// Builds the rejection for a tool's result that does not fit in the journal or in memory.
fn not_kept(code: &str, why: &dyn std::fmt::Display) -> ReplyValue {
    bridge::reject_with_code(code, &format!("{RESULT_DROPPED}: {why}"), "")
}

/// Returns the journal row of a call that a cell has just made.
pub(super) fn row(call: &HostCall, leg: i64, parent: &str) -> CallRow {
    let now = now_ms();
    let due_at = (call.method == Method::Timer).then(|| {
        let after = std::str::from_utf8(&call.payload).ok().and_then(|text| text.parse::<f64>().ok());
        now.saturating_add(after.unwrap_or(0.0) as i64)
    });
    let payload = match call.method {
        Method::Describe => String::new(),
        // A longer query is always refused, so its text is not needed.
        Method::Search | Method::Output if call.payload.len() > MAX_QUERY_BYTES => String::new(),
        _ => json::text(&call.payload).into_owned(),
    };
    let target = recorded_target(&call.target);
    // The hash is over the original bytes: replayed legs are compared by it.
    let payload = (payload, ContentHash::of(&call.payload));
    let row = CallRow::requested_with_hash(call.id, call.method.as_str(), &target, payload, parent, now);
    CallRow { leg, due_at, ..row }
}

/// Returns the waiting calls that have an outcome in the store, and those that have a decision.
async fn settled_and_decided(journal: &Journal) -> Result<(Vec<CallId>, Vec<CallId>), StoreError> {
    let (store, run_id) = (journal.store(), journal.run_id());
    let waits = |call: CallId, states: &[CallState]| journal.call(call).is_some_and(|row| states.contains(&row.state));
    let calls = store.open_calls(run_id).await?;
    let arrived = calls.iter().filter(|row| row.outcome.is_some());
    let arrived = arrived.filter(|row| waits(row.call, &[CallState::Parked, CallState::Away]));
    let arrived = arrived.map(|row| row.call).collect();
    let now = now_ms();
    let approvals = store.approvals_of_run(run_id).await?;
    let decided =
        approvals.iter().filter(|approval| !approval.is_open(now) && waits(approval.call, &[CallState::Approval]));
    Ok((arrived, decided.map(|one| one.call).collect()))
}
