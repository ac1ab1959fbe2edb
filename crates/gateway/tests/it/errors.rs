//! Errors in the form of each wire, with what clients need to decide whether to repeat a request.

use serde_json::json;
use testkit::model::Reply;
use wire::Wire;

use crate::answer::Answer;
use crate::world::{Form, Options, WIRES, World, exec, path, question};

fn header<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    answer.headers.get(name).map(|value| value.to_str().unwrap())
}

fn error_type(answer: &Answer) -> &str {
    answer.body["error"]["type"].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_cannot_be_served_are_refused_in_the_form_of_the_wire() {
    let world = World::start(Options::default(), Vec::new()).await;
    for wire in WIRES {
        let mut unknown = question(wire, Form::Stream, "hi");
        unknown["model"] = json!("gpt-unknown");
        let empty = json!({"model": "openclaw", "messages": [], "input": 7, "max_tokens": 1});
        for (body, status, kind) in [(unknown, 404, "not_found_error"), (empty, 400, "invalid_request_error")] {
            let answer = world.ask(wire, &body).await;
            assert_eq!(answer.status, status, "{}", answer.raw);
            let expected = if wire == Wire::Messages { kind } else { "invalid_request_error" };
            assert_eq!(error_type(&answer), expected, "{}", answer.raw);
            assert_eq!(header(&answer, "x-should-retry"), Some("false"));
            assert!(header(&answer, "request-id").unwrap().starts_with("req_"));
        }
        let request = world.client.post(format!("{}{}", world.base, path(wire))).bearer_auth("wrong-0123456789abcdef");
        let answer = Answer::read(wire, request.json(&json!({})).send().await.unwrap()).await;
        let expected = if wire == Wire::Messages { "authentication_error" } else { "invalid_request_error" };
        assert_eq!((answer.status, error_type(&answer)), (401, expected), "{}", answer.raw);
        assert!(header(&answer, "request-id").is_some());
    }
    assert!(world.model.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_of_responses_that_are_not_supported_are_refused_with_their_name() {
    let world = World::start(Options::default(), Vec::new()).await;
    for (field, value) in
        [("background", json!(true)), ("conversation", json!("conv_1")), ("prompt", json!({"id": "p"}))]
    {
        let mut body = question(Wire::Responses, Form::Whole, "hi");
        body[field] = value;
        let answer = world.ask(Wire::Responses, &body).await;
        assert_eq!((answer.status, &answer.body["error"]["param"]), (400, &json!(field)), "{}", answer.raw);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_overloaded_or_limited_provider_is_reported_as_the_wire_does() {
    let many = |status: u16| vec![Reply { times: Some(8), ..Reply::status(status, "secret words of the provider") }];
    for wire in WIRES {
        for (status, expected, kind) in [(529, 503, "server_error"), (429, 429, "rate_limit_exceeded")] {
            let mut script = many(status);
            // A provider that asks for a long pause is not asked again.
            script[0].headers = vec![("retry-after".to_owned(), "600".to_owned())];
            let world = World::start(Options::default(), script).await;
            let answer = world.ask(wire, &question(wire, Form::Whole, "hi")).await;
            let (expected, kind) = match (wire, status) {
                (Wire::Messages, 529) => (529, "overloaded_error"),
                (Wire::Messages, _) => (429, "rate_limit_error"),
                _ => (expected, kind),
            };
            assert_eq!((answer.status, error_type(&answer)), (expected, kind), "{}", answer.raw);
            assert_eq!(header(&answer, "retry-after"), Some("600"), "{:?}", answer.headers);
            assert_eq!(header(&answer, "x-should-retry"), None, "nothing was done, so it may be repeated");
            assert!(!answer.raw.contains("secret words"), "{}", answer.raw);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_is_asked_to_wait_for_at_most_an_hour() {
    let mut reply = Reply::status(429, "come back next week");
    reply.headers = vec![("retry-after".to_owned(), "604800".to_owned())];
    let world = World::start(Options::default(), vec![reply]).await;
    let answer = world.ask(Wire::Chat, &question(Wire::Chat, Form::Whole, "hi")).await;
    assert_eq!((answer.status, header(&answer, "retry-after")), (429, Some("3600")), "{}", answer.raw);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_after_a_cell_was_run_must_not_be_repeated() {
    for wire in WIRES {
        let script = vec![exec("return 1"), Reply::status(403, "no")];
        let world = World::start(Options::default(), script).await;
        let answer = world.ask(wire, &question(wire, Form::Whole, "hi")).await;
        assert_eq!((answer.status, header(&answer, "x-should-retry")), (502, Some("false")), "{}", answer.raw);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_fails_ends_with_the_error_event_of_its_wire() {
    for wire in WIRES {
        let cut =
            Reply { cut_after_bytes: Some(700), ..Reply::text("these words arrive before it is cut off for good") };
        let world = World::start(Options::default(), vec![cut]).await;
        let answer = world.ask(wire, &question(wire, Form::Stream, "hi")).await;
        assert_eq!(answer.status, 200, "{}", answer.raw);
        let last = answer.events.last().unwrap();
        match wire {
            Wire::Chat => assert!(last.data["error"]["message"].is_string(), "{}", answer.raw),
            Wire::Responses => {
                assert_eq!(last.name, "response.failed", "{}", answer.raw);
                assert_eq!(last.data["response"]["status"], "failed", "{}", answer.raw);
                assert!(last.data["response"]["error"]["message"].is_string(), "{}", answer.raw);
            }
            Wire::Messages => {
                assert_eq!((last.name.as_str(), &last.data["type"]), ("error", &json!("error")), "{}", answer.raw);
            }
        }
        assert!(answer.error().unwrap().contains("not complete"), "{}", answer.raw);
        assert!(!answer.raw.contains("[DONE]") && !answer.raw.contains("message_stop"), "{}", answer.raw);
    }
}
