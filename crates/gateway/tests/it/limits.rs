//! Requests past the limits of the gateway.

use serde_json::{Value, json};
use testkit::model::Reply;
use wire::Wire;

use crate::answer::Answer;
use crate::world::{Form, Options, WIRES, World, conversation, exec, path, question};

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_past_the_limit_of_turns_at_once_is_refused_until_one_ends() {
    let tools = json!([{"id": "openclaw:core:hang", "answers": [{"never": true}]}]);
    let gateway = json!({"maxConcurrentTurns": 2});
    let mut script = vec![exec("return await tools.hang({})"), exec("return await tools.hang({})")];
    script.push(Reply { times: Some(3), ..Reply::text("there is room again") });
    let world = World::start(Options { tools, gateway, ..Options::default() }, script).await;
    let mut held = Vec::new();
    for number in 0..2 {
        let body = question(Wire::Chat, Form::Stream, &format!("hang {number}"));
        held.push(world.send(path(Wire::Chat), &body).await);
        world.model_requests(number + 1).await;
    }
    for wire in WIRES {
        let refused = world.ask(wire, &question(wire, Form::Stream, "one more")).await;
        assert_eq!(refused.status, 429, "{}", refused.raw);
        assert!(refused.error().unwrap().contains("2 turns are in progress"), "{}", refused.raw);
        assert!(refused.headers.contains_key("retry-after"), "{:?}", refused.headers);
    }
    assert_eq!(world.model.requests().len(), 2);
    for (turn_id, _) in world.gateway.live_responses("ada") {
        assert!(world.gateway.abort(&turn_id, "the test ends it"));
    }
    for response in held {
        Answer::read(Wire::Chat, response).await;
    }
    for wire in WIRES {
        let answer = world.ask(wire, &question(wire, Form::Whole, "one more")).await;
        assert_eq!(answer.text(), "there is room again", "{}", answer.raw);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_arrive_together_start_no_more_turns_than_the_limit() {
    let tools = json!([{"id": "openclaw:core:hang", "answers": [{"never": true}]}]);
    let gateway = json!({"maxConcurrentTurns": 3});
    let script = vec![Reply { times: Some(24), ..exec("return await tools.hang({})") }];
    let world = World::start(Options { tools, gateway, ..Options::default() }, script).await;
    let bodies: Vec<Value> = (0..24).map(|n| question(Wire::Chat, Form::Stream, &format!("hang {n}"))).collect();
    let sent = bodies.iter().map(|body| world.send(path(Wire::Chat), body));
    let responses = futures_util::future::join_all(sent).await;
    let begun = responses.iter().filter(|response| response.status().as_u16() == 200).count();
    let refused = responses.iter().filter(|response| response.status().as_u16() == 429).count();
    assert_eq!((begun, refused, world.gateway.live_turns()), (3, 21, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_asks_the_model_too_often_ends_with_the_setting_that_raises_the_limit() {
    for wire in WIRES {
        let agents = json!({"defaults": {"model": "scripted/m-1", "maxModelCalls": 3}, "list": [{"id": "main"}]});
        let script = vec![Reply { times: Some(9), ..exec("return 1") }];
        let world = World::start(Options { agents, ..Options::default() }, script).await;
        let answer = world.ask(wire, &question(wire, Form::Whole, "go on for ever")).await;
        assert_eq!(answer.status, 400, "{}", answer.raw);
        let message = answer.error().unwrap();
        assert!(message.contains("3 times") && message.contains("maxModelCalls"), "{message}");
        assert_eq!(world.model.requests().len(), 3);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_refers_to_more_items_than_the_limit_is_refused() {
    let world = World::start(Options::default(), vec![Reply::text("one"), Reply::text("two")]).await;
    let first = world.ask(Wire::Responses, &question(Wire::Responses, Form::Whole, "first")).await;
    let reference = json!({"type": "item_reference", "id": first.body["output"][0]["id"]});
    for (count, status) in [(1_000, 200), (1_001, 400)] {
        let mut input = vec![reference.clone(); count];
        input.push(json!({"role": "user", "content": "second"}));
        let answer = world.ask(Wire::Responses, &conversation(Wire::Responses, Form::Whole, input)).await;
        assert_eq!(answer.status, status, "{}", answer.raw);
        if status == 400 {
            assert!(answer.error().unwrap().contains("1000 items"), "{}", answer.raw);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_input_items_has_at_most_the_limit_and_the_rest_follows() {
    let world = World::start(Options::default(), vec![Reply::text("one")]).await;
    let input = (0..150).map(|number| json!({"role": "user", "content": format!("message {number}")})).collect();
    let answer = world.ask(Wire::Responses, &conversation(Wire::Responses, Form::Whole, input)).await;
    let items = format!("/v1/responses/{}/input_items", answer.body["id"].as_str().unwrap());
    let count = |body: &Value| body["data"].as_array().unwrap().len();
    for (query, expected) in [("", 20), ("?limit=100", 100), ("?limit=1000", 100), ("?limit=0", 1), ("?limit=x", 20)] {
        let (status, body) = world.get(&format!("{items}{query}")).await;
        assert_eq!((status, count(&body), &body["has_more"]), (200, expected, &json!(true)), "{query}");
    }
    let (_, first) = world.get(&format!("{items}?limit=1000&order=asc")).await;
    let last = first["last_id"].as_str().unwrap();
    let (_, rest) = world.get(&format!("{items}?limit=1000&order=asc&after={last}")).await;
    assert_eq!((count(&rest), &rest["has_more"]), (50, &json!(false)), "{rest}");
    assert_eq!(rest["data"][0]["content"], "message 100", "{rest}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_input_that_is_too_large_to_be_kept_is_answered_and_not_listed() {
    let world = World::start(Options::default(), vec![Reply::text("one")]).await;
    let large = "x".repeat((1 << 20) + 1);
    let answer = world.ask(Wire::Responses, &question(Wire::Responses, Form::Whole, &large)).await;
    assert_eq!(answer.text(), "one", "{}", answer.status);
    let id = answer.body["id"].as_str().unwrap();
    assert_eq!(world.get(&format!("/v1/responses/{id}")).await.0, 200);
    let (status, body) = world.get(&format!("/v1/responses/{id}/input_items")).await;
    assert_eq!(status, 404);
    assert!(body["error"]["message"].as_str().unwrap().contains("too large"), "{body}");
}
