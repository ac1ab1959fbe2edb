//! Sends one call to the server and converts its outcome.

use std::time::Duration;

use contract::tool::{Operation, Repeat, ToolId};
use executor::{
    Answer, Answers, AuthorizedCall, Dispatch, DropCause, Outcome, ParkedOn, ProgressSink, QuestionBatch,
    QuestionSender, ToolResult,
};
use process::ResponseSlot;
use serde_json::{Map, Value, json};

use super::{Attempt, Server, texts};
use crate::client::catalog::convert;
use crate::client::catalog::header_arguments;
use crate::client::questions;
use crate::client::spec::{MAX_SHOWN_CHARS, MAX_SHOWN_NAME_CHARS, shown};
use crate::client::tasks::{Task, TicketContent, TimedTask};
use crate::client::{DisconnectReason, Request, RequestError};

/// How often a server may ask to be called again without asking a question.
const MAX_ROUNDS: usize = 10;

/// The pause before such a repeated call.
const ROUND_PAUSE: Duration = Duration::from_millis(500);

/// The parts of a call that its request is built from.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallParts<'a> {
    pub(super) id: &'a ToolId,
    pub(super) input: &'a Value,
    pub(super) key: &'a str,
    pub(super) updates: &'a ProgressSink,
    pub(super) asker: &'a QuestionSender,
    /// Holds the result's part of the budget for server data until the call is settled.
    pub(super) slot: &'a ResponseSlot,
}

impl<'a> CallParts<'a> {
    fn of(call: &'a AuthorizedCall, slot: &'a ResponseSlot) -> Self {
        Self { id: call.id(), input: call.input(), key: call.key(), updates: call.updates(), asker: call.asker(), slot }
    }
}

impl Server {
    /// Tries a call once. If the connection ends, the supervisor of this server decides what to do.
    pub(crate) async fn attempt(&self, call: &AuthorizedCall) -> Attempt {
        let slot = ResponseSlot::default();
        let made = match call.answers() {
            None => self.rounds(&CallParts::of(call, &slot), Map::new()).await,
            Some(answers) => self.resume(call, &slot, answers).await,
        };
        match made {
            Ok(dispatch) => Attempt::Settled(dispatch),
            Err(attempt) => attempt,
        }
    }

    /// Returns the outcome of a call during which the server crashed and that is not retried.
    pub(crate) fn lost(&self, id: &ToolId, why: DisconnectReason) -> Outcome {
        match self.listed().tools.get(id).map(|tool| tool.repeat) {
            Some(Repeat::Always | Repeat::Additive | Repeat::WithKey) => {
                self.failed(id, &self.explain(RequestError::Closed(why)))
            }
            Some(Repeat::Never) | None => Outcome::Unknown,
        }
    }

    /// Resumes a call with a person's answers: passes them to its task, or repeats the call with them.
    async fn resume(&self, call: &AuthorizedCall, slot: &ResponseSlot, answers: &Answers) -> Result<Dispatch, Attempt> {
        let responses = questions::responses(&answers.by_key);
        match TicketContent::read(&answers.ticket) {
            Some(TicketContent::QuestionBatch { state }) => {
                let mut with = Map::from_iter([("inputResponses".to_owned(), responses)]);
                with.extend(state.map(|state| ("requestState".to_owned(), json!(state))));
                self.rounds(&CallParts::of(call, slot), with).await
            }
            // Once the pages have been visited, the call is repeated unchanged.
            Some(TicketContent::Pages) if answers.by_key.values().any(|answer| *answer == Answer::Declined) => {
                Ok(Dispatch::Settled(self.failed(call.id(), "a person declined to visit the page that it asks for")))
            }
            Some(TicketContent::Pages) => self.rounds(&CallParts::of(call, slot), Map::new()).await,
            Some(ticket) => match ticket.task() {
                Some(timed) => self.update_task(call.id(), &timed, responses).await,
                None => Ok(Dispatch::Settled(Outcome::Unknown)),
            },
            None => Ok(Dispatch::Settled(Outcome::Unknown)),
        }
    }

    async fn update_task(&self, id: &ToolId, timed: &TimedTask, responses: Value) -> Result<Dispatch, Attempt> {
        let mut params = timed.task.task_id_params();
        params.insert("inputResponses".to_owned(), responses);
        match self.session.request(Request::plain("tasks/update", params, self.limits.call)).await {
            Ok(_) => Ok(timed.parked()),
            Err(RequestError::NotSent(why)) => Err(Attempt::NotSent(why)),
            Err(RequestError::Closed(why)) if why != DisconnectReason::LoginNeeded => Err(Attempt::Lost(why)),
            Err(error) => Ok(Dispatch::Settled(self.without_result(id, error))),
        }
    }

    /// Sends the call, and repeats it while the server only asks to be called again.
    pub(super) async fn rounds(&self, made: &CallParts<'_>, mut with: Map<String, Value>) -> Result<Dispatch, Attempt> {
        let id = made.id;
        for _ in 0..MAX_ROUNDS {
            let result = match self.request(made, with).await? {
                Ok(result) => result,
                Err(failed) => return Ok(Dispatch::Settled(failed)),
            };
            let is_tool = self.listed().tools.get(id).is_some_and(|tool| tool.operation == Operation::Tool);
            match Task::from_result(&result).filter(|_| is_tool) {
                Some(Ok(task)) => return Ok(TimedTask::new(task).parked()),
                Some(Err(why)) => return Ok(Dispatch::Settled(self.failed(id, &why))),
                None => {}
            }
            if result.get("resultType").and_then(Value::as_str) != Some("input_required") {
                return Ok(Dispatch::Settled(self.returned(id, result, made.slot).await));
            }
            // Only a result may be large, because only a result is stored.
            if !made.slot.take_texts().texts.is_empty() {
                return Ok(Dispatch::Settled(self.failed(id, "its request for input is too large")));
            }
            if result.get("inputRequests").is_some() && result.get(questions::PAGES).is_some() {
                return Ok(self.park_for_answers(id, &result, TicketContent::Pages.text()));
            }
            let state = result.get("requestState").and_then(Value::as_str).map(str::to_owned);
            if result.get("inputRequests").is_some() || state.is_none() {
                return Ok(self.park_for_answers(id, &result, TicketContent::QuestionBatch { state }.text()));
            }
            with = Map::from_iter(state.map(|state| ("requestState".to_owned(), json!(state))));
            tokio::time::sleep(ROUND_PAUSE).await;
        }
        let why = format!("it asked to be called again {MAX_ROUNDS} times without returning a result");
        Ok(Dispatch::Settled(self.failed(id, &why)))
    }

    /// Sends one request. The inner error is an outcome for the cell; the outer error is a lost connection, which the
    /// supervisor handles.
    async fn request(&self, made: &CallParts<'_>, with: Map<String, Value>) -> Result<Result<Value, Outcome>, Attempt> {
        let CallParts { id, input, key, updates, asker, .. } = *made;
        let listed = self.listed();
        let Some(tool) = listed.tools.get(id) else {
            return Ok(Err(self.failed(id, "the server does not offer it")));
        };
        let (method, mut params) = match convert::request(id, tool.operation, input) {
            Ok(request) => request,
            Err(why) => return Ok(Err(self.failed(id, &why))),
        };
        if listed.as_tasks.contains(id) {
            params.insert("task".to_owned(), Task::request_parameter());
        }
        params.extend(with);
        let headers = header_arguments(&tool.parameters, input);
        let (updates, asker) = (updates.clone(), Some(asker.clone()));
        let (deadline, slot) = (self.limits.call, made.slot.clone());
        let request = Request { method, params, headers, key, updates, asker, deadline, slot };
        match self.session.request(request).await {
            Ok(result) => Ok(Ok(result)),
            Err(RequestError::Pages(pages)) => Ok(Ok(questions::pages(&pages))),
            Err(RequestError::NotSent(why)) => Err(Attempt::NotSent(why)),
            // A server that requires a login first has not executed the call.
            Err(RequestError::Closed(why)) if why != DisconnectReason::LoginNeeded => Err(Attempt::Lost(why)),
            Err(error) => Ok(Err(self.without_result(id, error))),
        }
    }

    /// Converts a tool's result, whose long texts are in the slot, to an outcome.
    pub(in crate::client) async fn returned(&self, id: &ToolId, mut result: Value, slot: &ResponseSlot) -> Outcome {
        let large = match texts::insert_or_return(&mut result, slot.take_texts()).await {
            Ok(large) => large,
            Err(error) => {
                tracing::warn!(server = self.name(), %error, "a large result cannot be read from its temporary file");
                let why = "the host cannot read it from its temporary file; the call has taken effect";
                return self.dropped(id, DropCause::Unavailable, why);
            }
        };
        let operation = self.listed().tools.get(id).map_or(Operation::Tool, |tool| tool.operation);
        match convert::returned(operation, result) {
            Ok(returned) => Outcome::Returned(ToolResult { large, ..returned }),
            Err(why) => self.failed(id, &why),
        }
    }

    /// Parks a call until a person has answered the server's questions, or fails it if they cannot be asked.
    pub(in crate::client) fn park_for_answers(
        &self,
        id: &ToolId,
        result: &Value,
        ticket: Option<executor::Ticket>,
    ) -> Dispatch {
        let question = questions::asks(result).and_then(|questions| match (ticket, questions.is_empty()) {
            (Some(ticket), false) => Ok(QuestionBatch { ticket, questions }),
            (Some(_), true) => Err("it contains no question".to_owned()),
            (None, _) => Err("its request state is too long".to_owned()),
        });
        match question {
            Ok(question) => Dispatch::Parked(ParkedOn::QuestionBatch(question)),
            Err(why) => {
                Dispatch::Settled(self.failed(id, &format!("its request for input cannot be passed on: {why}")))
            }
        }
    }

    /// Returns a failure that a cell may read: it contains the server's name and its own text, nothing internal.
    pub(in crate::client) fn failed(&self, id: &ToolId, why: &str) -> Outcome {
        let tool = shown(id.name(), MAX_SHOWN_NAME_CHARS);
        Outcome::Failed(format!("`{tool}` of MCP server `{}` failed: {why}", self.name))
    }

    /// Returns the outcome of a call that the server answered with a response that the host does not keep.
    fn dropped(&self, id: &ToolId, cause: DropCause, why: &str) -> Outcome {
        let tool = shown(id.name(), MAX_SHOWN_NAME_CHARS);
        Outcome::dropped(cause, format_args!("`{tool}` of MCP server `{}`: {why}", self.name))
    }

    /// Returns the outcome of a call whose request ended with an error.
    pub(in crate::client) fn without_result(&self, id: &ToolId, error: RequestError) -> Outcome {
        match error {
            RequestError::ResponseTooLarge(why) => {
                tracing::warn!(
                    server = self.name(),
                    tool = id.as_str(),
                    why,
                    "a response of an MCP server is too large"
                );
                self.dropped(id, DropCause::TooLarge, &why)
            }
            error => self.failed(id, &self.explain(error)),
        }
    }

    pub(in crate::client) fn explain(&self, error: RequestError) -> String {
        match error {
            RequestError::Refused { code, message } => format!("{} (code {code})", shown(&message, MAX_SHOWN_CHARS)),
            RequestError::Deadline(limit) => {
                let limit = limit.as_millis();
                format!(
                    "no response within {limit} ms, so the call was cancelled; it may have taken effect. If calls of \
                     this server take longer, a person can raise `callTimeoutMs` in its entry"
                )
            }
            RequestError::NotSent(DisconnectReason::LoginNeeded)
            | RequestError::Closed(DisconnectReason::LoginNeeded) => {
                format!("it requires a login; a person must run `cellmate servers login {}`", self.name)
            }
            RequestError::NotSent(why) | RequestError::Closed(why) => {
                format!("the connection to the server was lost: {why}; calls fail until it is connected again")
            }
            RequestError::ResponseTooLarge(why) => why,
            RequestError::Pages(_) => "it requires a person to visit a page first".to_owned(),
            RequestError::InvalidResponse => "its response is not a valid result".to_owned(),
        }
    }
}
