//! Encodes requests to providers. The same conversation always gives the same bytes, and adding messages leaves all
//! bytes before them unchanged, so that prompt caches hit.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::Wire;
use crate::conversation::{Arguments, Assistant, CallResult, Image, Item, ModelCall, ModelTool, Part};

/// A request to a provider, independent of the wire.
#[derive(Clone, Debug)]
pub struct ModelRequest<'a> {
    pub model: &'a str,
    pub instructions: &'a str,
    pub tools: &'a [ModelTool],
    pub tool_choice: ToolChoice,
    pub items: &'a [Item],
    pub max_output_tokens: Option<u64>,
    pub stream: bool,
    /// Identifies the conversation for the provider's prompt cache; empty for none. It is not sent on Messages, which
    /// has no such field.
    pub cache_key: &'a str,
    /// Further fields from the configuration, such as `temperature`. They never replace a field of this request.
    pub extra: &'a Map<String, Value>,
    pub quirks: Quirks,
}

/// Whether the model may, must or must not call a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToolChoice {
    #[default]
    Auto,
    Required,
    None,
}

/// How a provider differs from the vendor whose wire it imitates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Quirks {
    /// Chat: the limit of output tokens is sent as `max_tokens` instead of `max_completion_tokens`.
    #[serde(rename = "maxTokens")]
    pub uses_max_tokens: bool,
    /// Chat: instructions have the role `developer` instead of `system`.
    pub developer_role: bool,
    /// Chat: every assistant message needs a `reasoning_content`; where there is none, a single space is sent.
    pub reasoning_content: bool,
    /// Chat: the server does not know `stream_options`.
    pub no_stream_options: bool,
    /// Messages: instructions inside the conversation are sent with the role `system`. Without it, they are sent as text
    /// of the user.
    pub system_messages: bool,
    /// Messages: the server does not know `cache_control`.
    pub no_cache_control: bool,
}

/// The output limit of a Messages request that names none; the wire requires one.
const DEFAULT_MAX_TOKENS: u64 = 16_384;

/// What stands in place of a part that a provider's wire cannot express.
const UNKNOWN_PART: &str = "[a part of this message has a form that the model's API does not accept]";

impl ModelRequest<'_> {
    /// Writes the request for a wire.
    pub fn encode(&self, wire: Wire) -> Vec<u8> {
        match wire {
            Wire::Chat => self.chat(),
            Wire::Responses => self.responses(),
            Wire::Messages => self.messages(),
        }
        .into_bytes()
    }

    fn chat(&self) -> String {
        let mut body = Body::new(self.extra);
        body.field("model", &self.model);
        body.field("stream", &self.stream);
        if self.stream && !self.quirks.no_stream_options {
            body.field("stream_options", &json!({"include_usage": true}));
        }
        if let Some(limit) = self.max_output_tokens {
            body.field(if self.quirks.uses_max_tokens { "max_tokens" } else { "max_completion_tokens" }, &limit);
        }
        if !self.tools.is_empty() {
            let tool = |tool: &ModelTool| ChatTool { r#type: "function", function: Function::of(tool) };
            body.field("tools", &self.tools.iter().map(tool).collect::<Vec<_>>());
            self.write_tool_choice(&mut body, &json!("required"), &json!("none"));
        }
        if !self.cache_key.is_empty() {
            body.field("prompt_cache_key", &self.cache_key);
        }
        let role = if self.quirks.developer_role { "developer" } else { "system" };
        let mut messages = Vec::new();
        if !self.instructions.is_empty() {
            messages.push(raw(&json!({"role": role, "content": self.instructions})));
        }
        for item in self.items {
            match item {
                Item::System(text) => messages.push(raw(&json!({"role": role, "content": text}))),
                Item::User(parts) => messages.push(raw(&json!({"role": "user", "content": chat_content(parts)}))),
                Item::Assistant(message) => messages.push(self.chat_assistant(message)),
                Item::Results(results) => messages.extend(results.iter().flat_map(chat_result)),
            }
        }
        body.end("messages", &messages)
    }

    fn chat_assistant(&self, message: &Assistant) -> Box<RawValue> {
        let needs_reasoning = self.quirks.reasoning_content;
        if let Some(own) = message.raw.as_ref().filter(|own| own.wire == Wire::Chat) {
            if !needs_reasoning || own.json.get().contains("\"reasoning_content\"") {
                return own.json.clone();
            }
            let mut fields: Map<String, Value> = serde_json::from_str(own.json.get()).unwrap_or_default();
            fields.insert("reasoning_content".to_owned(), json!(" "));
            return raw(&fields);
        }
        let mut fields = Map::new();
        fields.insert("role".to_owned(), json!("assistant"));
        let content = if message.text.is_empty() { Value::Null } else { json!(message.text) };
        fields.insert("content".to_owned(), content);
        if needs_reasoning {
            fields.insert("reasoning_content".to_owned(), json!(" "));
        }
        if !message.calls.is_empty() {
            let call = |call: &ModelCall| {
                let function = json!({"name": call.name, "arguments": call.arguments.text()});
                json!({"id": call.id, "type": "function", "function": function})
            };
            fields.insert("tool_calls".to_owned(), message.calls.iter().map(call).collect());
        }
        raw(&fields)
    }

    fn responses(&self) -> String {
        let mut body = Body::new(self.extra);
        body.field("model", &self.model);
        body.field("stream", &self.stream);
        // Providers keep nothing: the conversation is in our own store.
        body.field("store", &false);
        body.field("include", &["reasoning.encrypted_content"]);
        if let Some(limit) = self.max_output_tokens {
            body.field("max_output_tokens", &limit);
        }
        if !self.tools.is_empty() {
            let tool =
                |tool: &ModelTool| ResponsesTool { r#type: "function", function: Function::of(tool), strict: false };
            body.field("tools", &self.tools.iter().map(tool).collect::<Vec<_>>());
            self.write_tool_choice(&mut body, &json!("required"), &json!("none"));
        }
        if !self.cache_key.is_empty() {
            body.field("prompt_cache_key", &self.cache_key);
        }
        if !self.instructions.is_empty() {
            body.field("instructions", &self.instructions);
        }
        let mut input = Vec::new();
        for item in self.items {
            match item {
                Item::System(text) => input.push(raw(&responses_message("developer", &[Part::Text(text.clone())]))),
                Item::User(parts) => input.push(raw(&responses_message("user", parts))),
                Item::Assistant(message) => responses_assistant(message, &mut input),
                Item::Results(results) => input.extend(results.iter().map(responses_result)),
            }
        }
        body.end("input", &input)
    }

    fn messages(&self) -> String {
        let mut body = Body::new(self.extra);
        body.field("model", &self.model);
        body.field("max_tokens", &self.max_output_tokens.unwrap_or(DEFAULT_MAX_TOKENS));
        body.field("stream", &self.stream);
        if !self.quirks.no_cache_control {
            // The provider moves this breakpoint itself, so the bytes before a new message stay the same.
            body.field("cache_control", &json!({"type": "ephemeral"}));
        }
        if !self.tools.is_empty() {
            let tool = |tool: &ModelTool| MessagesTool {
                name: tool.name.clone(),
                description: tool.description.clone(),
                input_schema: tool.parameters.clone(),
            };
            body.field("tools", &self.tools.iter().map(tool).collect::<Vec<_>>());
            self.write_tool_choice(&mut body, &json!({"type": "any"}), &json!({"type": "none"}));
        }
        if !self.instructions.is_empty() {
            body.field("system", &self.instructions);
        }
        let mut messages = Vec::new();
        for item in self.items {
            match item {
                Item::System(text) if self.quirks.system_messages => {
                    messages.push(raw(&json!({"role": "system", "content": text})));
                }
                Item::System(text) => messages.push(raw(&json!({"role": "user", "content": [text_block(text)]}))),
                Item::User(parts) => {
                    messages.push(raw(&MessagesMessage { role: "user", content: blocks(parts) }));
                }
                Item::Assistant(message) => messages.extend(messages_assistant(message)),
                Item::Results(results) => messages.push(raw(&MessagesMessage {
                    role: "user",
                    content: results.iter().map(messages_result).collect(),
                })),
            }
        }
        body.end("messages", &messages)
    }

    /// Writes `tool_choice` in the form of the wire; nothing for the default.
    fn write_tool_choice(&self, body: &mut Body, required: &Value, none: &Value) {
        match self.tool_choice {
            ToolChoice::Auto => {}
            ToolChoice::Required => body.field("tool_choice", required),
            ToolChoice::None => body.field("tool_choice", none),
        }
    }
}

/// The text of a request, field by field. The conversation is its last field.
struct Body {
    text: String,
    written: Vec<&'static str>,
    extra: Map<String, Value>,
}

impl Body {
    fn new(extra: &Map<String, Value>) -> Self {
        Self { text: "{".to_owned(), written: Vec::new(), extra: extra.clone() }
    }

    fn field(&mut self, name: &'static str, value: &impl Serialize) {
        self.written.push(name);
        self.push(name, value);
    }

    fn push(&mut self, name: &str, value: &impl Serialize) {
        if self.text.len() > 1 {
            self.text.push(',');
        }
        self.text.push_str(&json!(name).to_string());
        self.text.push(':');
        self.text.push_str(raw(value).get());
    }

    fn end(mut self, name: &'static str, conversation: &[Box<RawValue>]) -> String {
        for (extra, value) in std::mem::take(&mut self.extra) {
            if extra != name && !self.written.contains(&extra.as_str()) {
                self.push(&extra, &value);
            }
        }
        self.field(name, &conversation);
        self.text.push('}');
        self.text
    }
}

#[derive(Serialize)]
struct Function {
    name: String,
    description: String,
    parameters: Box<RawValue>,
}

impl Function {
    fn of(tool: &ModelTool) -> Self {
        Self { name: tool.name.clone(), description: tool.description.clone(), parameters: tool.parameters.clone() }
    }
}

#[derive(Serialize)]
struct ChatTool {
    r#type: &'static str,
    function: Function,
}

#[derive(Serialize)]
struct ResponsesTool {
    r#type: &'static str,
    #[serde(flatten)]
    function: Function,
    strict: bool,
}

#[derive(Serialize)]
struct MessagesTool {
    name: String,
    description: String,
    input_schema: Box<RawValue>,
}

#[derive(Serialize)]
struct MessagesMessage {
    role: &'static str,
    content: Vec<Box<RawValue>>,
}

fn raw(value: &impl Serialize) -> Box<RawValue> {
    // Serializing these types cannot fail: their keys are texts.
    serde_json::value::to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn chat_content(parts: &[Part]) -> Value {
    if let [Part::Text(text)] = parts {
        return json!(text);
    }
    let part = |part: &Part| match part {
        Part::Text(text) => text_block(text),
        Part::Image(image) => json!({"type": "image_url", "image_url": {"url": image_url(image)}}),
        Part::Other(Wire::Chat, own) => value_of(own),
        Part::Other(..) => text_block(UNKNOWN_PART),
    };
    parts.iter().map(part).collect()
}

/// Returns the messages of a result. A `tool` message has no images, so they follow in a message of the user.
fn chat_result(result: &CallResult) -> Vec<Box<RawValue>> {
    let text = result_text(result);
    let mut messages = vec![raw(&json!({"role": "tool", "tool_call_id": result.call_id, "content": text}))];
    let images: Vec<Part> = result.parts.iter().filter(|part| matches!(part, Part::Image(_))).cloned().collect();
    if !images.is_empty() {
        messages.push(raw(&json!({"role": "user", "content": chat_content(&images)})));
    }
    messages
}

/// Returns the texts of a result, for wires that cannot mark a result as an error. Errors are prefixed with `Error: `,
/// unless the text starts with `{`.
fn result_text(result: &CallResult) -> String {
    let texts: Vec<&str> = result
        .parts
        .iter()
        .filter_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            Part::Image(_) => None,
            Part::Other(..) => Some(UNKNOWN_PART),
        })
        .collect();
    let text = texts.join("\n");
    if result.is_error && !text.starts_with('{') { format!("Error: {text}") } else { text }
}

fn responses_part(part: &Part) -> Value {
    match part {
        Part::Text(text) => json!({"type": "input_text", "text": text}),
        Part::Image(image) => json!({"type": "input_image", "image_url": image_url(image)}),
        Part::Other(Wire::Responses, own) => value_of(own),
        Part::Other(..) => json!({"type": "input_text", "text": UNKNOWN_PART}),
    }
}

fn responses_message(role: &str, parts: &[Part]) -> Value {
    let content: Vec<Value> = parts.iter().map(responses_part).collect();
    json!({"type": "message", "role": role, "content": content})
}

fn responses_assistant(message: &Assistant, input: &mut Vec<Box<RawValue>>) {
    if let Some(own) = message.raw.as_ref().filter(|own| own.wire == Wire::Responses)
        && let Ok(items) = serde_json::from_str::<Vec<Box<RawValue>>>(own.json.get())
    {
        input.extend(items);
        return;
    }
    if !message.text.is_empty() {
        let content = json!([{"type": "output_text", "text": message.text, "annotations": []}]);
        input.push(raw(&json!({"type": "message", "role": "assistant", "content": content})));
    }
    for ModelCall { id, name, arguments } in &message.calls {
        let call = json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments.text()});
        input.push(raw(&call));
    }
}

fn responses_result(result: &CallResult) -> Box<RawValue> {
    let has_images = result.parts.iter().any(|part| matches!(part, Part::Image(_)));
    let output =
        if has_images { result.parts.iter().map(responses_part).collect() } else { json!(result_text(result)) };
    raw(&json!({"type": "function_call_output", "call_id": result.call_id, "output": output}))
}

fn blocks(parts: &[Part]) -> Vec<Box<RawValue>> {
    let block = |part: &Part| match part {
        Part::Text(text) => raw(&text_block(text)),
        Part::Image(Image::Url(url)) => raw(&json!({"type": "image", "source": {"type": "url", "url": url}})),
        Part::Image(Image::Base64 { mime_type, data }) => {
            raw(&json!({"type": "image", "source": {"type": "base64", "media_type": mime_type, "data": data}}))
        }
        Part::Other(Wire::Messages, own) => own.clone(),
        Part::Other(..) => raw(&text_block(UNKNOWN_PART)),
    };
    // The wire refuses empty texts.
    parts.iter().filter(|part| !matches!(part, Part::Text(text) if text.is_empty())).map(block).collect()
}

/// Returns the assistant's message; `None` if it is empty, which the wire refuses.
fn messages_assistant(message: &Assistant) -> Option<Box<RawValue>> {
    #[derive(Serialize)]
    struct Own<'a> {
        role: &'static str,
        content: &'a RawValue,
    }
    if let Some(own) = message.raw.as_ref().filter(|own| own.wire == Wire::Messages) {
        return (own.json.get() != "[]").then(|| raw(&Own { role: "assistant", content: &own.json }));
    }
    let mut content = Vec::new();
    if !message.text.is_empty() {
        content.push(raw(&text_block(&message.text)));
    }
    for ModelCall { id, name, arguments } in &message.calls {
        let input = match arguments {
            Arguments::Object(text) => serde_json::from_str(text).unwrap_or_else(|_| json!({})),
            Arguments::Malformed(text) => json!({"malformed": text}),
        };
        content.push(raw(&json!({"type": "tool_use", "id": id, "name": name, "input": input})));
    }
    (!content.is_empty()).then(|| raw(&MessagesMessage { role: "assistant", content }))
}

fn messages_result(result: &CallResult) -> Box<RawValue> {
    #[derive(Serialize)]
    struct ToolResult<'a> {
        r#type: &'static str,
        tool_use_id: &'a str,
        content: Vec<Box<RawValue>>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    }
    raw(&ToolResult {
        r#type: "tool_result",
        tool_use_id: &result.call_id,
        content: blocks(&result.parts),
        is_error: result.is_error,
    })
}

fn image_url(image: &Image) -> String {
    match image {
        Image::Url(url) => url.clone(),
        Image::Base64 { mime_type, data } => format!("data:{mime_type};base64,{data}"),
    }
}

fn value_of(own: &RawValue) -> Value {
    serde_json::from_str(own.get()).unwrap_or(Value::Null)
}

/// Returns the names of the tools in the bytes of a request, so that what is sent can be checked. `None` if the request
/// cannot be read, or has a tool without a name.
pub fn tool_names(wire: Wire, body: &[u8]) -> Option<Vec<String>> {
    #[derive(Deserialize)]
    struct Tools {
        #[serde(default)]
        tools: Vec<Value>,
    }
    let Tools { tools } = serde_json::from_slice(body).ok()?;
    let name = |tool: &Value| {
        let name = match wire {
            Wire::Chat => tool.pointer("/function/name").or_else(|| tool.pointer("/custom/name")),
            Wire::Responses | Wire::Messages => tool.get("name"),
        };
        name.and_then(Value::as_str).map(str::to_owned)
    };
    tools.iter().map(name).collect()
}
