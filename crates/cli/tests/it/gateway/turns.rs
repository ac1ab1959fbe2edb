//! Turns with the tools of a configured server, and decisions about them.

use std::time::Duration;

use serde_json::json;
use testkit::model::Reply;

use super::running::{Setup, cell, when_last};
use super::wires::Wire;
use crate::mcp::place::{reads, writes};

#[test]
fn a_turn_over_each_wire_runs_a_cell_with_the_tools_of_a_server() {
    let sum = json!([{"result": {"content": [], "structuredContent": {"sum": 3}}}]);
    let code = "return (await MCP.s.add({})).structuredContent.sum + 39";
    let replies = vec![when_last("add them", cell(code)), when_last("42", Reply::text("The sum is 42."))];
    let setup = Setup::new(json!([reads("add", sum)]), replies);
    let running = setup.start();
    for wire in Wire::ALL {
        for stream in [false, true] {
            let answer = running.send(wire, &wire.request(&wire.user("add them"), false, stream));
            assert_eq!((answer.status, answer.text.as_str()), (200, "The sum is 42."), "{wire:?} {}", answer.body);
            assert!(answer.calls.is_empty(), "{}", answer.body);
        }
    }
    let requests = setup.model.wait_for_requests(12, Duration::from_secs(60)).unwrap();
    for request in &requests {
        let tools = request.json()["tools"].as_array().unwrap().clone();
        let names: Vec<&str> = tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["exec", "wait"]);
        assert_eq!(request.header("authorization"), Some("Bearer key-of-the-model"));
    }
}

#[test]
fn a_later_message_continues_the_conversation_with_what_the_model_saw() {
    let replies = vec![
        when_last("count", cell("return 40 + 2")),
        when_last("42", Reply::text("It is 42.")),
        when_last("again", Reply::text("Still 42.")),
    ];
    // Without any tool, the model would be shown none.
    let setup = Setup::new(json!([reads("add", json!([]))]), replies);
    let running = setup.start();
    for wire in Wire::ALL {
        let mut items = wire.user("count");
        let first = running.send(wire, &wire.request(&items, false, true));
        assert_eq!(first.text, "It is 42.", "{wire:?} {}", first.body);
        items.extend(first.items);
        items.extend(wire.user("again"));
        let second = running.send(wire, &wire.request(&items, false, false));
        assert_eq!(second.text, "Still 42.", "{wire:?} {}", second.body);
        let last = setup.model.requests().pop().unwrap().json();
        let said = last["messages"].as_array().unwrap().iter().filter(|message| message["role"] == "assistant").count();
        assert_eq!(said, 2, "the cell and the answer: {last}");
        assert!(last.to_string().contains("return 40 + 2"), "{last}");
    }
}

#[test]
fn an_approval_that_the_operator_gives_during_the_turn_lets_it_finish() {
    let code = "return (await MCP.s.push({})).structuredContent.done";
    let replies = vec![when_last("push it", cell(code)), Reply::text("Pushed.")];
    let setup = Setup::new(json!([writes("push")]), replies);
    let running = setup.start();
    let answer = std::thread::scope(|scope| {
        let turn =
            scope.spawn(|| running.send(Wire::Chat, &Wire::Chat.request(&Wire::Chat.user("push it"), false, true)));
        let approval = setup.pending_approval();
        assert!(!setup.place.received().contains("tools/call"));
        let decided = setup.place.approvals(&["approve", &approval]);
        assert!(decided.status.success(), "{decided:?}");
        turn.join().unwrap()
    });
    assert_eq!(answer.text, "Pushed.", "{}", answer.body);
    assert_eq!(setup.place.received().matches("\"tools/call\"").count(), 1);
}

#[test]
fn a_provider_that_fails_is_an_error_of_the_wire() {
    let setup = Setup::new(json!([]), vec![when_last("hello", Reply::status(401, "bad key key-of-the-model"))]);
    let running = setup.start();
    for wire in Wire::ALL {
        let answer = running.send(wire, &wire.request(&wire.user("hello"), false, false));
        assert_eq!(answer.status, 502, "{wire:?} {}", answer.body);
        assert!(
            answer.body.contains("the operator must check it") && !answer.body.contains("key-of"),
            "{}",
            answer.body
        );
    }
}
