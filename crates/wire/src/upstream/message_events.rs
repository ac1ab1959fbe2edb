//! The events of a complete message: the texts and reasoning that a stream of the message would have contained.

use serde_json::Value;

use super::ModelEvent;
use crate::Wire;
use crate::conversation::{Assistant, RawAssistant};

/// Returns the texts of a message and the reasoning that may be shown, in the order in which the provider sent them.
pub fn message_events(message: &Assistant) -> Vec<ModelEvent> {
    let mut events = message.raw.as_ref().map(raw_events).unwrap_or_default();
    let text: String = events
        .iter()
        .filter_map(|event| if let ModelEvent::Text(text) = event { Some(text.as_str()) } else { None })
        .collect();
    if text != message.text {
        // The raw message has a form that `raw_events` does not know, so the decoded text is used.
        events.retain(|event| matches!(event, ModelEvent::Reasoning(_)));
        events.push(ModelEvent::Text(message.text.clone()));
    }
    events.retain(|event| !matches!(event, ModelEvent::Text(text) | ModelEvent::Reasoning(text) if text.is_empty()));
    events
}

/// Returns the events of a message in the provider's own form. Their texts may be empty.
fn raw_events(raw: &RawAssistant) -> Vec<ModelEvent> {
    let Ok(json) = serde_json::from_str::<Value>(raw.json.get()) else { return Vec::new() };
    let blocks = || json.as_array().into_iter().flatten();
    match raw.wire {
        Wire::Chat => {
            let content = json.get("content").and_then(Value::as_str).unwrap_or_default();
            let reasoning = json.as_object().and_then(super::chat::reasoning_of).unwrap_or_default();
            vec![ModelEvent::Reasoning(reasoning.to_owned()), ModelEvent::Text(content.to_owned())]
        }
        Wire::Messages => {
            let event = |block: &Value| match kind(block) {
                "text" => Some(ModelEvent::Text(text(block, "text"))),
                "thinking" => Some(ModelEvent::Reasoning(text(block, "thinking"))),
                // `redacted_thinking` has nothing to show.
                _ => None,
            };
            blocks().filter_map(event).collect()
        }
        Wire::Responses => {
            let event = |item: &Value| match kind(item) {
                "reasoning" => Some(ModelEvent::Reasoning(reasoning_text(item))),
                "message" => Some(ModelEvent::Text(parts(item, "content").into_iter().map(text_or_refusal).collect())),
                _ => None,
            };
            blocks().filter_map(event).collect()
        }
    }
}

/// Returns the summary of a reasoning item; its own text if it has no summary.
fn reasoning_text(item: &Value) -> String {
    let texts = |name: &str| parts(item, name).into_iter().map(|part| text(part, "text")).collect::<Vec<_>>();
    let summary = texts("summary").join(super::PARAGRAPH);
    if summary.is_empty() { texts("content").concat() } else { summary }
}

fn text_or_refusal(part: &Value) -> String {
    let content = text(part, "text");
    if content.is_empty() { text(part, "refusal") } else { content }
}

fn parts<'v>(item: &'v Value, name: &str) -> Vec<&'v Value> {
    item.get(name).and_then(Value::as_array).into_iter().flatten().collect()
}

fn kind(value: &Value) -> &str {
    value.get("type").and_then(Value::as_str).unwrap_or_default()
}

fn text(value: &Value, name: &str) -> String {
    value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}
