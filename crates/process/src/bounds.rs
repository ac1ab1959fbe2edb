//! The size limits for each kind of message. They are checked by a scan of the text, before anything parses it.

use contract::json::{Measure, measure};
use contract::limits::{
    LARGE_TEXT_BYTES, MAX_HANDSHAKE_BYTES, MAX_HANDSHAKE_VALUES, MAX_JSON_VALUES, MAX_LARGE_MESSAGE_BYTES,
    MAX_NOTIFICATION_BYTES, MAX_NOTIFICATION_VALUES, MAX_SERVER_MESSAGE_DEPTH, MAX_SERVER_REQUEST_BYTES,
    MAX_SERVER_REQUEST_VALUES,
};
use serde_json::{Map, Value};

use crate::MAX_FRAME_BYTES;
use crate::envelope::{Envelope, response_id};

/// The kind of a message according to its envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    Notification,
    Request,
    /// The response to a request of this client.
    Answer(i64),
    /// A response during the handshake, which is kept as long as the connection.
    Handshake(i64),
}

impl MessageKind {
    /// Returns the kind of a message, or `None` if nothing processes it. `open` is the pending request that it answers, and
    /// whether its response is part of the handshake. `read` are the notifications that are processed; all others are
    /// dropped.
    pub fn of(envelope: &Envelope<'_>, open: Option<(i64, bool)>, read: &[&str]) -> Option<Self> {
        match (envelope.has_method(), open) {
            (true, _) if envelope.has_id() => Some(Self::Request),
            (true, _) => read.iter().any(|method| envelope.is_method(method)).then_some(Self::Notification),
            (false, Some((id, true))) => Some(Self::Handshake(id)),
            (false, Some((id, false))) => Some(Self::Answer(id)),
            (false, None) => None,
        }
    }

    /// Returns the id of the request that the message answers.
    pub fn answers(&self) -> Option<i64> {
        match self {
            Self::Answer(id) | Self::Handshake(id) => Some(*id),
            Self::Notification | Self::Request => None,
        }
    }

    /// Returns true if the parsed message is what its envelope said. They differ if a key is written with escapes,
    /// which the scan does not decode.
    pub fn is(&self, message: &Map<String, Value>) -> bool {
        let has_id = message.get("id").is_some_and(|id| !id.is_null());
        let has_method = message.contains_key("method");
        match self {
            Self::Notification => has_method && !has_id,
            Self::Request => has_method && has_id,
            Self::Answer(id) | Self::Handshake(id) => {
                !has_method && message.get("id").and_then(response_id) == Some(*id)
            }
        }
    }

    /// Measures a message. The error says which limit it exceeds and what to do about it.
    pub fn judge(&self, text: &[u8]) -> Result<Measure, String> {
        let (bytes, values) = match self {
            Self::Notification => (MAX_NOTIFICATION_BYTES, MAX_NOTIFICATION_VALUES),
            Self::Request => (MAX_SERVER_REQUEST_BYTES, MAX_SERVER_REQUEST_VALUES),
            Self::Answer(_) => (MAX_FRAME_BYTES, MAX_JSON_VALUES),
            Self::Handshake(_) => (MAX_HANDSHAKE_BYTES, MAX_HANDSHAKE_VALUES),
        };
        if text.len() > bytes {
            return Err(format!("its handshake is longer than {bytes} bytes; configure it to send less"));
        }
        let found = measure(text);
        too_much(found, values).map_or(Ok(found), Err)
    }
}

/// Returns why a text is not parsed, if it exceeds a limit.
pub fn too_large(text: &[u8], values: usize) -> Option<String> {
    too_much(measure(text), values)
}

fn too_much(found: Measure, values: usize) -> Option<String> {
    if found.values > values {
        let count = found.values;
        return Some(format!("its response has {count} JSON values, and the limit is {values}; {REMEDY}"));
    }
    if found.depth > MAX_SERVER_MESSAGE_DEPTH {
        let depth = found.depth;
        return Some(format!(
            "its response nests {depth} levels deep, and the limit is {MAX_SERVER_MESSAGE_DEPTH}; {REMEDY}"
        ));
    }
    None
}

/// What a caller can do about a response that exceeds a limit.
pub(crate) const REMEDY: &str =
    "ask it for less at once, such as a page, a filter or fewer fields; the call may have taken effect";

/// Returns the error for a response that is longer than a message may be.
pub fn response_too_long() -> String {
    response_longer_than(MAX_FRAME_BYTES)
}

/// Returns the error for a response that is longer than a reader's limit.
pub(crate) fn response_longer_than(max_bytes: usize) -> String {
    format!("its response is longer than {max_bytes} bytes; {REMEDY}")
}

/// Returns the error for a response that is longer than a message may be, even without its large texts.
pub(crate) fn skeleton_too_long() -> String {
    format!(
        "its response is longer than {MAX_FRAME_BYTES} bytes without its texts of more than {LARGE_TEXT_BYTES} bytes; \
         {REMEDY}"
    )
}

/// Returns the error for a response that is too long to be read to its end, which ends the connection.
pub fn endless_response() -> String {
    format!("its message is longer than {MAX_LARGE_MESSAGE_BYTES} bytes, so its connection was closed; {REMEDY}")
}

#[cfg(test)]
mod tests {
    use super::{Envelope, MessageKind};

    #[test]
    fn each_kind_of_message_has_its_bounds() {
        let envelope = |text: &'static str| Envelope::scan(text.as_bytes()).unwrap();
        let kinds = [
            (r#"{"method":"notifications/progress"}"#, None, Some(MessageKind::Notification)),
            (r#"{"method":"notifications/message"}"#, None, None),
            (r#"{"method":"ping","id":1}"#, Some((1, false)), Some(MessageKind::Request)),
            (r#"{"id":1}"#, Some((1, false)), Some(MessageKind::Answer(1))),
            (r#"{"id":1}"#, Some((1, true)), Some(MessageKind::Handshake(1))),
            (r#"{"id":1}"#, None, None),
        ];
        for (text, open, expected) in kinds {
            assert_eq!(MessageKind::of(&envelope(text), open, &["notifications/progress"]), expected, "{text}");
        }
        let bounds = [
            (MessageKind::Notification, 64 << 10, 1_000),
            (MessageKind::Request, 256 << 10, 10_000),
            (MessageKind::Handshake(1), 1 << 20, 20_000),
            (MessageKind::Answer(1), 8 << 20, 200_000),
        ];
        for (kind, bytes, values) in bounds {
            let text = |length: usize| format!("\"{}\"", "x".repeat(length - 2)).into_bytes();
            assert!(kind.judge(&text(bytes)).is_ok() && kind.judge(&text(bytes + 1)).is_err(), "{kind:?}");
            // The array itself counts as a value.
            let array = |count: usize| format!("[{}0]", "0,".repeat(count - 2)).into_bytes();
            assert!(kind.judge(&array(values)).is_ok() && kind.judge(&array(values + 1)).is_err(), "{kind:?}");
        }
        let deep = |levels: usize| ("[".repeat(levels) + &"]".repeat(levels)).into_bytes();
        assert!(MessageKind::Answer(1).judge(&deep(127)).is_ok() && MessageKind::Answer(1).judge(&deep(128)).is_err());
        assert!(serde_json::from_slice::<serde_json::Value>(&deep(127)).is_ok());
    }
}
