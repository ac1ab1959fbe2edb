//! Which tools the model sees, depending on configuration and request.

use std::sync::Arc;

use contract::config::pattern::Pattern;
use contract::config::policy::Lists;
use contract::error::ErrorCode;
use executor::ToolSource;
use executor::run::{PrepareError, RequestedTools, RunRequest, prepare};
use serde_json::{Value, json};

use crate::fake_tools::{Behavior, FakeTools};
use crate::world::{Parts, World, request};

const CORE: [(&str, Behavior); 2] = [("openclaw:core:read", Behavior::Echo), ("openclaw:core:exec", Behavior::Echo)];

fn parts(tools: Value) -> Parts {
    let core = FakeTools::new(CORE);
    let plugin = FakeTools::new([("plugin:browser:browser_request", Behavior::Echo)]);
    let server = FakeTools::new([("mcp:github:create_issue", Behavior::Echo)]);
    Parts { tools, sources: vec![core, plugin, server], ..Parts::default() }
}

fn names(world: &World, request: &RunRequest) -> Vec<String> {
    world.prepared(request).prepared.visible.iter().map(|tool| tool.name.clone()).collect()
}

fn client_request() -> RunRequest {
    let client: Arc<dyn ToolSource> = FakeTools::new([("client:app:select_file", Behavior::Echo)]);
    RunRequest { client_tools: vec![client], ..request("main/session/run") }
}

#[tokio::test]
async fn without_code_mode_the_model_sees_every_tool_directly() {
    let direct = ["exec", "read", "browser_request", "github__create_issue", "select_file"];
    for tools in [Value::Null, json!({}), json!({"codeMode": false}), json!({"codeMode": {"timeoutMs": 500}})] {
        let world = parts(tools.clone()).open().await;
        let run = world.prepared(&client_request());
        assert_eq!(names(&world, &client_request()), direct, "{tools}");
        let shown: Vec<&Value> = run.prepared.visible.iter().map(|tool| &tool.parameters).collect();
        assert!(shown.iter().all(|parameters| parameters["type"] == "object"), "{shown:?}");
        run.prepared.surface.verify(&direct).unwrap();
        assert!(run.prepared.surface.verify(&["exec", "wait"]).is_err());
    }
}

#[tokio::test]
async fn with_code_mode_the_model_sees_only_exec_and_wait() {
    for tools in [json!({"codeMode": true}), json!({"codeMode": {"enabled": true}})] {
        let world = parts(tools.clone()).open().await;
        assert_eq!(names(&world, &client_request()), ["exec", "wait"], "{tools}");
        let surface = world.prepared(&client_request()).prepared.surface;
        surface.verify(&["exec", "wait"]).unwrap();
        for wrong in [&["exec"][..], &["exec", "wait", "read"], &["exec", "wait", "exec"], &["exec", "tool_call"], &[]]
        {
            assert!(surface.verify(wrong).is_err(), "{wrong:?}");
        }
    }
}

#[tokio::test]
async fn code_mode_takes_precedence_over_tool_search() {
    // A source offers tools under the ids of all control tools.
    let control = FakeTools::new([
        ("openclaw:core:wait", Behavior::Echo),
        ("openclaw:core:tool_search_code", Behavior::Echo),
        ("openclaw:core:tool_search", Behavior::Echo),
        ("openclaw:core:tool_describe", Behavior::Echo),
        ("openclaw:core:tool_call", Behavior::Echo),
    ]);
    let mut parts = parts(json!({"codeMode": true, "toolSearch": true}));
    parts.sources.push(control.clone());
    let world = parts.open().await;
    assert_eq!(names(&world, &request("main/session/run")), ["exec", "wait"]);
    let cell = r#"
        const ids = ["wait", "tool_search_code", "tool_search", "tool_describe", "tool_call"].map(name => "openclaw:core:" + name)
        const failed = promise => promise.then(() => "answered", error => error.message.split(";")[0])
        return {
          listed: ALL_TOOLS.map(tool => tool.name),
          functions: Object.keys(tools),
          globals: [typeof openclaw, typeof tool_search, typeof tool_search_code],
          found: (await tools.search("tool search describe call wait", { limit: 50 })).map(hit => hit.name).sort(),
          called: await Promise.all(ids.map(id => failed(tools.call(id, {})))),
          described: await Promise.all(ids.map(id => failed(tools.describe(id)))),
        }
    "#;
    let result = world.run().exec(cell).await;
    let unknown = ["wait", "tool_search_code", "tool_search", "tool_describe", "tool_call"]
        .map(|name| format!("unknown tool `openclaw:core:{name}`"));
    let value = &result["value"];
    assert_eq!(value["listed"], json!(["exec", "read", "browser_request"]), "{result}");
    assert_eq!(value["functions"], json!(["search", "describe", "call", "browser_request", "exec", "read"]));
    assert_eq!(value["globals"], json!(["undefined", "undefined", "undefined"]));
    assert!(
        value["found"]
            .as_array()
            .unwrap()
            .iter()
            .all(|name| ["browser_request", "exec", "read"].contains(&name.as_str().unwrap())),
        "{result}"
    );
    assert_eq!((&value["called"], &value["described"]), (&json!(unknown), &json!(unknown)));
    assert_eq!(result["telemetry"]["catalogSize"], 4, "{result}");
    assert_eq!(control.called(), [""; 0]);
}

#[tokio::test]
async fn a_run_that_requests_no_tools_sees_none_in_any_configuration() {
    let world = parts(json!({"codeMode": true})).open().await;
    let empty = Lists { allow: Some(Vec::new()), ..Lists::default() };
    let nothing = Lists { deny: vec![Pattern::parse("*").unwrap()], ..Lists::default() };
    for tools in [RequestedTools::None, RequestedTools::Lists(empty), RequestedTools::Lists(nothing)] {
        let request = RunRequest { tools, ..client_request() };
        assert_eq!(names(&world, &request), [""; 0], "{request:?}");
        world.prepared(&request).prepared.surface.verify(&[]).unwrap();
    }
    // A host without any tools shows none either, although code mode is enabled.
    let bare = Parts { tools: json!({"codeMode": true}), ..Parts::default() }.open().await;
    assert_eq!(names(&bare, &request("main/session/run")), [""; 0]);
}

#[tokio::test]
async fn without_a_runtime_code_mode_fails_instead_of_showing_tools_directly() {
    let mut world = parts(json!({"codeMode": true})).open().await;
    world.host.runtime_available = false;
    match prepare(&world.host, &client_request()) {
        Err(PrepareError::Surface(error)) => assert_eq!(error.code(), ErrorCode::RuntimeUnavailable),
        other => panic!("{other:?}"),
    }
    // A run that requests no tools needs no runtime.
    let request = RunRequest { tools: RequestedTools::None, ..client_request() };
    assert_eq!(names(&world, &request), [""; 0]);
}

#[tokio::test]
async fn equal_catalogs_produce_identical_descriptions() {
    let mut worlds = Vec::new();
    for reversed in [false, true] {
        let mut parts = parts(json!({"codeMode": true}));
        if reversed {
            parts.sources.reverse();
        }
        worlds.push(parts.open().await);
    }
    let [one, other] = [0, 1].map(|position| worlds[position].prepared(&client_request()).prepared);
    assert_eq!(one.visible, other.visible);
    assert_eq!(one.executor.catalog().tables().hash(), other.executor.catalog().tables().hash());
    let fewer = worlds[0].run().prepared;
    assert_ne!(one.visible, fewer.visible);
}

#[tokio::test]
async fn code_mode_can_be_enabled_for_one_agent_only() {
    let parts = Parts { agents: json!({"coder": {"tools": {"codeMode": true}}}), ..parts(Value::Null) };
    let world = parts.open().await;
    assert_eq!(names(&world, &request("coder/session/run")), ["exec", "wait"]);
    assert_eq!(names(&world, &request("main/session/run")).len(), 4);
}
