//! Streams as clients need them: kept alive, independent of slow readers, and ended when a client disconnects.

use std::time::Duration;

use contract::ids::TurnId;
use serde_json::{Value, json};
use store::TurnState;
use testkit::model::{Condition, RUN_ID, Reply};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use wire::Wire;

use crate::answer::Answer;
use crate::world::{ADA, FORMS, Form, Options, PATIENCE, WIRES, World, exec, path, question, wait_until};

/// Lets a cell take this long while its client allows silence of `idle` at most, on every wire, streamed and not. The
/// model calls `wait` until the cell has ended.
async fn take_long(cell: Duration, idle: Duration, gateway: Value) {
    let milliseconds = u64::try_from(cell.as_millis()).unwrap();
    let slow = json!([{"id": "openclaw:core:slow", "answers": [{"returns": "slow result", "afterMs": milliseconds}]}]);
    let cases = WIRES.into_iter().flat_map(|wire| FORMS.map(|form| (wire, form)));
    let cases = cases.map(|(wire, form)| {
        let options = Options { tools: slow.clone(), gateway: gateway.clone(), ..Options::default() };
        async move {
            let last = |text: &str| Some(Condition { last_contains: Some(text.to_owned()), ..Condition::default() });
            let wait = Reply { when: last("\"waiting\""), ..Reply::call("wait", json!({"runId": RUN_ID})) };
            let done = Reply { when: last("slow result"), ..Reply::text("done") };
            let world = World::start(options, vec![exec("return await tools.slow({})"), wait, done]).await;
            let client = reqwest::Client::builder().read_timeout(idle).build().unwrap();
            let request = client.post(format!("{}{}", world.base, path(wire))).bearer_auth(ADA);
            let sent = request.json(&question(wire, form, "wait")).send().await.unwrap();
            let answer = Answer::read(wire, sent).await;
            let case = format!("{wire:?} {form:?}: {}", answer.raw);
            assert_eq!(answer.text(), "done", "{case}");
            assert_eq!(crate::checker::problems(&answer), [""; 0], "{case}");
            let sign = match (form, wire) {
                (Form::Whole, _) => "  ",
                (Form::Stream, Wire::Chat) => ": keepalive\n\n",
                (Form::Stream, Wire::Responses) => "event: keepalive\n",
                (Form::Stream, Wire::Messages) => "event: ping\n",
            };
            assert!(answer.raw.contains(sign), "{case}");
        }
    });
    futures_util::future::join_all(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_a_short_idle_limit_gets_the_answer_of_a_long_cell() {
    take_long(Duration::from_millis(8_500), Duration::from_secs(7), json!({"keepAliveSeconds": 1})).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes 90 s; `make test-peers PEERS=long-cells` runs it"]
async fn a_client_with_an_idle_limit_of_15_s_gets_the_answer_of_a_cell_that_takes_90_s() {
    take_long(Duration::from_secs(90), Duration::from_secs(15), json!({})).await;
}

/// Returns the only turn of a world, in its current state.
async fn state(world: &World, turn_id: &TurnId) -> TurnState {
    world.store.turn(turn_id).await.unwrap().unwrap().state
}

async fn wait_for_state(world: &World, turn_id: &TurnId, expected: TurnState) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while state(world, turn_id).await != expected {
        assert!(tokio::time::Instant::now() < deadline, "{:?}", state(world, turn_id).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn live_turn(world: &World) -> TurnId {
    wait_until(|| world.gateway.live_responses("ada").first().map(|(turn_id, _)| turn_id.clone())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_whose_client_has_disconnected_is_aborted_without_another_model_call() {
    for form in FORMS {
        let never = json!([{"id": "openclaw:core:never", "answers": [{"never": true}]}]);
        let options = Options { tools: never, gateway: json!({"abandonedSeconds": 0}), ..Options::default() };
        let script = vec![exec("return await tools.never({})"), Reply::text("must not be asked for")];
        let world = World::start(options, script).await;
        let request = world.request(path(Wire::Chat), &question(Wire::Chat, form, "wait"));
        let sent = tokio::spawn(async move { request.send().await.unwrap().text().await });
        world.model_requests(1).await;
        let turn_id = live_turn(&world).await;
        assert_eq!(state(&world, &turn_id).await, TurnState::Running);
        wait_until(|| (world.gateway.code_mode().live_runs() > 0).then_some(())).await;
        sent.abort();
        wait_for_state(&world, &turn_id, TurnState::Aborted).await;
        wait_until(|| (world.gateway.live_turns() == 0).then_some(())).await;
        assert_eq!(world.model.requests().len(), 1, "{form:?}");
        let steps = world.store.turn_steps(&turn_id).await.unwrap();
        let last = &steps.last().unwrap().body;
        assert!(last.contains("the client closed its connection"), "{last}");
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while world.store.live_runs().await.unwrap() > 0 {
            assert!(tokio::time::Instant::now() < deadline, "the cell was not aborted");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        wait_until(|| (world.gateway.code_mode().live_runs() == 0).then_some(())).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_ends_although_its_client_does_not_read_and_others_are_served() {
    let long = vec!["x".repeat(500_000); 40].join(" ");
    let world = World::start(Options::default(), vec![Reply::text(&long), Reply::text("short")]).await;
    let body = question(Wire::Chat, Form::Stream, "tell me a lot").to_string();
    let mut silent = TcpStream::connect(world.base.strip_prefix("http://").unwrap()).await.unwrap();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {ADA}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        world.base.strip_prefix("http://").unwrap(),
        body.len()
    );
    silent.write_all(head.as_bytes()).await.unwrap();
    let turn_id = live_turn(&world).await;
    wait_for_state(&world, &turn_id, TurnState::Completed).await;
    let answer = world.ask(Wire::Chat, &question(Wire::Chat, Form::Whole, "and you?")).await;
    assert_eq!(answer.text(), "short");
    // The gateway closes the connection, so that what was sent before can be read to its end, which is not the answer's.
    wait_until(|| (world.gateway.live_turns() == 0).then_some(())).await;
    tokio::time::sleep(http_server::limits::LONG_WRITE_STALL + Duration::from_secs(2)).await;
    let mut received = Vec::new();
    // The connection may be reset instead of closed.
    drop(tokio::time::timeout(PATIENCE, silent.read_to_end(&mut received)).await.unwrap());
    assert!(received.len() < long.len(), "{} bytes", received.len());
}
