//! How one call is made, and what its end is told as.

use std::time::Duration;

use contract::tool::{Operation, Repeat, ToolId};
use executor::{
    Answer, Answers, AuthorizedCall, Dispatch, Outcome, Parked, ProgressSink, QuestionBatch, QuestionSender,
};
use serde_json::{Map, Value, json};

use super::{Attempt, Server};
use crate::client::asked;
use crate::client::convert;
use crate::client::intake::Slot;
use crate::client::promoted::promoted;
use crate::client::spec::{MAX_SHOWN_CHARS, MAX_SHOWN_NAME_CHARS, shown};
use crate::client::task::Task;
use crate::client::ticket::{Ticket, Timed};
use crate::client::{Closed, Request, RequestError};

/// How often a server may ask to be called again without asking anything.
const MAX_ROUNDS: usize = 10;

/// Before it is.
const ROUND_PAUSE: Duration = Duration::from_millis(500);

/// A call as its request is made of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallParts<'a> {
    pub(super) id: &'a ToolId,
    pub(super) input: &'a Value,
    pub(super) key: &'a str,
    pub(super) updates: &'a ProgressSink,
    pub(super) asker: &'a QuestionSender,
    /// Keeps the result's part of the budget for data of servers until the call is settled.
    pub(super) slot: &'a Slot,
}

impl<'a> CallParts<'a> {
    fn of(call: &'a AuthorizedCall, slot: &'a Slot) -> Self {
        Self { id: call.id(), input: call.input(), key: call.key(), updates: call.updates(), asker: call.asker(), slot }
    }
}

impl Server {
    /// Tries a call once, and leaves it to whoever supervises this server what to do if the server is no more.
    pub(crate) async fn attempt(&self, call: &AuthorizedCall) -> Attempt {
        let slot = Slot::default();
        let made = match call.answers() {
            None => self.rounds(&CallParts::of(call, &slot), Map::new()).await,
            Some(answers) => self.go_on(call, &slot, answers).await,
        };
        match made {
            Ok(dispatch) => Attempt::Settled(dispatch),
            Err(attempt) => attempt,
        }
    }

    /// What a call that a crash of the server caught comes to, where nobody tries it again.
    pub(crate) fn lost(&self, id: &ToolId, why: Closed) -> Outcome {
        match self.listed().tools.get(id).map(|tool| tool.repeat) {
            Some(Repeat::Always | Repeat::WithKey) => self.failed(id, &self.explain(RequestError::Closed(why))),
            Some(Repeat::Never) | None => Outcome::Unknown,
        }
    }

    /// Brings what people have said, to a task or with the call made again.
    async fn go_on(&self, call: &AuthorizedCall, slot: &Slot, answers: &Answers) -> Result<Dispatch, Attempt> {
        let said = asked::responses(&answers.by_key);
        match Ticket::read(&answers.ticket) {
            Some(Ticket::QuestionBatch { state }) => {
                let mut with = Map::from_iter([("inputResponses".to_owned(), said)]);
                with.extend(state.map(|state| ("requestState".to_owned(), json!(state))));
                self.rounds(&CallParts::of(call, slot), with).await
            }
            // The call is made again as it was, once they have been there.
            Some(Ticket::Pages) if answers.by_key.values().any(|said| *said == Answer::Declined) => {
                Ok(Dispatch::Settled(self.failed(call.id(), "a person declined to visit the page that it asks for")))
            }
            Some(Ticket::Pages) => self.rounds(&CallParts::of(call, slot), Map::new()).await,
            Some(ticket) => match ticket.task() {
                Some(timed) => self.update_task(call.id(), &timed, said).await,
                None => Ok(Dispatch::Settled(Outcome::Unknown)),
            },
            None => Ok(Dispatch::Settled(Outcome::Unknown)),
        }
    }

    async fn update_task(&self, id: &ToolId, timed: &Timed, said: Value) -> Result<Dispatch, Attempt> {
        let mut params = timed.task.named();
        params.insert("inputResponses".to_owned(), said);
        match self.session.request(Request::plain("tasks/update", params, self.limits.call)).await {
            Ok(_) => Ok(timed.parked()),
            Err(RequestError::NotSent(why)) => Err(Attempt::NotSent(why)),
            Err(RequestError::Closed(why)) if why != Closed::LoginNeeded => Err(Attempt::Lost(why)),
            Err(error) => Ok(Dispatch::Settled(self.failed(id, &self.explain(error)))),
        }
    }

    /// Makes the call, and makes it again while the server only wants that.
    pub(super) async fn rounds(&self, made: &CallParts<'_>, mut with: Map<String, Value>) -> Result<Dispatch, Attempt> {
        let id = made.id;
        for _ in 0..MAX_ROUNDS {
            let result = match self.request(made, with).await? {
                Ok(result) => result,
                Err(failed) => return Ok(Dispatch::Settled(failed)),
            };
            let is_tool = self.listed().tools.get(id).is_some_and(|tool| tool.operation == Operation::Tool);
            match Task::begun(&result).filter(|_| is_tool) {
                Some(Ok(task)) => return Ok(Timed::new(task).parked()),
                Some(Err(why)) => return Ok(Dispatch::Settled(self.failed(id, &why))),
                None => {}
            }
            if result.get("resultType").and_then(Value::as_str) != Some("input_required") {
                return Ok(Dispatch::Settled(self.gave(id, result)));
            }
            if result.get("inputRequests").is_some() && result.get(asked::PAGES).is_some() {
                return Ok(self.asks(id, &result, Ticket::Pages.text()));
            }
            let state = result.get("requestState").and_then(Value::as_str).map(str::to_owned);
            if result.get("inputRequests").is_some() || state.is_none() {
                return Ok(self.asks(id, &result, Ticket::QuestionBatch { state }.text()));
            }
            with = Map::from_iter(state.map(|state| ("requestState".to_owned(), json!(state))));
            tokio::time::sleep(ROUND_PAUSE).await;
        }
        let why = format!("it asked to be called again {MAX_ROUNDS} times without returning a result");
        Ok(Dispatch::Settled(self.failed(id, &why)))
    }

    /// One request. What it failed with is for the cell; what it never came to is for whoever minds the server.
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
            params.insert("task".to_owned(), Task::wanted());
        }
        params.extend(with);
        let headers = promoted(&tool.parameters, input);
        let (updates, asker) = (updates.clone(), Some(asker.clone()));
        let (deadline, slot) = (self.limits.call, made.slot.clone());
        let request = Request { method, params, headers, key, updates, asker, deadline, slot };
        match self.session.request(request).await {
            Ok(result) => Ok(Ok(result)),
            Err(RequestError::Pages(pages)) => Ok(Ok(asked::pages(&pages))),
            Err(RequestError::NotSent(why)) => Err(Attempt::NotSent(why)),
            // Whoever wants a login first has done nothing yet.
            Err(RequestError::Closed(why)) if why != Closed::LoginNeeded => Err(Attempt::Lost(why)),
            Err(error) => Ok(Err(self.failed(id, &self.explain(error)))),
        }
    }

    /// What a tool gave, as ours.
    pub(in crate::client) fn gave(&self, id: &ToolId, result: Value) -> Outcome {
        let operation = self.listed().tools.get(id).map_or(Operation::Tool, |tool| tool.operation);
        match convert::returned(operation, result) {
            Ok(returned) => Outcome::Returned(returned),
            Err(why) => self.failed(id, &why),
        }
    }

    /// Something that people must answer before the call goes on, where it can be put to them.
    pub(in crate::client) fn asks(&self, id: &ToolId, result: &Value, ticket: Option<executor::Ticket>) -> Dispatch {
        let question = asked::asks(result).and_then(|asks| match (ticket, asks.is_empty()) {
            (Some(ticket), false) => Ok(QuestionBatch { ticket, asks }),
            (Some(_), true) => Err("it contains no question".to_owned()),
            (None, _) => Err("its request state is too long".to_owned()),
        });
        match question {
            Ok(question) => Dispatch::Parked(Parked::QuestionBatch(question)),
            Err(why) => {
                Dispatch::Settled(self.failed(id, &format!("its request for input cannot be passed on: {why}")))
            }
        }
    }

    /// What a cell may read: the server's name and its own words, nothing of ours.
    pub(in crate::client) fn failed(&self, id: &ToolId, why: &str) -> Outcome {
        let tool = shown(id.name(), MAX_SHOWN_NAME_CHARS);
        Outcome::Failed(format!("`{tool}` of MCP server `{}` failed: {why}", self.name))
    }

    pub(in crate::client) fn explain(&self, error: RequestError) -> String {
        match error {
            RequestError::Refused { code, message } => format!("{} (code {code})", shown(&message, MAX_SHOWN_CHARS)),
            RequestError::Deadline(limit) => {
                let limit = limit.as_millis();
                format!("no response within {limit} ms, so the call was cancelled; it may have taken effect")
            }
            RequestError::NotSent(Closed::LoginNeeded) | RequestError::Closed(Closed::LoginNeeded) => {
                format!("it requires a login; a person must run `cellmate servers login {}`", self.name)
            }
            RequestError::NotSent(why) | RequestError::Closed(why) => {
                format!("the connection to the server was lost: {why}; calls fail until it is connected again")
            }
            RequestError::Unread(why) => why,
            RequestError::Pages(_) => "it requires a person to visit a page first".to_owned(),
            RequestError::Confused => "its response is not a valid result".to_owned(),
        }
    }
}
