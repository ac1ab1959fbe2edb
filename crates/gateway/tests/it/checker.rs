//! Checks that an answer has every field and every event that some released client needs.

use serde_json::Value;
use wire::Wire;

use crate::answer::{Answer, Event};

/// Returns what is missing in an answer.
pub(crate) fn problems(answer: &Answer) -> Vec<String> {
    let mut missing = Missing::default();
    if answer.events.is_empty() {
        match answer.wire {
            Wire::Chat => whole_chat(&answer.body, &mut missing),
            Wire::Responses => response(&answer.body, &mut missing),
            Wire::Messages => message(&answer.body, &mut missing),
        }
    } else {
        events(answer.wire, &answer.events, &mut missing);
    }
    missing.0
}

/// Returns what is missing in the events of a stream.
pub(crate) fn event_problems(wire: Wire, list: &[Event]) -> Vec<String> {
    let mut missing = Missing::default();
    events(wire, list, &mut missing);
    missing.0
}

/// Returns what is missing in a whole answer.
pub(crate) fn body_problems(wire: Wire, body: &Value) -> Vec<String> {
    let mut missing = Missing::default();
    match wire {
        Wire::Chat => whole_chat(body, &mut missing),
        Wire::Responses => response(body, &mut missing),
        Wire::Messages => message(body, &mut missing),
    }
    missing.0
}

#[derive(Default)]
struct Missing(Vec<String>);

impl Missing {
    /// Requires members of a value, given as pointers.
    fn need(&mut self, value: &Value, pointers: &[&str]) {
        for pointer in pointers {
            if value.pointer(pointer).is_none() {
                self.0.push(format!("{pointer} in {value}"));
            }
        }
    }

    fn need_text(&mut self, value: &Value, pointers: &[&str]) {
        for pointer in pointers {
            if value.pointer(pointer).and_then(Value::as_str).is_none_or(str::is_empty) {
                self.0.push(format!("a text {pointer} in {value}"));
            }
        }
    }

    fn say(&mut self, is_right: bool, what: &str) {
        if !is_right {
            self.0.push(what.to_owned());
        }
    }
}

fn list<'v>(value: &'v Value, pointer: &str) -> impl Iterator<Item = &'v Value> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn whole_chat(body: &Value, missing: &mut Missing) {
    missing.need(body, &["/choices/0/index", "/choices/0/message"]);
    missing.need_text(body, &["/choices/0/finish_reason", "/choices/0/message/role"]);
    missing.need(body, &["/usage/prompt_tokens", "/usage/completion_tokens"]);
    for call in list(body, "/choices/0/message/tool_calls") {
        missing.need_text(call, &["/id", "/type", "/function/name", "/function/arguments"]);
    }
    let has_calls = body.pointer("/choices/0/message/tool_calls").is_some();
    let has_text = body.pointer("/choices/0/message/content").is_some_and(Value::is_string);
    missing.say(has_calls || has_text, "neither calls nor text");
}

fn item(item: &Value, missing: &mut Missing) {
    missing.need_text(item, &["/type", "/id", "/status"]);
    match item["type"].as_str().unwrap_or_default() {
        "function_call" => missing.need_text(item, &["/call_id", "/name", "/arguments"]),
        "message" => {
            missing.need_text(item, &["/role"]);
            missing.need(item, &["/content/0/text", "/content/0/type", "/content/0/annotations"]);
        }
        "reasoning" => missing.need_text(item, &["/summary/0/type", "/summary/0/text"]),
        other => missing.say(false, &format!("an item of an unknown type {other}")),
    }
}

fn response(body: &Value, missing: &mut Missing) {
    missing.need_text(body, &["/id", "/object", "/status", "/model"]);
    missing.need(body, &["/created_at", "/output/0", "/usage/input_tokens", "/usage/output_tokens"]);
    list(body, "/output").for_each(|one| item(one, missing));
}

fn message(body: &Value, missing: &mut Missing) {
    missing.need_text(body, &["/id", "/type", "/role", "/model", "/stop_reason"]);
    missing.need(body, &["/content/0", "/usage/input_tokens", "/usage/output_tokens"]);
    for block in list(body, "/content") {
        match block["type"].as_str().unwrap_or_default() {
            "text" => missing.need_text(block, &["/text"]),
            "tool_use" => {
                missing.need_text(block, &["/id", "/name"]);
                missing.need(block, &["/input"]);
            }
            "thinking" => missing.need_text(block, &["/thinking", "/signature"]),
            other => missing.say(false, &format!("a block of an unknown type {other}")),
        }
    }
}

fn events(wire: Wire, list: &[Event], missing: &mut Missing) {
    match wire {
        Wire::Chat => chat_events(list, missing),
        Wire::Responses => response_events(list, missing),
        Wire::Messages => message_events(list, missing),
    }
}

fn chat_events(events: &[Event], missing: &mut Missing) {
    let (mut reason, mut roles, mut usage, mut is_done) = (0, 0, 0, false);
    let mut content = String::new();
    let mut calls: Vec<String> = Vec::new();
    for (at, Event { name, data }) in events.iter().enumerate() {
        missing.say(name.is_empty(), "a Chat event has a name");
        if data == "[DONE]" {
            is_done = true;
            continue;
        }
        missing.say(data["object"] == "chat.completion.chunk", "the object of a chunk");
        missing.need(data, &["/choices", "/id", "/created", "/model"]);
        usage += usize::from(data["usage"]["prompt_tokens"].is_u64() && data["usage"]["completion_tokens"].is_u64());
        for choice in list(data, "/choices") {
            missing.need(choice, &["/index", "/delta"]);
            let delta = &choice["delta"];
            if delta.get("role").is_some() {
                roles += 1;
                missing.say(at == 0 && delta["content"].is_string(), "the role is in the first delta, with a content");
            }
            content += delta["content"].as_str().unwrap_or_default();
            for call in list(delta, "/tool_calls") {
                missing.need(call, &["/index", "/function"]);
                let index = usize::try_from(call["index"].as_u64().unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
                if index == calls.len() {
                    missing.need_text(call, &["/id", "/type", "/function/name"]);
                    calls.push(String::new());
                } else {
                    missing.say(call.get("id").is_none(), "the id of a call is repeated");
                    missing.say(call.pointer("/function/name").is_none(), "the name of a call is repeated");
                }
                if let Some(arguments) = calls.get_mut(index) {
                    arguments.push_str(call.pointer("/function/arguments").and_then(Value::as_str).unwrap_or_default());
                }
            }
            reason += usize::from(choice["finish_reason"].is_string());
        }
    }
    missing.say(roles == 1, "one role");
    missing.say(reason == 1, "one finish reason");
    missing.say(usage == 1, "one usage");
    missing.say(is_done, "[DONE]");
    missing.say(!calls.is_empty() || !content.is_empty(), "neither calls nor text");
    let is_object = |text: &String| serde_json::from_str::<Value>(text).is_ok_and(|value| value.is_object());
    missing.say(calls.iter().all(is_object), "the arguments of a call");
}

fn response_events(events: &[Event], missing: &mut Missing) {
    let first = events.first().map(|event| event.data.clone()).unwrap_or_default();
    missing.say(first["type"] == "response.created", "response.created comes first");
    missing.need_text(&first, &["/response/id", "/response/model", "/response/status"]);
    missing.need(&first, &["/response/created_at"]);
    let last = events.last().map(|event| event.data.clone()).unwrap_or_default();
    missing.say(last["type"] == "response.completed", "response.completed comes last");
    response(&last["response"], missing);
    missing.say(last["response"]["id"] == first["response"]["id"], "the response has one id");
    for (number, Event { name, data }) in events.iter().enumerate() {
        missing.say(data["type"] == name.as_str(), "the type of an event is its name");
        missing.say(data["sequence_number"] == number, "events are numbered");
        match name.as_str() {
            "response.output_item.added" | "response.output_item.done" => {
                missing.need(data, &["/output_index"]);
                missing.need_text(data, &["/item/id", "/item/type", "/item/status"]);
            }
            "response.function_call_arguments.delta" | "response.function_call_arguments.done" => {
                missing.need(data, &["/output_index"]);
                missing.need_text(data, &["/item_id"]);
            }
            "response.content_part.added" | "response.content_part.done" => {
                missing.need(data, &["/output_index", "/content_index", "/part/type", "/part/text"]);
                missing.need_text(data, &["/item_id"]);
            }
            "response.output_text.delta" => {
                missing.need(data, &["/output_index", "/content_index", "/delta"]);
                missing.need_text(data, &["/item_id"]);
            }
            "response.output_text.done" => {
                missing.need(data, &["/output_index", "/content_index", "/text"]);
                missing.need_text(data, &["/item_id"]);
            }
            "response.reasoning_summary_part.added" | "response.reasoning_summary_part.done" => {
                missing.need(data, &["/output_index", "/summary_index", "/part/type", "/part/text"]);
                missing.need_text(data, &["/item_id"]);
            }
            "response.reasoning_summary_text.delta" => {
                missing.need(data, &["/output_index", "/summary_index", "/delta"]);
                missing.need_text(data, &["/item_id"]);
            }
            "response.reasoning_summary_text.done" => {
                missing.need(data, &["/output_index", "/summary_index", "/text"]);
                missing.need_text(data, &["/item_id"]);
            }
            "response.created" | "response.in_progress" | "keepalive" | "response.completed" => {}
            other => missing.say(false, &format!("an unknown event {other}")),
        }
    }
    for (index, whole) in list(&last, "/response/output").enumerate() {
        item_events(events, index, whole, missing);
    }
}

/// Checks the events of one item of a response.
fn item_events(events: &[Event], index: usize, whole: &Value, missing: &mut Missing) {
    let of = |name: &str| -> Vec<&Value> {
        let own = |event: &&Event| event.name == name && event.data["output_index"] == index;
        events.iter().filter(own).map(|event| &event.data).collect()
    };
    let same = |data: &Value| {
        ["id", "type", "call_id", "name"].iter().all(|field| data["item"].get(field) == whole.get(field))
    };
    let (added, done) = (of("response.output_item.added"), of("response.output_item.done"));
    missing.say(added.len() == 1 && added.iter().all(|data| same(data)), "one matching output_item.added");
    missing.say(done.len() == 1 && done.iter().all(|data| data["item"] == *whole), "one complete output_item.done");
    let joined = |name: &str| -> String { of(name).iter().filter_map(|data| data["delta"].as_str()).collect() };
    let one = |name: &str, field: &str, value: &Value| {
        of(name).len() == 1 && of(name).iter().all(|data| data[field] == *value)
    };
    if whole["type"] == "function_call" {
        let arguments = &whole["arguments"];
        missing.say(joined("response.function_call_arguments.delta") == *arguments, "the deltas of the arguments");
        missing.say(one("response.function_call_arguments.done", "arguments", arguments), "the end of the arguments");
    } else if whole["type"] == "reasoning" {
        let text = &whole["summary"][0]["text"];
        missing.say(joined("response.reasoning_summary_text.delta") == *text, "the deltas of the reasoning");
        missing.say(one("response.reasoning_summary_text.done", "text", text), "the end of the reasoning");
        missing.say(of("response.reasoning_summary_part.added").len() == 1, "one reasoning_summary_part.added");
        missing.say(of("response.reasoning_summary_part.done").len() == 1, "one reasoning_summary_part.done");
    } else {
        let text = &whole["content"][0]["text"];
        missing.say(joined("response.output_text.delta") == *text, "the deltas of the text");
        missing.say(one("response.output_text.done", "text", text), "the end of the text");
        missing.say(of("response.content_part.added").len() == 1, "one content_part.added");
        missing.say(of("response.content_part.done").len() == 1, "one content_part.done");
    }
}

fn message_events(events: &[Event], missing: &mut Missing) {
    let first = events.first().map(|event| event.data.clone()).unwrap_or_default();
    missing.say(events.first().is_some_and(|event| event.name == "message_start"), "message_start comes first");
    missing.need(&first, &["/message/content", "/message/usage/input_tokens", "/message/usage/output_tokens"]);
    missing.need_text(&first, &["/message/id", "/message/type", "/message/role", "/message/model"]);
    missing.say(events.last().is_some_and(|event| event.name == "message_stop"), "message_stop comes last");
    let count = |name: &str| events.iter().filter(|event| event.name == name).count();
    missing.say(count("message_delta") == 1, "one message_delta");
    let (starts, stops) = (count("content_block_start"), count("content_block_stop"));
    missing.say(starts > 0 && starts == stops, "every block starts and stops");
    let mut deltas: Vec<String> = Vec::new();
    let mut kinds: Vec<String> = Vec::new();
    for Event { name, data } in events {
        missing.say(data["type"] == name.as_str(), "the type of an event is its name");
        match name.as_str() {
            "message_delta" => {
                missing.need_text(data, &["/delta/stop_reason"]);
                missing.need(data, &["/usage/output_tokens"]);
            }
            "content_block_start" => {
                missing.say(data["index"] == deltas.len(), "blocks are numbered");
                deltas.push(String::new());
                kinds.push(data["content_block"]["type"].as_str().unwrap_or_default().to_owned());
                match data["content_block"]["type"].as_str().unwrap_or_default() {
                    "text" => missing.need(data, &["/content_block/text"]),
                    "tool_use" => {
                        missing.need(data, &["/content_block/input"]);
                        missing.need_text(data, &["/content_block/id", "/content_block/name"]);
                    }
                    "thinking" => missing.need(data, &["/content_block/thinking", "/content_block/signature"]),
                    other => missing.say(false, &format!("a block of an unknown type {other}")),
                }
            }
            "content_block_delta" => {
                missing
                    .say(data["index"].as_u64() == deltas.len().checked_sub(1).map(|at| at as u64), "a delta's index");
                let text = match data["delta"]["type"].as_str().unwrap_or_default() {
                    "text_delta" => data["delta"]["text"].as_str(),
                    "input_json_delta" => data["delta"]["partial_json"].as_str(),
                    "thinking_delta" => data["delta"]["thinking"].as_str(),
                    "signature_delta" => data["delta"]["signature"].as_str(),
                    _ => None,
                };
                missing.say(text.is_some(), "the text of a delta");
                if let Some(last) = deltas.last_mut() {
                    last.push_str(text.unwrap_or_default());
                }
            }
            "content_block_stop" => {
                missing
                    .say(data["index"].as_u64() == deltas.len().checked_sub(1).map(|at| at as u64), "a stop's index");
            }
            "message_start" | "message_stop" | "ping" => {}
            other => missing.say(false, &format!("an unknown event {other}")),
        }
    }
    for (kind, text) in kinds.iter().zip(&deltas) {
        let is_right = match kind.as_str() {
            "tool_use" => serde_json::from_str::<Value>(text).is_ok_and(|value| value.is_object()),
            _ => !text.is_empty(),
        };
        missing.say(is_right, "the deltas of a block");
    }
}
