//! A server that behaves correctly.

use std::time::Duration;

use contract::tool::{Operation, Repeat};
use executor::{Outcome, ToolSource};
use mcp::{Limits, Server, Transport};
use serde_json::{Value, json};

use crate::fake::{Connected, Folder, connect, limits, spec, tool};

#[tokio::test]
async fn all_pages_of_tools_and_the_operations_are_offered() {
    let script = json!({
        "pageSize": 1,
        "tools": [
            {"name": "b", "title": "Bee", "description": "Does b.", "inputSchema": {"type": "object"}, "outputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}},
            tool("a", json!([])),
        ],
        "resources": [],
        "prompts": [],
    });
    let server = connect(&Folder::new(), script, limits()).await.unwrap();
    let tools = server.tools();
    let operations: Vec<_> = tools.iter().map(|spec| (spec.id.as_str(), spec.operation)).collect();
    let expected = [
        ("mcp:s:a", Operation::Tool),
        ("mcp:s:b", Operation::Tool),
        ("mcp:s:prompts_get", Operation::GetPrompt),
        ("mcp:s:prompts_list", Operation::ListPrompts),
        ("mcp:s:resources_list", Operation::ListResources),
        ("mcp:s:resources_read", Operation::ReadResource),
    ];
    assert_eq!(operations, expected);
    let b = &tools[1];
    assert_eq!((b.label.as_deref(), b.description.as_str()), (Some("Bee"), "Does b."));
    assert_eq!((&b.parameters, b.output.as_ref()), (&json!({"type": "object"}), Some(&json!({"type": "object"}))));
    assert!(tools.iter().all(|spec| spec.repeat == Repeat::Never), "hints of an untrusted server are ignored");
    assert!(server.left_out().is_empty());
}

#[tokio::test]
async fn a_tools_own_error_is_returned_as_a_complete_result() {
    let result = json!({"content": [{"type": "text", "text": "no"}, {"type": "new", "x": 1}], "isError": true, "structuredContent": [1], "extra": {"y": 2}});
    let server = Connected::with(json!({"tools": [tool("fails", json!([{"result": result}]))]}), limits()).await;
    let returned = server.returned("fails", json!({})).await;
    assert_eq!(returned.content, *result["content"].as_array().unwrap());
    assert_eq!(returned.to_cell_value(), result);
}

#[tokio::test]
async fn arguments_arrive_as_given() {
    let server = Connected::with(json!({"tools": [tool("echo", json!([{"echo": true}]))]}), limits()).await;
    let input = json!({"a": [1, null, "ü"], "_meta": "mine"});
    let seen = server.returned("echo", input.clone()).await.to_cell_value()["structuredContent"].clone();
    assert_eq!((&seen["name"], &seen["arguments"]), (&json!("echo"), &input));
    let failed = server.call("echo", json!("text")).await;
    let message = "`mcp:s:echo` takes one object; tools.describe(\"mcp:s:echo\") has its schema";
    assert_eq!(failed, Outcome::Failed(message.to_owned()));
}

#[tokio::test]
async fn resources_and_prompts_are_listed_and_read() {
    let note = json!({"uri": "note://1", "name": "one", "text": "hello"});
    let script = json!({"resources": [note, {"uri": "note://2", "name": "two"}], "prompts": [{"name": "greet", "text": "Hi!"}], "pageSize": 1});
    let server = Connected::with(script, limits()).await;
    let first = server.returned("resources_list", json!({})).await.to_cell_value();
    assert_eq!(first, json!({"resources": [note], "nextCursor": "1"}));
    let second = server.returned("resources_list", json!({"cursor": "1"})).await.to_cell_value();
    assert_eq!(second["resources"][0]["name"], "two");
    let read = server.returned("resources_read", json!({"uri": "note://1"})).await;
    assert_eq!(read.to_cell_value(), json!({"contents": [note]}));
    assert_eq!(read.content, [json!({"type": "resource", "resource": note})]);
    let prompt = server.returned("prompts_get", json!({"name": "greet"})).await;
    assert_eq!(prompt.content, [json!({"type": "text", "text": "Hi!"})]);
    let failed = server.call("resources_read", json!({"uri": "note://0"})).await;
    let message = "`resources_read` of MCP server `s` failed: nothing here for resources/read (code -32602)";
    assert_eq!(failed, Outcome::Failed(message.to_owned()));
}

#[tokio::test]
async fn a_server_without_initialize_is_discovered() {
    let refuse = json!([{"error": {"code": -32601, "message": "no such method"}}]);
    let script = json!({"tools": [tool("echo", json!([{"echo": true}]))], "on": {"initialize": refuse}});
    let server = Connected::with(script, limits()).await;
    let seen = server.returned("echo", json!({})).await.to_cell_value();
    assert_eq!(seen["structuredContent"]["_meta"]["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
}

#[tokio::test]
async fn a_change_notification_and_the_end_of_the_server_are_noticed() {
    let change = json!([
        {"tools": [tool("b", json!([{"result": {}}])), tool("end", json!([{"exit": 0}]))]},
        {"print": r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#},
        {"result": {}},
    ]);
    let script = json!({"tools": [tool("a", change)]});
    let server = Connected::with(script, limits()).await;
    let mut heard = server.server.list_changes();
    assert_eq!(*heard.borrow_and_update(), 0);
    server.returned("a", json!({})).await;
    heard.changed().await.unwrap();
    assert_eq!(*heard.borrow_and_update(), 1);
    let names = |tools: Vec<contract::tool::ToolSpec>| -> Vec<String> {
        tools.iter().map(|tool| tool.id.name().to_owned()).collect()
    };
    assert_eq!(names(server.server.relist().await.unwrap()), ["b", "end"]);
    assert_eq!(names(server.server.tools()), ["b", "end"]);
    let gone = server.failed("a").await;
    assert_eq!(gone, "`a` of MCP server `s` failed: the server does not offer it");
    let closed = server.server.closed();
    let again = Connected::over(std::sync::Arc::clone(&server.server), Folder::new());
    assert_eq!(again.call("end", json!({})).await, Outcome::Unknown);
    assert_eq!(closed.await, mcp::DisconnectReason::Ended);
}

#[tokio::test]
async fn a_server_inherits_the_listed_variables_and_its_own_win() {
    let folder = Folder::new();
    let path = folder.0.join("script.json");
    let script = json!({"tools": [tool("env", json!([{"environment": true}]))]});
    std::fs::write(&path, script.to_string()).unwrap();
    let mut spec = spec(env!("CARGO_BIN_EXE_fake-mcp"), &[path.to_str().unwrap()], limits());
    let Transport::Stdio { env, .. } = &mut spec.transport else { panic!("{spec:?}") };
    env.insert("TOKEN".to_owned(), "hunter2".to_owned());
    env.insert("HOME".to_owned(), "/its/own".to_owned());
    assert!(!format!("{spec:?}").contains("hunter2"));
    let server = Connected::over(Server::connect(spec).await.unwrap(), folder);
    let seen = server.returned("env", json!({})).await.to_cell_value()["structuredContent"].clone();
    let mut seen = seen.as_object().unwrap().clone();
    assert_eq!((seen.remove("TOKEN"), &seen["HOME"]), (Some(json!("hunter2")), &json!("/its/own")));
    assert_eq!(seen["PATH"].as_str(), std::env::var("PATH").ok().as_deref());
    let unexpected: Vec<&String> = seen.keys().filter(|name| !process::is_inheritable(name)).collect();
    assert!(unexpected.is_empty(), "{unexpected:?}");
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some(), "this process has variables that are not inherited");
}

#[tokio::test]
async fn a_failing_start_names_the_variables_that_were_not_passed_and_no_values() {
    let folder = Folder::new();
    let path = folder.0.join("script.json");
    std::fs::write(&path, json!({"start": [{"exit": 3}]}).to_string()).unwrap();
    let mut spec = spec(env!("CARGO_BIN_EXE_fake-mcp"), &[path.to_str().unwrap()], limits());
    let Transport::Stdio { env, .. } = &mut spec.transport else { panic!("{spec:?}") };
    env.insert("CARGO_PKG_NAME".to_owned(), "given".to_owned());
    let error = Server::connect(spec).await.unwrap_err();
    let has = |name: &str| error.not_passed.iter().any(|one| one == name);
    assert!(has("CARGO_MANIFEST_DIR") && !has("CARGO_PKG_NAME") && !has("PATH"), "{:?}", error.not_passed);
    let folder = env!("CARGO_MANIFEST_DIR");
    assert!(!error.not_passed.iter().any(|name| name.contains(folder)), "{:?}", error.not_passed);
}

#[tokio::test]
async fn a_start_that_times_out_names_only_the_variables_that_the_server_mentions() {
    let folder = Folder::new();
    let path = folder.0.join("script.json");
    let short = Limits { connect: Duration::from_millis(500), ..limits() };
    for (start, expected) in [
        (json!([{"sleepMs": 60_000}]), vec![]),
        (json!([{"stderr": "set CARGO_MANIFEST_DIR, please"}, {"sleepMs": 60_000}]), vec!["CARGO_MANIFEST_DIR"]),
    ] {
        std::fs::write(&path, json!({"start": start}).to_string()).unwrap();
        let spec = spec(env!("CARGO_BIN_EXE_fake-mcp"), &[path.to_str().unwrap()], short);
        let error = Server::connect(spec).await.unwrap_err();
        assert_eq!(error.not_passed, expected, "{error}");
    }
}

#[tokio::test]
async fn a_cancelled_call_is_cancelled_at_the_server() {
    let folder = Folder::new();
    let record = folder.0.join("record");
    let script = json!({"tools": [tool("silent", json!([]))], "record": record});
    let server = Connected::over(connect(&folder, script, limits()).await.unwrap(), folder);
    let heard = |method: &str| -> Option<Value> {
        let lines = std::fs::read_to_string(&record).unwrap_or_default();
        let mut messages = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        messages.find(|message| message["method"] == method)
    };
    {
        let call = server.call("silent", json!({}));
        let sent = async {
            while heard("tools/call").is_none() {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            outcome = call => panic!("{outcome:?}"),
            () = sent => {}
        }
    }
    let id = heard("tools/call").unwrap()["id"].clone();
    let told = async {
        while heard("notifications/cancelled").is_none() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Limits::DEFAULT.call, told).await.unwrap();
    assert_eq!(heard("notifications/cancelled").unwrap()["params"]["requestId"], id);
}
