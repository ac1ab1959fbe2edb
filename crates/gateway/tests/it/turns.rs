//! Turns of agents with server tools, on every pair of wires.

use catalog::SurfaceChoice;
use serde_json::{Value, json};
use testkit::model::{Api, Reply};
use wire::Wire;

use crate::checker::problems;
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
                assert_eq!(problems(&answer), [""; 0], "{case}");
                assert_eq!(answer.events.is_empty(), form == Form::Whole, "{case}");
                // The prompt of the last request, and the output of both.
                assert_eq!(answer.usage(), (12, 10), "{case}");
                assert!(answer.headers.contains_key("request-id"), "{case}");
                let requests = world.model.requests();
                assert_eq!(requests.len(), 2, "{case}");
                let second = String::from_utf8(requests[1].body.clone()).unwrap();
                assert!(second.contains("42") && second.contains("completed"), "{second}");
            }
        }
    }
}

/// Returns the names of the tools in a request to a provider.
fn tool_names(request: &Value) -> Vec<String> {
    let tools = request["tools"].as_array().cloned().unwrap_or_default();
    let name = |tool: &Value| tool.pointer("/function/name").or(tool.get("name")).unwrap().as_str().unwrap().to_owned();
    tools.iter().map(name).collect()
}

fn many_tools(count: usize) -> Value {
    let tool = |number: usize| {
        json!({"id": format!("openclaw:core:tool_{number}"), "description": "Does one of many things. ".repeat(4),
            "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "Where."}}}})
    };
    (0..count).map(tool).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_model_sees_only_exec_and_wait_however_many_tools_there_are() {
    for api in APIS {
        let mut sizes = Vec::new();
        for count in [10, 100, 500] {
            let options = Options { api, tools: many_tools(count), ..Options::default() };
            let world = World::start(options, vec![Reply::text("ok")]).await;
            let answer = world.ask(Wire::Chat, &question(Wire::Chat, Form::Whole, "hi")).await;
            assert_eq!(answer.text(), "ok", "{}", answer.raw);
            let body = world.model.requests()[0].json();
            assert_eq!(tool_names(&body), ["exec", "wait"], "{api:?} {count}");
            sizes.push(body["tools"].to_string().len());
        }
        assert!(sizes.iter().all(|size| *size <= 4_096), "{api:?}: {sizes:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chosen_surface_is_what_the_model_sees() {
    let cases = [
        (SurfaceChoice::Code, vec!["exec", "wait"]),
        (SurfaceChoice::Search, vec!["tool_search", "tool_describe", "tool_call"]),
        (SurfaceChoice::Direct, vec!["tool_0", "tool_1", "tool_2"]),
    ];
    for api in APIS {
        for (choice, expected) in &cases {
            let tools_config = json!({"toolSearch": {"mode": "tools"}});
            let options =
                Options { api, tools: many_tools(3), surface: Some(*choice), tools_config, ..Options::default() };
            let world = World::start(options, vec![Reply::text("ok")]).await;
            let answer = world.ask(Wire::Messages, &question(Wire::Messages, Form::Stream, "hi")).await;
            assert_eq!(answer.text(), "ok", "{}", answer.raw);
            let mut names = tool_names(&world.model.requests()[0].json());
            names.sort();
            let mut expected = expected.clone();
            expected.sort_unstable();
            assert_eq!(names, expected, "{api:?} {choice:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_is_shown_directly_or_found_by_search_is_called() {
    let script = |call: Reply| vec![call, Reply::text("done")];
    let direct = script(Reply::call("tool_1", json!({"city": "Rome"})));
    let search = script(Reply::call("tool_call", json!({"id": "openclaw:core:tool_1", "args": {"city": "Rome"}})));
    for (surface, script) in [(SurfaceChoice::Direct, direct), (SurfaceChoice::Search, search)] {
        let tools_config = json!({"toolSearch": {"mode": "tools"}});
        let options = Options { tools: many_tools(3), surface: Some(surface), tools_config, ..Options::default() };
        let world = World::start(options, script).await;
        let answer = world.ask(Wire::Chat, &question(Wire::Chat, Form::Whole, "hi")).await;
        assert_eq!(answer.text(), "done", "{}", answer.raw);
        let second = world.model.requests()[1].json();
        let result = second["messages"].as_array().unwrap().last().unwrap().clone();
        assert_eq!(result["role"], "tool", "{result}");
        assert!(result.to_string().contains("Rome"), "{surface:?}: {result}");
    }
}

/// Returns the length of the common prefix.
fn common(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_turns_of_a_conversation_share_a_growing_prefix_with_hidden_cells() {
    for (api, wire) in [(Api::Chat, Wire::Chat), (Api::Responses, Wire::Messages), (Api::Messages, Wire::Responses)] {
        let replies = (0..20).flat_map(|turn| {
            [
                exec(&format!("return {{hidden: {turn}, sum: await tools.add({{}})}}")),
                Reply::text(&format!("answer {turn}")),
            ]
        });
        let world = World::start(Options { api, ..Options::default() }, replies.collect()).await;
        let mut messages = Vec::new();
        for turn in 0..20 {
            messages.push(json!({"role": "user", "content": format!("question {turn}")}));
            let form = if turn % 2 == 0 { Form::Stream } else { Form::Whole };
            let answer = world.ask(wire, &conversation(wire, form, messages.clone())).await;
            assert_eq!(answer.text(), format!("answer {turn}"), "{}", answer.raw);
            messages.extend(answer.as_history());
        }
        let requests = world.model.requests();
        assert_eq!(requests.len(), 40);
        let last = String::from_utf8(requests[39].body.clone()).unwrap();
        for turn in 0..20 {
            assert!(last.contains(&format!("hidden: {turn},")), "{api:?}: the cell of turn {turn} is in the history");
        }
        let mut before = 0;
        for pair in requests.windows(2) {
            let shared = common(&pair[0].body, &pair[1].body);
            assert!(shared > before, "{api:?}: {shared} after {before}");
            // All but the end of the shorter one: its closing brackets, and the cache mark of its last message.
            let rest = pair[0].body.len() - shared;
            assert!(rest <= 60, "{api:?}: {}", String::from_utf8_lossy(&pair[0].body[shared..]));
            before = shared;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_of_five_model_calls_reports_the_last_prompt_and_all_outputs() {
    let script = (0..4).map(|number| exec(&format!("return {number}"))).chain([Reply::text("five")]).collect();
    let world = World::start(Options::default(), script).await;
    let answer = world.ask(Wire::Messages, &question(Wire::Messages, Form::Whole, "go")).await;
    assert_eq!((answer.text().as_str(), answer.usage()), ("five", (12, 25)), "{}", answer.raw);
}
