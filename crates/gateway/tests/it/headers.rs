//! Headers, the list of models, the estimate of tokens, and probes.

use serde_json::{Value, json};
use testkit::model::Reply;
use wire::Wire;

use crate::answer::Answer;
use crate::world::{Form, Options, World, question};

async fn ask_with(world: &World, headers: &[(&str, &str)]) -> Answer {
    let mut request = world.request("/v1/chat/completions?x=1", &question(Wire::Chat, Form::Whole, "hi"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    Answer::read(Wire::Chat, request.send().await.unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_may_ask_for_another_configured_model_only() {
    let options = Options { provider: json!({"models": [{"id": "m-2"}]}), ..Options::default() };
    let world = World::start(options, vec![Reply::text("a"), Reply::text("b")]).await;
    for (name, expected) in [("scripted/m-2", "m-2"), ("scripted/m-1", "m-1")] {
        let answer = ask_with(&world, &[("x-openclaw-model", name)]).await;
        assert_eq!(answer.status, 200, "{}", answer.raw);
        assert_eq!(world.model.requests().last().unwrap().json()["model"], expected);
    }
    for name in ["scripted/m-3", "http://127.0.0.1:1/m-1", "other/m-1", "m-2"] {
        let refused = ask_with(&world, &[("x-openclaw-model", name)]).await;
        assert_eq!(refused.status, 400, "{}", refused.raw);
        assert!(refused.error().unwrap().contains(name), "{}", refused.raw);
    }
    assert_eq!(world.model.requests().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_choose_the_agent_the_session_the_channel_and_the_account() {
    let world = World::start(Options::default(), vec![Reply::text("a"), Reply::text("b"), Reply::text("c")]).await;
    let headers = [
        ("x-openclaw-agent-id", "other"),
        ("x-openclaw-session-key", "desk"),
        ("x-openclaw-message-channel", "telegram"),
        ("x-openclaw-account-id", "acct-7"),
    ];
    for _ in 0..2 {
        let answer = ask_with(&world, &headers).await;
        assert_eq!(answer.status, 200, "{}", answer.raw);
    }
    assert_eq!(ask_with(&world, &[]).await.status, 200);
    let sessions = world.store.sessions(&store::SessionFilter::default(), 10, None).await.unwrap();
    let mut seen: Vec<(&str, u64)> = sessions.iter().map(|one| (one.agent_id.as_str(), one.turns)).collect();
    seen.sort_unstable();
    assert_eq!(seen, [("main", 1), ("other", 2)]);
    let session = sessions.iter().find(|one| one.agent_id == "other").unwrap();
    let turn = &world.store.turns_of_session(&session.session_id).await.unwrap()[0];
    let steps = world.store.turn_steps(&turn.turn_id).await.unwrap();
    let request: Value = serde_json::from_str(&steps[0].body).unwrap();
    let origin = json!({"sessionKey": "desk", "sender": "acct-7", "channel": "telegram"});
    assert_eq!(request["request"]["origin"], origin, "{request}");
    let unknown = ask_with(&world, &[("x-openclaw-agent-id", "nobody")]).await;
    assert_eq!(unknown.status, 404, "{}", unknown.raw);
    assert!(unknown.error().unwrap().starts_with("there is no agent `nobody`"), "{}", unknown.raw);
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_are_listed_and_tokens_estimated_and_probes_answered() {
    let world = World::start(Options::default(), Vec::new()).await;
    let (status, models) = world.get("/v1/models").await;
    let ids: Vec<&str> = models["data"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!((status, ids), (200, vec!["openclaw", "openclaw/main", "openclaw/other"]));
    assert_eq!(world.get("/v1/models/openclaw:other").await.0, 200);
    assert_eq!(world.get("/v1/models/gpt").await.0, 404);
    let count = async |text: &str| {
        let body = question(Wire::Messages, Form::Whole, text);
        let response = world.send("/v1/messages/count_tokens?beta=true", &body).await;
        assert!(response.headers().contains_key("request-id"));
        response.json::<Value>().await.unwrap()["input_tokens"].as_u64().unwrap()
    };
    let (short, long) = (count("hi").await, count(&"word ".repeat(800)).await);
    assert!(short > 500, "{short}: the tools are counted");
    assert!((950..1_100).contains(&(long - short)), "{short} {long}");
    for wire in crate::world::WIRES {
        let put = world.request(crate::world::path(wire), &json!({})).build().unwrap();
        let url = put.url().clone();
        let refused = world.client.put(url).bearer_auth(crate::world::ADA).send().await.unwrap();
        assert!(refused.headers().contains_key("allow"), "{wire:?}");
        assert_eq!(refused.status().as_u16(), 405, "{wire:?}");
        assert!(refused.json::<Value>().await.unwrap()["error"]["message"].is_string(), "{wire:?}");
    }
    for method in [reqwest::Method::HEAD, reqwest::Method::GET] {
        let probe = world.client.request(method, format!("{}/api/hello", world.base)).send().await.unwrap();
        assert_eq!(probe.status().as_u16(), 200);
    }
    assert!(world.model.requests().is_empty());
}
