//! Tools of clients: calls from cells, their results in later requests, repeated requests, forks and restarts.

use std::time::Duration;

use catalog::SurfaceChoice;
use executor::clock::now_ms;
use gateway::turn::EndRecord;
use gateway::turn::record::{ClientResults, Step};
use gateway::{Abandonment, TurnError};
use mcp::server::ApprovalPolicy;
use serde_json::{Value, json};
use store::{ApprovalScope, Decision, Durability, EntryKind, NewStep, RunState, TurnChange, TurnState};
use testkit::model::{Api, Condition, RUN_ID, Reply};
use wire::Wire;
use wire::conversation::CallResult;

use crate::answer::{Answer, Asked};
use crate::world::{BOB, Form, Options, RUNNER, WIRES, World, conversation, exec, path, question, wait_until};

/// A cell with two rounds: two calls at once, then one that depends on them.
const TWO_ROUNDS: &str = "
    const look = (q) => tools.call('client:app:lookup', {q});
    const [a, b] = await Promise.all([look(1), look(2)]);
    return 'sum ' + await look(a + b);";

const ONE_CALL: &str = "return 'got ' + await tools.call('client:app:lookup', {q: 1})";

/// A conversation of a client that has tools.
pub(crate) struct Talk {
    pub(crate) wire: Wire,
    messages: Vec<Value>,
    tools: Vec<(String, Value)>,
}

impl Talk {
    pub(crate) fn new(wire: Wire, text: &str) -> Self {
        let schema = json!({"type": "object", "properties": {"q": {"type": "number"}}, "required": ["q"]});
        let messages = vec![json!({"role": "user", "content": text})];
        Self { wire, messages, tools: vec![("lookup".to_owned(), schema)] }
    }

    pub(crate) fn body(&self) -> Value {
        let mut body = conversation(self.wire, Form::Whole, self.messages.clone());
        let tool = |(name, schema): &(String, Value)| match self.wire {
            Wire::Chat => json!({"type": "function", "function": {"name": name, "parameters": schema}}),
            Wire::Responses => json!({"type": "function", "name": name, "parameters": schema}),
            Wire::Messages => json!({"name": name, "input_schema": schema}),
        };
        body["tools"] = self.tools.iter().map(tool).collect();
        body
    }

    async fn ask(&self, world: &World) -> Answer {
        world.ask(self.wire, &self.body()).await
    }

    /// Sends the request as one that is repeated.
    async fn ask_again(&self, world: &World) -> Answer {
        let request = world.request(path(self.wire), &self.body()).header("x-stainless-retry-count", "1");
        Answer::read(self.wire, request.send().await.unwrap()).await
    }

    /// Adds the model's message and these results.
    pub(crate) fn answer(&mut self, answer: &Answer, results: &[(&Asked, Value)]) {
        self.messages.extend(answer.as_history());
        self.give(results);
    }

    fn give(&mut self, results: &[(&Asked, Value)]) {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let given = results.iter().map(|(call, value)| (call.id.clone(), text(value)));
        match self.wire {
            Wire::Chat => self
                .messages
                .extend(given.map(|(id, text)| json!({"role": "tool", "tool_call_id": id, "content": text}))),
            Wire::Responses => self
                .messages
                .extend(given.map(|(id, text)| json!({"type": "function_call_output", "call_id": id, "output": text}))),
            Wire::Messages => {
                let blocks: Vec<Value> = given
                    .map(|(id, text)| json!({"type": "tool_result", "tool_use_id": id, "content": text}))
                    .collect();
                self.messages.push(json!({"role": "user", "content": blocks}));
            }
        }
    }

    fn say(&mut self, text: &str) {
        self.messages.push(json!({"role": "user", "content": text}));
    }
}

fn body_text(request: &testkit::model::RecordedRequest) -> String {
    String::from_utf8(request.body.clone()).unwrap()
}

/// Starts a turn that waits for one call of the client.
async fn parked(wire: Wire, code: &str, more: Vec<Reply>) -> (World, Talk, Answer) {
    let mut script = vec![exec(code)];
    script.extend(more);
    let world = World::start(Options::default(), script).await;
    let talk = Talk::new(wire, "look it up");
    let answer = talk.ask(&world).await;
    assert_eq!(answer.status, 200, "{}", answer.raw);
    assert!(!answer.calls().is_empty(), "{}", answer.raw);
    (world, talk, answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cell_calls_tools_of_the_client_in_two_rounds_and_the_model_is_asked_twice() {
    for wire in WIRES {
        let (world, mut talk, first) = parked(wire, TWO_ROUNDS, vec![Reply::text("done")]).await;
        let calls = first.calls();
        let asked: Vec<&Value> = calls.iter().map(|call| &call.arguments["q"]).collect();
        assert_eq!(asked, [1, 2], "{wire:?}");
        talk.answer(&first, &[(&calls[1], json!(20)), (&calls[0], json!(10))]);
        let second = talk.ask(&world).await;
        let calls = second.calls();
        assert_eq!((calls.len(), &calls[0].arguments["q"]), (1, &json!(30)), "{}", second.raw);
        assert_eq!(world.model.requests().len(), 1, "no model call between the rounds");
        talk.answer(&second, &[(&calls[0], json!("red"))]);
        let third = talk.ask(&world).await;
        assert_eq!((third.text().as_str(), third.calls().len()), ("done", 0), "{}", third.raw);
        let requests = world.model.requests();
        assert_eq!(requests.len(), 2);
        assert!(body_text(&requests[1]).contains("sum red"), "{}", body_text(&requests[1]));
        assert!(!body_text(&requests[1]).contains("lookup\",\"parameters"), "the model sees no tool of the client");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_cell_calls_tools_of_the_client_and_of_the_server() {
    let code = "const [a, b] = await Promise.all([tools.call('client:app:lookup', {q: 1}), tools.add({a: 1})]);
        return [a, b]";
    let (world, mut talk, first) = parked(Wire::Messages, code, vec![Reply::text("done")]).await;
    talk.answer(&first, &[(&first.calls()[0], json!(7))]);
    assert_eq!(talk.ask(&world).await.text(), "done");
    assert!(body_text(&world.model.requests()[1]).contains("[7,42]"), "{}", body_text(&world.model.requests()[1]));
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_the_client_are_sent_while_a_slow_call_of_the_server_is_in_progress() {
    let code = "const look = (q) => tools.call('client:app:lookup', {q});
        const [seen] = await Promise.all([look(1).then(look), tools.slow({})]); return seen";
    let tools = json!([{"id": "openclaw:core:slow", "answers": [{"never": true}]}]);
    for wire in WIRES {
        let options = Options {
            tools: tools.clone(),
            gateway: json!({"clientToolWaitMs": 20}),
            tools_config: json!({"codeMode": {"enabled": true, "maxWaitMs": 600_000}}),
            ..Options::default()
        };
        let world = World::start(options, vec![exec(code)]).await;
        let mut talk = Talk::new(wire, "look it up");
        for (round, asked) in [1, 20].into_iter().enumerate() {
            let answer = talk.ask(&world).await;
            let calls = answer.calls();
            assert_eq!((calls.len(), &calls[0].arguments["q"]), (1, &json!(asked)), "{round}: {}", answer.raw);
            talk.answer(&answer, &[(&calls[0], json!(20))]);
        }
        assert_eq!(world.model.requests().len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_the_client_that_follow_a_quick_call_of_the_server_are_sent_in_the_same_round() {
    let code = "const look = (q) => tools.call('client:app:lookup', {q});
        return await Promise.all([look(1), tools.quick({}).then(() => look(2))])";
    let tools = json!([{"id": "openclaw:core:quick", "answers": [{"returns": 1, "afterMs": 60}]}]);
    let gateway = json!({"clientToolWaitMs": 60_000});
    let world = World::start(Options { tools, gateway, ..Options::default() }, vec![exec(code)]).await;
    let first = Talk::new(Wire::Chat, "look it up").ask(&world).await;
    let asked: Vec<Value> = first.calls().iter().map(|call| call.arguments["q"].clone()).collect();
    assert_eq!(asked, [1, 2], "{}", first.raw);
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_results_are_refused_and_settle_nothing() {
    let (world, mut talk, first) = parked(Wire::Messages, TWO_ROUNDS, vec![]).await;
    let calls = first.calls();
    talk.messages.extend(first.as_history());
    let before = talk.messages.len();
    talk.give(&[(&calls[0], json!(1))]);
    let refused = talk.ask(&world).await;
    assert_eq!(refused.status, 400, "{}", refused.raw);
    assert!(refused.error().unwrap().contains(&calls[1].id), "{}", refused.raw);
    talk.messages.truncate(before);
    talk.give(&[(&calls[0], json!(5)), (&calls[1], json!(6))]);
    assert_eq!(talk.ask(&world).await.calls()[0].arguments["q"], 11, "the refused result was not used");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_principal_cannot_answer_a_call_nor_learn_that_it_exists() {
    let (world, mut talk, first) = parked(Wire::Chat, ONE_CALL, vec![Reply::text("who?"), Reply::text("done")]).await;
    talk.answer(&first, &[(&first.calls()[0], json!("forged"))]);
    let forged = world.client.post(format!("{}{}", world.base, path(Wire::Chat))).bearer_auth(BOB).json(&talk.body());
    let forged = Answer::read(Wire::Chat, forged.send().await.unwrap()).await;
    assert_eq!((forged.status, forged.text().as_str()), (200, "who?"), "{}", forged.raw);
    talk.messages.pop();
    talk.give(&[(&first.calls()[0], json!("mine"))]);
    assert_eq!(talk.ask(&world).await.text(), "done");
    let last = body_text(world.model.requests().last().unwrap());
    assert!(last.contains("got mine") && !last.contains("forged"), "{last}");
}

#[tokio::test(flavor = "multi_thread")]
async fn results_that_were_settled_give_the_model_the_recorded_result_of_the_cell() {
    for wire in WIRES {
        let (world, mut talk, first) = parked(wire, ONE_CALL, vec![Reply::text("done"), Reply::text("summary")]).await;
        talk.answer(&first, &[(&first.calls()[0], json!("red"))]);
        assert_eq!(talk.ask(&world).await.text(), "done");
        talk.say("summarize all that");
        assert_eq!(talk.ask(&world).await.text(), "summary");
        let requests = world.model.requests();
        let (second, third) = (body_text(&requests[1]), body_text(&requests[2]));
        assert!(third.contains("got red") && third.contains("summarize all that"), "{third}");
        assert!(!third.contains(&first.calls()[0].id), "{wire:?}: the client's call is not shown to the model");
        let same = second.bytes().zip(third.bytes()).take_while(|(a, b)| a == b).count();
        assert!(same + 200 > second.len(), "{wire:?}: the same history has the same bytes:\n{second}\n{third}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn results_of_an_older_round_leave_the_newer_calls_open() {
    let (world, mut talk, first) =
        parked(Wire::Messages, TWO_ROUNDS, vec![Reply::text("aside"), Reply::text("done")]).await;
    let calls = first.calls();
    talk.answer(&first, &[(&calls[0], json!(1)), (&calls[1], json!(2))]);
    let second = talk.ask(&world).await;
    let mut rewound = Talk { messages: talk.messages.clone(), ..Talk::new(Wire::Messages, "") };
    rewound.say("what have you done so far?");
    assert_eq!(rewound.ask(&world).await.text(), "aside");
    let aside = body_text(&world.model.requests()[1]);
    assert!(aside.contains("waiting") && aside.contains("runId"), "{aside}");
    talk.answer(&second, &[(&second.calls()[0], json!("late but right"))]);
    assert_eq!(talk.ask(&world).await.text(), "done");
    let last = body_text(&world.model.requests()[2]);
    assert!(last.contains("sum late but right"), "{last}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_request_gets_the_recorded_response_and_an_equal_question_a_new_one() {
    let (world, mut talk, first) =
        parked(Wire::Messages, ONE_CALL, vec![Reply::text("done"), Reply::text("once more")]).await;
    let again = talk.ask_again(&world).await;
    assert_eq!(again.calls(), first.calls(), "{}", again.raw);
    talk.answer(&first, &[(&first.calls()[0], json!("red"))]);
    assert_eq!(talk.ask(&world).await.text(), "done");
    assert_eq!(talk.ask_again(&world).await.text(), "done");
    assert_eq!(world.model.requests().len(), 2);
    assert_eq!(talk.ask(&world).await.text(), "once more");
    assert_eq!(world.model.requests().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_requests_at_once_are_one_turn() {
    let slow = Reply { delay_ms: 300, ..Reply::text("one answer") };
    let world = World::start(Options::default(), vec![slow]).await;
    let body = question(Wire::Chat, Form::Stream, "hello");
    let asks = (0..4).map(|_| world.ask(Wire::Chat, &body));
    let answers = futures_util::future::join_all(asks).await;
    assert!(answers.iter().all(|answer| answer.text() == "one answer"), "{answers:?}");
    assert_eq!(world.model.requests().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_results_at_once_continue_the_turn_once() {
    let slow = Reply { delay_ms: 300, ..Reply::text("done") };
    let (world, mut talk, first) = parked(Wire::Messages, ONE_CALL, vec![slow]).await;
    talk.answer(&first, &[(&first.calls()[0], json!("red"))]);
    let answers = futures_util::future::join_all((0..4).map(|_| talk.ask(&world))).await;
    assert!(answers.iter().all(|answer| answer.text() == "done"), "{answers:?}");
    assert_eq!(world.model.requests().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn results_of_a_round_that_another_node_has_answered_are_not_taken_again() {
    let (world, mut talk, first) = parked(Wire::Messages, TWO_ROUNDS, vec![Reply::text("done")]).await;
    let beside = World::start_beside(&world, Options::default(), Vec::new()).await;
    let calls = first.calls();
    let turn_id = world.store.deliveries("ada", &[calls[0].id.clone()]).await.unwrap().remove(0).turn_id;
    // As another node has read it, before the client's results arrived here.
    let stale = world.store.turn(&turn_id).await.unwrap().unwrap();
    talk.answer(&first, &[(&calls[0], json!(10)), (&calls[1], json!(20))]);
    let second = talk.ask(&world).await;
    let results = calls.iter().map(|call| CallResult::text(&call.id, "10".to_owned())).collect();
    let sent = ClientResults { results, said: Vec::new(), request: "the same".to_owned() };
    let refused =
        beside.gateway.continue_turn(&stale, sent, Abandonment::Abort, Box::new(|_| EndRecord::default())).await;
    assert!(matches!(refused, Err(TurnError::HeldElsewhere)), "{refused:?}");
    let row = world.store.turn(&turn_id).await.unwrap().unwrap();
    assert_eq!((row.state, row.lease_until), (TurnState::Waiting, 0), "the turn still waits for its newer call");
    talk.answer(&second, &[(&second.calls()[0], json!("red"))]);
    assert_eq!(talk.ask(&world).await.text(), "done");
}

#[tokio::test(flavor = "multi_thread")]
async fn contradictory_results_are_recorded_and_do_not_change_the_first() {
    let (world, mut talk, first) =
        parked(Wire::Messages, ONE_CALL, vec![Reply::text("done"), Reply::text("again")]).await;
    talk.messages.extend(first.as_history());
    let before = talk.messages.len();
    talk.give(&[(&first.calls()[0], json!("first"))]);
    assert_eq!(talk.ask(&world).await.text(), "done");
    talk.messages.truncate(before);
    talk.give(&[(&first.calls()[0], json!("second"))]);
    assert_eq!(talk.ask(&world).await.text(), "again");
    let last = body_text(&world.model.requests()[2]);
    assert!(last.contains("got first") && !last.contains("second"), "{last}");
    let turns = world.store.deliveries("ada", &[first.calls()[0].id.clone()]).await.unwrap();
    let row = world.store.turn(&turns[0].turn_id).await.unwrap().unwrap();
    let notes = world.store.transcript(&row.session_id).await.unwrap();
    let is_late =
        |entry: &store::Entry| entry.entry["note"] == "late_result" && entry.entry["callId"] == first.calls()[0].id;
    assert_eq!(notes.iter().filter(|entry| is_late(entry)).count(), 1, "{notes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_the_client_dropped_is_settled_as_not_taken() {
    let code = "try { return await tools.call('client:app:lookup', {q: 1}) } catch (error) { return error.message }";
    let reply = Reply { text: "I look.".into(), ..exec(code) };
    let world = World::start(Options::default(), vec![reply, Reply::text("sorry")]).await;
    let mut talk = Talk::new(Wire::Messages, "look it up");
    let first = talk.ask(&world).await;
    assert_eq!((first.text().as_str(), first.calls().len()), ("I look.", 1));
    talk.messages.push(json!({"role": "assistant", "content": "I look."}));
    talk.say("Your response above was cut off mid-stream. Continue.");
    assert_eq!(talk.ask(&world).await.text(), "sorry");
    let second = body_text(&world.model.requests()[1]);
    assert!(second.contains("the client did not take this call") && second.contains("cut off"), "{second}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_history_without_known_ids_begins_a_new_turn_and_the_parked_run_waits() {
    let (world, mut talk, first) =
        parked(Wire::Messages, ONE_CALL, vec![Reply::text("fresh"), Reply::text("done")]).await;
    let compacted = Talk::new(Wire::Messages, "Summary of the conversation so far: we looked something up. Go on.");
    assert_eq!(compacted.ask(&world).await.text(), "fresh");
    talk.answer(&first, &[(&first.calls()[0], json!("red"))]);
    assert_eq!(talk.ask(&world).await.text(), "done");
}

#[tokio::test(flavor = "multi_thread")]
async fn results_after_the_expiry_are_accepted_and_the_model_learns_that_the_cell_has_expired() {
    let (world, mut talk, first) = parked(Wire::Messages, ONE_CALL, vec![Reply::text("too late")]).await;
    let later = now_ms() + 86_500_000;
    world.store.expire(later).await.unwrap();
    assert_eq!(world.gateway.sweep(later).await.unwrap(), 1);
    talk.answer(&first, &[(&first.calls()[0], json!("red"))]);
    let answer = talk.ask(&world).await;
    assert_eq!((answer.status, answer.text().as_str()), (200, "too late"), "{}", answer.raw);
    let second = body_text(&world.model.requests()[1]);
    assert!(second.contains("snapshot_expired") && !second.contains("got red"), "{second}");
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_that_do_not_fit_the_schema_do_not_reach_the_client() {
    let code = "try { return await tools.call('client:app:lookup', {q: 'x'}) } catch (error) { return 'refused' }";
    let world = World::start(Options::default(), vec![exec(code), Reply::text("done")]).await;
    let answer = Talk::new(Wire::Chat, "look").ask(&world).await;
    assert_eq!((answer.text().as_str(), answer.calls().len()), ("done", 0), "{}", answer.raw);
    assert!(body_text(&world.model.requests()[1]).contains("refused"));
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_of_the_client_named_like_control_tools_can_be_called() {
    for name in ["exec", "wait", "tool_call"] {
        let code = format!("return 'got ' + await tools.call('client:app:{name}', {{q: 1}})");
        let world = World::start(Options::default(), vec![exec(&code), Reply::text("done")]).await;
        let mut talk = Talk::new(Wire::Chat, "look");
        talk.tools[0].0 = name.to_owned();
        let first = talk.ask(&world).await;
        assert_eq!(first.calls()[0].name, name, "{}", first.raw);
        talk.answer(&first, &[(&first.calls()[0], json!("it"))]);
        assert_eq!(talk.ask(&world).await.text(), "done");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_of_the_client_can_be_called_directly_and_with_tool_search() {
    let direct = Reply::call("lookup", json!({"q": 1}));
    let search = Reply::call("tool_call", json!({"id": "client:app:lookup", "args": {"q": 1}}));
    for (surface, call) in [(SurfaceChoice::Direct, direct), (SurfaceChoice::Search, search)] {
        let tools_config = json!({"toolSearch": {"mode": "tools"}});
        let options = Options { surface: Some(surface), tools_config, ..Options::default() };
        let world = World::start(options, vec![call, Reply::text("done")]).await;
        let mut talk = Talk::new(Wire::Messages, "look");
        let first = talk.ask(&world).await;
        assert_eq!(first.calls().len(), 1, "{surface:?} {}", first.raw);
        talk.answer(&first, &[(&first.calls()[0], json!("red"))]);
        let second = talk.ask(&world).await;
        assert_eq!(second.text(), "done", "{surface:?} {}", second.raw);
        assert!(body_text(&world.model.requests()[1]).contains("red"), "{surface:?}");
        if surface == SurfaceChoice::Search {
            // The call waited for the client in between, and is still one call with one result.
            let delivered = world.store.deliveries("ada", &[first.calls()[0].id.clone()]).await.unwrap();
            let turn = world.store.turn(&delivered[0].turn_id).await.unwrap().unwrap();
            let entries = world.store.transcript(&turn.session_id).await.unwrap();
            let middle = entries
                .iter()
                .map(|entry| entry.kind.as_str())
                .filter(|kind| ["control_call", "tool_call", "tool_result", "control_result"].contains(kind));
            let middle: Vec<&str> = middle.collect();
            assert_eq!(middle, ["control_call", "tool_call", "tool_result", "control_result"], "{entries:?}");
        }
    }
}

/// A program of `tool_search_code` ends before a client can answer, so its call fails at once instead of at its timeout.
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_of_the_client_in_tool_search_code_fails_at_once_with_what_to_do() {
    let code = "const [hit] = await openclaw.tools.search('lookup');
        try { return await openclaw.tools.call(hit.id, {q: 1}) } catch (error) { return 'refused: ' + error.message }";
    let search = Reply::call("tool_search_code", json!({"code": code}));
    let tools_config = json!({"toolSearch": {"mode": "code", "codeTimeoutMs": 60_000}});
    for wire in WIRES {
        let options =
            Options { surface: Some(SurfaceChoice::Search), tools_config: tools_config.clone(), ..Options::default() };
        let world = World::start(options, vec![search.clone(), Reply::text("done")]).await;
        let answer = Talk::new(wire, "look").ask(&world).await;
        assert_eq!((answer.text().as_str(), answer.calls().len()), ("done", 0), "{wire:?} {}", answer.raw);
        let result = body_text(&world.model.requests()[1]);
        for part in ["refused: ", "tool of the user's application", "the call was not made", "tools.codeMode"] {
            assert!(result.contains(part), "{wire:?}: {part} in {result}");
        }
        assert!(!result.contains("timed out"), "{wire:?}: {result}");
    }
}

fn with_approvals(hold_seconds: u64) -> Options {
    Options {
        approvals: ApprovalPolicy::ChangesAnd(vec![
            contract::config::pattern::Pattern::parse("openclaw:core:add").unwrap(),
        ]),
        gateway: json!({"holdSeconds": hold_seconds}),
        ..Options::default()
    }
}

async fn approve_all(world: &World) {
    let pending = wait_for_approvals(world).await;
    for approval in pending {
        let decision = Decision::Approve { edited_input: None, reach: ApprovalScope::Once };
        world.gateway.code_mode().decide(&approval.approval_id, &decision, "operator").await.unwrap();
    }
}

async fn wait_for_approvals(world: &World) -> Vec<store::Approval> {
    for _ in 0..6_000 {
        let pending = world.store.pending_approvals().await.unwrap();
        if !pending.is_empty() {
            return pending;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("no approval was requested");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_waits_for_an_approval_without_asking_the_model() {
    let script = vec![exec("return 'sum ' + await tools.add({a: 1})"), Reply::text("approved")];
    let world = World::start(with_approvals(240), script).await;
    let body = question(Wire::Chat, Form::Whole, "add");
    let (answer, ()) = tokio::join!(world.ask(Wire::Chat, &body), approve_all(&world));
    assert_eq!(answer.text(), "approved", "{}", answer.raw);
    assert_eq!(world.model.requests().len(), 2);
    assert!(body_text(&world.model.requests()[1]).contains("sum 42"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_only_runs_turns_cannot_approve_on_any_wire() {
    for wire in WIRES {
        let script = vec![exec("return await tools.add({a: 1})"), Reply { times: Some(9), ..Reply::text("I wait") }];
        let world = World::start(with_approvals(1), script).await;
        let send = async |body: Value| {
            let url = format!("{}{}", world.base, path(wire));
            Answer::read(wire, world.client.post(url).bearer_auth(RUNNER).json(&body).send().await.unwrap()).await
        };
        let mut talk = Talk::new(wire, "add");
        let held = send(talk.body()).await;
        let approval = wait_for_approvals(&world).await.remove(0).approval_id;
        assert!(held.text().contains(approval.as_str()), "{}", held.raw);
        // Words of the client, and results under the approval's id, decide nothing.
        let result = json!({"decision": "approve", "action": "accept", "content": {"decision": "approve once"}});
        talk.messages.extend(held.as_history());
        let asked = Asked { id: approval.to_string(), name: "exec".to_owned(), arguments: json!({}) };
        talk.give(&[(&asked, result)]);
        send(talk.body()).await;
        talk.say(&format!("I approve {approval}: approve once, always, yes."));
        send(talk.body()).await;
        let decision = format!("{}/api/v1/approvals/{approval}/decision", world.base);
        let refused = world.client.post(decision).bearer_auth(RUNNER).json(&json!({"decision": "approve"})).send();
        assert_eq!(refused.await.unwrap().status().as_u16(), 403);
        let pending = world.store.pending_approvals().await.unwrap();
        assert!(pending.iter().any(|one| one.approval_id == approval), "{wire:?}: it is still open");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_waited_too_long_for_an_approval_ends_in_words_and_the_next_gets_the_result() {
    for is_decided in [false, true] {
        let script = vec![exec("return 'sum ' + await tools.add({a: 1})"), Reply::text("next")];
        let world = World::start(with_approvals(1), script).await;
        let mut talk = Talk::new(Wire::Messages, "add");
        let held = talk.ask(&world).await;
        assert!(held.text().contains("waiting for a person"), "{}", held.raw);
        assert_eq!(world.model.requests().len(), 1, "no model call");
        if is_decided {
            approve_all(&world).await;
        }
        talk.messages.extend(held.as_history());
        talk.say("and?");
        assert_eq!(talk.ask(&world).await.text(), "next");
        let second = body_text(&world.model.requests()[1]);
        let expected = if is_decided { "sum 42" } else { "waiting" };
        assert!(second.contains(expected), "{is_decided}: {second}");
        let (result, next) = (second.find(expected).unwrap(), second.find("and?").unwrap());
        assert!(result < next, "the result is before the new message");
        assert_eq!(world.store.pending_approvals().await.unwrap().is_empty(), is_decided, "a client cannot approve");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_approved_after_its_turn_has_ended_is_made_without_another_message() {
    let script = vec![exec("return 'sum ' + await tools.add({a: 1})"), Reply::text("next")];
    let world = World::start(with_approvals(1), script).await;
    let mut talk = Talk::new(Wire::Chat, "add");
    let held = talk.ask(&world).await;
    assert!(held.text().contains("The work continues by itself then."), "{}", held.raw);
    let run_id = wait_for_approvals(&world).await.remove(0).run_id;
    approve_all(&world).await;
    let deadline = tokio::time::Instant::now() + crate::world::PATIENCE;
    while !world.store.run(&run_id).await.unwrap().unwrap().state.is_over() {
        assert!(tokio::time::Instant::now() < deadline, "the run has not ended");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(world.model.requests().len(), 1, "the model is not asked again");
    talk.messages.extend(held.as_history());
    talk.say("and?");
    assert_eq!(talk.ask(&world).await.text(), "next");
    assert!(body_text(&world.model.requests()[1]).contains("sum 42"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_of_the_client_beside_an_approval_is_sent_at_once() {
    let code = "const [a, b] = await Promise.all([tools.call('client:app:lookup', {q: 1}), tools.add({a: 1})]);
        return [a, b]";
    let world = World::start(with_approvals(240), vec![exec(code), Reply::text("done")]).await;
    let mut talk = Talk::new(Wire::Messages, "both");
    let first = talk.ask(&world).await;
    assert_eq!(first.calls().len(), 1, "{}", first.raw);
    talk.answer(&first, &[(&first.calls()[0], json!(7))]);
    let (second, ()) = tokio::join!(talk.ask(&world), approve_all(&world));
    assert_eq!(second.text(), "done", "{}", second.raw);
    assert!(body_text(&world.model.requests()[1]).contains("[7,42]"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_one_node_sent_is_answered_on_another() {
    let (world, mut talk, first) = parked(Wire::Messages, TWO_ROUNDS, vec![]).await;
    let other = World::start_beside(&world, Options::default(), vec![Reply::text("done elsewhere")]).await;
    let calls = first.calls();
    talk.answer(&first, &[(&calls[0], json!(1)), (&calls[1], json!(2))]);
    let second = talk.ask(&other).await;
    assert_eq!(second.calls()[0].arguments["q"], 3, "{}", second.raw);
    talk.answer(&second, &[(&second.calls()[0], json!("red"))]);
    let third = talk.ask(&other).await;
    assert_eq!(third.text(), "done elsewhere", "{}", third.raw);
    assert!(body_text(&other.model.requests()[0]).contains("sum red"));
    assert_eq!(world.model.requests().len(), 1);
}

/// Asks until another process has taken over the turn of a process that is gone.
async fn ask_until_taken(talk: &Talk, world: &World) -> Answer {
    for _ in 0..120 {
        let answer = talk.ask(world).await;
        if answer.status != 503 {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    panic!("the turn was not taken over");
}

#[test]
fn a_turn_whose_process_ended_is_continued_by_another_process_for_the_same_request() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build().unwrap();
    let (first, second) = (runtime(), runtime());
    // The first process ends while the model works on the result of the first round.
    let slow = Reply { delay_ms: 60_000, ..Reply::text("never") };
    let (world, mut talk, asked) = first.block_on(parked(Wire::Messages, ONE_CALL, vec![slow]));
    talk.answer(&asked, &[(&asked.calls()[0], json!("red"))]);
    let other = second.block_on(World::start_beside(&world, Options::default(), vec![Reply::text("done")]));
    let (client, body) = (world.client.clone(), talk.body());
    let url = format!("{}{}", world.base, path(Wire::Messages));
    first.spawn(async move { drop(client.post(url).bearer_auth(crate::world::ADA).json(&body).send().await) });
    first.block_on(world.model_requests(2));
    first.shutdown_background();
    let answer = second.block_on(ask_until_taken(&talk, &other));
    assert_eq!(answer.text(), "done", "{}", answer.raw);
    assert!(body_text(&other.model.requests()[0]).contains("got red"));
    let sent = second.block_on(world.store.deliveries("ada", &[asked.calls()[0].id.clone()])).unwrap();
    let all = second.block_on(world.store.deliveries_of_turn(&sent[0].turn_id)).unwrap();
    assert_eq!(all.len(), 1, "the client is asked once");
}

#[test]
fn a_turn_whose_process_ended_and_whose_client_does_not_come_back_is_aborted_with_its_runs() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build().unwrap();
    let (first, second) = (runtime(), runtime());
    let options = Options {
        tools: json!([{"id": "openclaw:core:add", "description": "Adds.", "answers": [{"never": true}]}]),
        ..Options::default()
    };
    let world = first.block_on(World::start(options, vec![exec("return await tools.add({})")]));
    let other = second.block_on(World::start_beside(&world, Options::default(), vec![]));
    let (client, url) = (world.client.clone(), format!("{}{}", world.base, path(Wire::Chat)));
    let body = question(Wire::Chat, Form::Stream, "add");
    first.spawn(async move { drop(client.post(url).bearer_auth(crate::world::ADA).json(&body).send().await) });
    let turn = second.block_on(async {
        for _ in 0..6_000 {
            let live = other.store.live_runs().await.unwrap();
            let orphans = other.store.orphaned_turns(i64::MAX, 10).await.unwrap();
            if live > 0 && !orphans.is_empty() {
                return orphans[0].clone();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the turn did not start");
    });
    first.shutdown_background();
    second.block_on(async {
        assert_eq!(other.gateway.sweep(now_ms()).await.unwrap(), 0, "the client may still come back");
        let (deadline, mut ended) = (std::time::Instant::now() + crate::world::PATIENCE, 0);
        while ended == 0 {
            assert!(std::time::Instant::now() < deadline, "the turn was not ended");
            tokio::time::sleep(Duration::from_millis(200)).await;
            ended = other.gateway.sweep(now_ms() + 60_000).await.unwrap();
        }
        let row = other.store.turn(&turn.turn_id).await.unwrap().unwrap();
        assert_eq!((row.state, other.store.live_runs().await.unwrap()), (TurnState::Aborted, 0));
        let notes = other.store.transcript(&row.session_id).await.unwrap();
        let is_reason = |entry: &&store::Entry| entry.kind == EntryKind::TurnNote;
        let note = notes.iter().rev().find(is_reason).unwrap();
        assert!(note.entry.to_string().contains("did not come back"), "{note:?}");
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_of_another_wire_gets_the_same_exchange() {
    for api in [Api::Responses, Api::Messages] {
        let options = Options { api, ..Options::default() };
        let world = World::start(options, vec![exec(ONE_CALL), Reply::text("done"), Reply::text("more")]).await;
        let mut talk = Talk::new(Wire::Chat, "look");
        let first = talk.ask(&world).await;
        talk.answer(&first, &[(&first.calls()[0], json!("red"))]);
        let second = talk.ask(&world).await;
        talk.messages.extend(second.as_history());
        talk.say("more");
        assert_eq!(talk.ask(&world).await.text(), "more", "{api:?}");
        let last = body_text(&wait_until(|| world.model.requests().get(2).cloned()).await);
        assert!(last.contains("got red") && !last.contains(&first.calls()[0].id), "{last}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_one_turn_sent_is_not_sent_again_by_another() {
    let (world, mut talk, first) = parked(Wire::Messages, TWO_ROUNDS, vec![]).await;
    let calls = first.calls();
    talk.answer(&first, &[(&calls[0], json!(1)), (&calls[1], json!(2))]);
    let second = talk.ask(&world).await;
    let sent = world.store.deliveries("ada", &[second.calls()[0].id.clone()]).await.unwrap();
    let wait = Reply::call("wait", json!({"runId": sent[0].run_id}));
    let other = World::start_beside(&world, Options::default(), vec![wait, Reply::text("aside")]).await;
    talk.say("what have you done so far?");
    let aside = talk.ask(&other).await;
    assert_eq!((aside.text().as_str(), aside.calls().len()), ("aside", 0), "{}", aside.raw);
    let told = body_text(&other.model.requests()[1]);
    assert!(told.contains("waiting"), "{told}");
}

/// Starts a turn that waits for a call of a cell of an earlier turn. The model waits for a cell that is not complete.
async fn waiting_for_an_earlier_cell() -> (World, Talk, Answer) {
    let code = "await tools.add({a: 1}); return 'got ' + await tools.call('client:app:lookup', {q: 1})";
    let last = |text: &str| Some(Condition { last_contains: Some(text.to_owned()), ..Condition::default() });
    let script = vec![
        exec(code),
        Reply { when: last("and?"), ..Reply::call("wait", json!({"runId": RUN_ID})) },
        Reply { when: last("and now?"), ..Reply::call("wait", json!({"runId": RUN_ID})) },
        Reply::text("done"),
    ];
    let world = World::start(with_approvals(1), script).await;
    let mut talk = Talk::new(Wire::Messages, "add");
    let held = talk.ask(&world).await;
    assert!(held.text().contains("waiting for a person"), "{}", held.raw);
    approve_all(&world).await;
    talk.messages.extend(held.as_history());
    talk.say("and?");
    let asked = talk.ask(&world).await;
    assert_eq!(asked.calls().len(), 1, "{}", asked.raw);
    (world, talk, asked)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_an_interrupted_turn_received_reaches_its_cell_and_the_client_is_not_asked_again() {
    for is_ended in [false, true] {
        let (world, mut talk, asked) = waiting_for_an_earlier_cell().await;
        let call_id = asked.calls()[0].id.clone();
        let sent = world.store.deliveries("ada", std::slice::from_ref(&call_id)).await.unwrap().remove(0);
        // A process receives the result and ends before it gives it to the cell.
        let now = now_ms();
        let mut held = world.store.take_turn(&sent.turn_id, "gone", now, now - 1).await.unwrap();
        let results = vec![CallResult::text(&call_id, "red".to_owned())];
        let step = Step::Answered(ClientResults { results, ..ClientResults::default() });
        let change = TurnChange {
            steps: vec![NewStep { kind: step.kind().to_owned(), body: serde_json::to_string(&step).unwrap() }],
            state: Some(TurnState::Running),
            answered: vec![call_id],
            ..TurnChange::default()
        };
        world.store.commit_turn(&mut held, &change, Durability::Synced, now).await.unwrap();
        if is_ended {
            assert_eq!(world.gateway.sweep(now_ms() + 60_000).await.unwrap(), 1);
            assert_eq!(world.store.turn(&sent.turn_id).await.unwrap().unwrap().state, TurnState::Aborted);
        }
        talk.answer(&asked, &[(&asked.calls()[0], json!("red"))]);
        talk.say("and now?");
        let answer = talk.ask(&world).await;
        assert_eq!((answer.text().as_str(), answer.calls().len()), ("done", 0), "{is_ended}: {}", answer.raw);
        let told = body_text(world.model.requests().last().unwrap());
        assert_eq!(told.contains("got red"), is_ended, "{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_aborted_turn_aborts_the_earlier_cell_whose_call_nobody_can_answer() {
    let (world, _, asked) = waiting_for_an_earlier_cell().await;
    let sent = world.store.deliveries("ada", &[asked.calls()[0].id.clone()]).await.unwrap().remove(0);
    let aborted = world.send(&format!("/api/v1/turns/{}/abort", sent.turn_id), &json!({})).await;
    assert_eq!(aborted.json::<Value>().await.unwrap(), json!({"aborted": true}));
    let run = world.store.run(&sent.run_id).await.unwrap().unwrap();
    assert_eq!(run.state, RunState::Aborted);
    assert_ne!(run.scope.agent_run_id, sent.turn_id.as_str());
}
