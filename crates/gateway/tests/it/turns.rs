//! Turns of agents with server tools, on every pair of wires.

use serde_json::{Value, json};
use testkit::model::{Api, Reply};
use wire::Wire;

use crate::world::{APIS, FORMS, Form, Options, WIRES, World, conversation, exec, question};

#[tokio::test(flavor = "multi_thread")]
async fn a_cell_of_a_turn_calls_a_server_tool_on_every_pair_of_wires() {
    for api in APIS {
        for wire in WIRES {
            for form in FORMS {
                let script = vec![exec("return await tools.add({a: 1})"), Reply::text("it is 42")];
                let world = World::start(Options { api, ..Options::default() }, script).await;
                let answer = world.ask(wire, &question(wire, form, "add something")).await;
                let case = format!("{api:?} {wire:?} {form:?}: {}", answer.raw);
                assert_eq!(answer.status, 200, "{case}");
                assert_eq!(answer.text(), "it is 42", "{case}");
                assert!(answer.calls().is_empty(), "{case}");
                assert_eq!(answer.events.is_empty(), form == Form::Whole, "{case}");
                let requests = world.model.requests();
                assert_eq!(requests.len(), 2, "{case}");
                let second = String::from_utf8(requests[1].body.clone()).unwrap();
                assert!(second.contains("42") && second.contains("completed"), "{second}");
            }
        }
    }
}
