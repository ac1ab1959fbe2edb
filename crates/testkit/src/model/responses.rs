//! Responses of OpenAI Responses.

use serde_json::{Value, json};

use super::script::Reply;
use super::{argument_pieces, event, pieces, set};

/// Writes the events with the numbers that every event of this API has.
#[derive(Default)]
struct Events {
    text: String,
    number: u64,
}

impl Events {
    fn add(&mut self, name: &str, mut data: Value) {
        set(&mut data, "type", json!(name));
        set(&mut data, "sequence_number", json!(self.number));
        self.number += 1;
        self.text.push_str(&event(name, &data));
    }
}

pub(super) fn whole(reply: &Reply, model: &str, number: usize) -> String {
    let output = (0..item_count(reply)).map(|at| item(reply, number, at)).collect();
    response(reply, model, number, output, End::Final).to_string()
}

pub(super) fn stream(reply: &Reply, model: &str, number: usize) -> String {
    let mut events = Events::default();
    let started = || response(reply, model, number, Vec::new(), End::InProgress);
    events.add("response.created", json!({"response": started()}));
    events.add("response.in_progress", json!({"response": started()}));
    let mut output = Vec::new();
    for at in 0..item_count(reply) {
        let done = item(reply, number, at);
        let mut added = done.clone();
        set(&mut added, "status", json!("in_progress"));
        for (field, empty) in [("content", json!([])), ("arguments", json!("")), ("summary", json!([]))] {
            if added.get(field).is_some() {
                set(&mut added, field, empty);
            }
        }
        events.add("response.output_item.added", json!({"output_index": at, "item": added}));
        match member(&done, "type").as_str() {
            Some("function_call") => call_events(&mut events, &done, at),
            Some("reasoning") => reasoning_events(&mut events, &done, at, &reply.reasoning),
            _ => text_events(&mut events, &done, at, &reply.text),
        }
        events.add("response.output_item.done", json!({"output_index": at, "item": done}));
        output.push(done);
    }
    let name = if incomplete(reply).is_some() { "response.incomplete" } else { "response.completed" };
    events.add(name, json!({"response": response(reply, model, number, output, End::Final)}));
    events.text
}

fn call_events(events: &mut Events, item: &Value, at: usize) {
    let arguments = member(item, "arguments").as_str().unwrap_or_default();
    for piece in argument_pieces(arguments) {
        let delta = json!({"item_id": member(item, "id"), "output_index": at, "delta": piece});
        events.add("response.function_call_arguments.delta", delta);
    }
    let done = json!({"item_id": member(item, "id"), "output_index": at, "name": member(item, "name"), "arguments": arguments});
    events.add("response.function_call_arguments.done", done);
}

fn reasoning_events(events: &mut Events, item: &Value, at: usize, text: &str) {
    let place = json!({"item_id": member(item, "id"), "output_index": at, "summary_index": 0});
    let with = |name: &str, value: Value| {
        let mut data = place.clone();
        set(&mut data, name, value);
        data
    };
    events.add("response.reasoning_summary_part.added", with("part", json!({"type": "summary_text", "text": ""})));
    for piece in pieces(text) {
        events.add("response.reasoning_summary_text.delta", with("delta", json!(piece)));
    }
    events.add("response.reasoning_summary_text.done", with("text", json!(text)));
    events.add("response.reasoning_summary_part.done", with("part", json!({"type": "summary_text", "text": text})));
}

fn text_events(events: &mut Events, item: &Value, at: usize, text: &str) {
    let place = json!({"item_id": member(item, "id"), "output_index": at, "content_index": 0});
    let with = |name: &str, value: Value| {
        let mut data = place.clone();
        set(&mut data, name, value);
        data
    };
    let part = |text: &str| json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []});
    events.add("response.content_part.added", with("part", part("")));
    for piece in pieces(text) {
        events.add("response.output_text.delta", with("delta", json!(piece)));
    }
    events.add("response.output_text.done", with("text", json!(text)));
    events.add("response.content_part.done", with("part", part(text)));
}

/// Whether a response object is the first or the last of a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    InProgress,
    Final,
}

fn response(reply: &Reply, model: &str, number: usize, output: Vec<Value>, end: End) -> Value {
    let incomplete = incomplete(reply).filter(|_| end == End::Final);
    let status = match (end, incomplete) {
        (End::InProgress, _) => "in_progress",
        (End::Final, Some(_)) => "incomplete",
        (End::Final, None) => "completed",
    };
    let usage = json!({
        "input_tokens": 12,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 17,
    });
    json!({
        "id": format!("resp_{number}"),
        "object": "response",
        "created_at": 1_800_000_000,
        "status": status,
        "error": null,
        "incomplete_details": incomplete.map(|reason| json!({"reason": reason})),
        "model": model,
        "output": output,
        "parallel_tool_calls": true,
        "store": false,
        "usage": if end == End::Final { usage } else { Value::Null },
    })
}

fn incomplete(reply: &Reply) -> Option<&str> {
    match reply.stop.as_deref()? {
        "length" => Some("max_output_tokens"),
        "refusal" => Some("content_filter"),
        other => Some(other),
    }
}

/// The items of a response: reasoning, a message and the calls, as far as they are given.
fn item_count(reply: &Reply) -> usize {
    usize::from(!reply.reasoning.is_empty()) + usize::from(has_message(reply)) + reply.calls.len()
}

fn has_message(reply: &Reply) -> bool {
    !reply.text.is_empty() || reply.calls.is_empty()
}

fn item(reply: &Reply, number: usize, at: usize) -> Value {
    let reasoning = usize::from(!reply.reasoning.is_empty());
    let message = usize::from(has_message(reply));
    if at < reasoning {
        let summary = json!([{"type": "summary_text", "text": reply.reasoning}]);
        return json!({"id": format!("rs_{number}"), "type": "reasoning", "summary": summary,
            "encrypted_content": "gAAAAABscripted"});
    }
    if at < reasoning + message {
        let content = json!([{"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}]);
        return json!({"id": format!("msg_{number}"), "type": "message", "role": "assistant", "status": "completed",
            "content": content});
    }
    let position = at - reasoning - message;
    let Some(call) = reply.calls.get(position) else { return Value::Null };
    json!({"id": format!("fc_{number}_{position}"), "type": "function_call", "status": "completed",
        "call_id": call.id("call_", number, position), "name": call.name, "arguments": call.arguments()})
}

fn member<'v>(item: &'v Value, name: &str) -> &'v Value {
    item.get(name).unwrap_or(&Value::Null)
}
