use std::collections::HashMap;

use contract::ids::{CallId, RunId, TurnId};
use http::HeaderMap;
use serde_json::{Value, json};
use store::{DeliveryRow, TurnRow, TurnState};
use wire::Wire;
use wire::conversation::{CallResult, Part, StopReason};
use wire::downstream::{ClientCall, ClientRequest};

use super::decide::NOT_TAKEN;
use super::{
    ClientCallTurn, CutConversation, Decision, EqualRequestTurn, Lookups, RESEND_MS, RequestFacts, Start, decide,
};
use crate::turn::record::{ClientResults, DeliveredCall, Step, TurnEnd, TurnRecord, TurnRequest};

const NOW: i64 = 1_000_000_000;

fn row(state: TurnState) -> TurnRow {
    TurnRow {
        turn_id: TurnId::new("turn_1"),
        principal: "ada".into(),
        agent_id: "main".into(),
        session_id: "s".into(),
        parent: None,
        wire: "messages".into(),
        request_digest: "d".into(),
        state,
        steps: 1,
        holder: "h".into(),
        lease_until: 0,
        created_at: NOW - 1_000,
        updated_at: NOW - 1_000,
        expires_at: NOW + 1_000,
        bytes: 0,
    }
}

fn delivery(call_id: &str, round: u32, has_result: bool) -> DeliveryRow {
    DeliveryRow {
        call_id: call_id.into(),
        turn_id: TurnId::new("turn_1"),
        run_id: RunId::new("cm_1"),
        call: CallId(round + 1),
        round,
        sent_at: NOW - 500 + i64::from(round),
        answered_at: has_result.then_some(NOW - 100),
    }
}

/// Returns a turn that has delivered these rounds of calls. The given results end the first rounds.
fn turn_with_calls(state: TurnState, rounds: &[&[&str]], given: &[(&str, &str)]) -> ClientCallTurn {
    let request = TurnRequest::new("main", Wire::Messages, Vec::new());
    let (mut steps, mut deliveries) = (vec![Step::Request(request)], Vec::new());
    for (round, ids) in (0..).zip(rounds) {
        let client = |id: &&str| DeliveredCall {
            run_id: RunId::new("cm_1"),
            call: CallId(round + 1),
            client: ClientCall { id: (*id).into(), name: "f".into(), arguments: "{}".into() },
        };
        steps.push(Step::Delivered(ids.iter().map(client).collect()));
        let given = |id: &&str| given.iter().find(|(given, _)| given == id);
        deliveries.extend(ids.iter().map(|id| delivery(id, round, given(id).is_some())));
        let results: Vec<CallResult> =
            ids.iter().filter_map(given).map(|(id, text)| CallResult::text(*id, *text)).collect();
        if !results.is_empty() {
            steps.push(Step::Answered(ClientResults { results, said: Vec::new(), request: format!("answer {round}") }));
        }
    }
    if state == TurnState::Completed {
        steps.push(Step::Ended(TurnEnd::Completed(StopReason::EndTurn)));
    }
    let record = TurnRecord::from_steps(steps).unwrap();
    ClientCallTurn { row: row(state), deliveries, record, is_live: false }
}

fn request(messages: Value) -> ClientRequest {
    let body = json!({"model": "m", "max_tokens": 1, "messages": messages});
    ClientRequest::read(Wire::Messages, body.to_string().as_bytes()).unwrap()
}

/// Returns a request whose model's message has these calls, and which has these results and this text behind them.
fn request_with_results(calls: &[&str], results: &[(&str, &str)], text: &str) -> ClientRequest {
    let block = |id: &&str| json!({"type": "tool_use", "id": id, "name": "f", "input": {}});
    let result = |(id, text): &(&str, &str)| json!({"type": "tool_result", "tool_use_id": id, "content": text});
    let mut content: Vec<Value> = results.iter().map(result).collect();
    if !text.is_empty() {
        content.push(json!({"type": "text", "text": text}));
    }
    request(json!([
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": calls.iter().map(block).collect::<Vec<_>>()},
        {"role": "user", "content": content},
    ]))
}

fn facts(digest: &str) -> RequestFacts {
    RequestFacts { principal: "ada".into(), agent: "main".into(), digest: digest.into(), ..RequestFacts::default() }
}

fn retried(digest: &str) -> RequestFacts {
    RequestFacts { retry_count: 1, ..facts(digest) }
}

fn lookups(turn: ClientCallTurn) -> Lookups {
    let calls = turn.deliveries.iter().map(|one| (one.call_id.clone(), one.turn_id.clone()));
    Lookups { now: NOW, calls: calls.collect(), client_calls: Some(turn), ..Lookups::default() }
}

fn equal_request(state: TurnState, has_delivered: bool, is_live: bool) -> Lookups {
    let equal_request = Some(EqualRequestTurn { row: row(state), has_delivered, is_live });
    Lookups { now: NOW, equal_request, ..Lookups::default() }
}

/// Returns a decision in few words.
fn shown(decision: Decision) -> String {
    let late = |late: &[super::LateResult]| {
        let ids: Vec<&str> = late.iter().map(|one| one.delivery.call_id.as_str()).collect();
        if ids.is_empty() { String::new() } else { format!(", late {}", ids.join(" ")) }
    };
    match decision {
        Decision::Start(Start { parent, items, fork, late: given }) => {
            let parent = parent.map(|turn| format!(" after {}", turn.as_str())).unwrap_or_default();
            let fork = fork.map(|turn| format!(" within {}", turn.as_str())).unwrap_or_default();
            format!("start{parent}{fork} with {}{}", items.len(), late(&given))
        }
        Decision::Continue { results: sent, late: given, .. } => {
            let text = |parts: &[Part]| match parts {
                [Part::Text(text)] => text.clone(),
                other => format!("{other:?}"),
            };
            let of = |result: &CallResult| {
                let kind = if result.is_error { "!" } else { "=" };
                format!("{}{kind}{}", result.call_id, text(&result.parts))
            };
            let results: Vec<String> = sent.results.iter().map(of).collect();
            let said: Vec<String> = sent.said.iter().map(|parts| format!(" says {}", text(parts))).collect();
            format!("continue {}{}{}", results.join(" "), said.concat(), late(&given))
        }
        Decision::Join(turn) => format!("join {}", turn.as_str()),
        Decision::Resume(row) => format!("resume {}", row.turn_id.as_str()),
        Decision::Resend { response, .. } => format!("resend {response}"),
        Decision::Refuse(error) => format!("{} {}", error.status, error.message.chars().take(90).collect::<String>()),
    }
}

#[test]
fn an_equal_request_joins_a_turn_in_progress_and_otherwise_begins_a_new_one_unless_it_is_a_retry() {
    let question = request(json!([{"role": "user", "content": "q"}]));
    let cases = [
        (TurnState::Running, false, true, "join turn_1", "join turn_1"),
        (TurnState::Running, false, false, "resume turn_1", "resume turn_1"),
        // The client received the whole first response, and the turn continued with its results.
        (TurnState::Running, true, true, "start with 1", "resend 0"),
        (TurnState::Waiting, true, false, "start with 1", "resend 0"),
        (TurnState::Completed, false, false, "start with 1", "resend 0"),
        (TurnState::Completed, true, false, "start with 1", "resend 0"),
        // A client retries a request because it failed.
        (TurnState::Failed, false, false, "start with 1", "start with 1"),
        (TurnState::Aborted, false, false, "start with 1", "start with 1"),
    ];
    for (state, has_delivered, is_live, first, again) in cases {
        let lookups = equal_request(state, has_delivered, is_live);
        let case = format!("{state:?} {has_delivered} {is_live}");
        assert_eq!(shown(decide(&question, &facts("d"), &lookups)), first, "{case}");
        assert_eq!(shown(decide(&question, &retried("d"), &lookups)), again, "{case}");
        let keyed = RequestFacts { idempotency_key: Some("k".into()), ..facts("d") };
        assert_eq!(shown(decide(&question, &keyed, &lookups)), again, "{case}");
    }
    let mut old = equal_request(TurnState::Completed, false, false);
    old.now += RESEND_MS;
    assert_eq!(shown(decide(&question, &retried("d"), &old)), "start with 1");
}

#[test]
fn results_of_all_open_calls_continue_the_turn() {
    let open = || lookups(turn_with_calls(TurnState::Waiting, &[&["c1", "c2"]], &[]));
    let all = [("c2", "2"), ("c1", "1")];
    let cases = [
        (request_with_results(&["c1", "c2"], &all, ""), "continue c2=2 c1=1"),
        (request_with_results(&["c1", "c2"], &all, "and hurry"), "continue c2=2 c1=1 says and hurry"),
        // A result of a call that is not known is as if it were not there.
        (request_with_results(&["c1", "c2"], &[("c2", "2"), ("c1", "1"), ("foreign", "3")], ""), "continue c2=2 c1=1"),
        // Equal results count once; of different ones, the first counts.
        (request_with_results(&["c1", "c2"], &[("c2", "2"), ("c1", "1"), ("c1", "1")], ""), "continue c2=2 c1=1"),
        (
            request_with_results(&["c1", "c2"], &[("c2", "2"), ("c1", "1"), ("c1", "9")], ""),
            "continue c2=2 c1=1, late c1",
        ),
    ];
    for (request, expected) in cases {
        assert_eq!(shown(decide(&request, &facts("d"), &open())), expected);
    }
}

#[test]
fn results_of_a_later_round_need_not_repeat_those_of_earlier_rounds() {
    let turn = turn_with_calls(TurnState::Waiting, &[&["c1"], &["c2"]], &[("c1", "1")]);
    assert_eq!(
        shown(decide(&request_with_results(&["c2"], &[("c2", "2")], ""), &facts("d"), &lookups(turn))),
        "continue c2=2"
    );
}

#[test]
fn missing_results_are_refused_in_the_vendors_words() {
    let open = || lookups(turn_with_calls(TurnState::Waiting, &[&["c1", "c2"]], &[]));
    let refused = "400 tool_use ids were found without tool_result blocks immediately after: c2. Each tool_use bl";
    assert_eq!(shown(decide(&request_with_results(&["c1", "c2"], &[("c1", "1")], ""), &facts("d"), &open())), refused);
    let none = shown(decide(&request_with_results(&["c1", "c2"], &[], "never mind"), &facts("d"), &open()));
    assert!(none.starts_with("400 tool_use ids were found") && none.contains("c1, c2"), "{none}");
    // With a named response, the client does not show the model's message.
    let named = RequestFacts { named_parent: Some(TurnId::new("turn_1")), ..facts("d") };
    let body = json!({"model": "m", "input": [{"type": "function_call_output", "call_id": "c1", "output": "1"}]});
    let request = ClientRequest::read(Wire::Responses, body.to_string().as_bytes()).unwrap();
    let mut known = open();
    known.named = Some((row(TurnState::Waiting), known.client_calls.as_ref().unwrap().deliveries.clone()));
    assert_eq!(shown(decide(&request, &named, &known)), "400 No tool output found for function call c2.");
    let body = json!({"model": "m", "input": "never mind"});
    let request = ClientRequest::read(Wire::Responses, body.to_string().as_bytes()).unwrap();
    known.client_calls = None;
    assert_eq!(shown(decide(&request, &named, &known)), "400 No tool output found for function call c1, c2.");
}

#[test]
fn calls_that_did_not_arrive_are_settled_as_not_taken() {
    let open = || lookups(turn_with_calls(TurnState::Waiting, &[&["c1", "c2"]], &[]));
    let some = shown(decide(&request_with_results(&["c1"], &[("c1", "1")], "cut off"), &facts("d"), &open()));
    assert_eq!(some, format!("continue c1=1 c2!{NOT_TAKEN} says cut off"));
    let none = request(json!([
        {"role": "user", "content": "q"}, {"role": "assistant", "content": "I look."}, {"role": "user", "content": "cut off"},
    ]));
    let deliveries = vec![delivery("c1", 0, false)];
    let cut = |state| Some(CutConversation { end: 2, row: row(state), deliveries: deliveries.clone() });
    let known = Lookups { now: NOW, cut: cut(TurnState::Waiting), ..Lookups::default() };
    assert_eq!(shown(decide(&none, &facts("d"), &known)), format!("continue c1!{NOT_TAKEN} says cut off"));
    let over = Lookups { now: NOW, cut: cut(TurnState::Completed), ..Lookups::default() };
    assert_eq!(shown(decide(&none, &facts("d"), &over)), "start with 3");
}

#[test]
fn results_that_were_settled_begin_a_new_turn_unless_the_request_is_a_retry() {
    let running = |is_live| {
        let turn = turn_with_calls(TurnState::Running, &[&["c1"]], &[("c1", "1")]);
        lookups(ClientCallTurn { is_live, ..turn })
    };
    let same = || request_with_results(&["c1"], &[("c1", "1")], "");
    assert_eq!(shown(decide(&same(), &facts("answer 0"), &running(true))), "join turn_1");
    assert_eq!(shown(decide(&same(), &facts("answer 0"), &running(false))), "resume turn_1");
    let other = request_with_results(&["c1"], &[("c1", "1")], "summarize this conversation");
    assert_eq!(shown(decide(&other, &facts("d"), &running(true))), "start with 4");
    let contradiction = request_with_results(&["c1"], &[("c1", "9")], "");
    assert_eq!(shown(decide(&contradiction, &facts("d"), &running(true))), "start with 3, late c1");
    let over = || lookups(turn_with_calls(TurnState::Completed, &[&["c1"]], &[("c1", "1")]));
    assert_eq!(shown(decide(&same(), &facts("answer 0"), &over())), "start with 3");
    assert_eq!(shown(decide(&same(), &retried("answer 0"), &over())), "resend 1");
    let mut old = over();
    old.now += RESEND_MS;
    assert_eq!(shown(decide(&same(), &retried("answer 0"), &old)), "start with 3");
}

#[test]
fn results_of_an_older_round_leave_the_open_calls_as_they_are() {
    let turn = || lookups(turn_with_calls(TurnState::Waiting, &[&["c1"], &["c2"]], &[("c1", "1")]));
    let rewound = request_with_results(&["c1"], &[("c1", "1")], "other");
    assert_eq!(shown(decide(&rewound, &facts("d"), &turn())), "start with 4");
    // The response with the newer calls is resent, if the client has lost it.
    assert_eq!(
        shown(decide(&request_with_results(&["c1"], &[("c1", "1")], ""), &retried("answer 0"), &turn())),
        "resend 1"
    );
}

#[test]
fn results_after_the_expiry_of_the_turn_begin_a_new_turn_and_are_recorded_as_late() {
    let expired = || lookups(turn_with_calls(TurnState::Failed, &[&["c1"]], &[]));
    assert_eq!(
        shown(decide(&request_with_results(&["c1"], &[("c1", "1")], ""), &facts("d"), &expired())),
        "start with 3, late c1"
    );
    let mut due = lookups(turn_with_calls(TurnState::Waiting, &[&["c1"]], &[]));
    due.now = NOW + 1_000;
    assert_eq!(
        shown(decide(&request_with_results(&["c1"], &[("c1", "1")], ""), &facts("d"), &due)),
        "start with 3, late c1"
    );
}

#[test]
fn a_conversation_continues_after_its_longest_known_beginning() {
    let items = json!([
        {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}, {"role": "user", "content": "next"},
    ]);
    let unknown = Lookups { now: NOW, ..Lookups::default() };
    assert_eq!(shown(decide(&request(items.clone()), &facts("d"), &unknown)), "start with 3");
    let known = Lookups { conversation: Some((2, TurnId::new("turn_1"))), ..unknown };
    assert_eq!(shown(decide(&request(items), &facts("d"), &known)), "start after turn_1 with 1");
}

#[test]
fn a_named_response_is_continued_and_one_in_the_middle_of_its_turn_is_forked() {
    let over = turn_with_calls(TurnState::Completed, &[&["c1"]], &[("c1", "1")]);
    let named = Some((row(TurnState::Completed), over.deliveries.clone()));
    let facts = RequestFacts { named_parent: Some(TurnId::new("turn_1")), ..facts("d") };
    let next = request(json!([{"role": "user", "content": "next"}]));
    let known = Lookups { now: NOW, named: named.clone(), ..Lookups::default() };
    assert_eq!(shown(decide(&next, &facts, &known)), "start after turn_1 with 1");
    let forked =
        request(json!([{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "1"}]}]));
    let known = Lookups { named, ..lookups(over) };
    assert_eq!(shown(decide(&forked, &facts, &known)), "start within turn_1 with 1");
}

#[test]
fn headers_tell_whether_a_request_may_be_a_retry() {
    let read = |headers: &[(&'static str, &'static str)]| {
        let map: HashMap<_, _> = headers.iter().copied().collect();
        let mut given = HeaderMap::new();
        map.into_iter().for_each(|(name, value)| drop(given.insert(name, value.parse().unwrap())));
        RequestFacts::from_headers("ada", "main", "/v1/messages", &given, b"{}")
    };
    let plain = read(&[]);
    assert!(!plain.may_be_retry() && !read(&[("x-stainless-retry-count", "0")]).may_be_retry());
    let again = read(&[("x-stainless-retry-count", "2")]);
    assert!(again.may_be_retry() && again.digest == plain.digest);
    let keyed = read(&[("idempotency-key", "k")]);
    assert!(keyed.may_be_retry() && keyed.digest != plain.digest, "another key is another request");
    assert!(!read(&[("x-stainless-retry-count", "-1"), ("idempotency-key", " ")]).may_be_retry());
}
