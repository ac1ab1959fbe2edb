//! A server that is started on demand, crashes, and is restarted.

use std::time::{Duration, Instant};

use executor::{Outcome, ToolSource};
use futures_util::future::join_all;
use mcp::{ServerState, Unavailable, UpstreamOptions};
use serde_json::json;

use crate::fake::tool;
use crate::test_upstream::{ScriptedUpstream, eventually, options};

fn fine() -> serde_json::Value {
    tool("fine", json!([{"result": {}}]))
}

#[tokio::test]
async fn concurrent_callers_share_one_start() {
    let script = json!({"start": [{"sleepMs": 300}], "tools": [fine()]});
    let harness = ScriptedUpstream::with(script, options()).await;
    assert_eq!(harness.upstream.status().state, ServerState::Stopped);
    let listed = join_all((0..20).map(|_| harness.upstream.listed())).await;
    assert!(listed.iter().all(Result::is_ok), "{listed:?}");
    let outcomes = join_all((0..20).map(|_| harness.call("fine"))).await;
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Returned(_))), "{outcomes:?}");
    assert_eq!(harness.starts(), 1);
    let status = harness.upstream.status();
    assert_eq!((status.state, status.tools, status.restarts, status.in_flight), (ServerState::Running, 1, 0, 0));
}

#[tokio::test]
async fn all_callers_that_wait_for_a_failed_start_get_the_reason_at_once() {
    let harness = ScriptedUpstream::of(json!({"start": [{"sleepMs": 60_000}]}), options(), |spec| {
        spec.limits.connect = Duration::from_millis(400);
    });
    let harness = harness.await;
    let began = Instant::now();
    let listed = join_all((0..10).map(|_| harness.upstream.listed())).await;
    assert!(began.elapsed() < Duration::from_secs(3), "one deadline for all, not one after the other");
    let why = "it was not ready within 400 ms; start it once by hand to see what it waits for, or raise its \
               `startupTimeoutMs`";
    assert!(listed.iter().all(|one| *one == Err(Unavailable::NotStarted(why.into()))), "{listed:?}");
    assert_eq!(harness.upstream.status().failures, 1);
}

#[tokio::test]
async fn a_server_without_a_list_says_why_and_one_with_a_list_is_available() {
    let harness = ScriptedUpstream::with(json!({"start": [{"exit": 1}]}), options()).await;
    let why = || harness.upstream.unavailable().map(|one| (one.name, one.reason));
    assert_eq!(why(), Some(("s".to_owned(), "still starting; try again later".to_owned())));
    harness.upstream.listed().await.unwrap_err();
    let (_, reason) = why().unwrap();
    assert!(reason.contains("check its standard error"), "{reason}");
    let resources = json!([{"uri": "note://1", "name": "one", "text": "hello"}]);
    harness.rewrite(json!({"tools": [fine()], "resources": resources, "prompts": [{"name": "p", "text": "x"}]}));
    harness.upstream.refresh().await.unwrap();
    assert_eq!(why(), None);
    // Operations on resources and prompts are not tools of the server.
    assert_eq!((harness.upstream.tools().len(), harness.upstream.status().tools), (5, 1));
}

#[tokio::test]
async fn an_idle_server_is_stopped_and_the_next_call_starts_it_again() {
    let slow = tool("slow", json!([{"sleepMs": 700}, {"result": {}}]));
    let idle = UpstreamOptions { idle_stop: Some(Duration::from_millis(300)), ..options() };
    let harness = ScriptedUpstream::with(json!({"tools": [fine(), slow]}), idle).await;
    harness.upstream.listed().await.unwrap();
    let outcome = harness.call("slow").await;
    assert!(matches!(outcome, Outcome::Returned(_)), "not stopped during a call: {outcome:?}");
    eventually("it is stopped", || harness.upstream.status().state == ServerState::Stopped).await;
    assert!(harness.upstream.status().last_failure.is_none(), "{:?}", harness.upstream.status());
    assert!(matches!(harness.call("fine").await, Outcome::Returned(_)));
    assert_eq!((harness.starts(), harness.upstream.status().restarts), (2, 1));
}

#[tokio::test]
async fn a_call_interrupted_by_a_crash_is_unknown_and_the_next_one_restarts_the_server() {
    let crash = tool("crash", json!([{"stderr": "boom"}, {"exit": 3}]));
    let harness = ScriptedUpstream::with(json!({"tools": [crash, fine(), tool("silent", json!([]))]}), options()).await;
    harness.upstream.listed().await.unwrap();
    let both = tokio::join!(harness.call("silent"), harness.call("crash"));
    assert_eq!(both, (Outcome::Unknown, Outcome::Unknown));
    assert!(matches!(harness.call("fine").await, Outcome::Returned(_)));
    let status = harness.upstream.status();
    assert_eq!((status.state, status.restarts, status.failures), (ServerState::Running, 1, 1));
    assert_eq!(status.last_failure.unwrap().message, "the connection was lost: the server exited or closed its output");
    assert_eq!(harness.heard("tools/call"), 3, "nothing was called twice");
}

#[tokio::test]
async fn a_message_without_an_end_restarts_the_server_and_the_status_names_the_reason() {
    let endless = tool("endless", json!([{"endless": true}]));
    let harness = ScriptedUpstream::with(json!({"tools": [endless, fine()]}), options()).await;
    harness.upstream.listed().await.unwrap();
    assert!(matches!(harness.call("endless").await, Outcome::Dropped(_)));
    assert!(matches!(harness.call("fine").await, Outcome::Returned(_)));
    let why = harness.upstream.status().last_failure.unwrap().message;
    assert_eq!(why, "the connection was lost: the server sent a message of more than 167772160 bytes");
}

#[tokio::test]
async fn a_read_only_call_is_retried_after_a_crash() {
    let folder = crate::fake::Folder::new();
    let marker = folder.0.join("crashed");
    let mut reads = tool("reads", json!([{"exitOnce": marker}, {"result": {"ok": true}}]));
    reads["annotations"] = json!({"readOnlyHint": true});
    let harness = ScriptedUpstream::of(json!({"tools": [reads]}), options(), |spec| spec.trusted = true).await;
    harness.upstream.listed().await.unwrap();
    match harness.call("reads").await {
        Outcome::Returned(returned) => assert_eq!(returned.to_cell_value(), json!({"ok": true})),
        other => panic!("{other:?}"),
    }
    assert_eq!((harness.starts(), harness.heard("tools/call")), (2, 2));
}

#[tokio::test]
async fn a_server_that_does_not_start_is_given_up_and_retried_on_request() {
    let harness = ScriptedUpstream::with(json!({"tools": [fine()]}), options()).await;
    harness.upstream.listed().await.unwrap();
    harness.upstream.stop().await;
    harness.rewrite(json!({"start": [{"stderr": "ImportError: no module"}, {"exit": 1}]}));
    let command = env!("CARGO_BIN_EXE_fake-mcp");
    let why = format!("its command `{command}` exited with code 1 before it was ready; check its standard error");
    let not_started = format!("`fine` of MCP server `s` was not called: the server could not be started: {why}");
    for _ in 0..3 {
        assert_eq!(harness.failed("fine").await, not_started);
    }
    let began = Instant::now();
    let given_up = format!(
        "`fine` of MCP server `s` was not called: the server failed 3 times in a row and is not started for another 120 s; last failure: {why}"
    );
    assert_eq!(harness.failed("fine").await, given_up);
    assert!(began.elapsed() < Duration::from_millis(500), "calls do not wait for it");
    let status = harness.upstream.status();
    assert_eq!((status.state, status.failures, status.tools), (ServerState::Failed, 3, 1));
    let shown = status.to_json();
    assert_eq!(
        shown["lastError"],
        json!({"at": status.last_failure.unwrap().at, "message": why, "stderr": ["ImportError: no module"]})
    );
    assert!(shown["nextTry"].as_i64().unwrap() > shown["since"].as_i64().unwrap() + 100_000, "{shown}");
    harness.rewrite(json!({"tools": [fine()]}));
    harness.upstream.refresh().await.unwrap();
    assert!(matches!(harness.call("fine").await, Outcome::Returned(_)));
    assert_eq!(harness.upstream.status().state, ServerState::Running);
}

#[tokio::test]
async fn a_server_that_crashes_on_every_call_is_given_up() {
    let harness = ScriptedUpstream::with(json!({"tools": [tool("crash", json!([{"exit": 1}]))]}), options()).await;
    harness.upstream.listed().await.unwrap();
    for _ in 0..3 {
        assert_eq!(harness.call("crash").await, Outcome::Unknown);
    }
    let message = harness.failed("crash").await;
    assert!(message.contains("the server failed 3 times in a row"), "{message}");
    assert_eq!(harness.starts(), 3);
}

#[tokio::test]
async fn a_change_of_tools_is_listed_once_and_announced() {
    let said = json!({"print": r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#});
    let mut change = vec![json!({"tools": [tool("b", json!([{"result": {}}]))]})];
    change.extend(vec![said; 50]);
    change.push(json!({"result": {}}));
    let harness = ScriptedUpstream::with(json!({"tools": [tool("a", json!(change))]}), options()).await;
    harness.upstream.listed().await.unwrap();
    let mut changes = harness.upstream.changes();
    changes.mark_unchanged();
    harness.call("a").await;
    changes.changed().await.unwrap();
    assert!(matches!(harness.call("b").await, Outcome::Returned(_)));
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(harness.heard("tools/list"), 2, "fifty notifications of one change cause one listing");
    assert!(!changes.has_changed().unwrap());
}

#[tokio::test]
async fn a_running_server_whose_tools_cannot_be_listed_again_is_not_reported_as_not_started() {
    let refuse = json!([{"error": {"code": -32000, "message": "no list"}}]);
    let change = tool("change", json!([{"on": {"tools/list": refuse}}, {"result": {}}]));
    let harness = ScriptedUpstream::with(json!({"tools": [change, fine()]}), options()).await;
    harness.upstream.listed().await.unwrap();
    assert!(matches!(harness.call("change").await, Outcome::Returned(_)));
    let why = harness.upstream.refresh().await.unwrap_err();
    assert!(matches!(why, Unavailable::ToolsNotListed(_)), "{why:?}");
    assert!(why.to_string().starts_with("the server was running, but its tools cannot be listed again: "), "{why}");
    assert!(matches!(harness.call("fine").await, Outcome::Returned(_)));
    assert_eq!((harness.starts(), harness.upstream.status().tools), (1, 2));
}

#[tokio::test]
async fn a_cancelled_start_releases_all_waiting_callers() {
    let harness = ScriptedUpstream::with(json!({"start": [{"sleepMs": 60_000}]}), options()).await;
    let stop = async {
        eventually("it starts", || harness.upstream.status().state == ServerState::Starting).await;
        harness.upstream.stop().await;
    };
    let (listed, ()) = tokio::join!(harness.upstream.listed(), stop);
    assert_eq!(listed, Err(Unavailable::Stopped));
    assert_eq!(harness.upstream.status().state, ServerState::Stopped);
}
