//! Requests that continue earlier ones by name: stored responses, their items, and threads.

use serde_json::{Value, json};
use store::TurnState;
use testkit::model::Reply;
use wire::Wire;

use crate::answer::Answer;
use crate::world::{ADA, BOB, FORMS, Form, Options, World, conversation, exec, path, question, wait_until};

async fn world(texts: &[&str]) -> World {
    let replies = texts.iter().flat_map(|text| [exec("return 'hidden value'"), Reply::text(text)]);
    World::start(Options::default(), replies.collect()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_is_retrieved_listed_and_deleted_by_its_principal_only() {
    for form in FORMS {
        let world = world(&["one"]).await;
        let answer = world.ask(Wire::Responses, &question(Wire::Responses, form, "first question")).await;
        let id = answer.body["id"].as_str().unwrap();
        let (status, body) = world.get(&format!("/v1/responses/{id}")).await;
        assert_eq!((status, &body), (200, &answer.body), "{form:?}");
        let (status, items) = world.get(&format!("/v1/responses/{id}/input_items")).await;
        assert_eq!(status, 200, "{items}");
        assert_eq!(items["data"][0]["content"], "first question", "{items}");
        for token in [BOB, ADA] {
            let url = format!("{}/v1/responses/{id}", world.base);
            let deleted = world.client.delete(url).bearer_auth(token).send().await.unwrap();
            assert_eq!(deleted.status().as_u16(), if token == ADA { 200 } else { 404 });
        }
        let (status, body) = world.get(&format!("/v1/responses/{id}")).await;
        assert_eq!(status, 404);
        assert!(body["error"]["message"].as_str().unwrap().contains(id), "{body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_that_is_not_stored_cannot_be_retrieved_or_continued() {
    let world = world(&["one"]).await;
    let mut body = question(Wire::Responses, Form::Whole, "first");
    body["store"] = json!(false);
    let answer = world.ask(Wire::Responses, &body).await;
    let id = answer.body["id"].as_str().unwrap().to_owned();
    assert_eq!((answer.text().as_str(), &answer.body["store"]), ("one", &json!(false)));
    assert_eq!(world.get(&format!("/v1/responses/{id}")).await.0, 404);
    let mut next = question(Wire::Responses, Form::Whole, "second");
    next["previous_response_id"] = json!(id);
    let refused = world.ask(Wire::Responses, &next).await;
    assert_eq!(refused.status, 404, "{}", refused.raw);
    assert_eq!(refused.body["error"]["code"], "previous_response_not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_previous_response_gives_the_model_the_whole_conversation_with_its_cells() {
    for form in FORMS {
        let world = world(&["one", "two"]).await;
        let first = world.ask(Wire::Responses, &question(Wire::Responses, form, "first question")).await;
        let mut next = question(Wire::Responses, form, "second question");
        next["previous_response_id"] = first.body["id"].clone();
        let foreign = world.client.post(format!("{}/v1/responses", world.base)).bearer_auth(BOB).json(&next);
        assert_eq!(foreign.send().await.unwrap().status().as_u16(), 404);
        let second = world.ask(Wire::Responses, &next).await;
        assert_eq!(second.text(), "two", "{}", second.raw);
        assert_eq!(second.body["previous_response_id"], first.body["id"]);
        let sent = String::from_utf8(world.model.requests()[2].body.clone()).unwrap();
        for part in ["first question", "hidden value", "one", "second question"] {
            assert!(sent.contains(part), "{part} in {sent}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn references_to_items_are_resolved_and_unknown_ones_are_named() {
    let world = world(&["one", "two"]).await;
    let first = world.ask(Wire::Responses, &question(Wire::Responses, Form::Whole, "first question")).await;
    let item = first.body["output"][0]["id"].clone();
    let input = vec![
        json!({"role": "user", "content": "first question"}),
        json!({"type": "item_reference", "id": item}),
        json!({"role": "user", "content": "second question"}),
    ];
    let second = world.ask(Wire::Responses, &conversation(Wire::Responses, Form::Stream, input)).await;
    assert_eq!(second.text(), "two", "{}", second.raw);
    let sent = String::from_utf8(world.model.requests()[2].body.clone()).unwrap();
    assert!(sent.contains("hidden value"), "the conversation was recognized: {sent}");
    let unknown = vec![json!({"type": "item_reference", "id": "msg_unknown"}), json!({"role": "user", "content": "x"})];
    let refused = world.ask(Wire::Responses, &conversation(Wire::Responses, Form::Whole, unknown)).await;
    assert_eq!(refused.status, 404, "{}", refused.raw);
    assert!(refused.error().unwrap().contains("msg_unknown"), "{}", refused.raw);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_in_progress_is_seen_and_cancelled() {
    let never = json!([{"id": "openclaw:core:never", "answers": [{"never": true}]}]);
    let script = vec![exec("return await tools.never({})"), Reply::text("must not be asked for")];
    let world = World::start(Options { tools: never, ..Options::default() }, script).await;
    let sent = world.request(path(Wire::Responses), &question(Wire::Responses, Form::Stream, "wait")).send();
    let mut response = sent.await.unwrap();
    let first = String::from_utf8(response.chunk().await.unwrap().unwrap().to_vec()).unwrap();
    let created = crate::answer::events(&first).remove(0);
    let id = created.data["response"]["id"].as_str().unwrap().to_owned();
    world.model_requests(1).await;
    let (status, body) = world.get(&format!("/v1/responses/{id}")).await;
    assert_eq!((status, &body["status"], &body["id"]), (200, &json!("in_progress"), &json!(id)));
    let cancel = |token: &str| {
        let url = format!("{}/v1/responses/{id}/cancel", world.base);
        world.client.post(url).bearer_auth(token).send()
    };
    assert_eq!(cancel(BOB).await.unwrap().status().as_u16(), 404);
    let turn_id = world.gateway.live_responses("ada")[0].0.clone();
    let cancelled: Value = cancel(ADA).await.unwrap().json().await.unwrap();
    assert_eq!(cancelled["status"], "cancelled", "{cancelled}");
    let rest = Answer::read(Wire::Responses, response).await;
    assert_eq!(rest.events.last().unwrap().name, "response.failed", "{}", rest.raw);
    wait_until(|| (world.gateway.live_turns() == 0).then_some(())).await;
    assert_eq!(world.store.turn(&turn_id).await.unwrap().unwrap().state, TurnState::Aborted);
    assert_eq!(world.model.requests().len(), 1);
    let (status, body) = world.get(&format!("/v1/responses/{id}")).await;
    assert_eq!((status, &body["status"]), (200, &json!("cancelled")), "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thread_continues_with_its_own_tools_and_instructions() {
    for form in FORMS {
        let world = world(&["one", "two"]).await;
        let mut create = question(Wire::Messages, form, "first question");
        create["thread"] = json!({"type": "create"});
        create["system"] = json!("Speak like a pirate.");
        create["tools"] = json!([{"name": "weather", "input_schema": {"type": "object"}}]);
        let first = world.ask(Wire::Messages, &create).await;
        assert_eq!(first.text(), "one", "{}", first.raw);
        let mut next = question(Wire::Messages, form, "second question");
        next["thread"] = json!({"type": "continue", "previous_message_id": first.body["id"]});
        let second = world.ask(Wire::Messages, &next).await;
        assert_eq!(second.text(), "two", "{}", second.raw);
        let sent = String::from_utf8(world.model.requests()[2].body.clone()).unwrap();
        for part in ["first question", "hidden value", "second question", "Speak like a pirate."] {
            assert!(sent.contains(part), "{part} in {sent}");
        }
        let turns = world.store.sessions(&store::SessionFilter::default(), 10, None).await.unwrap();
        assert_eq!((turns.len(), turns[0].turns), (1, 2), "both turns are in one session");
        let foreign = world.client.post(format!("{}/v1/messages?beta=true", world.base)).header("x-api-key", BOB);
        let foreign = foreign.bearer_auth(BOB).json(&next).send().await.unwrap();
        let refused = Answer::read(Wire::Messages, foreign).await;
        assert_eq!(refused.status, 404, "{}", refused.raw);
        assert_eq!(refused.body["error"]["details"]["error_code"], "thread_not_found", "{}", refused.raw);
    }
}
