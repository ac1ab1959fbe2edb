//! Tools of the client that a cell calls.

use rustix::process::Signal;
use serde_json::json;
use testkit::model::Reply;

use super::running::{Running, Setup, cell, when_last};
use super::wires::{Answer, Wire};

/// Two calls at once, then one that depends on them.
const CODE: &str = "const found = await Promise.all([tools.look({n: 1}), tools.look({n: 2})]); \
    const last = await tools.look({n: 3}); return JSON.stringify([...found, last])";

fn setup() -> Setup {
    Setup::new(json!([]), vec![when_last("look", cell(CODE)), when_last("third", Reply::text("All three were seen."))])
}

/// Sends the first request and answers the calls of the first round. Returns the conversation and the second round.
fn first_rounds(running: &Running, wire: Wire, stream: bool) -> (Vec<serde_json::Value>, Answer) {
    let mut items = wire.user("look three times");
    let first = running.send(wire, &wire.request(&items, true, stream));
    let numbers: Vec<_> = first.calls.iter().map(|call| (call.name.clone(), call.arguments["n"].clone())).collect();
    let expected = vec![("look".to_owned(), json!(1)), ("look".to_owned(), json!(2))];
    assert_eq!(numbers, expected, "{wire:?} {}", first.body);
    items.extend(first.items);
    items.extend(wire.results(&[(&first.calls[0].id, "first"), (&first.calls[1].id, "second")]));
    let second = running.send(wire, &wire.request(&items, true, stream));
    assert_eq!(second.calls.len(), 1, "{wire:?} {}", second.body);
    assert_eq!(second.calls[0].arguments["n"], 3);
    items.extend(second.items.clone());
    (items, second)
}

#[test]
fn a_cell_calls_tools_of_the_client_in_two_rounds_over_each_wire() {
    let setup = setup();
    let running = setup.start();
    for wire in Wire::ALL {
        for stream in [false, true] {
            let (mut items, second) = first_rounds(&running, wire, stream);
            items.extend(wire.results(&[(&second.calls[0].id, "third")]));
            let last = running.send(wire, &wire.request(&items, true, stream));
            assert_eq!((last.text.as_str(), last.calls.len()), ("All three were seen.", 0), "{wire:?} {}", last.body);
        }
    }
    // Each of the six turns asked the model twice: for the cell, and for the answer.
    let requests = setup.model.requests();
    assert_eq!(requests.len(), 12);
    let seen = requests.last().unwrap().json()["messages"].to_string();
    assert!(["first", "second", "third"].iter().all(|text| seen.contains(text)), "{seen}");
}

#[test]
fn a_gateway_that_is_killed_while_the_client_holds_a_call_resumes_the_cell_after_a_restart() {
    let setup = setup();
    for wire in Wire::ALL {
        let mut running = setup.start();
        let (mut items, second) = first_rounds(&running, wire, true);
        running.signal(Signal::KILL);
        assert!(!running.wait().success());
        let again = setup.start();
        items.extend(wire.results(&[(&second.calls[0].id, "third")]));
        let last = again.send(wire, &wire.request(&items, true, true));
        assert_eq!(last.text, "All three were seen.", "{wire:?} {}", last.body);
    }
}

#[test]
fn a_client_that_answers_only_some_calls_is_refused_and_may_answer_all_later() {
    let setup = setup();
    let running = setup.start();
    for wire in Wire::ALL {
        let mut items = wire.user("look three times");
        let first = running.send(wire, &wire.request(&items, true, false));
        items.extend(first.items);
        let (one, other) = (&first.calls[0].id, &first.calls[1].id);
        let some: Vec<_> = items.iter().cloned().chain(wire.results(&[(one, "first")])).collect();
        let refused = running.send(wire, &wire.request(&some, true, false));
        assert_eq!(refused.status, 400, "{}", refused.body);
        assert!(refused.body.contains(other.as_str()), "{}", refused.body);
        let all: Vec<_> = items.iter().cloned().chain(wire.results(&[(one, "first"), (other, "second")])).collect();
        let second = running.send(wire, &wire.request(&all, true, false));
        assert_eq!(second.calls.len(), 1, "{}", second.body);
    }
}
