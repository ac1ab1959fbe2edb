//! Responses to clients. The writer of each wire emits events in the order that every tested client accepts, and fields
//! that some client requires.

use serde_json::{Value, json};

use super::{ClientRequest, REASONING_SIGNATURE};
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
    /// The status decides: clients repeat requests after 408, 429 and 5xx.
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
    /// Whether the client has a place for the model's reasoning.
    shows_reasoning: bool,
    /// What the model has said, in order. Only the last block is open.
    blocks: Vec<Block>,
    stage: Stage,
    /// The number of the next event on the Responses wire.
    sequence: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    New,
    Started,
    Ended,
}

/// A part of a response with one kind of content.
#[derive(Clone, Debug)]
struct Block {
    kind: BlockKind,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockKind {
    Text,
    Reasoning,
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
            shows_reasoning: request.shows_reasoning,
            blocks: Vec::new(),
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
        self.add(BlockKind::Text, delta)
    }

    /// Adds reasoning of the model. It is left out if the client has no place for it.
    ///
    /// The provider's signature is not sent: the client could send it to another provider, and the message as the provider
    /// sent it is in the store.
    pub fn reasoning(&mut self, delta: &str) -> Vec<u8> {
        if self.shows_reasoning { self.add(BlockKind::Reasoning, delta) } else { Vec::new() }
    }

    fn add(&mut self, kind: BlockKind, delta: &str) -> Vec<u8> {
        if delta.is_empty() || self.stage == Stage::Ended {
            return Vec::new();
        }
        let mut out = self.start();
        let opens = self.blocks.last().is_none_or(|block| block.kind != kind);
        if opens {
            out.extend(self.close_block().into_bytes());
            self.blocks.push(Block { kind, text: String::new() });
        }
        if let Some(block) = self.blocks.last_mut() {
            block.text.push_str(delta);
        }
        if self.stream {
            let opening = if opens { self.open_block(kind) } else { String::new() };
            out.extend_from_slice(opening.as_bytes());
            out.extend_from_slice(self.delta(kind, delta).as_bytes());
        }
        out
    }

    /// Writes the beginning of the last block.
    fn open_block(&mut self, kind: BlockKind) -> String {
        let index = self.blocks.len().saturating_sub(1);
        match (self.wire, kind) {
            (Wire::Chat, _) => String::new(),
            (Wire::Responses, BlockKind::Text) => {
                let item = self.item_id(index);
                let message = json!({"type": "message", "id": item, "status": "in_progress", "role": "assistant",
                    "content": []});
                let part = json!({"type": "output_text", "text": "", "annotations": [], "logprobs": []});
                let added = self.event("response.output_item.added", json!({"output_index": index, "item": message}));
                let fields = json!({"item_id": item, "output_index": index, "content_index": 0, "part": part});
                added + &self.event("response.content_part.added", fields)
            }
            (Wire::Responses, BlockKind::Reasoning) => {
                let item = self.item_id(index);
                let reasoning = json!({"type": "reasoning", "id": item, "status": "in_progress", "summary": []});
                let part = json!({"type": "summary_text", "text": ""});
                let added = self.event("response.output_item.added", json!({"output_index": index, "item": reasoning}));
                let fields = json!({"item_id": item, "output_index": index, "summary_index": 0, "part": part});
                added + &self.event("response.reasoning_summary_part.added", fields)
            }
            (Wire::Messages, BlockKind::Text) => {
                let block = json!({"type": "text", "text": ""});
                self.event("content_block_start", json!({"index": index, "content_block": block}))
            }
            (Wire::Messages, BlockKind::Reasoning) => {
                let block = json!({"type": "thinking", "thinking": "", "signature": ""});
                self.event("content_block_start", json!({"index": index, "content_block": block}))
            }
        }
    }

    /// Writes a part of the last block.
    fn delta(&mut self, kind: BlockKind, delta: &str) -> String {
        let index = self.blocks.len().saturating_sub(1);
        match (self.wire, kind) {
            (Wire::Chat, BlockKind::Text) => self.chunk(&json!({"content": delta}), None),
            (Wire::Chat, BlockKind::Reasoning) => self.chunk(&json!({"reasoning_content": delta}), None),
            (Wire::Responses, BlockKind::Text) => {
                let item = self.item_id(index);
                self.event(
                    "response.output_text.delta",
                    json!({"item_id": item, "output_index": index, "content_index": 0, "delta": delta, "logprobs": []}),
                )
            }
            (Wire::Responses, BlockKind::Reasoning) => {
                let item = self.item_id(index);
                self.event(
                    "response.reasoning_summary_text.delta",
                    json!({"item_id": item, "output_index": index, "summary_index": 0, "delta": delta}),
                )
            }
            (Wire::Messages, BlockKind::Text) => {
                let delta = json!({"type": "text_delta", "text": delta});
                self.event("content_block_delta", json!({"index": index, "delta": delta}))
            }
            (Wire::Messages, BlockKind::Reasoning) => {
                let delta = json!({"type": "thinking_delta", "thinking": delta});
                self.event("content_block_delta", json!({"index": index, "delta": delta}))
            }
        }
    }

    /// Writes the end of the last block, if there is one.
    fn close_block(&mut self) -> String {
        let Some((index, Block { kind, text })) = self.blocks.iter().enumerate().next_back() else {
            return String::new();
        };
        if !self.stream {
            return String::new();
        }
        let (kind, text) = (*kind, text.clone());
        match (self.wire, kind) {
            (Wire::Chat, _) => String::new(),
            (Wire::Responses, _) => {
                let item = self.block_item(index);
                let (item_id, place) =
                    (item.get("id").cloned(), if kind == BlockKind::Text { "content_index" } else { "summary_index" });
                let with = |name: &str, value: Value| {
                    let mut fields = json!({"item_id": item_id, "output_index": index});
                    set(&mut fields, place, json!(0));
                    set(&mut fields, name, value);
                    fields
                };
                let (mut done, part, names) = match kind {
                    BlockKind::Text => (
                        with("text", json!(text)),
                        item.pointer("/content/0"),
                        ("response.output_text.done", "response.content_part.done"),
                    ),
                    BlockKind::Reasoning => (
                        with("text", json!(text)),
                        item.pointer("/summary/0"),
                        ("response.reasoning_summary_text.done", "response.reasoning_summary_part.done"),
                    ),
                };
                if kind == BlockKind::Text {
                    set(&mut done, "logprobs", json!([]));
                }
                let part = with("part", part.cloned().unwrap_or_default());
                let mut out = self.event(names.0, done);
                out += &self.event(names.1, part);
                out + &self.event("response.output_item.done", json!({"output_index": index, "item": item}))
            }
            (Wire::Messages, BlockKind::Text) => self.event("content_block_stop", json!({"index": index})),
            (Wire::Messages, BlockKind::Reasoning) => {
                let delta = json!({"type": "signature_delta", "signature": REASONING_SIGNATURE});
                let signed = self.event("content_block_delta", json!({"index": index, "delta": delta}));
                signed + &self.event("content_block_stop", json!({"index": index}))
            }
        }
    }

    /// Returns the text of all blocks of a kind.
    fn text_of(&self, kind: BlockKind) -> String {
        self.blocks.iter().filter(|block| block.kind == kind).map(|block| block.text.as_str()).collect()
    }

    /// Returns the id of a block's item on the Responses wire.
    fn item_id(&self, index: usize) -> String {
        let kind = self.blocks.get(index).map_or(BlockKind::Text, |block| block.kind);
        let earlier = self.blocks.iter().take(index).filter(|block| block.kind == kind).count();
        let prefix = if kind == BlockKind::Text { "msg" } else { "rs" };
        match earlier {
            0 => format!("{prefix}_{}", self.id),
            earlier => format!("{prefix}_{}{earlier}", self.id),
        }
    }

    /// Returns a complete block as an item of the Responses wire.
    fn block_item(&self, index: usize) -> Value {
        let Some(block) = self.blocks.get(index) else { return Value::Null };
        match block.kind {
            BlockKind::Text => {
                let part = json!({"type": "output_text", "text": block.text, "annotations": [], "logprobs": []});
                json!({"type": "message", "id": self.item_id(index), "status": "completed", "role": "assistant",
                    "content": [part]})
            }
            BlockKind::Reasoning => {
                let part = json!({"type": "summary_text", "text": block.text});
                json!({"type": "reasoning", "id": self.item_id(index), "status": "completed", "summary": [part]})
            }
        }
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
        let mut text = self.close_block();
        let items = self.items(calls);
        let first_call = self.blocks.len();
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
        let mut text = self.close_block();
        for (index, call) in (self.blocks.len()..).zip(calls) {
            let block = json!({"type": "tool_use", "id": call.id, "name": call.name, "input": {}});
            let delta = json!({"type": "input_json_delta", "partial_json": call.arguments});
            text += &self.event("content_block_start", json!({"index": index, "content_block": block}));
            text += &self.event("content_block_delta", json!({"index": index, "delta": delta}));
            text += &self.event("content_block_stop", json!({"index": index}));
        }
        let delta = json!({"stop_reason": messages_reason(calls, stop), "stop_sequence": null});
        text += &self.event("message_delta", json!({"delta": delta, "usage": messages_usage(usage)}));
        text + &self.event("message_stop", json!({}))
    }

    fn whole(&self, calls: &[ClientCall], stop: &StopReason, usage: Usage) -> Value {
        match self.wire {
            Wire::Chat => {
                let (text, reasoning) = (self.text_of(BlockKind::Text), self.text_of(BlockKind::Reasoning));
                let content = if text.is_empty() { Value::Null } else { json!(text) };
                let mut message = json!({"role": "assistant", "content": content, "refusal": null});
                if !reasoning.is_empty() {
                    set(&mut message, "reasoning_content", json!(reasoning));
                }
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
                let block = |block: &Block| match block.kind {
                    BlockKind::Text => json!({"type": "text", "text": block.text}),
                    BlockKind::Reasoning => {
                        json!({"type": "thinking", "thinking": block.text, "signature": REASONING_SIGNATURE})
                    }
                };
                let mut content: Vec<Value> = self.blocks.iter().map(block).collect();
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
        let mut items: Vec<Value> = (0..self.blocks.len()).map(|index| self.block_item(index)).collect();
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
