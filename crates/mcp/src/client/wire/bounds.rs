//! The size limits for each kind of message. They are checked by a scan of the text, before anything parses it.

use contract::json::{Measure, measure};
use contract::limits::{
    MAX_HANDSHAKE_BYTES, MAX_HANDSHAKE_VALUES, MAX_JSON_VALUES, MAX_NOTIFICATION_BYTES, MAX_NOTIFICATION_VALUES,
    MAX_SERVER_MESSAGE_DEPTH, MAX_SERVER_REQUEST_BYTES, MAX_SERVER_REQUEST_VALUES,
};
use serde_json::{Map, Value};

use crate::client::envelope::{Envelope, response_id};
use crate::client::spec::MAX_FRAME_BYTES;

/// The internal error code for a response that exceeds its limits and was not parsed. No server sends it.
pub(super) const RESPONSE_TOO_LARGE: i32 = i32::MIN;

/// Replaces the method of a request that is too large to be parsed, so that the server still gets a response.
pub(super) const TOO_LARGE: &str = "cellmate/too-large";

/// The notifications that are processed; all others are dropped.
const READ: [&str; 2] = ["notifications/progress", "notifications/tools/list_changed"];

/// The kind of a message according to its envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Notification,
    Request,
    /// The response to a request of this client.
    Answer(i64),
    /// A response that the protocol library parses and keeps.
    Handshake(i64),
}

impl Expected {
    /// Returns the kind of a message, or `None` if nothing processes it. `open` is the pending request that it answers,
    /// and whether the library made that request.
    pub(super) fn of(envelope: &Envelope<'_>, open: Option<(i64, bool)>) -> Option<Self> {
        match (envelope.has_method(), open) {
            (true, _) if envelope.has_id() => Some(Self::Request),
            (true, _) => READ.iter().any(|method| envelope.is_method(method)).then_some(Self::Notification),
            (false, Some((id, true))) => Some(Self::Handshake(id)),
            (false, Some((id, false))) => Some(Self::Answer(id)),
            (false, None) => None,
        }
    }

    /// Returns the id of the request that the message answers.
    pub(super) fn answers(&self) -> Option<i64> {
        match self {
            Self::Answer(id) | Self::Handshake(id) => Some(*id),
            Self::Notification | Self::Request => None,
        }
    }

    /// Returns true if the parsed message is what its envelope said. They differ if a key is written with escapes,
    /// which the scan does not decode.
    pub(super) fn is(&self, message: &Map<String, Value>) -> bool {
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
    pub(super) fn judge(&self, text: &[u8]) -> Result<Measure, String> {
        let (bytes, values) = match self {
            Self::Notification => (MAX_NOTIFICATION_BYTES, MAX_NOTIFICATION_VALUES),
            Self::Request => (MAX_SERVER_REQUEST_BYTES, MAX_SERVER_REQUEST_VALUES),
            Self::Answer(_) => (MAX_FRAME_BYTES, MAX_JSON_VALUES),
            Self::Handshake(_) => (MAX_HANDSHAKE_BYTES, MAX_HANDSHAKE_VALUES),
        };
        if text.len() > bytes {
            return Err(format!("its handshake is longer than {bytes} bytes; configure the server to send less"));
        }
        let found = measure(text);
        too_much(found, values).map_or(Ok(found), Err)
    }
}

/// Returns why a text is not parsed, if it exceeds a limit.
pub(super) fn unread(text: &[u8], values: usize) -> Option<String> {
    too_much(measure(text), values)
}

fn too_much(found: Measure, values: usize) -> Option<String> {
    let remedy = "ask it for less at once, such as a page, a filter or fewer fields; the call may have taken effect";
    if found.values > values {
        let count = found.values;
        return Some(format!("its response has {count} JSON values, and the limit is {values}; {remedy}"));
    }
    if found.depth > MAX_SERVER_MESSAGE_DEPTH {
        let depth = found.depth;
        return Some(format!(
            "its response nests {depth} levels deep, and the limit is {MAX_SERVER_MESSAGE_DEPTH}; {remedy}"
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{Envelope, Expected};

    #[test]
    fn each_kind_of_message_has_its_bounds() {
        let envelope = |text: &'static str| Envelope::scan(text.as_bytes()).unwrap();
        let kinds = [
            (r#"{"method":"notifications/progress"}"#, None, Some(Expected::Notification)),
            (r#"{"method":"notifications/message"}"#, None, None),
            (r#"{"method":"ping","id":1}"#, Some((1, false)), Some(Expected::Request)),
            (r#"{"id":1}"#, Some((1, false)), Some(Expected::Answer(1))),
            (r#"{"id":1}"#, Some((1, true)), Some(Expected::Handshake(1))),
            (r#"{"id":1}"#, None, None),
        ];
        for (text, open, expected) in kinds {
            assert_eq!(Expected::of(&envelope(text), open), expected, "{text}");
        }
        let bounds = [
            (Expected::Notification, 64 << 10, 1_000),
            (Expected::Request, 256 << 10, 10_000),
            (Expected::Handshake(1), 1 << 20, 20_000),
            (Expected::Answer(1), 8 << 20, 200_000),
        ];
        for (kind, bytes, values) in bounds {
            let text = |length: usize| format!("\"{}\"", "x".repeat(length - 2)).into_bytes();
            assert!(kind.judge(&text(bytes)).is_ok() && kind.judge(&text(bytes + 1)).is_err(), "{kind:?}");
            // The array itself counts as a value.
            let array = |count: usize| format!("[{}0]", "0,".repeat(count - 2)).into_bytes();
            assert!(kind.judge(&array(values)).is_ok() && kind.judge(&array(values + 1)).is_err(), "{kind:?}");
        }
        let deep = |levels: usize| ("[".repeat(levels) + &"]".repeat(levels)).into_bytes();
        assert!(Expected::Answer(1).judge(&deep(127)).is_ok() && Expected::Answer(1).judge(&deep(128)).is_err());
        assert!(serde_json::from_slice::<serde_json::Value>(&deep(127)).is_ok());
    }
}
