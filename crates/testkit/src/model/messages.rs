//! Responses of Anthropic Messages.

use serde_json::{Value, json};

use super::script::{Reply, ScriptedCall};
use super::{argument_pieces, event, pieces, set};

pub(super) fn whole(reply: &Reply, model: &str, number: usize) -> String {
    let mut content = Vec::new();
    if !reply.reasoning.is_empty() {
        content.push(json!({"type": "thinking", "thinking": reply.reasoning, "signature": SIGNATURE}));
    }
    if !reply.text.is_empty() {
        content.push(json!({"type": "text", "text": reply.text}));
    }
    for (at, call) in reply.calls.iter().enumerate() {
        let mut block = call_block(call, number, at);
        set(&mut block, "input", serde_json::from_str(&call.arguments()).unwrap_or_else(|_| json!({})));
        content.push(block);
    }
    let mut message = message(model, number);
    set(&mut message, "content", Value::from(content));
    set(&mut message, "stop_reason", json!(reason(reply)));
    set(&mut message, "usage", usage(5));
    message.to_string()
}

pub(super) fn stream(reply: &Reply, model: &str, number: usize) -> String {
    let mut text = event("message_start", &json!({"type": "message_start", "message": message(model, number)}));
    text.push_str(&event("ping", &json!({"type": "ping"})));
    let mut blocks: Vec<(Value, Vec<Value>)> = Vec::new();
    if !reply.reasoning.is_empty() {
        let thinking = pieces(&reply.reasoning).map(|piece| json!({"type": "thinking_delta", "thinking": piece}));
        let signature = json!({"type": "signature_delta", "signature": SIGNATURE});
        let start = json!({"type": "thinking", "thinking": "", "signature": ""});
        blocks.push((start, thinking.chain([signature]).collect()));
    }
    if !reply.text.is_empty() {
        let deltas = pieces(&reply.text).map(|piece| json!({"type": "text_delta", "text": piece}));
        blocks.push((json!({"type": "text", "text": ""}), deltas.collect()));
    }
    for (at, call) in reply.calls.iter().enumerate() {
        let arguments = call.arguments();
        let [start, end] = argument_pieces(&arguments);
        let deltas = ["", start, end].map(|piece| json!({"type": "input_json_delta", "partial_json": piece}));
        blocks.push((call_block(call, number, at), deltas.to_vec()));
    }
    for (index, (block, deltas)) in blocks.into_iter().enumerate() {
        let start = json!({"type": "content_block_start", "index": index, "content_block": block});
        text.push_str(&event("content_block_start", &start));
        for delta in deltas {
            let delta = json!({"type": "content_block_delta", "index": index, "delta": delta});
            text.push_str(&event("content_block_delta", &delta));
        }
        text.push_str(&event("content_block_stop", &json!({"type": "content_block_stop", "index": index})));
    }
    let delta = json!({"stop_reason": reason(reply), "stop_sequence": null});
    let end = json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 5}});
    text.push_str(&event("message_delta", &end));
    text.push_str(&event("message_stop", &json!({"type": "message_stop"})));
    text
}

const SIGNATURE: &str = "EqQBscripted+/=";

fn message(model: &str, number: usize) -> Value {
    json!({
        "id": format!("msg_{number}"),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
        "usage": usage(1),
    })
}

fn usage(output_tokens: u64) -> Value {
    json!({"input_tokens": 8, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 4,
        "output_tokens": output_tokens, "service_tier": "standard"})
}

fn call_block(call: &ScriptedCall, number: usize, at: usize) -> Value {
    json!({"type": "tool_use", "id": call.id("toolu_", number, at), "name": call.name, "input": {}})
}

fn reason(reply: &Reply) -> &str {
    match reply.stop.as_deref() {
        Some("length") => "max_tokens",
        Some(other) => other,
        None if reply.calls.is_empty() => "end_turn",
        None => "tool_use",
    }
}
