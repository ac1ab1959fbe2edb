//! `tool_search`, `tool_describe` and `tool_call`: the steps of a Tool Search cell as separate tools.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use catalog::View;
use contract::config::{self, ToolSearchMode};
use contract::error::ErrorCode;
use contract::frame::{Failure, Method};
use contract::ids::RunId;
use executor::clock::now_ms;
use executor::{CallEnd, DirectRequest, Executor, Outcome, ProgressSink, UNKNOWN_OUTCOME, for_transcript};
use serde_json::{Value, json};
use store::{CommitError, EntryKind, NewEntry};

use super::{ToolSearch, ToolSearchAnswer, input};
use crate::cell::out_of_time;
use crate::failure::{commit_message, failure};
use crate::mode::{SelectedTool, Telemetry, tool_search_failure};

/// What came of the call that a `tool_call` makes.
#[derive(Debug)]
pub enum MadeCall<W> {
    Settled(Outcome),
    /// The call waits, and the model gets no answer now. `W` is what the caller does instead.
    Waiting(W),
}

/// Whether a request makes a control call, or continues one that waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlRequest {
    New,
    Continued,
}

/// A call of a structured tool.
struct Control<'a> {
    executor: &'a Executor,
    name: &'static str,
    tool_call_id: &'a str,
    telemetry: Telemetry,
    started: Instant,
}

impl ToolSearch {
    /// Runs `tool_search { query, limit? }` → compact entries, best first.
    pub async fn search(
        &self,
        executor: &Executor,
        config: &config::ToolSearch,
        tool_call_id: &str,
        input: &Value,
    ) -> ToolSearchAnswer {
        let mut control = Control::new(executor, config, "tool_search", tool_call_id);
        control.telemetry.search_count = 1;
        let found = input::search(input, &config.search)
            .map(|(query, limit)| Value::from(executor.catalog().search(View::ToolSearch, query, limit)));
        self.record(control, input, found).await
    }

    /// Runs `tool_describe { id }` → a compact entry with `parameters`.
    pub async fn describe(
        &self,
        executor: &Executor,
        config: &config::ToolSearch,
        tool_call_id: &str,
        input: &Value,
    ) -> ToolSearchAnswer {
        let mut control = Control::new(executor, config, "tool_describe", tool_call_id);
        control.telemetry.describe_count = 1;
        let described = input::describe(input)
            .and_then(|id| executor.catalog().describe(View::ToolSearch, id).ok_or_else(|| unknown(executor, id)));
        self.record(control, input, described).await
    }

    /// Runs `tool_call { id, args? }` → `{ tool, result }`. Waits for people as long as a cell would.
    pub async fn call(
        &self,
        executor: &Executor,
        config: &config::ToolSearch,
        tool_call_id: &str,
        input: &Value,
    ) -> Value {
        let make = move |id: String, arguments: Value| async move {
            let hold = Duration::from_millis(config.code_timeout_ms);
            let store = self.code_mode.store();
            let request = DirectRequest::new(tool_call_id, &id, arguments, ProgressSink::default());
            let made = executor.call_directly_within(store, request, hold).await.map_err(|_| {
                failure(ErrorCode::RuntimeUnavailable, "cannot read system randomness; try again later")
            })?;
            match made.end {
                CallEnd::Settled(outcome) => Ok(MadeCall::<Infallible>::Settled(outcome)),
                CallEnd::Parked(state) => {
                    Err(out_of_time(config.code_timeout_ms, [(state, Method::Call, id.as_str())].into_iter()))
                }
                CallEnd::Stopped(error) => Err(unwritten(&error)),
            }
        };
        let answer = self.call_with(executor, config, (tool_call_id, ControlRequest::New), input, make).await;
        match answer {
            Ok(answer) => answer.value,
            Err(never) => match never {},
        }
    }

    /// Runs `tool_call`, or continues it. `make` makes the call of the tool with this id, with these arguments: how long
    /// it waits for people is the caller's decision. Fails with what `make` returned if it waits.
    pub async fn call_with<F, W>(
        &self,
        executor: &Executor,
        config: &config::ToolSearch,
        (tool_call_id, request): (&str, ControlRequest),
        input: &Value,
        make: impl FnOnce(String, Value) -> F,
    ) -> Result<ToolSearchAnswer, W>
    where
        F: Future<Output = Result<MadeCall<W>, Failure>>,
    {
        let mut control = Control::new(executor, config, "tool_call", tool_call_id);
        control.telemetry.call_count = 1;
        if request == ControlRequest::New
            && let Err(error) = self.note_call(&control, input).await
        {
            return Ok(failed_answer(&unwritten(&error), &control.telemetry));
        }
        let called = match target(executor, input) {
            Ok((tool, id, arguments)) => {
                control.telemetry.selected_tools.extend(SelectedTool::parse(&id));
                let began = Instant::now();
                let made = make(id, arguments).await;
                control.telemetry.duration_ms.tools = millis(began);
                match made {
                    Ok(MadeCall::Waiting(instead)) => return Err(instead),
                    Ok(MadeCall::Settled(outcome)) => {
                        returned(outcome).map(|result| json!({"tool": tool, "result": result}))
                    }
                    Err(failure) => Err(failure),
                }
            }
            Err(failure) => Err(failure),
        };
        Ok(self.answer(control, called).await)
    }

    /// Records a call and its answer in the transcript, and returns the answer.
    async fn record(&self, control: Control<'_>, input: &Value, result: Result<Value, Failure>) -> ToolSearchAnswer {
        match self.note_call(&control, input).await {
            Ok(()) => self.answer(control, result).await,
            Err(error) => failed_answer(&unwritten(&error), &control.telemetry),
        }
    }

    async fn answer(&self, mut control: Control<'_>, result: Result<Value, Failure>) -> ToolSearchAnswer {
        control.telemetry.duration_ms.total = millis(control.started);
        let answer = match result {
            Ok(value) => ToolSearchAnswer { value, telemetry: json!(control.telemetry), media: Vec::new() },
            Err(failure) => failed_answer(&failure, &control.telemetry),
        };
        let (result, fields) = (for_transcript(&answer.value), json!({"telemetry": control.telemetry}));
        match self.note(&control, EntryKind::ControlResult, ("result", result.get()), fields).await {
            Ok(()) => answer,
            Err(error) => failed_answer(&unwritten(&error), &control.telemetry),
        }
    }

    async fn note_call(&self, control: &Control<'_>, input: &Value) -> Result<(), CommitError> {
        self.note(control, EntryKind::ControlCall, ("arguments", &input.to_string()), json!({})).await
    }

    /// Adds an entry to the transcript: a field that is JSON, more fields, and those of every control call.
    async fn note(
        &self,
        control: &Control<'_>,
        kind: EntryKind,
        field: (&str, &str),
        mut more: Value,
    ) -> Result<(), CommitError> {
        if let Some(fields) = more.as_object_mut() {
            fields.insert("toolName".to_owned(), Value::from(control.name));
            fields.insert("toolCallId".to_owned(), Value::from(control.tool_call_id));
        }
        let session = &control.executor.scope().session_id;
        // The call belongs to no run.
        self.code_mode
            .store()
            .note(session, &RunId::default(), &[NewEntry::with_json(now_ms(), kind, field, &more)])
            .await
    }
}

impl<'a> Control<'a> {
    fn new(executor: &'a Executor, config: &config::ToolSearch, name: &'static str, tool_call_id: &'a str) -> Self {
        let telemetry = Telemetry::new(ToolSearchMode::Tools, config, executor.catalog());
        Self { executor, name, tool_call_id, telemetry, started: Instant::now() }
    }
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

fn failed_answer(failure: &Failure, telemetry: &Telemetry) -> ToolSearchAnswer {
    ToolSearchAnswer { value: tool_search_failure(failure, telemetry), telemetry: json!(telemetry), media: Vec::new() }
}

/// Reads the input of `tool_call`: the tool as searches list it, its id, and the arguments.
fn target(executor: &Executor, input: &Value) -> Result<(Value, String, Value), Failure> {
    let (id, arguments) = input::call(input)?;
    let tool = executor.catalog().compact(View::ToolSearch, id).ok_or_else(|| unknown(executor, id))?;
    Ok((tool, id.to_owned(), arguments))
}

fn returned(outcome: Outcome) -> Result<Value, Failure> {
    match outcome {
        Outcome::Returned(returned) => Ok(returned.into_cell_value()),
        Outcome::Failed(message) => Err(failure(ErrorCode::NestedToolFailed, message)),
        Outcome::Dropped(dropped) => Err(failure(ErrorCode::NestedToolFailed, dropped.message)),
        Outcome::Unknown => Err(failure(ErrorCode::NestedToolFailed, UNKNOWN_OUTCOME)),
    }
}

fn unknown(executor: &Executor, id: &str) -> Failure {
    failure(ErrorCode::InvalidInput, executor.catalog().unknown_tool_message(View::ToolSearch, id, "tool_search"))
}

fn unwritten(error: &CommitError) -> Failure {
    let message = commit_message("record a tool call", error, "the call could not be recorded", "try again");
    failure(ErrorCode::InternalError, message)
}
