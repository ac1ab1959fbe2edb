//! The calls of a model: `exec`, `wait`, the tools of Tool Search, and tools that are shown directly.
//!
//! A call that was begun before, by this process or another one, is continued instead of made again: its run is found by
//! the id of the model's call.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use catalog::Surface;
use codemode::{CodeMode, ControlRequest, MadeCall, ToolSearch};
use contract::cell::{CellResult, MediaKind, PendingState, WaitingReason};
use contract::error::ErrorCode;
use contract::frame::Failure;
use contract::ids::RunId;
use contract::tool::Source;
use executor::clock::now_ms;
use executor::{CallEnd, DirectRequest, Executor, Outcome, ProgressSink, ToolResult, UNKNOWN_OUTCOME};
use mcp::server::ModelAnswer;
use serde_json::{Value, json};
use store::{Approval, CommitError, StoreError};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use wire::conversation::{Arguments, CallResult, Image, ModelCall, Part};

use super::prepared::{EXEC_HOLD, PreparedTurn};
use super::record::ControlResult;
use crate::internal_error::{commit_message, internal_message};

/// How a call of the model ended, for now.
#[derive(Debug)]
pub(super) enum ControlEnd {
    Done(ControlResult),
    /// The run waits for results of the client.
    Client(RunId),
    /// The run waits only for people.
    People {
        run_id: RunId,
        approvals: Vec<Approval>,
    },
}

/// Whether a call may have been begun before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    First,
    /// The call's run is looked up before a new one is started.
    Repeated,
}

/// How the run of a call that has no result in its turn is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenCallPolicy {
    Resume,
    /// The run is left to another driver, which resumes it.
    Leave,
}

/// Makes the calls of one model response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ControlCalls<'a> {
    pub(crate) code_mode: &'a CodeMode,
    pub(crate) prepared: &'a PreparedTurn,
    pub(crate) cancelled: &'a CancellationToken,
}

impl ControlCalls<'_> {
    /// Makes a call, or continues it.
    pub(super) async fn run(&self, call: &ModelCall, attempt: Attempt) -> Result<ControlEnd, StoreError> {
        let input: Value = match &call.arguments {
            Arguments::Object(text) => match contract::json::read(text) {
                Ok(input) => input,
                Err(error) => return Ok(refused(call, &format!("the arguments cannot be read: {error}"))),
            },
            Arguments::Malformed(_) => {
                let why = "the arguments are not a JSON object, so the call was not made; write them again";
                return Ok(refused(call, why));
            }
        };
        let begun = match attempt {
            Attempt::First => None,
            Attempt::Repeated => {
                self.code_mode.store().run_of_tool_call(self.prepared.executor.scope(), &call.id).await?
            }
        };
        match (&self.prepared.surface, call.name.as_str()) {
            (Surface::CodeMode, "exec") => Ok(self.exec(call, &input, begun).await),
            (Surface::CodeMode, "wait") => Ok(self.wait(call, &input).await),
            (Surface::ToolSearchCode, "tool_search_code") => Ok(self.search_code(call, &input, begun).await),
            (Surface::ToolSearchTools(_), "tool_search" | "tool_describe") => Ok(self.search(call, &input).await),
            (Surface::ToolSearchTools(_), "tool_call") => Ok(self.tool_call(call, &input, begun).await),
            (surface, name) => match surface.direct_tool(name) {
                Some(tool) => {
                    let id = tool.id.as_str().to_owned();
                    Ok(self.direct(call, &id, input, begun).await)
                }
                None => {
                    let known = surface.names();
                    let known: Vec<&str> = known.iter().map(String::as_str).take(16).collect();
                    let why = format!("there is no tool `{}`; call one of {}", shown(name), known.join(", "));
                    Ok(refused(call, &why))
                }
            },
        }
    }

    /// Returns what the model receives for a call of an earlier turn that has no result.
    pub(crate) async fn recorded(&self, call: &ModelCall, open: OpenCallPolicy) -> Result<CallResult, StoreError> {
        let (executor, store) = (&self.prepared.executor, self.code_mode.store());
        let named = match call.name.as_str() {
            "wait" => contract::json::read(call.arguments.text())
                .ok()
                .and_then(|input| input.get("runId").and_then(Value::as_str).map(|run_id| RunId::new(run_id.trim()))),
            _ => None,
        };
        let run_id = match named {
            Some(run_id) => Some(run_id),
            None => store.run_of_tool_call(executor.scope(), &call.id).await?,
        };
        store.expire(now_ms()).await?;
        let run = match &run_id {
            Some(run_id) => store.run(run_id).await?.filter(|row| same_session(&row.scope, executor)),
            None => None,
        };
        let Some(row) = run else {
            let why = "the turn ended before this call was made";
            return Ok(error_result(call, ErrorCode::Aborted, why));
        };
        let executor = executor.clone().with_agent_run(&row.scope.agent_run_id);
        if self.code_mode.has_run(executor.scope(), &row.run_id).await? {
            let result = if row.state.is_over() || open == OpenCallPolicy::Resume {
                Some(self.code_mode.wait(&executor, self.prepared.code_mode(), &call.id, &row.run_id).await)
            } else {
                self.code_mode.waiting(&executor, &row.run_id).await
            };
            let approvals = self.approvals(&row.run_id).await;
            return Ok(match result {
                Some(result) => answer(call, ModelAnswer::of(&result, &approvals)),
                None => waiting_result(call, &row.run_id),
            });
        }
        if !row.state.is_over() {
            if open == OpenCallPolicy::Leave {
                return Ok(waiting_result(call, &row.run_id));
            }
            return Ok(match self.make(call, "", Value::Null, Some(row.run_id.clone())).await {
                CallStep::Settled(outcome) => outcome_result(call, outcome),
                CallStep::Stopped(message) => error_result(call, ErrorCode::InternalError, &message),
                CallStep::Waiting(_) => waiting_result(call, &row.run_id),
            });
        }
        let made = store.calls(&row.run_id).await?;
        let outcome = made.iter().find_map(|call| call.outcome.as_deref()).map(Outcome::from_json);
        Ok(match outcome {
            Some(outcome) => outcome_result(call, outcome),
            None => error_result(call, ErrorCode::Aborted, "the call was ended before it had a result"),
        })
    }

    async fn exec(&self, call: &ModelCall, input: &Value, begun: Option<RunId>) -> ControlEnd {
        let (executor, config) = (&self.prepared.executor, self.prepared.code_mode());
        let result = match &begun {
            Some(run_id) => self.code_mode.wait(executor, config, &call.id, run_id).await,
            None => {
                let hold = std::time::Duration::from_millis(EXEC_HOLD.ms(config));
                let request = codemode::ExecRequest::from(input).hold_for(hold);
                let over = CancellationToken::new();
                let _over = over.clone().drop_guard();
                let request = request.on_start(move |run_id: &RunId| self.abort_with_turn(run_id, over));
                self.code_mode.exec(executor, config, &call.id, request).await
            }
        };
        self.cell(call, result).await
    }

    async fn wait(&self, call: &ModelCall, input: &Value) -> ControlEnd {
        let (executor, config) = (&self.prepared.executor, self.prepared.code_mode());
        // A run of an earlier turn of the session can be resumed as well.
        let earlier = match input.get("runId").and_then(Value::as_str) {
            Some(run_id) => self.code_mode.store().run(&RunId::new(run_id.trim())).await.unwrap_or_else(|error| {
                tracing::warn!(error = telemetry::error_chain(&error), "the run that `wait` names cannot be read");
                None
            }),
            None => None,
        };
        let result = match earlier.filter(|row| same_session(&row.scope, executor)) {
            Some(row) => {
                let executor = executor.clone().with_agent_run(&row.scope.agent_run_id);
                let over = CancellationToken::new();
                let _over = over.clone().drop_guard();
                self.abort_with_turn(&row.run_id, over);
                self.code_mode.wait(&executor, config, &call.id, &row.run_id).await
            }
            None => self.code_mode.wait_json(executor, config, &call.id, input).await,
        };
        self.cell(call, result).await
    }

    /// Aborts a run if the turn is aborted before `over` is cancelled. A run that was started just now may not be in the
    /// store yet, so it cannot be found there.
    fn abort_with_turn(&self, run_id: &RunId, over: CancellationToken) {
        let (code_mode, executor) = (self.code_mode.clone(), self.prepared.executor.clone());
        let (cancelled, run_id) = (self.cancelled.clone(), run_id.clone());
        let abort = async move {
            tokio::select! {
                // First, because an abort also ends the call that cancels `over`.
                biased;
                () = cancelled.cancelled() => {
                    // A run that has ended needs no abort.
                    let _was_running = code_mode.abort_with(&executor, &run_id).await;
                }
                () = over.cancelled() => {}
            }
        };
        tokio::spawn(abort.in_current_span());
    }

    /// Decides how the result of a cell continues: only a cell that waits for a client or for people does not go to the
    /// model.
    async fn cell(&self, call: &ModelCall, result: CellResult) -> ControlEnd {
        if let CellResult::Waiting { run_id, reason: WaitingReason::PendingTools, pending_tool_calls, .. } = &result {
            let is = |state: PendingState| pending_tool_calls.iter().any(|call| call.state == state);
            let is_busy = is(PendingState::Running) || is(PendingState::Queued) || is(PendingState::Interrupted);
            if is(PendingState::Client) {
                return ControlEnd::Client(run_id.clone());
            }
            if is(PendingState::Approval) && !is_busy {
                return ControlEnd::People { run_id: run_id.clone(), approvals: self.approvals(run_id).await };
            }
        }
        let run_id = match &result {
            CellResult::Waiting { run_id, .. } => Some(run_id.clone()),
            CellResult::Completed { .. } | CellResult::Failed { .. } => None,
        };
        let approvals = match &run_id {
            Some(run_id) => self.approvals(run_id).await,
            None => Vec::new(),
        };
        ControlEnd::Done(ControlResult { run_id, result: answer(call, ModelAnswer::of(&result, &approvals)) })
    }

    /// Returns the open approvals of a run of this turn. If the store cannot be read, there are none.
    async fn approvals(&self, run_id: &RunId) -> Vec<Approval> {
        let mut approvals = self.code_mode.store().approvals_of_run(run_id).await.unwrap_or_else(|error| {
            tracing::warn!(run = run_id.as_str(), %error, "the approvals of a run cannot be read");
            Vec::new()
        });
        let now = now_ms();
        approvals.retain(|approval| approval.is_open(now));
        approvals
    }

    async fn search(&self, call: &ModelCall, input: &Value) -> ControlEnd {
        let (executor, config) = (&self.prepared.executor, &self.prepared.config.tool_search);
        let tools = ToolSearch::new(self.code_mode.clone());
        let found = match call.name.as_str() {
            "tool_search" => tools.search(executor, config, &call.id, input).await,
            _ => tools.describe(executor, config, &call.id, input).await,
        };
        done(None, answer(call, ModelAnswer::of_search(found)))
    }

    async fn search_code(&self, call: &ModelCall, input: &Value, begun: Option<RunId>) -> ControlEnd {
        if begun.is_some() {
            let why =
                "the program was interrupted when cellmate was restarted; check what it did before you run it again";
            return refused(call, why);
        }
        let (executor, config) = (&self.prepared.executor, &self.prepared.config.tool_search);
        let tools = ToolSearch::new(self.code_mode.clone());
        let over = CancellationToken::new();
        let _over = over.clone().drop_guard();
        let on_start = |run_id: &RunId| self.abort_with_turn(run_id, over);
        let found = tools.run_code_with(executor, config, &call.id, input, on_start).await;
        done(None, answer(call, ModelAnswer::of_search(found)))
    }

    /// Runs `tool_call`, whose own call may wait for a client or for people.
    async fn tool_call(&self, call: &ModelCall, input: &Value, begun: Option<RunId>) -> ControlEnd {
        let (executor, config) = (&self.prepared.executor, &self.prepared.config.tool_search);
        let tools = ToolSearch::new(self.code_mode.clone());
        let request = if begun.is_some() { ControlRequest::Continued } else { ControlRequest::New };
        let make = move |id: String, arguments: Value| async move {
            match self.make(call, &id, arguments, begun).await {
                CallStep::Settled(outcome) => Ok(MadeCall::Settled(outcome)),
                CallStep::Stopped(message) => {
                    Err(Failure { code: Some(ErrorCode::InternalError), message, position: None })
                }
                CallStep::Waiting(end) => Ok(MadeCall::Waiting(end)),
            }
        };
        let answered = tools.call_with(executor, config, (&call.id, request), input, make).await;
        match answered {
            Ok(answered) => done(None, answer(call, ModelAnswer::of_search(answered))),
            Err(waiting) => waiting,
        }
    }

    async fn direct(&self, call: &ModelCall, id: &str, input: Value, begun: Option<RunId>) -> ControlEnd {
        match self.make(call, id, input, begun).await {
            CallStep::Settled(outcome) => done(None, outcome_result(call, outcome)),
            CallStep::Stopped(message) => done(None, error_result(call, ErrorCode::InternalError, &message)),
            CallStep::Waiting(end) => end,
        }
    }

    /// Makes a tool call without a cell, or continues it.
    async fn make(&self, call: &ModelCall, id: &str, input: Value, begun: Option<RunId>) -> CallStep {
        let (executor, store) = (&self.prepared.executor, self.code_mode.store());
        let cancelled = self.cancelled.clone().cancelled_owned();
        let made = match begun {
            Some(run_id) => {
                let sinks = (ProgressSink::default(), executor::StateSink::default());
                executor.resume_direct_call_until(store, &run_id, sinks, cancelled).await
            }
            None => {
                let request = DirectRequest::new(&call.id, id, input, ProgressSink::default());
                match executor.open_direct_call(store, request) {
                    Ok(run) => executor.make_direct_call(run, cancelled).await,
                    Err(error) => {
                        let what_failed = "the call was not made, because system randomness cannot be read";
                        let message = internal_message("open a tool call", &error, what_failed, "try again later");
                        return CallStep::Stopped(message);
                    }
                }
            }
        };
        match made.end {
            CallEnd::Settled(outcome) => CallStep::Settled(outcome),
            CallEnd::Parked(PendingState::Client) => CallStep::Waiting(ControlEnd::Client(made.run_id)),
            CallEnd::Parked(_) => {
                let approvals = self.approvals(&made.run_id).await;
                CallStep::Waiting(ControlEnd::People { run_id: made.run_id, approvals })
            }
            CallEnd::Stopped(error) => CallStep::Stopped(stopped_message(&error)),
        }
    }
}

/// How a tool call without a cell ended, for now.
enum CallStep {
    Settled(Outcome),
    Waiting(ControlEnd),
    /// The call could not be written. The message is for the model.
    Stopped(String),
}

/// Returns what the model reads about a call that could not be written, before or after it was made.
fn stopped_message(error: &CommitError) -> String {
    let what_failed = "the call cannot be recorded, so it was not made or its outcome is not known";
    let next = "check whether it took effect before you make it again";
    commit_message("record a tool call", error, what_failed, next)
}

fn same_session(scope: &contract::scope::Scope, executor: &Executor) -> bool {
    let own = executor.scope();
    scope.agent_id == own.agent_id && scope.session_id == own.session_id
}

fn done(run_id: Option<RunId>, result: CallResult) -> ControlEnd {
    ControlEnd::Done(ControlResult { run_id, result })
}

/// Returns the end of a call that was not made, because the model must write it differently.
fn refused(call: &ModelCall, why: &str) -> ControlEnd {
    done(None, error_result(call, ErrorCode::InvalidInput, why))
}

/// Returns the result of a call that failed outside of its tool.
fn error_result(call: &ModelCall, code: ErrorCode, why: &str) -> CallResult {
    let text = json!({"status": "failed", "error": why, "code": code.as_str()}).to_string();
    CallResult { call_id: call.id.clone(), parts: vec![Part::Text(text)], is_error: true }
}

/// Returns the result of a call that still waits.
pub(super) fn waiting_result(call: &ModelCall, run_id: &RunId) -> CallResult {
    CallResult::text(&call.id, json!({"status": "waiting", "runId": run_id}).to_string())
}

/// Returns an answer in the form in which the model receives it: the JSON as text, then images.
fn answer(call: &ModelCall, answer: ModelAnswer) -> CallResult {
    let mut parts = vec![Part::Text(answer.value.to_string())];
    for block in answer.media {
        parts.push(match block.kind {
            MediaKind::Image => {
                Part::Image(Image::Base64 { mime_type: block.mime_type, data: STANDARD.encode(&block.data) })
            }
            MediaKind::Audio => {
                Part::Text(format!("[a sound of {} bytes, which is not sent to models]", block.data.len()))
            }
        });
    }
    CallResult { call_id: call.id.clone(), parts, is_error: answer.is_error }
}

/// Returns the outcome of a tool that is shown directly.
fn outcome_result(call: &ModelCall, outcome: Outcome) -> CallResult {
    let (parts, is_error) = match outcome {
        Outcome::Returned(returned) => (returned_parts(&returned), false),
        Outcome::Failed(message) => (vec![Part::Text(message)], true),
        Outcome::Dropped(dropped) => (vec![Part::Text(dropped.message)], true),
        Outcome::Unknown => (vec![Part::Text(UNKNOWN_OUTCOME.to_owned())], true),
    };
    CallResult { call_id: call.id.clone(), parts, is_error }
}

fn returned_parts(returned: &ToolResult) -> Vec<Part> {
    let part = |block: &Value| {
        let text = |name: &str| block.get(name).and_then(Value::as_str).map(str::to_owned);
        match block.get("type").and_then(Value::as_str) {
            Some("text") => text("text").map(Part::Text),
            Some("image") => {
                let (mime_type, data) = (text("mimeType")?, text("data")?);
                Some(Part::Image(Image::Base64 { mime_type, data }))
            }
            _ => Some(Part::Text(block.to_string())),
        }
    };
    let parts: Vec<Part> = returned.content.iter().filter_map(part).collect();
    if parts.is_empty() { vec![Part::Text(returned.to_cell_value().to_string())] } else { parts }
}

fn shown(name: &str) -> String {
    name.chars().take(100).flat_map(char::escape_default).collect()
}

/// Returns whether a call of a run is one that the client makes.
pub(super) fn is_client_tool(tool_id: &str) -> bool {
    contract::tool::ToolId::parse(tool_id).is_ok_and(|id| id.source() == Source::Client)
}

#[cfg(test)]
mod tests {
    use store::{CommitError, StoreError};

    use super::stopped_message;

    #[test]
    fn a_call_that_cannot_be_written_does_not_show_the_model_the_text_of_the_store() {
        let error = StoreError::Corrupt("no such column: SELECT secret FROM calls in /home/ada/store.db".to_owned());
        let message = stopped_message(&CommitError::Store(error));
        assert!(message.contains("(incident "), "{message}");
        for internal in ["SELECT", "/home", "the store contains"] {
            assert!(!message.contains(internal), "{message}");
        }
    }
}
