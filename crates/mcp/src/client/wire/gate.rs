//! Filters a server's messages before they reach `rmcp`, on every transport.

use std::collections::{HashMap, VecDeque};

use contract::json::{Measure, measure};
use contract::limits::{MAX_BRIDGE_VALUE_BYTES, MAX_JSON_VALUES};
use executor::ProgressSink;
use process::{
    ArrivedTexts, Envelope, LargeMessage, PendingReservation, Reservation, ResponseSlot, SpooledText, endless_response,
    response_id, response_too_long,
};
use rmcp::RoleClient;
use rmcp::model::{
    ClientNotification, ClientRequest, CustomResult, ErrorCode, ErrorData, GetMeta, JsonRpcMessage, ProgressToken,
    RequestId, ServerJsonRpcMessage, ServerResult,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use super::bounds::{self, Expected};
use crate::client::disconnect::{DisconnectReason, FirstDisconnect};
use crate::client::http::{Failure, Share};
use crate::client::spec::{
    MAX_BAD_FRAMES, MAX_FRAME_BYTES, MAX_UNANSWERED_REQUESTS, MAX_UPDATE_CHARS, MAX_UPDATES, shown,
};
use crate::client::stray::StrayLine;

/// Data that travels with a request to the gate, which needs it for the request's progress and response.
#[derive(Clone)]
pub(super) struct Sink {
    pub(super) updates: ProgressSink,
    /// Arguments that the server also requires in headers.
    pub(super) headers: Vec<(String, String)>,
    /// Holds the response's part of the budget.
    pub(super) slot: ResponseSlot,
}

impl Sink {
    pub(super) fn of(request: &ClientRequest) -> Option<Self> {
        match request {
            ClientRequest::CustomRequest(custom) => custom.extensions.get::<Self>().cloned(),
            _ => None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Gate {
    /// Pending requests by id. Responses to any other id are dropped.
    open: HashMap<i64, OpenRequest>,
    /// The number of requests of the server that the library has not answered.
    asked: usize,
    /// A message that waits for its part of the budget.
    incoming: Option<UnparsedMessage>,
    /// Error responses that replace responses that cannot be parsed.
    ready: VecDeque<RxJsonRpcMessage<RoleClient>>,
    /// The number of invalid messages in a row.
    bad: usize,
    /// The number of the server's notifications that its tools changed.
    list_changes: watch::Sender<u64>,
    /// Why the connection ends as soon as `ready` is empty.
    closing: Option<DisconnectReason>,
    pub(super) closed: FirstDisconnect,
    stray: StrayLine,
}

#[derive(Debug)]
struct OpenRequest {
    reader: Reader,
    token: Option<ProgressToken>,
    updates: ProgressSink,
    updates_left: u32,
    slot: ResponseSlot,
    /// Whether the response may have long texts, which are not in memory.
    accepts_large: bool,
}

/// A message that is within its limits and not parsed yet.
#[derive(Debug)]
struct UnparsedMessage {
    text: Vec<u8>,
    texts: ArrivedTexts,
    expected: Expected,
    reserving: PendingReservation,
    _share: Option<Share>,
}

/// The requests whose results are results of tools, which may be large.
const LARGE_RESULTS: [&str; 3] = ["tools/call", "tasks/get", "tasks/result"];

/// Bytes that a result may grow by when it is written as JSON again, beyond its texts: a number such as `1e5` does.
const REWRITE_ALLOWANCE_BYTES: usize = 64 << 10;

pub(super) fn accepts_large(request: &ClientRequest) -> bool {
    matches!(request, ClientRequest::CustomRequest(custom) if LARGE_RESULTS.contains(&custom.method.as_str()))
}

/// Who parses the result of a request. The library parses the results of the handshake; all others are kept whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    Session,
    Library,
    /// The library, which asks for the server's supported revisions.
    LibraryDiscover,
}

impl Reader {
    fn of(request: &ClientRequest, listener: Option<&Sink>) -> Self {
        match request {
            _ if listener.is_some() => Self::Session,
            ClientRequest::DiscoverRequest(_) => Self::LibraryDiscover,
            _ => Self::Library,
        }
    }
}

impl Gate {
    pub(super) fn new() -> Self {
        Self {
            open: HashMap::new(),
            asked: 0,
            incoming: None,
            ready: VecDeque::new(),
            bad: 0,
            list_changes: watch::Sender::new(0),
            closing: None,
            closed: FirstDisconnect::new(),
            stray: StrayLine::default(),
        }
    }

    /// Notes the first line that is not a message there.
    pub(super) fn noting(self, stray: StrayLine) -> Self {
        Self { stray, ..self }
    }

    pub(super) fn list_changes(&self) -> watch::Receiver<u64> {
        self.list_changes.subscribe()
    }

    /// Records an outgoing message.
    pub(super) fn on_send(&mut self, message: &TxJsonRpcMessage<RoleClient>) {
        match message {
            JsonRpcMessage::Request(request) => {
                let RequestId::Number(id) = request.id else { return };
                let listener = Sink::of(&request.request);
                let (updates, slot) = listener.clone().map(|one| (one.updates, one.slot)).unwrap_or_default();
                let open = OpenRequest {
                    reader: Reader::of(&request.request, listener.as_ref()),
                    token: request.request.get_meta().get_progress_token(),
                    updates,
                    updates_left: MAX_UPDATES,
                    slot,
                    accepts_large: listener.is_some() && accepts_large(&request.request),
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

    /// Returns true if a message waits to be parsed. [`Self::parse`] must be called before the next [`Self::take`].
    pub(super) fn is_reading(&self) -> bool {
        self.incoming.is_some()
    }

    /// Returns the next error response that replaces an unparsed one.
    pub(super) fn ready(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        self.ready.pop_front()
    }

    /// Returns whether the connection has ended. [`Self::ready`] must be called first.
    pub(super) fn is_closed(&mut self) -> bool {
        if let Some(why) = self.closing.take() {
            self.closed.set(why);
        }
        self.closed.get().is_some()
    }

    /// Ends the connection because of a message that is too long to be skipped. It may have been the response to any of the
    /// pending calls, so each of them fails with this reason instead of the end of the connection.
    pub(super) fn close_after_endless_message(&mut self) {
        let calls = self.open.extract_if(|_, open| open.reader == Reader::Session);
        self.ready.extend(calls.map(|(id, _)| unread_answer(id, endless_response())));
        self.closing = Some(DisconnectReason::FrameTooLong);
    }

    /// Returns true if any pending request may have a large response.
    pub(super) fn accepts_large(&self) -> bool {
        self.open.values().any(|open| open.accepts_large)
    }

    /// Accepts what is left of a message whose long texts were taken out while it was read.
    pub(super) fn take_large(
        &mut self,
        message: LargeMessage,
        share: Option<Share>,
    ) -> Result<Option<RxJsonRpcMessage<RoleClient>>, DisconnectReason> {
        let LargeMessage { skeleton, texts } = message;
        let why = |texts: Result<Vec<SpooledText>, String>| texts.err().unwrap_or_else(response_too_long);
        let Some(envelope) = Envelope::scan(&skeleton) else {
            self.fail_all(&why(texts));
            return self.garbage();
        };
        let open = envelope.response_id().and_then(|id| Some((id, self.open.get(&id)?)));
        let kind = open.map(|(id, open)| (id, open.reader != Reader::Session));
        let accepts = open.is_some_and(|(_, open)| open.accepts_large);
        let Some(expected) = Expected::of(&envelope, kind, &bounds::READ) else {
            // A message without method and id may have been the response to any request.
            if !envelope.has_method() && !envelope.has_id() {
                self.fail_all(&why(texts));
            }
            self.bad = 0;
            return Ok(None);
        };
        match texts {
            Ok(texts) if accepts && matches!(expected, Expected::Answer(_)) => self.take_texts(skeleton, texts, share),
            texts => self.unread(&expected, &envelope, why(texts)),
        }
    }

    /// Accepts the text of a message and checks its size before anything parses it.
    pub(super) fn take(
        &mut self,
        text: Vec<u8>,
        share: Option<Share>,
    ) -> Result<Option<RxJsonRpcMessage<RoleClient>>, DisconnectReason> {
        self.take_texts(text, Vec::new(), share)
    }

    fn take_texts(
        &mut self,
        text: Vec<u8>,
        texts: Vec<SpooledText>,
        share: Option<Share>,
    ) -> Result<Option<RxJsonRpcMessage<RoleClient>>, DisconnectReason> {
        let Some(envelope) = Envelope::scan(&text) else {
            // A message that is too large to be scanned may have been the response to any request.
            if let Some(why) = bounds::unread(&text, MAX_JSON_VALUES) {
                self.fail_all(&why);
            }
            self.stray.on_text(&text);
            return self.garbage();
        };
        let reader = envelope.response_id().and_then(|id| Some((id, self.open.get(&id)?.reader)));
        let expected =
            match Expected::of(&envelope, reader.map(|(id, reader)| (id, reader != Reader::Session)), &bounds::READ) {
                Some(expected) => expected,
                None if envelope.has_method() || envelope.has_id() => {
                    self.bad = 0;
                    self.stray.on_message();
                    return Ok(None);
                }
                None => {
                    if let Some(why) = bounds::unread(&text, MAX_JSON_VALUES) {
                        self.fail_all(&why);
                    }
                    self.bad = 0;
                    return Ok(None);
                }
            };
        let measure = match expected.judge(&text) {
            Ok(measure) => measure,
            Err(why) => return self.unread(&expected, &envelope, why),
        };
        let whole = size_with_texts(&text, &texts, measure);
        let size = whole.unwrap_or(text.len());
        let texts = ArrivedTexts { texts, is_reserved: whole.is_some() };
        let reserving =
            matches!(expected, Expected::Answer(_)).then(|| PendingReservation::new(size, measure)).flatten();
        match reserving {
            Some(reserving) => {
                self.incoming = Some(UnparsedMessage { text, texts, expected, reserving, _share: share });
                Ok(None)
            }
            None => self.read(&text, texts, &expected, Reservation::default()),
        }
    }

    /// Parses the waiting message once the budget allows it. The future may be dropped and the method called again.
    pub(super) async fn parse(&mut self) -> Result<Option<RxJsonRpcMessage<RoleClient>>, DisconnectReason> {
        let Some(incoming) = &mut self.incoming else { return Ok(None) };
        let room = incoming.reserving.wait().await;
        let Some(UnparsedMessage { text, mut texts, expected, .. }) = self.incoming.take() else { return Ok(None) };
        match (room, &expected) {
            (Some(room), _) => self.read(&text, texts, &expected, room),
            // Without its texts, the message takes hardly any memory.
            (None, Expected::Answer(_)) if texts.is_reserved && is_tiny(&text) => {
                texts.is_reserved = false;
                self.read(&text, texts, &expected, Reservation::default())
            }
            (None, Expected::Answer(id) | Expected::Handshake(id)) => {
                let message = "the host holds too much server data, so this response was dropped; try again";
                Ok(self.failed(*id, Failure::Status { code: 503, message: message.to_owned() }))
            }
            (None, _) => Ok(None),
        }
    }

    fn read(
        &mut self,
        text: &[u8],
        texts: ArrivedTexts,
        expected: &Expected,
        reservation: Reservation,
    ) -> Result<Option<RxJsonRpcMessage<RoleClient>>, DisconnectReason> {
        let parsed = serde_json::from_slice::<Map<String, Value>>(text).ok();
        let Some(message) = parsed.filter(|message| expected.is(message)) else {
            // The call fails now instead of at its deadline, because no other response will come.
            if let Some(id) = expected.answers()
                && let Some(failed) = self.failed(id, Failure::InvalidMessage)
            {
                self.ready.push_back(failed);
            }
            return self.garbage();
        };
        self.bad = 0;
        self.stray.on_message();
        if let Some(id) = expected.answers() {
            // The texts of an error are not kept, so it cannot be shown.
            if !texts.texts.is_empty() && !message.contains_key("result") {
                let why = format!("its error is longer than {MAX_FRAME_BYTES} bytes; the call may have taken effect");
                return Ok(self.open.remove(&id).map(|_| unread_answer(id, why)));
            }
            if let Some(open) = self.open.get(&id) {
                open.slot.keep(reservation, texts);
            }
        }
        self.dispatch(message)
    }

    /// Counts an invalid message. Some are tolerated, because servers print banners and logs to their standard output.
    fn garbage(&mut self) -> Result<Option<RxJsonRpcMessage<RoleClient>>, DisconnectReason> {
        self.bad += 1;
        if self.bad >= MAX_BAD_FRAMES { Err(DisconnectReason::Garbage) } else { Ok(None) }
    }

    /// Handles a message that exceeds its limits and is not parsed. The waiting call, or the server, gets an error.
    fn unread(
        &mut self,
        expected: &Expected,
        envelope: &Envelope<'_>,
        why: String,
    ) -> Result<Option<RxJsonRpcMessage<RoleClient>>, DisconnectReason> {
        self.bad = 0;
        match expected {
            Expected::Notification => Ok(None),
            Expected::Request => match envelope.id() {
                Some(id) => {
                    let request = json!({"jsonrpc": "2.0", "id": id, "method": bounds::TOO_LARGE});
                    self.request(request.as_object().cloned().unwrap_or_default())
                }
                None => Ok(None),
            },
            Expected::Answer(id) | Expected::Handshake(id) => {
                let id = *id;
                Ok(self.open.remove(&id).map(|_| unread_answer(id, why)))
            }
        }
    }

    /// Fails all pending requests, after a response that is too large and whose id is unknown.
    fn fail_all(&mut self, why: &str) {
        let failed = self.open.drain().map(|(id, _)| unread_answer(id, why.to_owned()));
        self.ready.extend(failed);
    }

    /// Processes a parsed message and returns the part that the library must see.
    fn dispatch(
        &mut self,
        mut message: Map<String, Value>,
    ) -> Result<Option<RxJsonRpcMessage<RoleClient>>, DisconnectReason> {
        if message.contains_key("method") {
            if message.get("id").is_none_or(Value::is_null) {
                // Notifications are handled here, because the library would start a task for each.
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
                Reader::Session => whole(result),
                // Some older servers return an empty result for unknown methods.
                Reader::LibraryDiscover if !result.get("supportedVersions").is_some_and(Value::is_array) => {
                    let unknown = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "it lists no supported revisions", None);
                    return Ok(Some(JsonRpcMessage::error(unknown, Some(id))));
                }
                Reader::Library | Reader::LibraryDiscover => {
                    serde_json::from_value(result).unwrap_or_else(|_| whole(Value::Null))
                }
            };
            return Ok(Some(JsonRpcMessage::response(result, id)));
        }
        let error = message.remove("error").and_then(|error| serde_json::from_value(error).ok());
        Ok(Some(JsonRpcMessage::error(error.unwrap_or_else(unreadable), Some(id))))
    }

    /// Converts a transport failure to an error response for the library.
    pub(super) fn failed(&mut self, id: i64, failure: Failure) -> Option<RxJsonRpcMessage<RoleClient>> {
        self.open.remove(&id)?;
        let data = |code: i32, message: String| ErrorData::new(ErrorCode(code), message, None);
        let error = match failure {
            Failure::Status { code, message } => data(i32::from(code), message),
            Failure::Refused(mut object) => {
                object.remove("error").and_then(|error| serde_json::from_value(error).ok()).unwrap_or_else(unreadable)
            }
            Failure::Lost => data(LOST, "the response broke off; the call may have taken effect".to_owned()),
            Failure::InvalidMessage => data(LOST, "its response is not a JSON-RPC message".to_owned()),
            Failure::TooLong => data(bounds::RESPONSE_TOO_LARGE, response_too_long()),
            Failure::Closed(why) => data(LOST, why.to_string()),
        };
        Some(JsonRpcMessage::error(error, Some(RequestId::Number(id))))
    }

    fn request(&mut self, message: Map<String, Value>) -> Result<Option<ServerJsonRpcMessage>, DisconnectReason> {
        let Ok(request) = serde_json::from_value(Value::Object(message)) else { return Ok(None) };
        self.asked += 1;
        if self.asked > MAX_UNANSWERED_REQUESTS { Err(DisconnectReason::AsksTooMuch) } else { Ok(Some(request)) }
    }

    /// Processes progress and change notifications. Changes are counted, not queued, so a flood of them needs no
    /// memory.
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

/// Returns the size of a message with its long texts, if the cell may receive them whole and they fit in memory.
fn size_with_texts(skeleton: &[u8], texts: &[SpooledText], measure: Measure) -> Option<usize> {
    if texts.is_empty() {
        return None;
    }
    let long = texts.iter().map(SpooledText::json_len).sum::<u64>();
    let size = skeleton.len().saturating_add(usize::try_from(long).unwrap_or(usize::MAX));
    let fits = size.saturating_add(REWRITE_ALLOWANCE_BYTES) <= MAX_BRIDGE_VALUE_BYTES;
    (fits && PendingReservation::fits(size, measure)).then_some(size)
}

fn is_tiny(text: &[u8]) -> bool {
    PendingReservation::new(text.len(), measure(text)).is_none()
}

/// The code of errors that this client creates itself. It is no code of the protocol.
const LOST: i32 = 0;

fn unreadable() -> ErrorData {
    ErrorData::new(ErrorCode(0), "an error without a readable message", None)
}

fn unread_answer(id: i64, why: String) -> RxJsonRpcMessage<RoleClient> {
    JsonRpcMessage::error(ErrorData::new(ErrorCode(bounds::RESPONSE_TOO_LARGE), why, None), Some(RequestId::Number(id)))
}

#[cfg(test)]
mod tests {
    use contract::limits::MAX_JSON_VALUES;
    use executor::ProgressSink;
    use rmcp::RoleClient;
    use rmcp::model::{ClientRequest, CustomRequest, RequestId};
    use rmcp::service::RxJsonRpcMessage;
    use serde_json::{Value, json};

    use super::super::bounds::TOO_LARGE;
    use super::{
        DisconnectReason, Gate, JsonRpcMessage, LargeMessage, MAX_BAD_FRAMES, MAX_UNANSWERED_REQUESTS, ResponseSlot,
        Sink,
    };

    fn take(gate: &mut Gate, value: &Value) -> Result<Option<RxJsonRpcMessage<RoleClient>>, DisconnectReason> {
        gate.take(value.to_string().into_bytes(), None)
    }

    /// Sends a request that waits for a response.
    fn send_request(gate: &mut Gate, id: i64) {
        let mut request = CustomRequest::new("tools/call", Some(json!({})));
        request.extensions.insert(Sink {
            updates: ProgressSink::default(),
            headers: Vec::new(),
            slot: ResponseSlot::default(),
        });
        gate.on_send(&JsonRpcMessage::request(ClientRequest::CustomRequest(request), RequestId::Number(id)));
    }

    /// Returns the error message that the call with this id receives instead of a response.
    fn error_for(message: Option<RxJsonRpcMessage<RoleClient>>, wanted: i64) -> String {
        match message {
            Some(JsonRpcMessage::Error(error)) if error.id == Some(RequestId::Number(wanted)) => {
                error.error.message.into_owned()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_response_that_exceeds_a_limit_is_not_parsed_and_fails_only_its_call() {
        let many = format!("[{}0]", "0,".repeat(MAX_JSON_VALUES));
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        let objects = format!("[{}0]", r#"{"a":0},"#.repeat(1_000_000));
        for (inside, expected) in [(&many, "JSON values"), (&deep, "levels"), (&objects, "JSON values")] {
            for text in [
                format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"x":{inside}}}}}"#),
                format!(r#"{{"result":{inside},"id":"1"}}"#),
                format!(r#"{{"id":1,"error":{{"code":1,"message":"m","data":{inside}}}}}"#),
            ] {
                let mut gate = Gate::new();
                send_request(&mut gate, 1);
                send_request(&mut gate, 2);
                let message = gate.take(text.into_bytes(), None).unwrap();
                assert!(!gate.is_reading());
                let message = error_for(message, 1);
                assert!(message.contains(expected) && message.contains("ask it for less"), "{message}");
                assert!(gate.open.contains_key(&2) && gate.ready().is_none());
            }
        }
    }

    #[test]
    fn a_response_that_exceeds_a_limit_and_hides_its_id_fails_all_calls() {
        let many = format!("[{}0]", "0,".repeat(MAX_JSON_VALUES));
        for text in [
            format!(r#"{{"\u0069d":1,"result":{many}}}"#),
            format!(r#"{{"result":{many}}}"#),
            format!(r#"[{{"id":1,"result":{many}}}]"#),
            format!(r#"{{"id":1,"result":{many}"#),
        ] {
            let mut gate = Gate::new();
            send_request(&mut gate, 1);
            send_request(&mut gate, 2);
            assert!(matches!(gate.take(text.into_bytes(), None), Ok(None)));
            let failed = [gate.ready(), gate.ready(), gate.ready()];
            assert_eq!(failed.iter().flatten().count(), 2);
        }
    }

    /// The scan and the parser must not see different messages.
    #[test]
    fn a_message_that_the_scan_and_the_parser_read_differently_is_invalid() {
        let texts = [
            r#"{"id":1,"\u006dethod":"ping","params":{}}"#,
            r#"{"id":1,"\u0069d":2,"result":{}}"#,
            r#"{"id":1,"result":{},"result":}"#,
        ];
        for text in texts {
            let mut gate = Gate::new();
            send_request(&mut gate, 1);
            assert!(matches!(gate.take(text.as_bytes().to_vec(), None), Ok(None)), "{text}");
            let message = gate.ready();
            assert!(error_for(message, 1).contains("not a JSON-RPC message"), "{text}");
        }
    }

    #[test]
    fn large_requests_are_rejected_and_large_notifications_are_dropped() {
        let mut gate = Gate::new();
        let many = vec![0; 20_000];
        let request = json!({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {"x": many}});
        let Ok(Some(JsonRpcMessage::Request(asked))) = take(&mut gate, &request) else { panic!() };
        assert_eq!(serde_json::to_value(&asked).unwrap()["method"], TOO_LARGE);
        for params in [json!({"x": many}), json!({"x": "x".repeat(100_000)})] {
            let note = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": params});
            assert!(matches!(take(&mut gate, &note), Ok(None)));
        }
        assert_eq!(*gate.list_changes().borrow(), 0);
        let note = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
        assert!(matches!(take(&mut gate, &note), Ok(None)));
        assert_eq!(*gate.list_changes().borrow(), 1);
    }

    #[test]
    fn invalid_messages_are_skipped_until_there_are_too_many_in_a_row() {
        let mut gate = Gate::new();
        let good = || b"{\"a\":1}".to_vec();
        for _ in 0..3 {
            for text in ["x", "[1]", "7", "\u{1b}[0m", "{", "hello", "{\"a\"", "null", "\u{fffd}"] {
                assert!(matches!(gate.take(text.as_bytes().to_vec(), None), Ok(None)), "{text}");
            }
            assert!(matches!(gate.take(good(), None), Ok(None)));
        }
        for _ in 1..MAX_BAD_FRAMES {
            assert!(matches!(gate.take(b"\xff\xfe".to_vec(), None), Ok(None)));
        }
        assert!(matches!(gate.take(b"x".to_vec(), None), Err(DisconnectReason::Garbage)));
    }

    #[test]
    fn the_number_of_unanswered_server_requests_is_limited() {
        let mut gate = Gate::new();
        let ping = |id: usize| json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
        for id in 0..MAX_UNANSWERED_REQUESTS {
            assert!(matches!(take(&mut gate, &ping(id)), Ok(Some(JsonRpcMessage::Request(_)))));
        }
        let answer = JsonRpcMessage::response(rmcp::model::ClientResult::empty(()), RequestId::Number(0));
        gate.on_send(&answer);
        assert!(take(&mut gate, &ping(1)).is_ok());
        assert!(matches!(take(&mut gate, &ping(2)), Err(DisconnectReason::AsksTooMuch)));
    }

    #[test]
    fn a_large_message_is_accepted_only_as_the_result_of_a_call() {
        let large = |text: &str| LargeMessage { skeleton: text.as_bytes().to_vec(), texts: Ok(Vec::new()) };
        let mut gate = Gate::new();
        assert!(!gate.accepts_large());
        send_request(&mut gate, 1);
        send_request(&mut gate, 2);
        assert!(gate.accepts_large());
        let result = gate.take_large(large(r#"{"result":{},"id":1}"#), None).unwrap();
        assert!(matches!(result, Some(JsonRpcMessage::Response(_))), "{result:?}");
        // Dropped, rejected and ignored.
        assert!(matches!(gate.take_large(large(r#"{"id":7,"result":{}}"#), None), Ok(None)));
        let ping = gate.take_large(large(r#"{"id":"q","method":"ping"}"#), None);
        assert!(matches!(ping, Ok(Some(JsonRpcMessage::Request(_)))), "{ping:?}");
        let note = r#"{"method":"notifications/tools/list_changed"}"#;
        assert!(matches!(gate.take_large(large(note), None), Ok(None)));
        assert_eq!(*gate.list_changes().borrow(), 0);
        let dropped = LargeMessage { skeleton: br#"{"id":2}"#.to_vec(), texts: Err("too much".to_owned()) };
        assert_eq!(error_for(gate.take_large(dropped, None).unwrap(), 2), "too much");
        assert!(!gate.accepts_large());
        // A message without an id may have been any response.
        for text in [r#"{"\u0069d":3,"result":{}}"#, "[]"] {
            send_request(&mut gate, 3);
            assert!(matches!(gate.take_large(large(text), None), Ok(None)));
            let failed = gate.ready();
            assert!(error_for(failed, 3).contains("longer than 8388608 bytes"), "{text}");
        }
    }

    #[test]
    fn unexpected_responses_and_unknown_notifications_do_not_reach_the_library() {
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
            assert!(matches!(take(&mut gate, &stray), Ok(None)), "{stray}");
        }
    }
}
