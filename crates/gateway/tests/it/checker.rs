//! Checks that an answer has every field and every event that some released client needs.

use serde_json::Value;
use wire::Wire;

use crate::answer::{Answer, Event};

/// Returns what is missing or wrong in an answer, which is a stream or a whole body.
pub(crate) fn problems(answer: &Answer) -> Vec<String> {
    let mut problems = Problems::default();
    if answer.events.is_empty() {
        match answer.wire {
            Wire::Chat => check_chat_body(&answer.body, &mut problems),
            Wire::Responses => check_response(&answer.body, &mut problems),
            Wire::Messages => check_message(&answer.body, &mut problems),
        }
    } else {
        check_events(answer.wire, &answer.events, &mut problems);
    }
    problems.0
}

/// Returns what is missing or wrong in the events of a stream.
pub(crate) fn event_problems(wire: Wire, list: &[Event]) -> Vec<String> {
    let mut problems = Problems::default();
    check_events(wire, list, &mut problems);
    problems.0
}

/// Returns what is missing or wrong in the body of an answer that is not a stream.
pub(crate) fn body_problems(wire: Wire, body: &Value) -> Vec<String> {
    let mut problems = Problems::default();
    match wire {
        Wire::Chat => check_chat_body(body, &mut problems),
        Wire::Responses => check_response(body, &mut problems),
        Wire::Messages => check_message(body, &mut problems),
    }
    problems.0
}

/// The problems that were found so far.
#[derive(Default)]
struct Problems(Vec<String>);

impl Problems {
    /// Requires members of a value, given as JSON pointers.
    fn need(&mut self, value: &Value, pointers: &[&str]) {
        for pointer in pointers {
            if value.pointer(pointer).is_none() {
                self.0.push(format!("{pointer} in {value}"));
            }
        }
    }

    /// Requires members of a value that are texts and not empty, given as JSON pointers.
    fn need_text(&mut self, value: &Value, pointers: &[&str]) {
        for pointer in pointers {
            if value.pointer(pointer).and_then(Value::as_str).is_none_or(str::is_empty) {
                self.0.push(format!("a text {pointer} in {value}"));
            }
        }
    }

    /// Adds a problem if a condition is not met. The text names what is required, or what is wrong.
    fn require(&mut self, condition: bool, text: &str) {
        if !condition {
            self.0.push(text.to_owned());
        }
    }
}

/// Returns the elements of the array at a JSON pointer; none if there is no array.
fn elements<'v>(value: &'v Value, pointer: &str) -> impl Iterator<Item = &'v Value> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn check_chat_body(body: &Value, problems: &mut Problems) {
    problems.need(body, &["/choices/0/index", "/choices/0/message"]);
    problems.need_text(body, &["/choices/0/finish_reason", "/choices/0/message/role"]);
    problems.need(body, &["/usage/prompt_tokens", "/usage/completion_tokens"]);
    for call in elements(body, "/choices/0/message/tool_calls") {
        problems.need_text(call, &["/id", "/type", "/function/name", "/function/arguments"]);
    }
    let has_calls = body.pointer("/choices/0/message/tool_calls").is_some();
    let has_text = body.pointer("/choices/0/message/content").is_some_and(Value::is_string);
    problems.require(has_calls || has_text, "neither calls nor text");
}

fn check_item(item: &Value, problems: &mut Problems) {
    problems.need_text(item, &["/type", "/id", "/status"]);
    match item["type"].as_str().unwrap_or_default() {
        "function_call" => problems.need_text(item, &["/call_id", "/name", "/arguments"]),
        "message" => {
            problems.need_text(item, &["/role"]);
            problems.need(item, &["/content/0/text", "/content/0/type", "/content/0/annotations"]);
        }
        "reasoning" => problems.need_text(item, &["/summary/0/type", "/summary/0/text"]),
        other => problems.require(false, &format!("an item of an unknown type {other}")),
    }
}

fn check_response(body: &Value, problems: &mut Problems) {
    problems.need_text(body, &["/id", "/object", "/status", "/model"]);
    problems.need(body, &["/created_at", "/output/0", "/usage/input_tokens", "/usage/output_tokens"]);
    elements(body, "/output").for_each(|one| check_item(one, problems));
}

fn check_message(body: &Value, problems: &mut Problems) {
    problems.need_text(body, &["/id", "/type", "/role", "/model", "/stop_reason"]);
    problems.need(body, &["/content/0", "/usage/input_tokens", "/usage/output_tokens"]);
    for block in elements(body, "/content") {
        match block["type"].as_str().unwrap_or_default() {
            "text" => problems.need_text(block, &["/text"]),
            "tool_use" => {
                problems.need_text(block, &["/id", "/name"]);
                problems.need(block, &["/input"]);
            }
            "thinking" => problems.need_text(block, &["/thinking", "/signature"]),
            other => problems.require(false, &format!("a block of an unknown type {other}")),
        }
    }
}

fn check_events(wire: Wire, list: &[Event], problems: &mut Problems) {
    match wire {
        Wire::Chat => check_chat_events(list, problems),
        Wire::Responses => check_response_events(list, problems),
        Wire::Messages => check_message_events(list, problems),
    }
}

fn check_chat_events(events: &[Event], problems: &mut Problems) {
    let (mut reason, mut roles, mut usage, mut is_done) = (0, 0, 0, false);
    let mut content = String::new();
    let mut calls: Vec<String> = Vec::new();
    for (at, Event { name, data }) in events.iter().enumerate() {
        problems.require(name.is_empty(), "a Chat event has a name");
        if data == "[DONE]" {
            is_done = true;
            continue;
        }
        problems.require(data["object"] == "chat.completion.chunk", "the object of a chunk");
        problems.need(data, &["/choices", "/id", "/created", "/model"]);
        usage += usize::from(data["usage"]["prompt_tokens"].is_u64() && data["usage"]["completion_tokens"].is_u64());
        for choice in elements(data, "/choices") {
            problems.need(choice, &["/index", "/delta"]);
            let delta = &choice["delta"];
            if delta.get("role").is_some() {
                roles += 1;
                problems
                    .require(at == 0 && delta["content"].is_string(), "the role is in the first delta, with a content");
            }
            content += delta["content"].as_str().unwrap_or_default();
            for call in elements(delta, "/tool_calls") {
                problems.need(call, &["/index", "/function"]);
                let index = usize::try_from(call["index"].as_u64().unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
                if index == calls.len() {
                    problems.need_text(call, &["/id", "/type", "/function/name"]);
                    calls.push(String::new());
                } else {
                    problems.require(call.get("id").is_none(), "the id of a call is repeated");
                    problems.require(call.pointer("/function/name").is_none(), "the name of a call is repeated");
                }
                if let Some(arguments) = calls.get_mut(index) {
                    arguments.push_str(call.pointer("/function/arguments").and_then(Value::as_str).unwrap_or_default());
                }
            }
            reason += usize::from(choice["finish_reason"].is_string());
        }
    }
    problems.require(roles == 1, "one role");
    problems.require(reason == 1, "one finish reason");
    problems.require(usage == 1, "one usage");
    problems.require(is_done, "[DONE]");
    problems.require(!calls.is_empty() || !content.is_empty(), "neither calls nor text");
    let is_object = |text: &String| serde_json::from_str::<Value>(text).is_ok_and(|value| value.is_object());
    problems.require(calls.iter().all(is_object), "the arguments of a call");
}

fn check_response_events(events: &[Event], problems: &mut Problems) {
    let first = events.first().map(|event| event.data.clone()).unwrap_or_default();
    problems.require(first["type"] == "response.created", "response.created comes first");
    problems.need_text(&first, &["/response/id", "/response/model", "/response/status"]);
    problems.need(&first, &["/response/created_at"]);
    let last = events.last().map(|event| event.data.clone()).unwrap_or_default();
    problems.require(last["type"] == "response.completed", "response.completed comes last");
    check_response(&last["response"], problems);
    problems.require(last["response"]["id"] == first["response"]["id"], "the response has one id");
    for (number, Event { name, data }) in events.iter().enumerate() {
        problems.require(data["type"] == name.as_str(), "the type of an event is its name");
        problems.require(data["sequence_number"] == number, "events are numbered");
        match name.as_str() {
            "response.output_item.added" | "response.output_item.done" => {
                problems.need(data, &["/output_index"]);
                problems.need_text(data, &["/item/id", "/item/type", "/item/status"]);
            }
            "response.function_call_arguments.delta" | "response.function_call_arguments.done" => {
                problems.need(data, &["/output_index"]);
                problems.need_text(data, &["/item_id"]);
            }
            "response.content_part.added" | "response.content_part.done" => {
                problems.need(data, &["/output_index", "/content_index", "/part/type", "/part/text"]);
                problems.need_text(data, &["/item_id"]);
            }
            "response.output_text.delta" => {
                problems.need(data, &["/output_index", "/content_index", "/delta"]);
                problems.need_text(data, &["/item_id"]);
            }
            "response.output_text.done" => {
                problems.need(data, &["/output_index", "/content_index", "/text"]);
                problems.need_text(data, &["/item_id"]);
            }
            "response.reasoning_summary_part.added" | "response.reasoning_summary_part.done" => {
                problems.need(data, &["/output_index", "/summary_index", "/part/type", "/part/text"]);
                problems.need_text(data, &["/item_id"]);
            }
            "response.reasoning_summary_text.delta" => {
                problems.need(data, &["/output_index", "/summary_index", "/delta"]);
                problems.need_text(data, &["/item_id"]);
            }
            "response.reasoning_summary_text.done" => {
                problems.need(data, &["/output_index", "/summary_index", "/text"]);
                problems.need_text(data, &["/item_id"]);
            }
            "response.created" | "response.in_progress" | "keepalive" | "response.completed" => {}
            other => problems.require(false, &format!("an unknown event {other}")),
        }
    }
    for (index, whole) in elements(&last, "/response/output").enumerate() {
        check_item_events(events, index, whole, problems);
    }
}

/// Checks the events of one item of a response against the item in the last event.
fn check_item_events(events: &[Event], index: usize, whole: &Value, problems: &mut Problems) {
    let of = |name: &str| -> Vec<&Value> {
        let own = |event: &&Event| event.name == name && event.data["output_index"] == index;
        events.iter().filter(own).map(|event| &event.data).collect()
    };
    let same = |data: &Value| {
        ["id", "type", "call_id", "name"].iter().all(|field| data["item"].get(field) == whole.get(field))
    };
    let (added, done) = (of("response.output_item.added"), of("response.output_item.done"));
    problems.require(added.len() == 1 && added.iter().all(|data| same(data)), "one matching output_item.added");
    problems
        .require(done.len() == 1 && done.iter().all(|data| data["item"] == *whole), "one complete output_item.done");
    let joined = |name: &str| -> String { of(name).iter().filter_map(|data| data["delta"].as_str()).collect() };
    let one = |name: &str, field: &str, value: &Value| {
        of(name).len() == 1 && of(name).iter().all(|data| data[field] == *value)
    };
    if whole["type"] == "function_call" {
        let arguments = &whole["arguments"];
        problems.require(joined("response.function_call_arguments.delta") == *arguments, "the deltas of the arguments");
        problems
            .require(one("response.function_call_arguments.done", "arguments", arguments), "the end of the arguments");
    } else if whole["type"] == "reasoning" {
        let text = &whole["summary"][0]["text"];
        problems.require(joined("response.reasoning_summary_text.delta") == *text, "the deltas of the reasoning");
        problems.require(one("response.reasoning_summary_text.done", "text", text), "the end of the reasoning");
        problems.require(of("response.reasoning_summary_part.added").len() == 1, "one reasoning_summary_part.added");
        problems.require(of("response.reasoning_summary_part.done").len() == 1, "one reasoning_summary_part.done");
    } else {
        let text = &whole["content"][0]["text"];
        problems.require(joined("response.output_text.delta") == *text, "the deltas of the text");
        problems.require(one("response.output_text.done", "text", text), "the end of the text");
        problems.require(of("response.content_part.added").len() == 1, "one content_part.added");
        problems.require(of("response.content_part.done").len() == 1, "one content_part.done");
    }
}

fn check_message_events(events: &[Event], problems: &mut Problems) {
    let first = events.first().map(|event| event.data.clone()).unwrap_or_default();
    problems.require(events.first().is_some_and(|event| event.name == "message_start"), "message_start comes first");
    problems.need(&first, &["/message/content", "/message/usage/input_tokens", "/message/usage/output_tokens"]);
    problems.need_text(&first, &["/message/id", "/message/type", "/message/role", "/message/model"]);
    problems.require(events.last().is_some_and(|event| event.name == "message_stop"), "message_stop comes last");
    let count = |name: &str| events.iter().filter(|event| event.name == name).count();
    problems.require(count("message_delta") == 1, "one message_delta");
    let (starts, stops) = (count("content_block_start"), count("content_block_stop"));
    problems.require(starts > 0 && starts == stops, "every block starts and stops");
    let mut deltas: Vec<String> = Vec::new();
    let mut kinds: Vec<String> = Vec::new();
    for Event { name, data } in events {
        problems.require(data["type"] == name.as_str(), "the type of an event is its name");
        match name.as_str() {
            "message_delta" => {
                problems.need_text(data, &["/delta/stop_reason"]);
                problems.need(data, &["/usage/output_tokens"]);
            }
            "content_block_start" => {
                problems.require(data["index"] == deltas.len(), "blocks are numbered");
                deltas.push(String::new());
                kinds.push(data["content_block"]["type"].as_str().unwrap_or_default().to_owned());
                match data["content_block"]["type"].as_str().unwrap_or_default() {
                    "text" => problems.need(data, &["/content_block/text"]),
                    "tool_use" => {
                        problems.need(data, &["/content_block/input"]);
                        problems.need_text(data, &["/content_block/id", "/content_block/name"]);
                    }
                    "thinking" => problems.need(data, &["/content_block/thinking", "/content_block/signature"]),
                    other => problems.require(false, &format!("a block of an unknown type {other}")),
                }
            }
            "content_block_delta" => {
                problems.require(
                    data["index"].as_u64() == deltas.len().checked_sub(1).map(|at| at as u64),
                    "a delta's index",
                );
                let text = match data["delta"]["type"].as_str().unwrap_or_default() {
                    "text_delta" => data["delta"]["text"].as_str(),
                    "input_json_delta" => data["delta"]["partial_json"].as_str(),
                    "thinking_delta" => data["delta"]["thinking"].as_str(),
                    "signature_delta" => data["delta"]["signature"].as_str(),
                    _ => None,
                };
                problems.require(text.is_some(), "the text of a delta");
                if let Some(last) = deltas.last_mut() {
                    last.push_str(text.unwrap_or_default());
                }
            }
            "content_block_stop" => {
                problems.require(
                    data["index"].as_u64() == deltas.len().checked_sub(1).map(|at| at as u64),
                    "a stop's index",
                );
            }
            "message_start" | "message_stop" | "ping" => {}
            other => problems.require(false, &format!("an unknown event {other}")),
        }
    }
    for (kind, text) in kinds.iter().zip(&deltas) {
        let is_right = match kind.as_str() {
            "tool_use" => serde_json::from_str::<Value>(text).is_ok_and(|value| value.is_object()),
            _ => !text.is_empty(),
        };
        problems.require(is_right, "the deltas of a block");
    }
}
