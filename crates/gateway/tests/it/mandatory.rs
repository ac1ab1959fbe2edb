//! The checker itself: it notices every mandatory field and event that is removed from an answer.

use serde_json::{Value, json};
use testkit::model::Reply;
use wire::Wire;

use crate::answer::{Answer, Event};
use crate::checker::{body_problems, event_problems, problems};
use crate::world::{Form, Options, WIRES, World, question};

/// Returns an answer with a text and a call of a client's tool.
async fn answer(wire: Wire, form: Form) -> Answer {
    let code = "return await tools.weather({city: 'Rome'})";
    let first = Reply { text: "I look it up.".to_owned(), ..Reply::call("exec", json!({"code": code})) };
    let world = World::start(Options::default(), vec![first]).await;
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    let tool = match wire {
        Wire::Chat => json!({"type": "function", "function": {"name": "weather", "parameters": schema}}),
        Wire::Responses => json!({"type": "function", "name": "weather", "parameters": schema}),
        Wire::Messages => json!({"name": "weather", "input_schema": schema}),
    };
    let mut body = question(wire, form, "how is the weather?");
    body["tools"] = json!([tool]);
    let answer = world.ask(wire, &body).await;
    assert_eq!(answer.status, 200, "{}", answer.raw);
    assert_eq!(problems(&answer), [""; 0], "{wire:?} {form:?}: {}", answer.raw);
    assert_eq!(answer.text(), "I look it up.", "{}", answer.raw);
    assert_eq!(answer.calls().len(), 1, "{}", answer.raw);
    assert_eq!(answer.calls()[0].arguments, json!({"city": "Rome"}));
    answer
}

/// Removes the member at a pointer. Returns whether there was one.
fn remove(value: &mut Value, pointer: &str) -> bool {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    match value.pointer_mut(parent) {
        Some(Value::Object(fields)) => fields.remove(name).is_some(),
        Some(Value::Array(items)) if !items.is_empty() => {
            items.remove(name.parse().unwrap());
            true
        }
        _ => false,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_mandatory_field_of_a_whole_answer_is_missed_when_it_is_removed() {
    let chat: &[&str] = &[
        "/choices",
        "/choices/0/index",
        "/choices/0/message",
        "/choices/0/finish_reason",
        "/choices/0/message/tool_calls/0/id",
        "/choices/0/message/tool_calls/0/type",
        "/choices/0/message/tool_calls/0/function/name",
        "/choices/0/message/tool_calls/0/function/arguments",
    ];
    let responses: &[&str] = &[
        "/output",
        "/output/0/type",
        "/output/0/id",
        "/output/1/type",
        "/output/1/id",
        "/output/1/call_id",
        "/output/1/name",
        "/output/1/arguments",
        "/usage/input_tokens",
        "/usage/output_tokens",
    ];
    let messages: &[&str] = &[
        "/type",
        "/content",
        "/stop_reason",
        "/usage/input_tokens",
        "/usage/output_tokens",
        "/content/1/id",
        "/content/1/name",
        "/content/1/input",
    ];
    for wire in WIRES {
        let whole = answer(wire, Form::Whole).await;
        let fields = match wire {
            Wire::Chat => chat,
            Wire::Responses => responses,
            Wire::Messages => messages,
        };
        for pointer in fields {
            let mut body = whole.body.clone();
            assert!(remove(&mut body, pointer), "{wire:?} has {pointer}: {body}");
            assert!(!body_problems(wire, &body).is_empty(), "{wire:?} without {pointer}");
        }
    }
}

/// Returns the text that the events of a stream carry.
fn said(events: &[Event]) -> String {
    let text = |event: &Event| {
        let (data, chat) = (&event.data, event.data.pointer("/choices/0/delta/content"));
        let delta = chat.or(data.pointer("/delta/text")).or(data.get("delta").filter(|_| event.name.contains("text")));
        delta.and_then(Value::as_str).map(str::to_owned)
    };
    events.iter().filter_map(text).collect()
}

/// Fields that clients need wherever an event of this name has them. An empty name stands for all events.
const EVENT_FIELDS: [(Wire, &str, &[&str]); 15] = [
    (
        Wire::Chat,
        "",
        &[
            "/object",
            "/choices",
            "/choices/0/index",
            "/choices/0/delta",
            "/choices/0/delta/role",
            "/choices/0/delta/tool_calls/0/index",
            "/choices/0/delta/tool_calls/0/id",
            "/choices/0/delta/tool_calls/0/type",
            "/choices/0/delta/tool_calls/0/function",
            "/choices/0/delta/tool_calls/0/function/name",
        ],
    ),
    (Wire::Responses, "", &["/type"]),
    (Wire::Responses, "response.created", &["/response/id", "/response/created_at", "/response/model"]),
    (Wire::Responses, "response.output_item.added", &["/output_index", "/item"]),
    (Wire::Responses, "response.output_item.done", &["/output_index", "/item", "/item/status", "/item/id"]),
    (Wire::Responses, "response.function_call_arguments.delta", &["/output_index", "/item_id", "/delta"]),
    (Wire::Responses, "response.function_call_arguments.done", &["/output_index", "/item_id", "/arguments"]),
    (Wire::Responses, "response.output_text.delta", &["/output_index", "/item_id", "/content_index", "/delta"]),
    (Wire::Responses, "response.output_text.done", &["/output_index", "/item_id", "/content_index", "/text"]),
    (Wire::Responses, "response.completed", &["/response", "/response/output", "/response/usage", "/response/id"]),
    (Wire::Messages, "", &["/type", "/index"]),
    (Wire::Messages, "message_start", &["/message", "/message/content", "/message/usage/input_tokens"]),
    (Wire::Messages, "content_block_start", &["/content_block", "/content_block/text", "/content_block/input"]),
    (Wire::Messages, "content_block_delta", &["/delta", "/delta/type"]),
    (Wire::Messages, "message_delta", &["/delta/stop_reason", "/usage/output_tokens"]),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_mandatory_field_and_event_of_a_stream_is_missed_when_it_is_removed() {
    for wire in WIRES {
        let streamed = answer(wire, Form::Stream).await;
        assert_eq!(said(&streamed.events), "I look it up.");
        for at in 0..streamed.events.len() {
            let event = &streamed.events[at];
            let is_optional = event.name == "response.in_progress" && wire == Wire::Responses;
            let mut fewer: Vec<Event> = streamed.events.clone();
            fewer.remove(at);
            let is_missed = !event_problems(wire, &fewer).is_empty() || said(&fewer) != "I look it up.";
            assert!(is_optional || is_missed, "{wire:?} without {event:?}");
            let mut unnamed = streamed.events.clone();
            unnamed[at].name = String::new();
            assert!(wire == Wire::Chat || !event_problems(wire, &unnamed).is_empty(), "{wire:?} unnamed {event:?}");
        }
        for (_, name, fields) in EVENT_FIELDS.iter().filter(|one| one.0 == wire) {
            let mut times = 0;
            for at in 0..streamed.events.len() {
                if !name.is_empty() && streamed.events[at].name != *name {
                    continue;
                }
                for pointer in *fields {
                    let mut events = streamed.events.clone();
                    if remove(&mut events[at].data, pointer) {
                        times += 1;
                        let event = &streamed.events[at];
                        assert!(!event_problems(wire, &events).is_empty(), "{wire:?} {event:?} without {pointer}");
                    }
                }
            }
            assert!(times >= 1, "{wire:?} {name}");
        }
    }
}
