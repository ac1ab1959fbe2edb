use std::collections::HashMap;

use contract::ids::{CallId, RunId, TurnId};
use serde_json::json;
use wire::Wire;
use wire::conversation::{
    Arguments, Assistant, CallResult, Item, ModelCall, Part, RawAssistant, StopReason, Usage, join,
};
use wire::downstream::{ClientCall, ClientRequest};
use wire::upstream::ModelEvent;

use super::{KnownTurn, KnownTurns, digest, digests_at_end, prefixes, rebuild, with_answer};
use crate::turn::log::LogEnd;
use crate::turn::record::{
    ClientResults, ControlResult, DeliveredCall, ModelStep, RecordedResponse, Step, TurnRecord, TurnRequest,
};

fn user(text: &str) -> Item {
    Item::User(vec![Part::Text(text.to_owned())])
}

fn said(text: &str) -> Item {
    Item::Assistant(Assistant { text: text.to_owned(), ..Assistant::default() })
}

fn call(id: &str) -> ModelCall {
    ModelCall { id: id.to_owned(), name: "exec".to_owned(), arguments: Arguments::classify("{}".to_owned()) }
}

fn asks(text: &str, ids: &[&str]) -> Item {
    let calls = ids.iter().map(|id| call(id)).collect();
    Item::Assistant(Assistant { text: text.to_owned(), calls, raw: None })
}

fn gives(ids: &[&str]) -> Item {
    Item::Results(ids.iter().map(|id| CallResult::text(*id, "1")).collect())
}

#[test]
fn a_conversation_is_recognized_although_its_form_has_changed() {
    let sent = [user("one"), said("A b.\n\nC"), user("two")];
    let parts = Item::User(vec![Part::Text("one ".into()), Part::Text(String::new())]);
    let system = Item::System("added later".into());
    let split = [system.clone(), parts, said("A b."), said("C"), system, user("two")];
    assert_eq!(digest("a", &sent), digest("a", &split));
    assert_ne!(digest("a", &sent), digest("b", &sent));
    assert_ne!(digest("a", &sent), digest("a", &[user("one"), user("A b. C"), user("two")]));
    assert_ne!(digest("a", &sent), digest("a", &sent[..2]));
    assert_ne!(digest("a", &[user("one")]), digest("aone", &[user("")]));
}

#[test]
fn results_that_a_client_cleared_do_not_change_the_digest_and_other_call_ids_do() {
    let cleared = Item::Results(vec![CallResult::text("c1", "[Old tool result content cleared]")]);
    let history = |results: Item| [user("q"), asks("", &["c1"]), results, said("done")];
    assert_eq!(digest("a", &history(gives(&["c1"]))), digest("a", &history(cleared)));
    assert_ne!(digest("a", &history(gives(&["c1"]))), digest("a", &history(gives(&["c2"]))));
}

#[test]
fn every_form_in_which_clients_send_a_history_has_one_digest() {
    let read = |wire: Wire, body: serde_json::Value| {
        let request = ClientRequest::read(wire, body.to_string().as_bytes()).unwrap();
        digest("a", &request.items)
    };
    let chat = |messages: serde_json::Value| read(Wire::Chat, json!({"model": "m", "messages": messages}));
    let messages = |messages: serde_json::Value| {
        read(Wire::Messages, json!({"model": "m", "max_tokens": 1, "messages": messages}))
    };
    let responses = |input: serde_json::Value| read(Wire::Responses, json!({"model": "m", "input": input}));
    let plain = chat(json!([
        {"role": "user", "content": "which?"},
        {"role": "assistant", "content": "I look.", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "x"},
        {"role": "assistant", "content": "y is red"},
    ]));
    let langchain = chat(json!([
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": [{"type": "text", "text": "which?"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}], "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "x"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "y is "}, {"type": "text", "text": "red"}]},
    ]));
    let claude_code = messages(json!([
        {"role": "user", "content": [{"type": "text", "text": "which?", "cache_control": {"type": "ephemeral"}}]},
        {"role": "system", "content": ""},
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}, {"type": "tool_use", "id": "c1", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "cleared"}]},
        {"role": "assistant", "content": "y is red"},
    ]));
    let ai_sdk = responses(json!([
        {"role": "user", "content": [{"type": "input_text", "text": "which?"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "x"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "y is red"}]},
    ]));
    assert_eq!([&langchain, &claude_code, &ai_sdk], [&plain; 3]);
}

#[test]
fn the_longest_known_beginning_is_looked_up_first() {
    let items = [user("one"), said("1"), user("two"), asks("", &["c"]), gives(&["c"]), said("2"), user("three")];
    let found = prefixes("a", &items);
    let ends: Vec<usize> = found.answered.iter().map(|prefix| prefix.end).collect();
    assert_eq!(ends, [6, 2]);
    let done = LogEnd::Done { stop: StopReason::EndTurn, usage: Usage::default() };
    assert_eq!(digests_at_end("a", &items[..5], "2", &done), [found.answered[0].digest.clone()]);
    assert_eq!(digests_at_end("a", &items[..1], "1\n", &done), [found.answered[1].digest.clone()]);
    let failed = LogEnd::Failed { status: 500, message: String::new(), has_effects: false, retry_after: None };
    assert!(digests_at_end("a", &items, "x", &failed).is_empty());
}

#[test]
fn a_response_whose_calls_the_client_dropped_is_found_with_and_without_text() {
    let calls = vec![ClientCall { id: "c".into(), name: "f".into(), arguments: "{}".into() }];
    let end = LogEnd::Calls { calls, usage: Usage::default() };
    for text in ["I look.", ""] {
        let asked = [user("one")];
        let digests = digests_at_end("a", &asked, text, &end);
        let mut next = asked.to_vec();
        if !text.is_empty() {
            next.push(said(text));
        }
        next.push(user("Your response above was cut off mid-stream"));
        let found = prefixes("a", &next);
        assert!(found.cut.iter().any(|prefix| prefix.digest == digests[1] && prefix.end + 1 == next.len()), "{text}");
        assert!(!found.answered.iter().any(|prefix| digests.contains(&prefix.digest)), "{text}");
    }
}

/// A turn with two rounds of one cell, then a cell without calls of the client.
fn record() -> TurnRecord {
    let model = |text: &str, id: Option<&str>| {
        let json = serde_json::value::to_raw_value(&json!({"bytes of": text})).unwrap();
        let calls = id.map(call).into_iter().collect();
        let message = Assistant { text: text.into(), calls, raw: Some(RawAssistant { wire: Wire::Chat, json }) };
        let (provider, model) = ("p".to_owned(), "m".to_owned());
        Step::Model(ModelStep { provider, model, message, stop: StopReason::EndTurn, usage: Usage::default() })
    };
    let delivered = |id: &str, number: u32| {
        let client = ClientCall { id: id.into(), name: "f".into(), arguments: "{}".into() };
        Step::Delivered(vec![DeliveredCall { run_id: RunId::new("cm_1"), call: CallId(number), client }])
    };
    let answered = |id: &str| {
        Step::Answered(ClientResults { results: vec![CallResult::text(id, "1")], ..ClientResults::default() })
    };
    let result =
        |id: &str, text: &str| Step::Result(ControlResult { run_id: None, result: CallResult::text(id, text) });
    let request = TurnRequest::new("a", Wire::Chat, vec![user("q")]);
    TurnRecord::from_steps(vec![
        Step::Request(request),
        model("thinking", Some("m1")),
        result("m1", "server only"),
        model("asking", Some("m2")),
        delivered("c1", 1),
        answered("c1"),
        delivered("c2", 2),
        answered("c2"),
        result("m2", "the cell's result"),
        model("and", Some("m3")),
        delivered("c3", 1),
    ])
    .unwrap()
}

fn known() -> KnownTurns {
    let turn_id = TurnId::new("turn_1");
    let open =
        HashMap::from([("m3".to_owned(), CallResult::text("m3", "{\"status\":\"waiting\",\"runId\":\"cm_2\"}"))]);
    let calls = ["c1", "c2", "c3"].map(|id| (id.to_owned(), turn_id.clone()));
    KnownTurns { turns: HashMap::from([(turn_id, KnownTurn { record: record(), open })]), calls: HashMap::from(calls) }
}

fn shown(items: &[Item]) -> Vec<String> {
    let of = |item: &Item| match item {
        Item::System(text) => format!("system {text}"),
        Item::User(parts) => format!("user {}", text(parts)),
        Item::Assistant(message) => {
            let raw = if message.raw.is_some() { "raw " } else { "" };
            let ids: Vec<&str> = message.calls.iter().map(|call| call.id.as_str()).collect();
            format!("{raw}assistant {} {}", message.text, ids.join(" "))
        }
        Item::Results(results) => {
            let of = |result: &CallResult| format!("{}={}", result.call_id, text(&result.parts));
            format!("results {}", results.iter().map(of).collect::<Vec<_>>().join(" "))
        }
    };
    fn text(parts: &[Part]) -> String {
        parts.iter().map(|part| if let Part::Text(text) = part { text.as_str() } else { "?" }).collect()
    }
    items.iter().map(of).collect()
}

#[test]
fn messages_with_known_calls_are_replaced_by_what_the_model_saw() {
    let history = [
        user("q"),
        asks("thinking\n\nasking", &["c1"]),
        gives(&["c1"]),
        asks("", &["c2"]),
        gives(&["c2"]),
        said("something that the client invented"),
        user("go on"),
    ];
    let expected = [
        "user q",
        "raw assistant thinking m1",
        "results m1=server only",
        "raw assistant asking m2",
        "results m2=the cell's result",
        "assistant something that the client invented ",
        "user go on",
    ];
    assert_eq!(shown(&rebuild(&history, &known())), expected);
    assert_eq!(shown(&rebuild(&history, &known())), shown(&rebuild(&history, &known())), "always the same");
}

#[test]
fn a_history_that_lost_half_of_a_cell_is_still_rebuilt() {
    let expected = [
        "raw assistant thinking m1",
        "results m1=server only",
        "raw assistant asking m2",
        "results m2=the cell's result",
    ];
    for history in [
        vec![asks("", &["c1"]), gives(&["c1"])],
        vec![asks("", &["c2"])],
        vec![asks("", &["c2"]), gives(&["c1", "c2"])],
    ] {
        assert_eq!(shown(&rebuild(&history, &known())), expected);
    }
    assert!(shown(&rebuild(&[gives(&["c1"])], &known())).is_empty(), "results without their call");
}

#[test]
fn a_cell_that_is_not_over_is_shown_as_waiting() {
    let rebuilt = shown(&rebuild(&[asks("", &["c3"]), gives(&["c3"]), user("other")], &known()));
    assert_eq!(
        rebuilt[4..],
        ["raw assistant and m3", "results m3={\"status\":\"waiting\",\"runId\":\"cm_2\"}", "user other"]
    );
}

#[test]
fn calls_that_are_not_known_pass() {
    let history = [asks("x", &["foreign"]), gives(&["foreign"]), asks("", &["c1", "pinned"]), gives(&["c1", "pinned"])];
    let rebuilt = shown(&rebuild(&history, &known()));
    assert_eq!(rebuilt[..2], ["assistant x foreign", "results foreign=1"]);
    assert_eq!(rebuilt[6..], ["assistant  pinned", "results pinned=1"]);
}

#[test]
fn results_of_open_calls_follow_their_calls() {
    let history = vec![user("q"), asks("", &["m1", "m2"]), gives(&["m1"]), user("said meanwhile")];
    let joined = join(history, vec![gives(&["m2"]), user("next")]);
    assert_eq!(shown(&joined), ["user q", "assistant  m1 m2", "results m1=1 m2=1", "user said meanwhile", "user next"]);
    let joined = join(vec![asks("", &["m1"])], vec![gives(&["m1"]), user("next")]);
    assert_eq!(shown(&joined), ["assistant  m1", "results m1=1", "user next"]);
    assert_eq!(shown(&join(vec![said("x")], vec![user("y")])), ["assistant x ", "user y"]);
}

#[test]
fn a_message_during_a_call_follows_the_results_of_the_call() {
    let mut steps = vec![Step::Request(record().request().clone())];
    steps.extend(record().steps()[..2].iter().cloned());
    steps.insert(2, Step::Steered(vec![Part::Text("hurry".into())]));
    let record = TurnRecord::from_steps(steps).unwrap();
    let items = shown(&record.items());
    assert_eq!(items, ["user q", "raw assistant thinking m1", "results m1=server only", "user hurry"]);
}

#[test]
fn responses_are_recorded_one_for_each_time_that_the_client_sent_something() {
    let responses = record().responses();
    let text = |one: &RecordedResponse| -> String {
        let texts =
            one.said.iter().filter_map(|event| if let ModelEvent::Text(text) = event { Some(text) } else { None });
        texts.map(String::as_str).collect()
    };
    let shown: Vec<(String, Option<&str>, bool)> =
        responses.iter().map(|one| (text(one), one.calls.first().map(|call| call.id.as_str()), one.is_whole)).collect();
    let expected = [("thinking\n\nasking", "c1"), ("", "c2"), ("and", "c3")];
    assert_eq!(shown, expected.map(|(text, call)| (text.to_owned(), Some(call), true)));
    assert_eq!(with_answer(&[], "x", &responses[0].calls).len(), 1);
}
