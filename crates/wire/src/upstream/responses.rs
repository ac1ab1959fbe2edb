//! Decodes responses of the OpenAI Responses API.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{IncompleteResponse, ModelEvent, ModelResponse, PARAGRAPH, ProviderError, count, parse, response, string};
use crate::Wire;
use crate::conversation::{Arguments, ModelCall, RawAssistant, StopReason, Usage};
use crate::limits::MAX_BLOCKS;
use crate::sse::Event;

/// Reads a streamed response. The items of its last event are authoritative.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    /// Items that were reported one by one, for servers whose last event has none.
    items: Vec<Box<RawValue>>,
    end: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct ItemEvent {
    item: Box<RawValue>,
}

#[derive(Deserialize)]
struct ResponseEvent {
    response: Box<RawValue>,
}

#[derive(Deserialize)]
struct Body {
    #[serde(default)]
    output: Option<Vec<Box<RawValue>>>,
}

impl Decoder {
    pub(super) fn on_event(&mut self, event: &Event, output: &mut Vec<ModelEvent>) -> Result<(), IncompleteResponse> {
        if self.end.is_some() || event.data.trim() == "[DONE]" {
            return Ok(());
        }
        let data = parse(&event.data)?;
        let part = |name: &str| data.get(name).and_then(Value::as_str).unwrap_or("").to_owned();
        match data.get("type").and_then(Value::as_str).unwrap_or(&event.name) {
            "response.output_text.delta" | "response.refusal.delta" => output.push(ModelEvent::Text(part("delta"))),
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                output.push(ModelEvent::Reasoning(part("delta")));
            }
            "response.reasoning_summary_part.added" if count(&data, &["summary_index"]) > 0 => {
                output.push(ModelEvent::Reasoning(PARAGRAPH.to_owned()));
            }
            "response.output_item.done" => {
                if self.items.len() >= MAX_BLOCKS {
                    return Err(IncompleteResponse::TooLarge(format!("it has more than {MAX_BLOCKS} items")));
                }
                self.items.push(raw::<ItemEvent>(&event.data)?.item);
            }
            "response.completed" | "response.incomplete" => {
                self.end = Some(raw::<ResponseEvent>(&event.data)?.response);
            }
            "response.failed" => {
                let error = data.pointer("/response/error").unwrap_or(&Value::Null);
                return Err(IncompleteResponse::Provider(ProviderError::read(error)));
            }
            "error" => {
                return Err(IncompleteResponse::Provider(ProviderError::read(data.get("error").unwrap_or(&data))));
            }
            _ if data.get("error").is_some_and(Value::is_object) => {
                return Err(IncompleteResponse::Provider(ProviderError::read(data.get("error").unwrap_or(&data))));
            }
            _ => {}
        }
        output
            .retain(|event| !matches!(event, ModelEvent::Text(text) | ModelEvent::Reasoning(text) if text.is_empty()));
        Ok(())
    }

    pub(super) fn is_over(&self) -> bool {
        self.end.is_some()
    }

    pub(super) fn finish(self) -> Result<ModelResponse, IncompleteResponse> {
        finished(self.end.ok_or(IncompleteResponse::Truncated)?.get(), self.items)
    }
}

/// Reads a response that was not streamed.
pub(super) fn read_whole(body: &str) -> Result<ModelResponse, IncompleteResponse> {
    finished(body, Vec::new())
}

fn finished(body: &str, streamed: Vec<Box<RawValue>>) -> Result<ModelResponse, IncompleteResponse> {
    let value = parse(body)?;
    if let Some(error) = value.get("error").filter(|error| !error.is_null()) {
        return Err(IncompleteResponse::Provider(ProviderError::read(error)));
    }
    let stated = match value.get("status").and_then(Value::as_str) {
        Some("completed") | None => StopReason::EndTurn,
        Some("incomplete") => match value.pointer("/incomplete_details/reason").and_then(Value::as_str) {
            Some("max_output_tokens") => StopReason::Length,
            Some("content_filter") => StopReason::Refusal,
            other => StopReason::Other(other.unwrap_or("incomplete").to_owned()),
        },
        _ => return Err(IncompleteResponse::Truncated),
    };
    let items = raw::<Body>(body)?.output.ok_or(IncompleteResponse::Truncated)?;
    let items = if items.is_empty() { streamed } else { items };
    if items.len() > MAX_BLOCKS {
        return Err(IncompleteResponse::TooLarge(format!("it has more than {MAX_BLOCKS} items")));
    }
    let (mut text, mut calls) = (String::new(), Vec::new());
    for item in &items {
        let item = parse(item.get())?;
        match item.get("type").and_then(Value::as_str) {
            Some("message") => {
                for part in item.get("content").and_then(Value::as_array).into_iter().flatten() {
                    let shown = part.get("text").or_else(|| part.get("refusal")).and_then(Value::as_str);
                    text.push_str(shown.unwrap_or(""));
                }
            }
            Some("function_call") => calls.push(ModelCall {
                id: string(&item, "call_id").or_else(|| string(&item, "id")).unwrap_or_default(),
                name: string(&item, "name").unwrap_or_default(),
                arguments: Arguments::classify(string(&item, "arguments").unwrap_or_default()),
            }),
            _ => {}
        }
    }
    let json =
        serde_json::value::to_raw_value(&items).map_err(|error| IncompleteResponse::Unreadable(error.to_string()))?;
    let usage = value.get("usage").map(read_usage).unwrap_or_default();
    let names = (string(&value, "id").unwrap_or_default(), string(&value, "model").unwrap_or_default());
    Ok(response(names, text, calls, RawAssistant { wire: Wire::Responses, json }, stated, usage))
}

fn raw<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, IncompleteResponse> {
    serde_json::from_str(text).map_err(|error| IncompleteResponse::Unreadable(error.to_string()))
}

fn read_usage(usage: &Value) -> Usage {
    Usage {
        input_tokens: count(usage, &["input_tokens"]),
        output_tokens: count(usage, &["output_tokens"]),
        cache_read_tokens: count(usage, &["input_tokens_details", "cached_tokens"]),
        cache_write_tokens: 0,
    }
}
