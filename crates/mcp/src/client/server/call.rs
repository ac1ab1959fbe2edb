//! How one call is made, and what its end is told as.

use contract::tool::{Operation, Repeat, ToolId, ToolSpec};
use executor::{Answering, AuthorizedCall, Dispatch, Outcome, ToolSource, Updates};
use serde_json::Value;

use super::{Attempt, Server};
use crate::client::convert;
use crate::client::promoted::promoted;
use crate::client::spec::{MAX_SHOWN_CHARS, MAX_SHOWN_NAME_CHARS, shown};
use crate::client::task::Task;
use crate::client::{Closed, Request, RequestError};

impl Server {
    /// Tries a call once, and leaves it to whoever supervises this server what to do if the server is no more.
    pub(crate) async fn attempt(&self, call: &AuthorizedCall) -> Attempt {
        match self.answer(call.id(), call.input(), call.key(), call.updates()).await {
            Ok(outcome) => Attempt::Settled(Dispatch::Settled(outcome)),
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

    pub(super) async fn answer(
        &self,
        id: &ToolId,
        input: &Value,
        key: &str,
        updates: &Updates,
    ) -> Result<Outcome, Attempt> {
        let listed = self.listed();
        let Some(tool) = listed.tools.get(id) else {
            return Ok(self.failed(id, "the server does not offer it"));
        };
        let (method, mut params) = match convert::request(id, tool.operation, input) {
            Ok(request) => request,
            Err(why) => return Ok(self.failed(id, &why)),
        };
        if listed.as_tasks.contains(id) {
            params.insert("task".to_owned(), Task::wanted());
        }
        let headers = promoted(&tool.parameters, input);
        let request = Request { method, params, headers, key, updates: updates.clone(), deadline: self.limits.call };
        let result = match self.session.request(request).await {
            Ok(result) => match Task::begun(&result).filter(|_| tool.operation == Operation::Tool) {
                Some(Ok(task)) => {
                    let followed = self.follow(task, updates).await;
                    match self.session.why_closed() {
                        // It took the call and fell before it told how that ended.
                        Some(why) if followed.is_err() => return Err(Attempt::Lost(why)),
                        _ => followed,
                    }
                }
                Some(Err(why)) => Err(why),
                None => Ok(result),
            },
            Err(RequestError::NotSent(why)) => return Err(Attempt::NotSent(why)),
            // Whoever wants a login first has done nothing yet.
            Err(RequestError::Closed(why)) if why != Closed::LoginNeeded => return Err(Attempt::Lost(why)),
            Err(error) => Err(self.explain(error)),
        };
        Ok(match result.and_then(|result| convert::returned(tool.operation, result)) {
            Ok(returned) => Outcome::Returned(returned),
            Err(why) => self.failed(id, &why),
        })
    }

    /// What a cell may read: the server's name and its own words, nothing of ours.
    fn failed(&self, id: &ToolId, why: &str) -> Outcome {
        let tool = shown(id.name(), MAX_SHOWN_NAME_CHARS);
        Outcome::Failed(format!("`{tool}` of MCP server `{}` failed: {why}", self.name))
    }

    pub(in crate::client) fn explain(&self, error: RequestError) -> String {
        match error {
            RequestError::Refused { code, message } => format!("{} (code {code})", shown(&message, MAX_SHOWN_CHARS)),
            RequestError::Deadline(limit) => {
                let limit = limit.as_millis();
                format!("no answer within {limit} ms, so it was cancelled; it may have taken effect all the same")
            }
            RequestError::NotSent(Closed::LoginNeeded) | RequestError::Closed(Closed::LoginNeeded) => {
                format!("it wants a login; a person must run `cellmate servers login {}`", self.name)
            }
            RequestError::NotSent(why) | RequestError::Closed(why) => {
                format!("the server is not there any more: {why}; its calls fail until it is connected again")
            }
            RequestError::Confused => "it answered with something that is not a result".to_owned(),
        }
    }
}

impl ToolSource for Server {
    fn tools(&self) -> Vec<ToolSpec> {
        self.listed().tools.values().cloned().collect()
    }

    fn call(&self, call: AuthorizedCall) -> Answering<'_> {
        Box::pin(async move {
            match self.attempt(&call).await {
                Attempt::Settled(dispatch) => dispatch,
                Attempt::NotSent(why) => {
                    Dispatch::Settled(self.failed(call.id(), &self.explain(RequestError::NotSent(why))))
                }
                Attempt::Lost(why) => Dispatch::Settled(self.lost(call.id(), why)),
            }
        })
    }
}
