//! A server that is started when needed, crashes, and is restarted.

use std::time::{Duration, Instant};

use executor::Outcome;
use futures_util::future::join_all;
use mcp::{ServerState, Unavailable, UpstreamOptions};
use serde_json::json;

use crate::fake::tool;
use crate::kept::{TestUpstream, eventually, options};

fn fine() -> serde_json::Value {
    tool("fine", json!([{"result": {}}]))
}

#[tokio::test]
async fn concurrent_callers_share_one_start() {
    let script = json!({"start": [{"sleepMs": 300}], "tools": [fine()]});
    let test = TestUpstream::with(script, options()).await;
    assert_eq!(test.upstream.status().state, ServerState::Stopped);
    let listed = join_all((0..20).map(|_| test.upstream.listed())).await;
    assert!(listed.iter().all(Result::is_ok), "{listed:?}");
    let outcomes = join_all((0..20).map(|_| test.call("fine"))).await;
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Returned(_))), "{outcomes:?}");
    assert_eq!(test.starts(), 1);
    let status = test.upstream.status();
    assert_eq!((status.state, status.tools, status.restarts, status.in_flight), (ServerState::Running, 1, 0, 0));
}

#[tokio::test]
async fn all_callers_of_a_failing_start_get_its_error_at_once() {
    let test = TestUpstream::of(json!({"start": [{"sleepMs": 60_000}]}), options(), |spec| {
        spec.limits.connect = Duration::from_millis(400);
    });
    let test = test.await;
    let began = Instant::now();
    let listed = join_all((0..10).map(|_| test.upstream.listed())).await;
    assert!(began.elapsed() < Duration::from_secs(3), "all callers share one deadline");
    let why = "it was not ready within 400 ms; see what it wrote to its standard error, or raise the limit";
    assert!(listed.iter().all(|one| *one == Err(Unavailable::NotStarted(why.into()))), "{listed:?}");
    assert_eq!(test.upstream.status().failures, 1);
}

#[tokio::test]
async fn an_idle_server_is_stopped_and_the_next_call_starts_it_again() {
    let slow = tool("slow", json!([{"sleepMs": 700}, {"result": {}}]));
    let idle = UpstreamOptions { idle_stop: Some(Duration::from_millis(300)), ..options() };
    let test = TestUpstream::with(json!({"tools": [fine(), slow]}), idle).await;
    test.upstream.listed().await.unwrap();
    let outcome = test.call("slow").await;
    assert!(matches!(outcome, Outcome::Returned(_)), "not stopped during a call: {outcome:?}");
    eventually("the server is stopped", || test.upstream.status().state == ServerState::Stopped).await;
    assert!(test.upstream.status().trouble.is_none(), "{:?}", test.upstream.status());
    assert!(matches!(test.call("fine").await, Outcome::Returned(_)));
    assert_eq!((test.starts(), test.upstream.status().restarts), (2, 1));
}

#[tokio::test]
async fn a_call_interrupted_by_a_crash_is_unknown_and_the_next_one_restarts_the_server() {
    let crash = tool("crash", json!([{"stderr": "boom"}, {"exit": 3}]));
    let test = TestUpstream::with(json!({"tools": [crash, fine(), tool("silent", json!([]))]}), options()).await;
    test.upstream.listed().await.unwrap();
    let both = tokio::join!(test.call("silent"), test.call("crash"));
    assert_eq!(both, (Outcome::Unknown, Outcome::Unknown));
    assert!(matches!(test.call("fine").await, Outcome::Returned(_)));
    let status = test.upstream.status();
    assert_eq!((status.state, status.restarts, status.failures), (ServerState::Running, 1, 1));
    assert_eq!(status.trouble.unwrap().message, "it ran, but it ended or closed its output");
    assert_eq!(test.received("tools/call"), 3, "nothing was called twice");
}

#[tokio::test]
async fn a_read_only_call_is_retried_after_a_crash() {
    let folder = crate::fake::Folder::new();
    let marker = folder.0.join("crashed");
    let mut reads = tool("reads", json!([{"exitOnce": marker}, {"result": {"ok": true}}]));
    reads["annotations"] = json!({"readOnlyHint": true});
    let test = TestUpstream::of(json!({"tools": [reads]}), options(), |spec| spec.trusted = true).await;
    test.upstream.listed().await.unwrap();
    match test.call("reads").await {
        Outcome::Returned(returned) => assert_eq!(returned.for_guest(), json!({"ok": true})),
        other => panic!("{other:?}"),
    }
    assert_eq!((test.starts(), test.received("tools/call")), (2, 2));
}

#[tokio::test]
async fn a_server_that_does_not_start_is_marked_failed_and_retried_on_request() {
    let test = TestUpstream::with(json!({"tools": [fine()]}), options()).await;
    test.upstream.listed().await.unwrap();
    test.upstream.stop().await;
    test.rewrite(json!({"start": [{"stderr": "ImportError: no module"}, {"exit": 1}]}));
    let why = "it ended or closed its output; see what it wrote to its standard error";
    let not_started = format!("`fine` of MCP server `s` was not called: it could not be started: {why}");
    for _ in 0..3 {
        assert_eq!(test.failed("fine").await, not_started);
    }
    let began = Instant::now();
    let given_up = format!(
        "`fine` of MCP server `s` was not called: it failed 3 times in a row and is left alone for another 120 s; the last time: {why}"
    );
    assert_eq!(test.failed("fine").await, given_up);
    assert!(began.elapsed() < Duration::from_millis(500), "a failed server must not delay calls");
    let status = test.upstream.status();
    assert_eq!((status.state, status.failures, status.tools), (ServerState::Failed, 3, 1));
    let shown = status.to_json();
    assert_eq!(
        shown["lastError"],
        json!({"at": status.trouble.unwrap().at, "message": why, "stderr": ["ImportError: no module"]})
    );
    assert!(shown["nextTry"].as_i64().unwrap() > shown["since"].as_i64().unwrap() + 100_000, "{shown}");
    test.rewrite(json!({"tools": [fine()]}));
    test.upstream.refresh().await.unwrap();
    assert!(matches!(test.call("fine").await, Outcome::Returned(_)));
    assert_eq!(test.upstream.status().state, ServerState::Running);
}

#[tokio::test]
async fn a_server_that_crashes_with_every_call_is_marked_failed() {
    let test = TestUpstream::with(json!({"tools": [tool("crash", json!([{"exit": 1}]))]}), options()).await;
    test.upstream.listed().await.unwrap();
    for _ in 0..3 {
        assert_eq!(test.call("crash").await, Outcome::Unknown);
    }
    let message = test.failed("crash").await;
    assert!(message.contains("it failed 3 times in a row"), "{message}");
    assert_eq!(test.starts(), 3);
}

#[tokio::test]
async fn many_notifications_of_one_tool_list_change_cause_one_listing() {
    let notification = json!({"print": r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#});
    let mut change = vec![json!({"tools": [tool("b", json!([{"result": {}}]))]})];
    change.extend(vec![notification; 50]);
    change.push(json!({"result": {}}));
    let test = TestUpstream::with(json!({"tools": [tool("a", json!(change))]}), options()).await;
    test.upstream.listed().await.unwrap();
    let mut changes = test.upstream.changes();
    changes.mark_unchanged();
    test.call("a").await;
    changes.changed().await.unwrap();
    assert!(matches!(test.call("b").await, Outcome::Returned(_)));
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(test.received("tools/list"), 2, "fifty notifications of one change cause one listing");
    assert!(!changes.has_changed().unwrap());
}

#[tokio::test]
async fn a_cancelled_start_fails_its_waiters_at_once() {
    let test = TestUpstream::with(json!({"start": [{"sleepMs": 60_000}]}), options()).await;
    let stop = async {
        eventually("the server starts", || test.upstream.status().state == ServerState::Starting).await;
        test.upstream.stop().await;
    };
    let (listed, ()) = tokio::join!(test.upstream.listed(), stop);
    assert_eq!(listed, Err(Unavailable::Stopped));
    assert_eq!(test.upstream.status().state, ServerState::Stopped);
}
