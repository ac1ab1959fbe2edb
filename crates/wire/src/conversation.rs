//! A conversation in a form that is independent of the API ([`Wire`]) that a client or provider uses.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::Wire;

/// A message of a conversation, or the results of the tool calls in one message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Item {
    /// Instructions that are not at the beginning of the conversation.
    System(String),
    User(Vec<Part>),
    Assistant(Assistant),
    /// The results of tool calls that an earlier assistant message made.
    Results(Vec<CallResult>),
}

/// Adds items to a conversation. Results at their beginning belong to the last calls of the conversation, even if messages
/// of the user follow those calls.
pub fn join(mut history: Vec<Item>, items: Vec<Item>) -> Vec<Item> {
    let mut items = items.into_iter().peekable();
    let Some(Item::Results(_)) = items.peek() else {
        history.extend(items);
        return history;
    };
    let Some(Item::Results(given)) = items.next() else { return history };
    let after = history.iter().rposition(|item| matches!(item, Item::Assistant(_))).map_or(history.len(), |at| at + 1);
    match history.get_mut(after) {
        Some(Item::Results(results)) => results.extend(given),
        Some(_) | None => history.insert(after, Item::Results(given)),
    }
    history.extend(items);
    history
}

/// A part of a message's content.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Part {
    Text(String),
    Image(Image),
    /// A part that other APIs do not have. It is sent only to a provider with the same API.
    Other(Wire, Box<RawValue>),
}

/// An image in a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Image {
    Url(String),
    Base64 { mime_type: String, data: String },
}

/// A message of the model.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Assistant {
    pub text: String,
    pub calls: Vec<ModelCall>,
    /// The message as its provider sent it. It is sent back unchanged to a provider with the same API.
    pub raw: Option<RawAssistant>,
}

/// A provider's assistant message, byte for byte.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RawAssistant {
    pub wire: Wire,
    /// Chat: the message. Messages: the array of content blocks. Responses: the array of output items.
    pub json: Box<RawValue>,
}

/// A tool call of the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelCall {
    pub id: String,
    pub name: String,
    pub arguments: Arguments,
}

/// The arguments of a model's call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Arguments {
    /// A JSON object, as the model wrote it.
    Object(String),
    /// A text that is not a JSON object. The call must not be made.
    Malformed(String),
}

impl Arguments {
    /// Classifies the text that a model wrote. An empty text means no arguments.
    pub fn classify(text: String) -> Self {
        if text.trim().is_empty() {
            return Self::Object("{}".to_owned());
        }
        let is_object = text.trim_start().starts_with('{') && serde_json::from_str::<&RawValue>(&text).is_ok();
        if is_object { Self::Object(text) } else { Self::Malformed(text) }
    }

    pub fn text(&self) -> &str {
        match self {
            Self::Object(text) | Self::Malformed(text) => text,
        }
    }
}

/// The result of a call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CallResult {
    pub call_id: String,
    pub parts: Vec<Part>,
    pub is_error: bool,
}

impl CallResult {
    pub fn text(call_id: impl Into<String>, text: impl Into<String>) -> Self {
        Self { call_id: call_id.into(), parts: vec![Part::Text(text.into())], is_error: false }
    }
}

/// A tool that a model can call.
#[derive(Clone, Debug)]
pub struct ModelTool {
    pub name: String,
    pub description: String,
    /// The JSON Schema of the arguments.
    pub parameters: Box<RawValue>,
}

/// Why a model stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    EndTurn,
    ToolCalls,
    /// The output reached its limit.
    Length,
    Refusal,
    /// The conversation no longer fits the model's context.
    ContextExceeded,
    /// The provider interrupted a long turn; the next request continues it.
    Pause,
    Other(String),
}

/// The tokens of one request to a provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Usage {
    /// Tokens of the request, including those read from a cache or written to it.
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_tokens: u64,
    pub cache_write_tokens: u64,
}
