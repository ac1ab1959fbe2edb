//! The transcript and the telemetry of a run.

use std::sync::Arc;

use executor::{Outcome, ParkedOn, ToolResult};
use serde_json::{Value, json};
use store::ApprovalScope;

use crate::fake_tools::{Behavior, FakeTools};
use crate::world::{Parts, World, value};

async fn world() -> (World, Arc<FakeTools>) {
    let fakes = FakeTools::new([
        ("openclaw:core:read", Behavior::Echo),
        ("openclaw:core:asked", Behavior::Echo),
        ("openclaw:core:fails", Behavior::Fail("no such city")),
        ("plugin:notes:find", Behavior::Echo),
        ("client:app:pick", Behavior::Park(ParkedOn::Client)),
        ("mcp:github:create_issue", Behavior::Echo),
    ]);
    (Parts { sources: vec![fakes.clone()], ask: vec!["asked"], ..Parts::default() }.open().await, fakes)
}

/// Returns kind, name, call id and parent call id of each entry.
fn lines(entries: &[Value]) -> Vec<[String; 4]> {
    let text = |entry: &Value, name: &str| entry[name].as_str().unwrap_or("").to_owned();
    entries
        .iter()
        .map(|entry| {
            let name = if entry["note"].is_null() { text(entry, "toolName") } else { text(entry, "note") };
            [text(entry, "kind"), name, text(entry, "toolCallId"), text(entry, "parentToolCallId")]
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn nested_calls_are_listed_under_the_control_call_that_made_them() {
    let (world, _) = world().await;
    let run = world.run();
    let cell = "await tools.read({ n: 1 }); await yield_control(); await tools.fails({}).catch(() => {}); return 1";
    let (run_id, _) = run.suspend(cell).await;
    value(&run.wait(&run_id).await);
    let entries = world.export("session").await;
    let expected = [
        ["control_call", "exec", "exec-1", ""],
        ["tool_call", "read", "exec-1:1", "exec-1"],
        ["tool_result", "read", "exec-1:1", "exec-1"],
        ["control_result", "", "exec-1", ""],
        ["control_call", "wait", "wait-1", ""],
        ["tool_call", "fails", "wait-1:3", "wait-1"],
        ["tool_result", "fails", "wait-1:3", "wait-1"],
        ["control_result", "", "wait-1", ""],
    ];
    assert_eq!(lines(&entries), expected);
    assert_eq!(entries[0]["arguments"]["code"], cell);
    assert_eq!((&entries[1]["toolId"], &entries[1]["arguments"]), (&json!("openclaw:core:read"), &json!({"n": 1})));
    assert_eq!((&entries[2]["isError"], &entries[2]["details"]), (&json!(false), &json!({"n": 1})));
    assert_eq!(entries[3]["result"]["status"], "waiting");
    assert_eq!(entries[4]["arguments"]["runId"], json!(run_id));
    assert_eq!((&entries[6]["isError"], &entries[6]["content"][0]["text"]), (&json!(true), &json!("no such city")));
    assert_eq!(entries[7]["result"]["value"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_of_an_mcp_tool_with_is_error_is_marked_and_equal_data_of_another_tool_is_not() {
    let (world, _) = world().await;
    let cell = "await MCP.github.createIssue({ isError: true }); await tools.read({ isError: true }); return 1";
    value(&world.run().exec(cell).await);
    let entries = world.export("session").await;
    let results = entries.iter().filter(|entry| entry["kind"] == "tool_result");
    let marks: Vec<(&Value, &Value)> = results.map(|entry| (&entry["toolName"], &entry["isError"])).collect();
    assert_eq!(marks, [(&json!("create_issue"), &json!(true)), (&json!("read"), &json!(false))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_call_keeps_its_id_until_its_result() {
    let (world, fakes) = world().await;
    let run = world.run();
    let (run_id, _) = run.suspend("return await Promise.all([tools.pick({ n: 1 }), tools.asked({ n: 2 })])").await;
    world.approve_all(ApprovalScope::Once).await;
    let token = fakes.calls().into_iter().find(|call| call.id == "client:app:pick").unwrap().token;
    world.code_mode.settle(&token, &Outcome::Returned(ToolResult::json(json!("picked")))).await.unwrap();
    value(&run.wait(&run_id).await);
    let entries = lines(&world.export("session").await);
    for (name, id) in [("pick", "exec-1:1"), ("asked", "exec-1:2")] {
        for kind in ["tool_call", "tool_result"] {
            let found: Vec<_> = entries.iter().filter(|[k, n, ..]| k == kind && n == name).collect();
            assert_eq!(found, [&[kind, name, id, "exec-1"].map(str::to_owned)], "{entries:?}");
        }
    }
    for note in ["approval_asked", "approval_decided"] {
        assert_eq!(entries.iter().filter(|[kind, name, ..]| kind == "note" && name == note).count(), 1, "{note}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_control_call_has_one_result_and_an_abort_is_noted() {
    let (world, fakes) = world().await;
    let run = world.run();
    let (run_id, _) = run.suspend("await yield_control(); return await tools.pick({})").await;
    let joined = run.clone();
    let (first, second) = tokio::join!(run.wait_as("wait-1", &run_id), joined.wait_as("wait-2", &run_id));
    assert_eq!((&first["status"], &second["status"]), (&json!("waiting"), &json!("waiting")));
    assert_eq!(fakes.called().len(), 1);
    world.code_mode.abort(&run_id).await;
    let entries = lines(&world.export("session").await);
    for id in ["exec-1", "wait-1", "wait-2"] {
        for kind in ["control_call", "control_result"] {
            let count = entries.iter().filter(|[k, _, i, _]| k == kind && i == id).count();
            assert_eq!(count, 1, "{kind} {id}: {entries:?}");
        }
    }
    assert_eq!(entries.last().unwrap()[..2], ["note", "ended"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_direct_call_is_in_the_transcript() {
    let (world, _) = world().await;
    let executor = world.run().prepared.executor;
    for (id, call) in [("openclaw:core:read", "call-1"), ("openclaw:core:fails", "call-2")] {
        executor.call_directly(world.store(), call, id, json!({}), executor::ProgressSink::default()).await.unwrap();
    }
    let entries = lines(&world.export("session").await);
    let kinds: Vec<&str> = entries.iter().map(|[kind, ..]| kind.as_str()).collect();
    assert_eq!(kinds, ["tool_call", "tool_result", "tool_call", "tool_result"]);
    assert_eq!((entries[1][3].as_str(), entries[3][3].as_str()), ("call-1", "call-2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn telemetry_counts_calls_and_snapshots() {
    let (world, _) = world().await;
    let run = world.run();
    let cell = "await tools.search('read'); await tools.search('find'); await tools.describe('openclaw:core:read')
                await tools.read({}); await tools.read({}); await tools.find({}); await MCP.github.$api(); await MCP.github.createIssue({})
                await yield_control(); await tools.fails({}).catch(() => {}); return 1";
    let (run_id, _) = run.suspend(cell).await;
    let mut telemetry = run.wait(&run_id).await["telemetry"].clone();
    let (snapshots, durations) = (telemetry["snapshots"].take(), telemetry["durationMs"].take());
    let expected = json!({
        "catalogSize": 6, "sources": {"openclaw": 3, "plugin": 1, "mcp": 1, "client": 1}, "visibleTools": ["exec", "wait"],
        "execCount": 1, "waitCount": 1, "searchCount": 2, "describeCount": 2, "callCount": 5,
        "nestedToolIds": ["openclaw:core:read", "plugin:notes:find", "mcp:github:create_issue", "openclaw:core:fails"],
        "limitFailures": {"timeout": 0, "memory": 0, "snapshot": 0, "output": 0},
        "snapshots": null, "durationMs": null,
    });
    assert_eq!(telemetry, expected);
    // A cell is also suspended during a call that takes long, as any call does on a slow machine.
    assert!(snapshots["taken"].as_u64().unwrap() >= 1, "{snapshots}");
    assert_eq!(snapshots["taken"], snapshots["restored"]);
    assert!(snapshots["bytes"].as_u64().unwrap() > 0);
    let ms = |name: &str| durations[name].as_u64().unwrap();
    assert!(ms("guest") + ms("tools") <= ms("total") + 5, "{durations}");
}

#[tokio::test(flavor = "multi_thread")]
async fn telemetry_counts_limit_failures() {
    let fakes = FakeTools::new([("openclaw:core:read", Behavior::Echo)]);
    let tools = json!({"codeMode": {"enabled": true, "timeoutMs": 300, "maxOutputBytes": 1024, "maxStoredOutputBytes": 65536, "maxSnapshotBytes": 1024, "memoryLimitBytes": 16 << 20}});
    let world = Parts { tools, sources: vec![fakes], ..Parts::default() }.open().await;
    for (limit, cell) in [
        ("timeout", "for (;;) {}"),
        ("output", "text('0123456789'.repeat(10000))"),
        ("memory", "const kept = []; for (;;) kept.push(new Uint8Array(1 << 20).fill(1))"),
        ("snapshot", "await yield_control()"),
    ] {
        let failures = world.run().exec(cell).await["telemetry"]["limitFailures"].clone();
        let mut expected = json!({"timeout": 0, "memory": 0, "snapshot": 0, "output": 0});
        expected[limit] = json!(1);
        assert_eq!(failures, expected, "{cell}");
    }
}
