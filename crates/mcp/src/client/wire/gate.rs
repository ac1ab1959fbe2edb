//! What stands between a server's messages and the protocol library, on every transport: it decides what gets through.

use std::collections::HashMap;

use executor::Updates;
use rmcp::RoleClient;
use rmcp::model::{
    ClientNotification, ClientRequest, CustomResult, ErrorCode, ErrorData, GetMeta, JsonRpcMessage, ProgressToken,
    RequestId, ServerJsonRpcMessage, ServerResult,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use crate::client::closed::{Closed, ClosedCell};
use crate::client::http::Failure;
use crate::client::spec::{MAX_ASKED, MAX_UPDATE_CHARS, MAX_UPDATES, shown};

/// Rides along with a request to where its progress will arrive.
#[derive(Clone)]
pub(super) struct Listener {
    pub(super) updates: Updates,
    /// Arguments that the server wants in headers, too.
    pub(super) headers: Vec<(String, String)>,
}

impl Listener {
    pub(super) fn of(request: &ClientRequest) -> Option<Self> {
        match request {
            ClientRequest::CustomRequest(custom) => custom.extensions.get::<Self>().cloned(),
            _ => None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Gate {
    /// Our requests without an answer, by id. An answer to anything else settles nothing.
    open: HashMap<i64, Open>,
    /// Requests of the server that the library has not answered.
    asked: usize,
    /// How often the server has said that its tools changed.
    list_changes: watch::Sender<u64>,
    pub(super) closed: ClosedCell,
}

#[derive(Debug)]
struct Open {
    reader: Reader,
    token: Option<ProgressToken>,
    updates: Updates,
    updates_left: u32,
}

/// The handshake's results are the library's to read; all others are kept whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    Us,
    Library,
    /// It asks which revisions the server speaks.
    LibraryAskingWhich,
}

impl Reader {
    fn of(request: &ClientRequest, listener: Option<&Listener>) -> Self {
        match request {
            _ if listener.is_some() => Self::Us,
            ClientRequest::DiscoverRequest(_) => Self::LibraryAskingWhich,
            _ => Self::Library,
        }
    }
}

impl Gate {
    pub(super) fn new() -> Self {
        Self { open: HashMap::new(), asked: 0, list_changes: watch::Sender::new(0), closed: ClosedCell::new() }
    }

    pub(super) fn list_changes(&self) -> watch::Receiver<u64> {
        self.list_changes.subscribe()
    }

    /// Keeps account of what leaves.
    pub(super) fn leaving(&mut self, message: &TxJsonRpcMessage<RoleClient>) {
        match message {
            JsonRpcMessage::Request(request) => {
                let RequestId::Number(id) = request.id else { return };
                let listener = Listener::of(&request.request);
                let open = Open {
                    reader: Reader::of(&request.request, listener.as_ref()),
                    token: request.request.get_meta().get_progress_token(),
                    updates: listener.map(|listener| listener.updates).unwrap_or_default(),
                    updates_left: MAX_UPDATES,
                };
                self.open.insert(id, open);
            }
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(RequestId::Number(id)) = cancelled.params.request_id
                {
                    self.open.remove(&id);
                }
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => self.asked = self.asked.saturating_sub(1),
        }
    }

    /// Decides what of a message the library sees.
    pub(super) fn arriving(
        &mut self,
        mut message: Map<String, Value>,
    ) -> Result<Option<RxJsonRpcMessage<RoleClient>>, Closed> {
        if message.contains_key("method") {
            if message.get("id").is_none_or(Value::is_null) {
                // The library would start a task for each.
                self.notification(&message);
                return Ok(None);
            }
            return self.request(message);
        }
        let Some(id) = message.get("id").and_then(response_id) else { return Ok(None) };
        let Some(open) = self.open.remove(&id) else { return Ok(None) };
        let id = RequestId::Number(id);
        if let Some(result) = message.remove("result") {
            let whole = |result| ServerResult::CustomResult(CustomResult(result));
            let result = match open.reader {
                Reader::Us => whole(result),
                // Some older servers have an empty result for whatever they do not know.
                Reader::LibraryAskingWhich if !result.get("supportedVersions").is_some_and(Value::is_array) => {
                    let unknown = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "it names no revisions", None);
                    return Ok(Some(JsonRpcMessage::error(unknown, Some(id))));
                }
                Reader::Library | Reader::LibraryAskingWhich => {
                    serde_json::from_value(result).unwrap_or_else(|_| whole(Value::Null))
                }
            };
            return Ok(Some(JsonRpcMessage::response(result, id)));
        }
        let error = message.remove("error").and_then(|error| serde_json::from_value(error).ok());
        Ok(Some(JsonRpcMessage::error(error.unwrap_or_else(unreadable), Some(id))))
    }

    /// The library hears of a failure as of an answer that says no.
    pub(super) fn failed(&mut self, id: i64, failure: Failure) -> Option<RxJsonRpcMessage<RoleClient>> {
        self.open.remove(&id)?;
        let said = |code: i32, message: String| ErrorData::new(ErrorCode(code), message, None);
        let error = match failure {
            Failure::Status { code, message } => said(i32::from(code), message),
            Failure::Refused(mut object) => {
                object.remove("error").and_then(|error| serde_json::from_value(error).ok()).unwrap_or_else(unreadable)
            }
            Failure::Lost => said(LOST, "the answer broke off; it may have taken effect all the same".to_owned()),
            Failure::Confused => said(LOST, "it answered with something that is no message".to_owned()),
            Failure::Closed(why) => said(LOST, why.to_string()),
        };
        Some(JsonRpcMessage::error(error, Some(RequestId::Number(id))))
    }

    fn request(&mut self, message: Map<String, Value>) -> Result<Option<ServerJsonRpcMessage>, Closed> {
        let Ok(request) = serde_json::from_value(Value::Object(message)) else { return Ok(None) };
        self.asked += 1;
        if self.asked > MAX_ASKED { Err(Closed::AsksTooMuch) } else { Ok(Some(request)) }
    }

    /// Two kinds of them have readers. Changes are counted, not queued, so a flood of them is one number.
    fn notification(&mut self, message: &Map<String, Value>) {
        match message.get("method").and_then(Value::as_str) {
            Some("notifications/progress") => self.progress(message),
            Some("notifications/tools/list_changed") => self.list_changes.send_modify(|times| *times += 1),
            _ => {}
        }
    }

    fn progress(&mut self, message: &Map<String, Value>) {
        let Some(params) = message.get("params") else { return };
        let token = params.get("progressToken").cloned().map(serde_json::from_value::<ProgressToken>);
        let Some(Ok(token)) = token else { return };
        let Some(open) = self.open.values_mut().find(|open| open.token.as_ref() == Some(&token)) else { return };
        if open.updates_left == 0 {
            return;
        }
        open.updates_left -= 1;
        let mut update = Map::new();
        for key in ["progress", "total"] {
            if let Some(number) = params.get(key).filter(|value| value.is_number()) {
                update.insert(key.to_owned(), number.clone());
            }
        }
        if let Some(text) = params.get("message").and_then(Value::as_str) {
            update.insert("message".to_owned(), json!(shown(text, MAX_UPDATE_CHARS)));
        }
        open.updates.send(Value::Object(update));
    }
}

/// No code of the protocol's: nobody sent it.
const LOST: i32 = 0;

fn unreadable() -> ErrorData {
    ErrorData::new(ErrorCode(0), "an error without a readable message", None)
}

/// Our ids are numbers; some servers give them back as text.
pub(super) fn response_id(id: &Value) -> Option<i64> {
    id.as_i64().or_else(|| id.as_str().and_then(|text| text.parse().ok()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::{Closed, Gate, JsonRpcMessage, MAX_ASKED};

    fn object(value: Value) -> Map<String, Value> {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_server_may_ask_so_much_at_once_and_more_once_that_is_answered() {
        let mut gate = Gate::new();
        let ping = |id: usize| object(json!({"jsonrpc": "2.0", "id": id, "method": "ping"}));
        for id in 0..MAX_ASKED {
            assert!(matches!(gate.arriving(ping(id)), Ok(Some(JsonRpcMessage::Request(_)))));
        }
        let answer = JsonRpcMessage::response(rmcp::model::ClientResult::empty(()), super::RequestId::Number(0));
        gate.leaving(&answer);
        assert!(gate.arriving(ping(1)).is_ok());
        assert!(matches!(gate.arriving(ping(2)), Err(Closed::AsksTooMuch)));
    }

    #[test]
    fn what_nobody_asked_for_or_waits_for_does_not_reach_the_library() {
        let mut gate = Gate::new();
        let strays = [
            json!({}),
            json!({"id": 1, "result": {}}),
            json!({"id": [1], "result": {}}),
            json!({"id": 1e300, "error": 7}),
            json!({"id": null, "error": {"code": -32700, "message": "parse error"}}),
            json!({"method": 7, "id": {}}),
            json!({"method": "notifications/message", "params": {"level": "info", "data": 1}}),
            json!({"method": "notifications/progress"}),
            json!({"method": "notifications/progress", "params": {"progressToken": {}}}),
            json!({"method": "notifications/progress", "params": [1]}),
        ];
        for stray in strays {
            assert!(matches!(gate.arriving(object(stray.clone())), Ok(None)), "{stray}");
        }
    }
}
