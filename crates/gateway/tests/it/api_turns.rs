//! Turns in progress and stored outputs, over the programs' interface.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::model::Reply;
use wire::Wire;

use crate::api_client::{get, post};
use crate::world::{ADA, BOB, Form, Options, PATIENCE, World, exec, question};

/// Waits until a read over the interface gives what the test waits for.
async fn wait_for<T>(world: &World, path: &str, find: impl Fn(&Value) -> Option<T>) -> T {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let response = get(world, ADA, path).await;
        if let Some(found) = find(&response.body) {
            return found;
        }
        assert!(tokio::time::Instant::now() < deadline, "{path}: {}", response.text);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn first(name: &'static str) -> impl Fn(&Value) -> Option<String> {
    move |body| body["items"][0][name].as_str().map(str::to_owned)
}

fn has_state(state: &'static str) -> impl Fn(&Value) -> Option<()> {
    move |body| (body["state"] == state).then_some(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_turn_is_steered_and_aborted_with_its_run_by_its_owner_only() {
    let tools = json!([{"id": "openclaw:core:hang", "answers": [{"never": true}]}]);
    let world = World::start(Options { tools, ..Options::default() }, vec![exec("return await tools.hang({})")]).await;
    let asking = world.request("/v1/chat/completions", &question(Wire::Chat, Form::Stream, "go"));
    let response = asking.send().await.unwrap();
    let run_id = wait_for(&world, "/api/v1/runs", first("runId")).await;
    let turn_id = wait_for(&world, "/api/v1/runs", first("turnId")).await;
    assert_eq!(response.headers()["x-cellmate-turn-id"], turn_id.as_str());
    let turn = format!("/api/v1/turns/{turn_id}");
    for (path, body) in [("steer", json!({"text": "hurry"})), ("abort", json!({}))] {
        assert_eq!(post(&world, BOB, &format!("{turn}/{path}"), &body).await.status, 404);
    }
    assert_eq!(get(&world, ADA, &turn).await.body["state"], "running");
    let steered = post(&world, ADA, &format!("{turn}/steer"), &json!({"text": "hurry"})).await;
    assert_eq!(steered.body, json!({"steered": true}));
    for bad in [json!({}), json!({"text": ""}), json!({"text": 1}), json!({"text": "x".repeat(32_769)})] {
        assert_eq!(post(&world, ADA, &format!("{turn}/steer"), &bad).await.status, 400);
    }
    let aborted = post(&world, ADA, &format!("{turn}/abort"), &json!({"reason": "enough"})).await;
    assert_eq!(aborted.body, json!({"aborted": true}));
    wait_for(&world, &turn, has_state("aborted")).await;
    wait_for(&world, &format!("/api/v1/runs/{run_id}"), has_state("aborted")).await;
    assert!(!response.text().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_waits_for_its_client_is_aborted_with_its_run() {
    let world = World::start(Options::default(), vec![exec("return await tools.look({at: 1})")]).await;
    let mut request = question(Wire::Chat, Form::Whole, "look");
    let parameters = json!({"type": "object", "properties": {"at": {"type": "integer"}}});
    request["tools"] =
        json!([{"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": parameters}}]);
    let answer = world.ask(Wire::Chat, &request).await;
    assert_eq!(answer.calls().len(), 1, "{}", answer.raw);
    let run_id = wait_for(&world, "/api/v1/runs?state=waiting", first("runId")).await;
    let turn_id = wait_for(&world, "/api/v1/runs", first("turnId")).await;
    assert_eq!(answer.headers["x-cellmate-turn-id"], turn_id.as_str());
    let turn = format!("/api/v1/turns/{turn_id}");
    wait_for(&world, &turn, has_state("waiting")).await;
    let calls = get(&world, ADA, &turn).await.body["clientCalls"].clone();
    assert_eq!(
        (calls[0]["callId"].as_str().unwrap(), calls[0]["answeredAt"].is_null()),
        (answer.calls()[0].id.as_str(), true)
    );
    let abort = format!("{turn}/abort");
    assert_eq!(post(&world, ADA, &abort, &json!({})).await.body, json!({"aborted": true}));
    assert_eq!(get(&world, ADA, &turn).await.body["state"], "aborted");
    assert_eq!(get(&world, ADA, &format!("/api/v1/runs/{run_id}")).await.body["state"], "aborted");
    assert_eq!(post(&world, ADA, &abort, &json!({})).await.body, json!({"aborted": false}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_output_is_sent_whole_and_only_under_its_run() {
    let cell = "return Array.from({length: 40000}, (_, n) => `line ${n}`).join('\\n')";
    let world = World::start(Options::default(), vec![exec(cell), Reply::text("done")]).await;
    assert_eq!(world.ask(Wire::Chat, &question(Wire::Chat, Form::Whole, "go")).await.status, 200);
    let run_id = wait_for(&world, "/api/v1/runs", first("runId")).await;
    let outputs = format!("/api/v1/runs/{run_id}/outputs");
    let listed = get(&world, ADA, &outputs).await.body;
    let handle = listed["items"][0]["handle"].as_str().unwrap_or_else(|| panic!("no output: {listed}")).to_owned();
    let output = get(&world, ADA, &format!("{outputs}/{handle}")).await;
    assert_eq!(output.text.len() as u64, listed["items"][0]["bytes"].as_u64().unwrap());
    assert!(output.text.contains("line 0\n") || output.text.contains("line 0\\n"));
    assert!(output.text.contains("line 39999"));
    assert_eq!(get(&world, BOB, &format!("{outputs}/{handle}")).await.status, 404);
    assert_eq!(get(&world, ADA, &format!("/api/v1/runs/x/outputs/{handle}")).await.status, 404);
    assert_eq!(get(&world, ADA, &format!("{outputs}/{}x", handle)).await.status, 404);
}
