//! Requests that clients send to the gateway, and the responses to them. `upstream` has the requests to providers.

mod chat;
mod messages;
mod responses;
mod writer;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::Wire;
use crate::conversation::{Image, Item, Part};
use crate::upstream::ToolChoice;

pub use writer::{ClientCall, Repetition, ResponseWriter, WireError};

/// A request of a client.
#[derive(Clone, Debug)]
pub struct ClientRequest {
    pub wire: Wire,
    pub model: String,
    pub stream: bool,
    /// Chat: whether a stream ends with a chunk that contains the token usage.
    pub include_usage: bool,
    /// The instructions before the conversation.
    pub instructions: String,
    pub items: Vec<Item>,
    pub tools: Vec<ClientTool>,
    /// Tools of other kinds than functions, as the client sent them.
    pub other_tools: Vec<Value>,
    pub tool_choice: ToolChoice,
    pub max_output_tokens: Option<u64>,
    /// The client's name for its user. It is not authenticated.
    pub user: Option<String>,
    /// Responses: the id of the response that this request continues.
    pub previous_response_id: Option<String>,
    /// Responses: whether the response can be retrieved and continued later.
    pub store: bool,
    /// Messages: the thread that this request starts or continues.
    pub thread: Option<Thread>,
    /// Whether the response may contain the model's reasoning. Messages: only if the client asks for it, because many
    /// clients take the first block of a response for its text.
    pub shows_reasoning: bool,
}

/// The placeholder signature of the reasoning that clients of Messages receive. The wire requires a signature, and the
/// provider's own is not sent. Reasoning that a client sends back with it is left out of requests to providers.
const REASONING_SIGNATURE: &str = "cellmate";

/// How a request of the Messages wire refers to a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Thread {
    Create,
    Continue { previous_message_id: String },
}

/// A tool that the client itself executes. In the APIs it is called a function.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClientTool {
    pub name: String,
    pub description: String,
    /// The JSON Schema of the arguments.
    pub parameters: Value,
}

/// Why a request cannot be served. The message is for the client's developer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RequestError {
    pub message: String,
    /// The field that is wrong; empty if it is the whole request.
    pub field: String,
}

impl RequestError {
    fn new(field: &str, message: impl Into<String>) -> Self {
        Self { message: message.into(), field: field.to_owned() }
    }
}

impl ClientRequest {
    /// Reads a request. Fields that this crate does not know are ignored.
    pub fn read(wire: Wire, body: &[u8]) -> Result<Self, RequestError> {
        let fields: Map<String, Value> = serde_json::from_slice(body)
            .map_err(|error| RequestError::new("", format!("the request is not a JSON object: {error}")))?;
        Self::from_fields(wire, &fields)
    }

    /// Reads a request whose JSON has been parsed.
    pub fn from_fields(wire: Wire, fields: &Map<String, Value>) -> Result<Self, RequestError> {
        let body = Fields(fields);
        match wire {
            Wire::Chat => chat::read(body),
            Wire::Responses => responses::read(body),
            Wire::Messages => messages::read(body),
        }
    }

    /// Returns the results of tool calls that are new in this request: those after the last message of the model.
    pub fn trailing_results(&self) -> impl Iterator<Item = &crate::conversation::CallResult> {
        let after = self.items.iter().rposition(|item| matches!(item, Item::Assistant(_))).map_or(0, |at| at + 1);
        self.items
            .iter()
            .skip(after)
            .filter_map(|item| match item {
                Item::Results(results) => Some(results),
                _ => None,
            })
            .flatten()
    }
}

/// The fields of a request. A field that is `null` counts as missing.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a Map<String, Value>);

impl<'a> Fields<'a> {
    fn get(self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    fn text(self, name: &str) -> Result<Option<&'a str>, RequestError> {
        self.typed(name, "a string", Value::as_str)
    }

    fn flag(self, name: &str) -> Result<Option<bool>, RequestError> {
        self.typed(name, "a boolean", Value::as_bool)
    }

    fn number(self, name: &str) -> Result<Option<u64>, RequestError> {
        self.typed(name, "a whole number", Value::as_u64)
    }

    fn list(self, name: &str) -> Result<&'a [Value], RequestError> {
        Ok(self.typed(name, "an array", Value::as_array)?.map(Vec::as_slice).unwrap_or_default())
    }

    fn typed<T>(
        self,
        name: &str,
        kind: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, RequestError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| RequestError::new(name, format!("`{name}` must be {kind}")))
    }

    fn model(self) -> Result<String, RequestError> {
        let model = self.text("model")?.filter(|model| !model.is_empty());
        model.map(str::to_owned).ok_or_else(|| RequestError::new("model", "`model` is required"))
    }
}

/// Returns a string member of an object; an empty string if there is none.
fn text_of<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or("")
}

fn to_raw(value: &Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// Returns the image of a URL: the data that a `data:` URL contains, or the URL itself, which is not fetched.
fn image_from_url(url: &str) -> Image {
    let data = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    match data {
        Some((mime_type, data)) => Image::Base64 { mime_type: mime_type.to_owned(), data: data.to_owned() },
        None => Image::Url(url.to_owned()),
    }
}

/// Returns the text of a message's content, which is a string or a list of parts.
fn plain_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(|part| text_of(part, "text")).collect::<Vec<_>>().join("\n"),
        _ => String::new(),
    }
}

/// Reads a message's content, which is a string or a list of parts.
fn read_parts(content: &Value, part: impl Fn(&Value) -> Part) -> Vec<Part> {
    match content {
        Value::String(text) => vec![Part::Text(text.clone())],
        Value::Array(list) => list.iter().map(part).collect(),
        _ => Vec::new(),
    }
}

/// Reads `tool_choice`, in the form of any of the APIs. A choice of one tool becomes `Required`.
fn read_tool_choice(value: Option<&Value>) -> ToolChoice {
    let name = value.and_then(|value| value.as_str().or_else(|| value.get("type").and_then(Value::as_str)));
    match name {
        Some("none") => ToolChoice::None,
        Some("required" | "any" | "function" | "tool") => ToolChoice::Required,
        _ => ToolChoice::Auto,
    }
}

/// Reads the definition of a tool, whose schema is in the field `schema_field`.
fn read_tool(value: &Value, schema_field: &str) -> Result<ClientTool, RequestError> {
    let name = text_of(value, "name");
    if name.is_empty() {
        return Err(RequestError::new("tools", "a tool has no name"));
    }
    let schema = value.get(schema_field).filter(|schema| schema.is_object()).cloned();
    Ok(ClientTool {
        name: name.to_owned(),
        description: text_of(value, "description").to_owned(),
        parameters: schema.unwrap_or_else(|| serde_json::json!({"type": "object"})),
    })
}

#[cfg(test)]
mod tests;
