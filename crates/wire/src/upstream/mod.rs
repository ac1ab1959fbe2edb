//! Requests to providers and their responses.

mod chat;
mod message_events;
mod messages;
mod request;
mod responses;

use serde_json::Value;

use crate::Wire;
use crate::conversation::{Assistant, ModelCall, RawAssistant, StopReason, Usage};
use crate::limits::{MAX_CALL_NAME_BYTES, MAX_CALLS, MAX_ERROR_CHARS, MAX_EVENT_BYTES, MAX_RESPONSE_BYTES};
use crate::sse::{SseError, SseReader};

pub use message_events::message_events;
pub use request::{ModelRequest, Quirks, ToolChoice, tool_names};

/// What separates texts that follow each other.
pub const PARAGRAPH: &str = "\n\n";

/// What a model says while it responds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelEvent {
    Text(String),
    /// A part of the model's reasoning that may be shown.
    Reasoning(String),
}

/// A complete response of a model.
#[derive(Clone, Debug)]
pub struct ModelResponse {
    /// The provider's id of the response; empty if it sent none.
    pub id: String,
    pub model: String,
    pub message: Assistant,
    pub stop: StopReason,
    pub usage: Usage,
}

/// Why a response is not complete. Nothing in it may be executed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IncompleteResponse {
    #[error("the provider's response ended before it was complete")]
    Truncated,
    #[error("the provider's response cannot be read: {0}")]
    Unreadable(String),
    #[error("the provider's response exceeds a limit: {0}")]
    TooLarge(String),
    #[error("the provider reported an error: {0}")]
    Provider(ProviderError),
}

/// An error that a provider reported in a response.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ProviderError {
    /// The provider's type or code of the error; empty if it sent none.
    pub kind: String,
    pub message: String,
}

impl ProviderError {
    /// Reads an `error` member: an object, a text, or a list of such objects.
    pub fn read(error: &Value) -> Self {
        let error = error.as_array().and_then(|errors| errors.first()).unwrap_or(error);
        let error = error.get("error").unwrap_or(error);
        let text = |name: &str| error.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let number = |name: &str| error.get(name).and_then(Value::as_i64).map(|number| number.to_string());
        let kind = text("type").or_else(|| text("code")).map(str::to_owned).or_else(|| number("code"));
        let message = error.as_str().or_else(|| text("message")).unwrap_or("no message");
        Self { kind: kind.unwrap_or_default(), message: message.chars().take(MAX_ERROR_CHARS).collect() }
    }
}

impl From<SseError> for IncompleteResponse {
    fn from(error: SseError) -> Self {
        match error {
            SseError::TooLong(_) => Self::TooLarge(error.to_string()),
            SseError::NotUtf8 => Self::Unreadable(error.to_string()),
        }
    }
}

/// Reads a streamed response. It has exactly one end: [`Decoder::finish`].
#[derive(Debug)]
pub struct Decoder {
    events: SseReader,
    bytes: usize,
    state: State,
    failed: Option<IncompleteResponse>,
}

#[derive(Debug)]
enum State {
    Chat(chat::Decoder),
    Responses(responses::Decoder),
    Messages(messages::Decoder),
}

impl Decoder {
    pub fn new(wire: Wire) -> Self {
        let state = match wire {
            Wire::Chat => State::Chat(chat::Decoder::default()),
            Wire::Responses => State::Responses(responses::Decoder::default()),
            Wire::Messages => State::Messages(messages::Decoder::default()),
        };
        Self { events: SseReader::new(MAX_EVENT_BYTES), bytes: 0, state, failed: None }
    }

    /// Adds bytes of the response and returns what they say. After an error, everything else is ignored.
    pub fn push(&mut self, chunk: &[u8]) -> Vec<ModelEvent> {
        let mut output = Vec::new();
        if self.failed.is_none()
            && let Err(broken) = self.read(chunk, &mut output)
        {
            self.failed = Some(broken);
        }
        output
    }

    fn read(&mut self, chunk: &[u8], output: &mut Vec<ModelEvent>) -> Result<(), IncompleteResponse> {
        self.bytes = self.bytes.saturating_add(chunk.len());
        if self.bytes > MAX_RESPONSE_BYTES {
            return Err(IncompleteResponse::TooLarge(format!("it has more than {MAX_RESPONSE_BYTES} bytes")));
        }
        for event in self.events.push(chunk)? {
            match &mut self.state {
                State::Chat(decoder) => decoder.on_event(&event, output)?,
                State::Responses(decoder) => decoder.on_event(&event, output)?,
                State::Messages(decoder) => decoder.on_event(&event, output)?,
            }
        }
        Ok(())
    }

    /// Returns whether the response is complete or broken, so that no more bytes are needed.
    pub fn is_over(&self) -> bool {
        self.failed.is_some()
            || match &self.state {
                State::Chat(decoder) => decoder.is_over(),
                State::Responses(decoder) => decoder.is_over(),
                State::Messages(decoder) => decoder.is_over(),
            }
    }

    /// Ends the response. `new_id` makes ids for calls that have none.
    pub fn finish(self, new_id: impl FnMut() -> String) -> Result<ModelResponse, IncompleteResponse> {
        if let Some(broken) = self.failed {
            return Err(broken);
        }
        let response = match self.state {
            State::Chat(decoder) => decoder.finish(new_id),
            State::Responses(decoder) => decoder.finish(),
            State::Messages(decoder) => decoder.finish(),
        };
        checked(response?)
    }
}

/// Reads a response that was not streamed. `new_id` makes ids for calls that have none.
pub fn read_whole(
    wire: Wire,
    body: &[u8],
    new_id: impl FnMut() -> String,
) -> Result<ModelResponse, IncompleteResponse> {
    if body.len() > MAX_RESPONSE_BYTES {
        return Err(IncompleteResponse::TooLarge(format!("it has more than {MAX_RESPONSE_BYTES} bytes")));
    }
    let body = std::str::from_utf8(body).map_err(|error| IncompleteResponse::Unreadable(error.to_string()))?;
    checked(match wire {
        Wire::Chat => chat::read_whole(body, new_id)?,
        Wire::Responses => responses::read_whole(body)?,
        Wire::Messages => messages::read_whole(body)?,
    })
}

/// Checks the limits of a complete response.
fn checked(response: ModelResponse) -> Result<ModelResponse, IncompleteResponse> {
    let calls = &response.message.calls;
    if calls.len() > MAX_CALLS {
        return Err(IncompleteResponse::TooLarge(format!(
            "it has {} tool calls; at most {MAX_CALLS} are allowed",
            calls.len()
        )));
    }
    if calls.iter().any(|call| call.name.len().max(call.id.len()) > MAX_CALL_NAME_BYTES) {
        return Err(IncompleteResponse::TooLarge(format!(
            "the name or id of a call is longer than {MAX_CALL_NAME_BYTES} bytes"
        )));
    }
    Ok(response)
}

/// Builds the response of a model. Calls decide over the stated reason; a response that was cut by its limit has none.
fn response(
    (id, model): (String, String),
    text: String,
    calls: Vec<ModelCall>,
    raw: RawAssistant,
    stated: StopReason,
    usage: Usage,
) -> ModelResponse {
    let (calls, stop) = match stated {
        StopReason::Length | StopReason::ContextExceeded | StopReason::Refusal => (Vec::new(), stated),
        _ if !calls.is_empty() => (calls, StopReason::ToolCalls),
        StopReason::ToolCalls => (calls, StopReason::EndTurn),
        stated => (calls, stated),
    };
    ModelResponse { id, model, message: Assistant { text, calls, raw: Some(raw) }, stop, usage }
}

fn parse(text: &str) -> Result<Value, IncompleteResponse> {
    serde_json::from_str(text).map_err(|error| IncompleteResponse::Unreadable(error.to_string()))
}

fn string(value: &Value, name: &str) -> Option<String> {
    value.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
}

fn count(value: &Value, path: &[&str]) -> u64 {
    path.iter().try_fold(value, |value, name| value.get(name)).and_then(Value::as_u64).unwrap_or(0)
}

#[cfg(test)]
mod tests;
