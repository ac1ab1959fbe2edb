//! Tools that return a task.

use executor::{Outcome, ProgressSink};
use serde_json::{Value, json};

use crate::fake::{Connected, Folder, limits, tool, wait_until_recorded};
use crate::test_upstream::{ScriptedUpstream, options};

/// Reports `working` once, then performs these steps.
fn works_then(steps: Value) -> Value {
    let working =
        json!({"taskId": "t1", "status": "working", "statusMessage": "half", "pollIntervalMs": 50, "pollInterval": 50});
    json!([{"on": {"tasks/get": steps}}, {"result": working}])
}

fn extension(last: Value) -> Value {
    let begun = json!({"resultType": "task", "taskId": "t1", "status": "working", "pollIntervalMs": 50});
    json!({"tools": [tool("long", json!([{"result": begun}]))], "on": {"tasks/get": works_then(json!([last]))}})
}

#[tokio::test]
async fn a_task_is_followed_to_its_end_in_both_dialects_over_both_transports() {
    let result = json!({"content": [{"type": "text", "text": "done"}], "structuredContent": {"n": 1}});
    let newer = extension(json!({"result": {"taskId": "t1", "status": "completed", "result": result}}));
    let begun = json!({"task": {"taskId": "t1", "status": "working", "pollInterval": 50}});
    let mut long = tool("long", json!([{"result": begun}]));
    long["execution"] = json!({"taskSupport": "required"});
    let on = json!({
        "server/discover": [{"error": {"code": -32601, "message": "no such method"}}],
        "tasks/get": works_then(json!([{"result": {"taskId": "t1", "status": "completed"}}])),
        "tasks/result": [{"result": result}],
    });
    let older = json!({"tools": [long], "on": on});
    for script in [newer, older] {
        for at_address in [false, true] {
            let folder = Folder::new();
            let record = folder.0.join("record");
            let mut script = script.clone();
            script["record"] = json!(record);
            let server = match at_address {
                false => Connected::with(script, limits()).await,
                true => Connected::at_address(script, limits()).await,
            };
            let (send, receive) = std::sync::mpsc::channel();
            let outcome =
                server.call_heard("long", json!({}), ProgressSink::to(move |update| send.send(update).unwrap())).await;
            let Outcome::Returned(returned) = outcome else { panic!("{outcome:?}") };
            assert_eq!(returned.to_cell_value(), result);
            assert_eq!(receive.try_iter().collect::<Vec<_>>(), [json!({"message": "half"})]);
            let look = wait_until_recorded(&record, |line| line["method"] == "tasks/get").await;
            assert_eq!(look["params"]["taskId"], "t1");
        }
    }
}

#[tokio::test]
async fn a_failed_or_invalid_task_is_reported() {
    let cases = [
        (
            json!({"result": {"status": "failed", "error": {"code": 1, "message": "no paper"}}}),
            "its task failed: no paper",
        ),
        (json!({"result": {"status": "cancelled"}}), "its task was cancelled by the server"),
        (
            json!({"result": {"status": "input_required", "inputRequests": {}}}),
            "its request for input cannot be passed on: it contains no question",
        ),
        (json!({"error": {"code": -32601, "message": "no such method"}}), "no such method (code -32601)"),
        (json!({"result": {"status": "completed", "result": 7}}), "its response is not a valid result"),
    ];
    for (last, why) in cases {
        let server = Connected::with(extension(last), limits()).await;
        assert_eq!(server.failed("long").await, format!("`long` of MCP server `s` failed: {why}"));
    }
}

#[tokio::test]
async fn a_task_that_its_server_has_forgotten_is_unknown() {
    let forgotten = json!({"error": {"code": -32602, "message": "no such task"}});
    let server = Connected::with(extension(forgotten), limits()).await;
    assert_eq!(server.call("long", json!({})).await, Outcome::Unknown);
}

#[tokio::test]
async fn a_task_survives_a_restart_of_a_server_that_still_knows_it() {
    let folder = Folder::new();
    let over = json!({"taskId": "t1", "status": "completed", "result": {"content": [], "structuredContent": 7}});
    let mut script = extension(json!({}));
    script["on"] = json!({"tasks/get": [{"exitOnce": folder.0.join("fell")}, {"result": over}]});
    let harness = ScriptedUpstream::with(script, options()).await;
    harness.upstream.listed().await.unwrap();
    let outcome = harness.call("long").await;
    let Outcome::Returned(returned) = outcome else { panic!("{outcome:?}") };
    assert_eq!(returned.to_cell_value()["structuredContent"], 7);
    assert_eq!((harness.heard("tools/call"), harness.starts()), (1, 2));
}

#[tokio::test]
async fn a_forgotten_task_is_repeated_if_its_tool_allows_it() {
    let mut script = extension(json!({}));
    script["tools"][0]["annotations"] = json!({"readOnlyHint": true});
    script["on"] = json!({"tasks/get": [{"error": {"code": -32602, "message": "no such task"}}]});
    let harness = ScriptedUpstream::of(script, options(), |spec| spec.trusted = true).await;
    harness.upstream.listed().await.unwrap();
    assert_eq!(harness.call("long").await, Outcome::Unknown);
    assert_eq!(harness.heard("tools/call"), 2);
}

#[tokio::test]
async fn a_dropped_task_is_cancelled_at_the_server() {
    let folder = Folder::new();
    let record = folder.0.join("record");
    let working = json!({"result": {"taskId": "t1", "status": "working", "pollIntervalMs": 50}});
    let mut script = extension(working);
    script["record"] = json!(record);
    let server = Connected::with(script, limits()).await;
    tokio::select! {
        outcome = server.call("long", json!({})) => panic!("{outcome:?}"),
        _ = wait_until_recorded(&record, |line| line["method"] == "tasks/get") => {}
    }
    let cancelled = wait_until_recorded(&record, |line| line["method"] == "tasks/cancel").await;
    assert_eq!(cancelled["params"]["taskId"], "t1");
}
