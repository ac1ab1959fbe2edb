//! The model's reasoning, as clients receive it and send it back.

use serde_json::{Value, json};
use testkit::model::{Api, Reply};
use wire::Wire;

use crate::answer::Answer;
use crate::checker::problems;
use crate::world::{APIS, FORMS, Form, Options, WIRES, World, conversation, exec};

/// What providers sign or encrypt, in the words of the scripted model.
const SECRETS: [&str; 2] = ["EqQBscripted", "gAAAAABscripted"];

fn script() -> Vec<Reply> {
    vec![
        Reply { reasoning: "First I look.".to_owned(), ..exec("return 'hid' + 'den'") },
        Reply { reasoning: "Now I know.".to_owned(), ..Reply::text("It is done.") },
        Reply::text("Again."),
        Reply::text("Again."),
        Reply::text("Again."),
    ]
}

/// Returns a request that asks for reasoning, where the wire needs that.
fn request(wire: Wire, form: Form, messages: Vec<Value>) -> Value {
    let mut body = conversation(wire, form, messages);
    if wire == Wire::Messages {
        body["thinking"] = json!({"type": "enabled", "budget_tokens": 1_024});
    }
    body
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

/// Returns what a client sends back that drops the reasoning.
fn without_reasoning(answer: &Answer) -> Vec<Value> {
    let mut history = answer.as_history();
    history.retain(|item| item["type"] != "reasoning");
    for message in &mut history {
        message.as_object_mut().unwrap().remove("reasoning_content");
        if let Some(blocks) = message["content"].as_array_mut() {
            blocks.retain(|block| block["type"] != "thinking");
        }
    }
    history
}

fn last_prompt(world: &World) -> String {
    String::from_utf8(world.model.requests().last().unwrap().body.clone()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn reasoning_reaches_the_client_on_its_wire_without_what_the_provider_signed() {
    for api in APIS {
        for wire in WIRES {
            for form in FORMS {
                let world = World::start(Options { api, ..Options::default() }, script()).await;
                let answer = world.ask(wire, &request(wire, form, vec![user("hi")])).await;
                let case = format!("{api:?} {wire:?} {form:?}: {}", answer.raw);
                assert_eq!((answer.status, answer.text().as_str()), (200, "It is done."), "{case}");
                assert_eq!(answer.reasoning(), "First I look.\n\nNow I know.", "{case}");
                assert_eq!(problems(&answer), [""; 0], "{case}");
                assert!(SECRETS.iter().all(|secret| !answer.raw.contains(secret)), "{case}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_is_found_whether_the_client_sends_reasoning_back_or_drops_it() {
    for api in APIS {
        for wire in WIRES {
            let world = World::start(Options { api, ..Options::default() }, script()).await;
            let answer = world.ask(wire, &request(wire, Form::Stream, vec![user("hi")])).await;
            for history in [answer.as_history(), without_reasoning(&answer)] {
                let messages = [vec![user("hi")], history, vec![user("and then?")]].concat();
                let next = world.ask(wire, &request(wire, Form::Whole, messages)).await;
                assert_eq!(next.text(), "Again.", "{api:?} {wire:?}: {}", next.raw);
                let prompt = last_prompt(&world);
                let case = format!("{api:?} {wire:?}: {prompt}");
                // The model sees its own messages as it wrote them, with the cell that the client never saw.
                assert!(prompt.contains("hidden") && prompt.matches("It is done.").count() == 1, "{case}");
                assert_eq!(prompt.matches("Now I know.").count(), 1, "{case}");
                let kept = match api {
                    Api::Chat => "reasoning_content",
                    Api::Responses => SECRETS[1],
                    Api::Messages => SECRETS[0],
                };
                assert_eq!(prompt.matches(kept).count(), 2, "{case}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reasoning_of_an_edited_conversation_is_not_sent_to_the_provider() {
    for (api, wire) in APIS.into_iter().zip(WIRES) {
        let world = World::start(Options { api, ..Options::default() }, script()).await;
        let answer = world.ask(wire, &request(wire, Form::Whole, vec![user("hi")])).await;
        let edited = json!(answer.as_history()).to_string().replace("It is done.", "It was never done.");
        let edited: Vec<Value> = serde_json::from_str(&edited).unwrap();
        let messages = [vec![user("hi")], edited, vec![user("and then?")]].concat();
        assert_eq!(world.ask(wire, &request(wire, Form::Whole, messages)).await.text(), "Again.");
        let prompt = last_prompt(&world);
        assert!(prompt.contains("It was never done.") && !prompt.contains("I know"), "{api:?}: {prompt}");
        assert!(!prompt.contains("\"signature\"") && !prompt.contains("\"reasoning\""), "{api:?}: {prompt}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_messages_that_did_not_ask_gets_no_reasoning() {
    for form in FORMS {
        let world = World::start(Options { api: Api::Messages, ..Options::default() }, script()).await;
        let answer = world.ask(Wire::Messages, &conversation(Wire::Messages, form, vec![user("hi")])).await;
        assert_eq!((answer.text().as_str(), answer.reasoning().as_str()), ("It is done.", ""), "{}", answer.raw);
        assert!(!answer.raw.contains("thinking"), "{}", answer.raw);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_response_and_its_references_have_the_reasoning_that_was_sent() {
    let world = World::start(Options { api: Api::Responses, ..Options::default() }, script()).await;
    let answer = world.ask(Wire::Responses, &request(Wire::Responses, Form::Stream, vec![user("hi")])).await;
    let id = answer.body["id"].as_str().unwrap();
    let (status, stored) = world.get(&format!("/v1/responses/{id}")).await;
    assert_eq!((status, &stored["output"]), (200, &answer.body["output"]));
    let references = answer.body["output"].as_array().unwrap();
    let references = references.iter().map(|item| json!({"type": "item_reference", "id": item["id"]}));
    let messages = [vec![user("hi")], references.collect(), vec![user("and then?")]].concat();
    let next = world.ask(Wire::Responses, &request(Wire::Responses, Form::Whole, messages)).await;
    assert_eq!(next.text(), "Again.", "{}", next.raw);
    assert!(last_prompt(&world).contains("hidden"), "{}", last_prompt(&world));
}
