//! Two gateways over one store: what one is asked for reaches a turn that the other runs.

use serde_json::{Value, json};
use store::TurnState;
use testkit::model::Reply;
use wire::Wire;

use crate::answer::{Answer, events};
use crate::api_client::{get, post};
use crate::world::{ADA, BOB, Form, Options, World, exec, path, question, wait_until};

fn options(answer: Value) -> Options {
    let tools = json!([{"id": "openclaw:core:slow", "answers": [answer]}]);
    Options { tools, ..Options::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_to_one_node_reaches_a_turn_that_another_runs() {
    // The cell lasts long enough for the message to arrive while it runs.
    let script = vec![exec("return await tools.slow({})"), Reply::text("I hurried.")];
    let one = World::start(options(json!({"returns": 1, "afterMs": 2_500})), script).await;
    let other = World::start_beside(&one, Options::default(), Vec::new()).await;
    let response = one.send(path(Wire::Chat), &question(Wire::Chat, Form::Stream, "work")).await;
    one.model_requests(1).await;
    let turn_id = one.gateway.live_responses("ada")[0].0.clone();
    let steer = format!("/api/v1/turns/{turn_id}/steer");
    assert_eq!(post(&other, BOB, &steer, &json!({"text": "hurry up"})).await.status, 404);
    let steered = post(&other, ADA, &steer, &json!({"text": "hurry up"})).await;
    assert_eq!(steered.body, json!({"steered": true}), "{}", steered.text);
    assert_eq!(Answer::read(Wire::Chat, response).await.text(), "I hurried.");
    let prompt = String::from_utf8(one.model_requests(2).await[1].body.clone()).unwrap();
    assert_eq!(prompt.matches("hurry up").count(), 1, "{prompt}");
    let late = post(&other, ADA, &steer, &json!({"text": "too late"})).await;
    assert_eq!((late.status, &late.body["error"]["type"]), (400, &json!("not_running")));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abort_on_one_node_ends_a_turn_that_another_runs_and_its_client_learns_why() {
    let one = World::start(options(json!({"never": true})), vec![exec("return await tools.slow({})")]).await;
    let other = World::start_beside(&one, Options::default(), Vec::new()).await;
    let response = one.send(path(Wire::Chat), &question(Wire::Chat, Form::Stream, "work")).await;
    one.model_requests(1).await;
    let turn_id = one.gateway.live_responses("ada")[0].0.clone();
    let abort = format!("/api/v1/turns/{turn_id}/abort");
    assert_eq!(post(&other, BOB, &abort, &json!({})).await.status, 404);
    let aborted = post(&other, ADA, &abort, &json!({"reason": "enough of this"})).await;
    assert_eq!(aborted.body, json!({"aborted": true}), "{}", aborted.text);
    let answer = Answer::read(Wire::Chat, response).await;
    assert!(answer.error().unwrap().contains("enough of this"), "{}", answer.raw);
    assert_eq!(one.store.turn(&turn_id).await.unwrap().unwrap().state, TurnState::Aborted);
    wait_until(|| (one.gateway.live_turns() == 0).then_some(())).await;
    assert_eq!(get(&other, ADA, "/api/v1/runs").await.body["items"][0]["state"], "aborted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_that_another_node_works_on_is_seen_and_cancelled() {
    let one = World::start(options(json!({"never": true})), vec![exec("return await tools.slow({})")]).await;
    let other = World::start_beside(&one, Options::default(), Vec::new()).await;
    let sent = one.request(path(Wire::Responses), &question(Wire::Responses, Form::Stream, "wait")).send();
    let mut response = sent.await.unwrap();
    let first = String::from_utf8(response.chunk().await.unwrap().unwrap().to_vec()).unwrap();
    let id = events(&first).remove(0).data["response"]["id"].as_str().unwrap().to_owned();
    one.model_requests(1).await;
    let (status, body) = other.get(&format!("/v1/responses/{id}")).await;
    assert_eq!((status, &body["status"]), (200, &json!("in_progress")), "{body}");
    let cancel = |token: &str| {
        let url = format!("{}/v1/responses/{id}/cancel", other.base);
        other.client.post(url).bearer_auth(token).send()
    };
    assert_eq!(cancel(BOB).await.unwrap().status().as_u16(), 404);
    let cancelled: Value = cancel(ADA).await.unwrap().json().await.unwrap();
    assert_eq!(cancelled["status"], "cancelled", "{cancelled}");
    let rest = Answer::read(Wire::Responses, response).await;
    assert_eq!(rest.events.last().unwrap().name, "response.failed", "{}", rest.raw);
}
