//! Responses to clients. The writer of each wire emits events in the order that every tested client accepts, and fields
//! that some client requires.

use serde_json::{Value, json};

use super::ClientRequest;
use crate::Wire;
use crate::conversation::{StopReason, Usage};
use crate::set;

/// A call that the client is asked to make.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ClientCall {
    pub id: String,
    pub name: String,
    /// A JSON object.
    pub arguments: String,
}

/// An error as a client of a wire receives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireError {
    /// The HTTP status, if the response has not begun.
    pub status: u16,
    pub message: String,
    /// The field of the request that is wrong; empty for none.
    pub field: String,
    /// A code that clients act on, instead of the one that the status stands for.
    pub code: Option<&'static str>,
    /// Whether the client may send the request again by itself.
    pub repetition: Repetition,
    /// The seconds after which a repeated request may succeed, if that is known.
    pub retry_after: Option<u64>,
}

/// Whether a client may repeat a failed request by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Repetition {
    /// As the status says: clients repeat requests after 408, 429 and 5xx.
    #[default]
    ByStatus,
    /// The request has had effects, or would fail again.
    Never,
}

/// The status with which Anthropic reports that it is overloaded. OpenAI does not use it.
const OVERLOADED: u16 = 529;

/// The status of an aborted turn inside the gateway. No client receives it.
const ABORTED: u16 = 499;

impl WireError {
    pub fn new(status: u16, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            field: String::new(),
            code: None,
            repetition: if status == ABORTED { Repetition::Never } else { Repetition::ByStatus },
            retry_after: None,
        }
    }

    /// Adds a code that clients act on.
    #[must_use]
    pub fn with_code(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }

    /// Names the field of the request that is wrong.
    #[must_use]
    pub fn in_field(self, field: &str) -> Self {
        Self { field: field.to_owned(), ..self }
    }

    /// Returns the HTTP status for a client of this wire. It is never 409, which clients repeat, nor 499.
    pub fn http_status(&self, wire: Wire) -> u16 {
        match (self.status, wire) {
            (ABORTED, _) | (OVERLOADED, Wire::Chat | Wire::Responses) => 503,
            (409, _) => 400,
            (status, _) => status,
        }
    }

    /// Whether the client may repeat the request by itself.
    pub fn may_repeat(&self) -> bool {
        let is_temporary = matches!(self.status, 408 | 429 | 500..);
        is_temporary && self.repetition == Repetition::ByStatus
    }

    /// Returns the body of an error response.
    pub fn body(&self, wire: Wire, request_id: &str) -> Value {
        match wire {
            Wire::Chat | Wire::Responses => json!({"error": self.openai()}),
            Wire::Messages => {
                let mut error = json!({"type": self.anthropic_type(), "message": self.message});
                if let Some(code) = self.code {
                    set(&mut error, "details", json!({"error_code": code}));
                }
                json!({"type": "error", "error": error, "request_id": request_id})
            }
        }
    }

    fn openai(&self) -> Value {
        let (kind, code) = match self.status {
            401 => ("invalid_request_error", json!("invalid_api_key")),
            403 => ("permission_error", Value::Null),
            404 => ("invalid_request_error", json!("not_found")),
            413 => ("invalid_request_error", json!("request_too_large")),
            429 => ("rate_limit_exceeded", json!("rate_limit_exceeded")),
            ABORTED => ("server_error", json!("aborted")),
            OVERLOADED => ("server_error", json!("server_is_overloaded")),
            400..=498 => ("invalid_request_error", Value::Null),
            _ => ("server_error", Value::Null),
        };
        let code = self.code.map_or(code, |code| json!(code));
        let field = if self.field.is_empty() { Value::Null } else { json!(self.field) };
        json!({"message": self.message, "type": kind, "param": field, "code": code})
    }

    /// Returns the error of a failed response.
    fn responses(&self) -> Value {
        let code = if self.status == 429 { "rate_limit_exceeded" } else { "server_error" };
        json!({"code": code, "message": self.message})
    }

    fn anthropic_type(&self) -> &'static str {
        match self.status {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            OVERLOADED => "overloaded_error",
            400..=498 => "invalid_request_error",
            _ => "api_error",
        }
    }
}

/// Writes one response, streamed or whole.
#[derive(Clone, Debug)]
pub struct ResponseWriter {
    wire: Wire,
    stream: bool,
    include_usage: bool,
    id: String,
    model: String,
    /// When the response began, in seconds since 1970.
    created: u64,
    previous: Option<String>,
    store: bool,
    text: String,
    stage: Stage,
    /// The number of the next event on the Responses wire.
    sequence: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    New,
    Started,
    /// The text block is open.
    Text,
    Ended,
}

impl ResponseWriter {
    /// Creates a writer. `id` has letters and digits only; the ids of the response and of its items are made from it.
    pub fn new(request: &ClientRequest, id: &str, created: u64) -> Self {
        Self {
            wire: request.wire,
            stream: request.stream,
            include_usage: request.include_usage,
            id: id.to_owned(),
            model: request.model.clone(),
            created,
            previous: request.previous_response_id.clone(),
            store: request.store,
            text: String::new(),
            stage: Stage::New,
            sequence: 0,
        }
    }

    /// Returns a writer whose ids are made from another one.
    #[must_use]
    pub fn with_id(self, id: &str) -> Self {
        Self { id: id.to_owned(), ..self }
    }

    /// Returns a writer that writes the response whole.
    #[must_use]
    pub fn unstreamed(self) -> Self {
        Self { stream: false, ..self }
    }

    /// Returns a response of the Responses wire that has not completed, with what was said so far.
    pub fn unfinished(&self, status: &str, error: &WireError) -> Value {
        let mut response = self.response(status, &json!(self.items(&[])), None);
        if status == "failed" {
            set(&mut response, "error", error.responses());
        }
        response
    }

    /// Returns the ids of the items of a response of the Responses wire.
    pub fn item_ids(&self, calls: &[ClientCall]) -> Vec<String> {
        let id = |item: &Value| item.get("id").and_then(Value::as_str).map(str::to_owned);
        self.items(calls).iter().filter_map(id).collect()
    }

    /// Returns the id of the response.
    pub fn response_id(&self) -> String {
        match self.wire {
            Wire::Chat => format!("chatcmpl-{}", self.id),
            Wire::Responses => format!("resp_{}", self.id),
            Wire::Messages => format!("msg_{}", self.id),
        }
    }

    /// Begins the response. Empty if it is not streamed, or has begun.
    pub fn start(&mut self) -> Vec<u8> {
        if !self.stream || self.stage != Stage::New {
            return Vec::new();
        }
        self.stage = Stage::Started;
        let text = match self.wire {
            Wire::Chat => self.chunk(&json!({"role": "assistant", "content": ""}), None),
            Wire::Responses => {
                let response = self.response("in_progress", &json!([]), None);
                let created = self.event("response.created", json!({"response": response}));
                created + &self.event("response.in_progress", json!({"response": response}))
            }
            Wire::Messages => {
                let message = json!({
                    "id": self.response_id(), "type": "message", "role": "assistant", "model": self.model,
                    "content": [], "stop_reason": null, "stop_sequence": null,
                    "usage": {"input_tokens": 0, "output_tokens": 0},
                });
                self.event("message_start", json!({"message": message}))
            }
        };
        text.into_bytes()
    }

    /// Adds text of the model.
    pub fn text(&mut self, delta: &str) -> Vec<u8> {
        if delta.is_empty() || self.stage == Stage::Ended {
            return Vec::new();
        }
        self.text.push_str(delta);
        if !self.stream {
            return Vec::new();
        }
        let mut out = self.start();
        let opens = std::mem::replace(&mut self.stage, Stage::Text) != Stage::Text;
        let item = format!("msg_{}", self.id);
        let text = match self.wire {
            Wire::Chat => self.chunk(&json!({"content": delta}), None),
            Wire::Responses => {
                let mut text = String::new();
                if opens {
                    let message = json!({"type": "message", "id": item, "status": "in_progress", "role": "assistant",
                        "content": []});
                    let part = json!({"type": "output_text", "text": "", "annotations": [], "logprobs": []});
                    text += &self.event("response.output_item.added", json!({"output_index": 0, "item": message}));
                    text += &self.event(
                        "response.content_part.added",
                        json!({"item_id": item, "output_index": 0, "content_index": 0, "part": part}),
                    );
                }
                text + &self.event(
                    "response.output_text.delta",
                    json!({"item_id": item, "output_index": 0, "content_index": 0, "delta": delta, "logprobs": []}),
                )
            }
            Wire::Messages => {
                let mut text = String::new();
                if opens {
                    let block = json!({"type": "text", "text": ""});
                    text += &self.event("content_block_start", json!({"index": 0, "content_block": block}));
                }
                let delta = json!({"type": "text_delta", "text": delta});
                text + &self.event("content_block_delta", json!({"index": 0, "delta": delta}))
            }
        };
        out.extend_from_slice(text.as_bytes());
        out
    }

    /// Returns bytes that show the client and proxies that the connection is alive.
    pub fn keep_alive(&mut self) -> Vec<u8> {
        if self.stage == Stage::Ended {
            return Vec::new();
        }
        if !self.stream {
            // White space before JSON is part of it.
            return b" ".to_vec();
        }
        let mut out = self.start();
        let text = match self.wire {
            Wire::Chat => ": keepalive\n\n".to_owned(),
            // Some clients count only events.
            Wire::Responses => self.event("keepalive", json!({})),
            Wire::Messages => self.event("ping", json!({})),
        };
        out.extend_from_slice(text.as_bytes());
        out
    }

    /// Ends the response with the calls that the client is asked to make. A call is written whole, and the calls and the
    /// end in one piece: clients make a call as soon as they have read it.
    pub fn end(&mut self, calls: &[ClientCall], stop: &StopReason, usage: Usage) -> Vec<u8> {
        if self.stage == Stage::Ended {
            return Vec::new();
        }
        let mut out = self.start();
        let text = match (self.stream, self.wire) {
            (true, Wire::Chat) => self.end_chat(calls, stop, usage),
            (true, Wire::Responses) => self.end_responses(calls, stop, usage),
            (true, Wire::Messages) => self.end_messages(calls, stop, usage),
            (false, _) => self.whole(calls, stop, usage).to_string(),
        };
        self.stage = Stage::Ended;
        out.extend_from_slice(text.as_bytes());
        out
    }

    /// Ends a response that failed after it began. Before that, answer with a status and [`WireError::body`].
    pub fn fail(&mut self, error: &WireError, request_id: &str) -> Vec<u8> {
        if self.stage == Stage::Ended {
            return Vec::new();
        }
        let text = match (self.stream, self.wire) {
            (false, _) => error.body(self.wire, request_id).to_string(),
            (true, Wire::Chat) => format!("data: {}\n\n", error.body(self.wire, request_id)),
            (true, Wire::Responses) => {
                let mut response = self.response("failed", &json!([]), None);
                set(&mut response, "error", error.responses());
                self.event("response.failed", json!({"response": response}))
            }
            (true, Wire::Messages) => format!("event: error\ndata: {}\n\n", error.body(self.wire, request_id)),
        };
        self.stage = Stage::Ended;
        text.into_bytes()
    }

    fn end_chat(&self, calls: &[ClientCall], stop: &StopReason, usage: Usage) -> String {
        let mut text = String::new();
        for (index, call) in calls.iter().enumerate() {
            let function = json!({"name": call.name, "arguments": ""});
            let head = json!({"index": index, "id": call.id, "type": "function", "function": function});
            text += &self.chunk(&json!({"tool_calls": [head]}), None);
            let rest = json!({"index": index, "function": {"arguments": call.arguments}});
            text += &self.chunk(&json!({"tool_calls": [rest]}), None);
        }
        text += &self.chunk(&json!({}), Some(chat_reason(calls, stop)));
        if self.include_usage {
            let mut chunk = self.chat_head("chat.completion.chunk");
            set(&mut chunk, "choices", json!([]));
            set(&mut chunk, "usage", chat_usage(usage));
            text += &format!("data: {chunk}\n\n");
        }
        text + "data: [DONE]\n\n"
    }

    fn end_responses(&mut self, calls: &[ClientCall], stop: &StopReason, usage: Usage) -> String {
        let mut text = String::new();
        let items = self.items(calls);
        let first_call = usize::from(self.stage == Stage::Text);
        if let (1, Some(message)) = (first_call, items.first()) {
            let at = json!({"item_id": message.get("id"), "output_index": 0, "content_index": 0});
            let with = |name: &str, value: &Value| {
                let mut fields = at.clone();
                set(&mut fields, name, value.clone());
                fields
            };
            let mut done = with("text", &json!(self.text));
            set(&mut done, "logprobs", json!([]));
            text += &self.event("response.output_text.done", done);
            let part = with("part", message.pointer("/content/0").unwrap_or(&Value::Null));
            text += &self.event("response.content_part.done", part);
            text += &self.event("response.output_item.done", json!({"output_index": 0, "item": message}));
        }
        for (index, item) in items.iter().enumerate().skip(first_call) {
            let mut added = item.clone();
            set(&mut added, "status", json!("in_progress"));
            set(&mut added, "arguments", json!(""));
            let (id, arguments) = (item.get("id"), item.get("arguments"));
            text += &self.event("response.output_item.added", json!({"output_index": index, "item": added}));
            text += &self.event(
                "response.function_call_arguments.delta",
                json!({"item_id": id, "output_index": index, "delta": arguments}),
            );
            text += &self.event(
                "response.function_call_arguments.done",
                json!({"item_id": id, "output_index": index, "name": item.get("name"), "arguments": arguments}),
            );
            text += &self.event("response.output_item.done", json!({"output_index": index, "item": item}));
        }
        let (status, name) = responses_status(stop);
        let mut response = self.response(status, &json!(items), Some(usage));
        set(&mut response, "incomplete_details", incomplete(stop));
        text + &self.event(name, json!({"response": response}))
    }

    fn end_messages(&mut self, calls: &[ClientCall], stop: &StopReason, usage: Usage) -> String {
        let mut text = String::new();
        let mut index = 0;
        if self.stage == Stage::Text {
            text += &self.event("content_block_stop", json!({"index": index}));
            index += 1;
        }
        for call in calls {
            let block = json!({"type": "tool_use", "id": call.id, "name": call.name, "input": {}});
            let delta = json!({"type": "input_json_delta", "partial_json": call.arguments});
            text += &self.event("content_block_start", json!({"index": index, "content_block": block}));
            text += &self.event("content_block_delta", json!({"index": index, "delta": delta}));
            text += &self.event("content_block_stop", json!({"index": index}));
            index += 1;
        }
        let delta = json!({"stop_reason": messages_reason(calls, stop), "stop_sequence": null});
        text += &self.event("message_delta", json!({"delta": delta, "usage": messages_usage(usage)}));
        text + &self.event("message_stop", json!({}))
    }

    fn whole(&self, calls: &[ClientCall], stop: &StopReason, usage: Usage) -> Value {
        match self.wire {
            Wire::Chat => {
                let content = if self.text.is_empty() { Value::Null } else { json!(self.text) };
                let mut message = json!({"role": "assistant", "content": content, "refusal": null});
                if !calls.is_empty() {
                    let call = |call: &ClientCall| {
                        let function = json!({"name": call.name, "arguments": call.arguments});
                        json!({"id": call.id, "type": "function", "function": function})
                    };
                    set(&mut message, "tool_calls", calls.iter().map(call).collect());
                }
                let mut body = self.chat_head("chat.completion");
                let reason = chat_reason(calls, stop);
                set(
                    &mut body,
                    "choices",
                    json!([{"index": 0, "message": message, "logprobs": null, "finish_reason": reason}]),
                );
                set(&mut body, "usage", chat_usage(usage));
                body
            }
            Wire::Responses => {
                let mut response = self.response(responses_status(stop).0, &json!(self.items(calls)), Some(usage));
                set(&mut response, "incomplete_details", incomplete(stop));
                response
            }
            Wire::Messages => {
                let mut content = Vec::new();
                if !self.text.is_empty() {
                    content.push(json!({"type": "text", "text": self.text}));
                }
                for call in calls {
                    let input: Value = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
                    content.push(json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input}));
                }
                json!({
                    "id": self.response_id(), "type": "message", "role": "assistant", "model": self.model,
                    "content": content, "stop_reason": messages_reason(calls, stop), "stop_sequence": null,
                    "usage": messages_usage(usage),
                })
            }
        }
    }

    /// Returns the items of a response of the Responses wire.
    fn items(&self, calls: &[ClientCall]) -> Vec<Value> {
        let mut items = Vec::new();
        if !self.text.is_empty() {
            let part = json!({"type": "output_text", "text": self.text, "annotations": [], "logprobs": []});
            items.push(json!({"type": "message", "id": format!("msg_{}", self.id), "status": "completed",
                "role": "assistant", "content": [part]}));
        }
        for call in calls {
            let own = call.id.split_once('_').map_or(call.id.as_str(), |(_, own)| own);
            items.push(json!({"type": "function_call", "id": format!("fc_{own}"), "call_id": call.id,
                "name": call.name, "arguments": call.arguments, "status": "completed"}));
        }
        items
    }

    fn response(&self, status: &str, output: &Value, usage: Option<Usage>) -> Value {
        json!({
            "id": self.response_id(), "object": "response", "created_at": self.created, "status": status,
            "error": null, "incomplete_details": null, "instructions": null, "max_output_tokens": null,
            "model": self.model, "output": output, "parallel_tool_calls": true,
            "previous_response_id": self.previous, "reasoning": {"effort": null, "summary": null},
            "store": self.store, "temperature": null, "text": {"format": {"type": "text"}}, "tool_choice": "auto",
            "tools": [], "top_p": null, "truncation": "disabled", "usage": usage.map(responses_usage),
            "metadata": {},
        })
    }

    fn chat_head(&self, object: &str) -> Value {
        json!({"id": self.response_id(), "object": object, "created": self.created, "model": self.model})
    }

    fn chunk(&self, delta: &Value, reason: Option<&str>) -> String {
        let mut chunk = self.chat_head("chat.completion.chunk");
        set(&mut chunk, "choices", json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": reason}]));
        format!("data: {chunk}\n\n")
    }

    /// Writes an event with a name.
    fn event(&mut self, name: &str, mut fields: Value) -> String {
        set(&mut fields, "type", json!(name));
        if self.wire == Wire::Responses {
            set(&mut fields, "sequence_number", json!(self.sequence));
            self.sequence += 1;
        }
        format!("event: {name}\ndata: {fields}\n\n")
    }
}

fn chat_reason(calls: &[ClientCall], stop: &StopReason) -> &'static str {
    match stop {
        _ if !calls.is_empty() => "tool_calls",
        StopReason::Length | StopReason::ContextExceeded => "length",
        StopReason::Refusal => "content_filter",
        StopReason::EndTurn | StopReason::ToolCalls | StopReason::Pause | StopReason::Other(_) => "stop",
    }
}

fn messages_reason(calls: &[ClientCall], stop: &StopReason) -> &'static str {
    match stop {
        _ if !calls.is_empty() => "tool_use",
        StopReason::Length => "max_tokens",
        StopReason::ContextExceeded => "model_context_window_exceeded",
        StopReason::Refusal => "refusal",
        StopReason::EndTurn | StopReason::ToolCalls | StopReason::Pause | StopReason::Other(_) => "end_turn",
    }
}

/// Returns the status of a response and the name of its last event.
fn responses_status(stop: &StopReason) -> (&'static str, &'static str) {
    match stop {
        StopReason::Length | StopReason::ContextExceeded | StopReason::Refusal => ("incomplete", "response.incomplete"),
        _ => ("completed", "response.completed"),
    }
}

fn incomplete(stop: &StopReason) -> Value {
    match stop {
        StopReason::Length | StopReason::ContextExceeded => json!({"reason": "max_output_tokens"}),
        StopReason::Refusal => json!({"reason": "content_filter"}),
        _ => Value::Null,
    }
}

fn chat_usage(usage: Usage) -> Value {
    json!({
        "prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens.saturating_add(usage.output_tokens),
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens},
    })
}

fn responses_usage(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.input_tokens, "input_tokens_details": {"cached_tokens": usage.cache_read_tokens},
        "output_tokens": usage.output_tokens, "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.input_tokens.saturating_add(usage.output_tokens),
    })
}

/// On this wire, cached tokens are not part of `input_tokens`.
fn messages_usage(usage: Usage) -> Value {
    let cached = usage.cache_read_tokens.saturating_add(usage.cache_write_tokens);
    json!({
        "input_tokens": usage.input_tokens.saturating_sub(cached), "output_tokens": usage.output_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens, "cache_creation_input_tokens": usage.cache_write_tokens,
    })
}
