//! Third-party servers. `make test-peers` installs them and sets `CELLMATE_PEERS` to their folder.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use codemode::ExecInput;
use contract::config;
use contract::limits::Limits;
use contract::tool::Repeat;
use executor::{Outcome, ProgressSink, ToolSource};
use mcp::{Server, ServerSpec, Transport};
use serde_json::{Value, json};
use store::{ApprovalScope, Decision};
use testkit::runner;

use crate::fake::{Connected, Folder, limits, spec};

/// The folder in which `scripts/test-peers` installed the servers.
fn peers() -> PathBuf {
    PathBuf::from(std::env::var_os("CELLMATE_PEERS").unwrap_or_else(|| panic!("run this through `make test-peers`")))
}

async fn start(spec: ServerSpec) -> Connected {
    let server = Server::connect(spec).await.unwrap_or_else(|error| panic!("{error}\n{}", error.stderr));
    for tool in server.tools() {
        println!("{} {:?} {:?}", tool.id.as_str(), tool.operation, tool.repeat);
    }
    println!("{:?}", server.left_out());
    Connected::over(server, Folder::new())
}

/// Starts the server through the package runner, as users configure it: the server is then a grandchild.
async fn everything() -> Connected {
    let mut spec = spec("npx", &["--no-install", "mcp-server-everything", "stdio"], limits());
    let Transport::Stdio { cwd, .. } = &mut spec.transport else { panic!("{spec:?}") };
    *cwd = Some(peers().join("npm"));
    spec.trusted = true;
    start(spec).await
}

#[tokio::test]
#[ignore = "needs installed servers; run through `make test-peers`"]
async fn peer_everything_answers_tools_resources_and_prompts() {
    let server = everything().await;
    assert_eq!(server.server.left_out(), []);
    answers(&server).await;
}

/// Runs `server-everything` over HTTP on this machine.
#[tokio::test]
#[ignore = "needs installed servers; run through `make test-peers`"]
async fn peer_everything_behaves_the_same_over_http() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = tokio::process::Command::new("node");
    let script = peers().join("npm/node_modules/@modelcontextprotocol/server-everything/dist/index.js");
    command.arg(script).arg("streamableHttp").env("PORT", port.to_string()).kill_on_drop(true);
    let _process = command.spawn().unwrap();
    while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let transport =
        Transport::Http { url: format!("http://127.0.0.1:{port}/mcp"), headers: BTreeMap::new(), login: None };
    let server = start(ServerSpec { name: "s".to_owned(), transport, trusted: true, limits: limits() }).await;
    answers(&server).await;
    let (send, receive) = std::sync::mpsc::channel();
    let updates = ProgressSink::to(move |update| send.send(update).unwrap());
    server.call_heard("trigger-long-running-operation", json!({"duration": 1, "steps": 4}), updates).await;
    assert_eq!(receive.try_iter().count(), 4);
}

async fn answers(server: &Connected) {
    let echo = server.returned("echo", json!({"message": "hello"})).await;
    assert_eq!(echo.content, [json!({"type": "text", "text": "Echo: hello"})]);
    let weather = server.returned("get-structured-content", json!({"location": "Chicago"})).await.to_cell_value();
    assert!(weather["structuredContent"]["temperature"].is_number(), "{weather}");
    let image = server.returned("get-tiny-image", json!({})).await;
    assert!(image.content.iter().any(|block| block["type"] == "image"), "{:?}", image.content);
    // The executor rejects the arguments before the server is called.
    match server.call("get-sum", json!({"a": "x"})).await {
        Outcome::Failed(why) => assert!(why.contains("expected number"), "{why}"),
        other => panic!("{other:?}"),
    }
    let resources = server.returned("resources_list", json!({})).await.to_cell_value();
    let uri = &resources["resources"][0]["uri"];
    let resource = server.returned("resources_read", json!({"uri": uri})).await;
    println!("{uri}: {} blocks", resource.content.len());
    assert_eq!(resource.content[0]["resource"]["uri"], *uri);
    let prompt = server.returned("prompts_get", json!({"name": "args-prompt", "arguments": {"city": "Rome"}})).await;
    assert!(prompt.content[0]["text"].as_str().unwrap().contains("Rome"), "{:?}", prompt.content);
    println!("missing resource: {:?}", server.call("resources_read", json!({"uri": "demo://nowhere"})).await);
    // The tool that can only be called as a task.
    let research = server.returned("simulate-research-query", json!({"topic": "tea", "ambiguous": false})).await;
    println!("{:?}", research.content);
    assert!(research.content[0]["text"].as_str().unwrap().contains("tea"), "{:?}", research.content);
}

/// The server's questions reach a person and the answers reach the server: during a call and during a task, as a form
/// and as a page.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs installed servers; run through `make test-peers`"]
async fn peer_everything_asks_a_person_and_continues_with_the_answer() {
    let server = everything().await;
    let code_mode = runner::in_process().await.unwrap();
    let config = config::CodeMode::enabled(Limits::DEFAULT);
    let page = "{ url: 'https://example.com/', elicitationId: 'e1', message: 'Go there.' }";
    let asks = [
        ("triggerElicitationRequest({})".to_owned(), Some(json!({"name": "Ada"})), "Ada"),
        (
            "simulateResearchQuery({ topic: 'python', ambiguous: true })".to_owned(),
            Some(json!({"interpretation": "snake"})),
            "snake",
        ),
        (format!("triggerUrlElicitation({page})"), None, "User completed the URL elicitation flow"),
    ];
    for (call, edited_input, expected) in asks {
        let cell = ExecInput::javascript(format!("return JSON.stringify(await MCP.s.{call})"));
        let mut told = json!(code_mode.exec(server.executor(), &config, "exec", cell).await);
        let run_id = told["runId"].as_str().unwrap_or_else(|| panic!("{told}")).into();
        let asked = code_mode.store().approvals_of_run(&run_id).await.unwrap();
        println!("{:?}", asked[0].question);
        let decision = Decision::Approve { edited_input, reach: ApprovalScope::Once };
        code_mode.decide(&asked[0].approval_id, &decision, "test").await.unwrap();
        while told["status"] == "waiting" {
            told = json!(code_mode.wait(server.executor(), &config, "wait", &run_id).await);
        }
        println!("{told}");
        assert_eq!(told["status"], "completed", "{told}");
        assert!(told["value"].as_str().unwrap().contains(expected), "{told}");
    }
}

#[tokio::test]
#[ignore = "needs installed servers; run through `make test-peers`"]
async fn peer_everything_does_not_inherit_the_environment() {
    let seen = everything().await.returned("get-env", json!({})).await;
    let text = seen.content[0]["text"].as_str().unwrap();
    let names: serde_json::Map<String, Value> = serde_json::from_str(text).unwrap();
    println!("{:?}", names.keys());
    assert!(names.contains_key("PATH") && !names.contains_key("CELLMATE_PEERS"));
}

#[tokio::test]
#[ignore = "needs installed servers; run through `make test-peers`"]
async fn peer_time_converts_and_rejects() {
    let command = peers().join("python/bin/mcp-server-time");
    let mut spec = spec(command.to_str().unwrap(), &[], limits());
    spec.trusted = true;
    let server = start(spec).await;
    assert!(server.server.tools().iter().all(|tool| tool.repeat == Repeat::Always));
    let input = json!({"source_timezone": "Etc/UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"});
    let converted = server.returned("convert_time", input).await.to_cell_value();
    println!("{converted}");
    assert_eq!(converted["structuredContent"]["time_difference"], "+9.0h");
    let wrong = server.call("get_current_time", json!({"timezone": "Mars/Olympus"})).await;
    println!("wrong zone: {wrong:?}");
    match wrong {
        Outcome::Returned(returned) => assert_eq!(returned.to_cell_value()["isError"], true),
        other => panic!("{other:?}"),
    }
}
