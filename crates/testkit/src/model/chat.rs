//! Responses of OpenAI Chat Completions.

use serde_json::{Value, json};

use super::script::Reply;
use super::{argument_pieces, pieces, set};

pub(super) fn whole(reply: &Reply, model: &str, number: usize) -> String {
    let mut message = json!({"role": "assistant", "content": content(reply), "refusal": null, "annotations": []});
    if !reply.reasoning.is_empty() {
        set(&mut message, "reasoning_content", json!(reply.reasoning));
    }
    let calls: Vec<Value> = reply
        .calls
        .iter()
        .enumerate()
        .map(|(at, call)| {
            let function = json!({"name": call.name, "arguments": call.arguments()});
            json!({"id": call.id("call_", number, at), "type": "function", "function": function})
        })
        .collect();
    if !calls.is_empty() {
        set(&mut message, "tool_calls", Value::from(calls));
    }
    let choice = json!({"index": 0, "message": message, "logprobs": null, "finish_reason": reason(reply)});
    json!({
        "id": format!("chatcmpl-{number}"),
        "object": "chat.completion",
        "created": 1_800_000_000,
        "model": model,
        "choices": [choice],
        "usage": usage(),
        "system_fingerprint": null,
    })
    .to_string()
}

pub(super) fn stream(reply: &Reply, model: &str, number: usize) -> String {
    let line = |choices: Value, usage: Value| {
        let chunk = json!({
            "id": format!("chatcmpl-{number}"),
            "object": "chat.completion.chunk",
            "created": 1_800_000_000,
            "model": model,
            "choices": choices,
            "usage": usage,
        });
        format!("data: {chunk}\n\n")
    };
    let part = |delta: Value, reason: Value| {
        line(json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": reason}]), Value::Null)
    };
    let mut lines = vec![part(json!({"role": "assistant", "content": ""}), Value::Null)];
    lines.extend(pieces(&reply.reasoning).map(|piece| part(json!({"reasoning_content": piece}), Value::Null)));
    lines.extend(pieces(&reply.text).map(|piece| part(json!({"content": piece}), Value::Null)));
    for (at, call) in reply.calls.iter().enumerate() {
        let function = json!({"name": call.name, "arguments": ""});
        let first = json!({"index": at, "id": call.id("call_", number, at), "type": "function", "function": function});
        lines.push(part(json!({"tool_calls": [first]}), Value::Null));
        for piece in argument_pieces(&call.arguments()) {
            let more = json!({"index": at, "function": {"arguments": piece}});
            lines.push(part(json!({"tool_calls": [more]}), Value::Null));
        }
    }
    lines.push(part(json!({}), json!(reason(reply))));
    lines.push(line(json!([]), usage()));
    lines.push("data: [DONE]\n\n".to_owned());
    lines.concat()
}

fn content(reply: &Reply) -> Value {
    if reply.text.is_empty() { Value::Null } else { json!(reply.text) }
}

fn reason(reply: &Reply) -> &str {
    match reply.stop.as_deref() {
        Some("length") => "length",
        Some("refusal") => "content_filter",
        Some(other) => other,
        None if reply.calls.is_empty() => "stop",
        None => "tool_calls",
    }
}

fn usage() -> Value {
    json!({
        "prompt_tokens": 12,
        "completion_tokens": 5,
        "total_tokens": 17,
        "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    })
}
