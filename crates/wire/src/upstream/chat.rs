//! Decodes responses of the OpenAI Chat Completions API, and of servers that imitate it.

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::{IncompleteResponse, ModelEvent, ModelResponse, ProviderError, count, parse, response, string};
use crate::Wire;
use crate::conversation::{Arguments, ModelCall, RawAssistant, StopReason, Usage};
use crate::limits::MAX_CALLS;
use crate::set;
use crate::sse::Event;

/// Fields of a message that `Decoder::finish` writes itself. The other ones are kept as the provider sent them.
const KNOWN_FIELDS: [&str; 3] = ["role", "content", "tool_calls"];

/// Fields of a message that contain reasoning to show. The first one that a message has counts.
const REASONING_FIELDS: [&str; 2] = ["reasoning_content", "reasoning"];

/// Reads a streamed response.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    id: String,
    model: String,
    text: String,
    /// Fields of the message other than `KNOWN_FIELDS`, such as `reasoning_content`. Some providers require them in the
    /// next request.
    extra: Map<String, Value>,
    calls: Vec<PartialCall>,
    finish_reason: Option<String>,
    usage: Usage,
    done: bool,
}

/// A tool call, as far as it has been received.
#[derive(Debug, Default)]
struct PartialCall {
    index: u64,
    id: String,
    name: String,
    arguments: String,
    extra: Map<String, Value>,
}

impl Decoder {
    /// Adds an event of the stream, and appends what the model says in it to `output`.
    pub(super) fn on_event(&mut self, event: &Event, output: &mut Vec<ModelEvent>) -> Result<(), IncompleteResponse> {
        if self.done {
            return Ok(());
        }
        if event.data.trim() == "[DONE]" {
            self.done = true;
            return Ok(());
        }
        let chunk = parse(&event.data)?;
        if let Some(error) = error_of(&chunk) {
            return Err(IncompleteResponse::Provider(error));
        }
        if self.id.is_empty() {
            self.id = string(&chunk, "id").unwrap_or_default();
        }
        if self.model.is_empty() {
            self.model = string(&chunk, "model").unwrap_or_default();
        }
        if let Some(usage) = chunk.get("usage").filter(|usage| usage.is_object()) {
            self.usage = read_usage(usage);
        }
        let Some(choice) = chunk.get("choices").and_then(|choices| choices.get(0)) else { return Ok(()) };
        if let Some(delta) = choice.get("delta").and_then(Value::as_object) {
            self.add_delta(delta, output)?;
        }
        if let Some(reason) = string(choice, "finish_reason") {
            self.finish_reason = Some(reason);
        }
        Ok(())
    }

    /// Returns whether `[DONE]` was received. Servers that do not send it close the stream.
    pub(super) fn is_over(&self) -> bool {
        self.done
    }

    fn add_delta(
        &mut self,
        delta: &Map<String, Value>,
        output: &mut Vec<ModelEvent>,
    ) -> Result<(), IncompleteResponse> {
        if let Some(text) = reasoning_of(delta) {
            output.push(ModelEvent::Reasoning(text.to_owned()));
        }
        if let Some(text) = delta.get("content").and_then(Value::as_str).filter(|text| !text.is_empty()) {
            self.text.push_str(text);
            output.push(ModelEvent::Text(text.to_owned()));
        }
        for (name, value) in delta.iter().filter(|(name, _)| !KNOWN_FIELDS.contains(&name.as_str())) {
            append(&mut self.extra, name, value);
        }
        for call in delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            self.add_call_delta(call)?;
        }
        Ok(())
    }

    /// Adds a part of a call. A new id or name at a used index starts another call: some servers send all calls with
    /// index 0.
    fn add_call_delta(&mut self, delta: &Value) -> Result<(), IncompleteResponse> {
        let index = delta.get("index").and_then(Value::as_u64).unwrap_or(0);
        let id = string(delta, "id");
        let function = delta.get("function").unwrap_or(&Value::Null);
        let name = string(function, "name");
        let starts_new = |call: &PartialCall| {
            let other_id = id.as_ref().is_some_and(|id| !call.id.is_empty() && call.id != *id);
            let other_name = name.as_ref().is_some_and(|name| {
                let is_complete = serde_json::from_str::<&RawValue>(&call.arguments).is_ok();
                !call.name.is_empty() && (call.name != *name || (id.is_none() && is_complete))
            });
            other_id || other_name
        };
        let at = match self.calls.iter().rposition(|call| call.index == index) {
            Some(at) if !self.calls.get(at).is_some_and(starts_new) => at,
            _ => {
                if self.calls.len() >= MAX_CALLS {
                    return Err(IncompleteResponse::TooLarge(format!("it has more than {MAX_CALLS} tool calls")));
                }
                self.calls.push(PartialCall { index, ..PartialCall::default() });
                self.calls.len() - 1
            }
        };
        let Some(call) = self.calls.get_mut(at) else { return Ok(()) };
        if call.id.is_empty() {
            call.id = id.unwrap_or_default();
        }
        if call.name.is_empty() {
            call.name = name.unwrap_or_default();
        }
        match function.get("arguments") {
            Some(Value::String(text)) => call.arguments.push_str(text),
            Some(object @ Value::Object(_)) => call.arguments = object.to_string(),
            _ => {}
        }
        for (field, value) in delta.as_object().into_iter().flatten() {
            if !["index", "id", "type", "function"].contains(&field.as_str()) {
                append(&mut call.extra, field, value);
            }
        }
        Ok(())
    }

    /// Returns the response after its stream has ended. Calls without an id get one from `new_id`.
    pub(super) fn finish(self, mut new_id: impl FnMut() -> String) -> Result<ModelResponse, IncompleteResponse> {
        let Some(finish_reason) = self.finish_reason else { return Err(IncompleteResponse::Truncated) };
        let mut message = Map::new();
        message.insert("role".to_owned(), json!("assistant"));
        let content = if self.text.is_empty() { Value::Null } else { json!(self.text) };
        message.insert("content".to_owned(), content);
        message.extend(self.extra);
        let calls: Vec<Value> = self.calls.into_iter().map(|call| call.into_json(&mut new_id)).collect();
        if !calls.is_empty() {
            message.insert("tool_calls".to_owned(), Value::from(calls));
        }
        build_response((self.id, self.model), &Value::Object(message), &finish_reason, self.usage)
    }
}

impl PartialCall {
    fn into_json(self, new_id: &mut impl FnMut() -> String) -> Value {
        let id = if self.id.is_empty() { new_id() } else { self.id };
        let mut call = Map::new();
        call.insert("id".to_owned(), json!(id));
        call.insert("type".to_owned(), json!("function"));
        call.insert("function".to_owned(), json!({"name": self.name, "arguments": self.arguments}));
        call.extend(self.extra);
        Value::Object(call)
    }
}

/// Reads a response that was not streamed. Calls without an id get one from `new_id`.
pub(super) fn read_whole(body: &str, mut new_id: impl FnMut() -> String) -> Result<ModelResponse, IncompleteResponse> {
    let body = parse(body)?;
    if let Some(error) = error_of(&body) {
        return Err(IncompleteResponse::Provider(error));
    }
    let choice = body.get("choices").and_then(|choices| choices.get(0)).ok_or(IncompleteResponse::Truncated)?;
    let finish_reason = string(choice, "finish_reason").ok_or(IncompleteResponse::Truncated)?;
    let mut message =
        choice.get("message").filter(|message| message.is_object()).cloned().ok_or(IncompleteResponse::Truncated)?;
    for call in message.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
        if string(call, "id").is_none() {
            set(call, "id", json!(new_id()));
        }
        if let Some(function) = call.get_mut("function")
            && let Some(object @ Value::Object(_)) = function.get("arguments")
        {
            let text = object.to_string();
            set(function, "arguments", json!(text));
        }
    }
    let usage = body.get("usage").map(read_usage).unwrap_or_default();
    let text = |name: &str| string(&body, name).unwrap_or_default();
    build_response((text("id"), text("model")), &message, &finish_reason, usage)
}

/// Builds the response of this id and model from its complete message.
fn build_response(
    id_and_model: (String, String),
    message: &Value,
    finish_reason: &str,
    usage: Usage,
) -> Result<ModelResponse, IncompleteResponse> {
    let stop_reason = match finish_reason {
        "stop" => StopReason::EndTurn,
        "tool_calls" | "function_call" => StopReason::ToolCalls,
        "length" => StopReason::Length,
        "content_filter" => StopReason::Refusal,
        "error" => {
            let message = "the response ended with `finish_reason: \"error\"`".to_owned();
            return Err(IncompleteResponse::Provider(ProviderError { kind: "error".to_owned(), message }));
        }
        other => StopReason::Other(other.to_owned()),
    };
    let calls = message.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
    let calls = calls.map(|call| ModelCall {
        id: string(call, "id").unwrap_or_default(),
        name: call.get("function").and_then(|function| string(function, "name")).unwrap_or_default(),
        arguments: Arguments::classify(
            call.pointer("/function/arguments").and_then(Value::as_str).unwrap_or("").to_owned(),
        ),
    });
    let calls = calls.collect();
    let text = string(message, "content").unwrap_or_default();
    let json = RawValue::from_string(message.to_string())
        .map_err(|error| IncompleteResponse::Unreadable(error.to_string()))?;
    Ok(response(id_and_model, text, calls, RawAssistant { wire: Wire::Chat, json }, stop_reason, usage))
}

/// Returns the error in a chunk or body. Some servers report a failure inside a response with status 200.
fn error_of(body: &Value) -> Option<ProviderError> {
    let body = body.as_array().and_then(|list| list.first()).unwrap_or(body);
    let in_choice = || body.get("choices").and_then(|choices| choices.get(0)).and_then(|choice| choice.get("error"));
    let error = body.get("error").or_else(in_choice).filter(|error| !error.is_null())?;
    Some(ProviderError::read(error))
}

fn read_usage(usage: &Value) -> Usage {
    Usage {
        input_tokens: count(usage, &["prompt_tokens"]),
        output_tokens: count(usage, &["completion_tokens"]),
        cache_read_tokens: count(usage, &["prompt_tokens_details", "cached_tokens"]),
        cache_write_tokens: 0,
    }
}

/// Returns the reasoning in a message or a part of it. Some servers send it in two fields.
pub(super) fn reasoning_of(message: &Map<String, Value>) -> Option<&str> {
    let text = |name: &&str| message.get(*name).and_then(Value::as_str).filter(|text| !text.is_empty());
    REASONING_FIELDS.iter().find_map(text)
}

/// Adds a part of a field: texts and lists are appended, `null` is ignored, anything else is replaced.
fn append(fields: &mut Map<String, Value>, name: &str, value: &Value) {
    match (fields.get_mut(name), value) {
        (_, Value::Null) => {}
        (Some(Value::String(text)), Value::String(more)) => text.push_str(more),
        (Some(Value::Array(list)), Value::Array(more)) => list.extend(more.iter().cloned()),
        _ => {
            fields.insert(name.to_owned(), value.clone());
        }
    }
}
