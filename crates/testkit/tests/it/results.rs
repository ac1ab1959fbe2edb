//! The fields of results, exactly.

use serde_json::{Value, json};

use crate::fake_tools::{Behavior, FakeTools};
use crate::world::{Parts, Workers};

fn fields(result: &Value) -> Vec<&str> {
    let mut names: Vec<&str> = result.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

fn sorted<const N: usize>(mut names: [&'static str; N]) -> [&'static str; N] {
    names.sort_unstable();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn results_have_exactly_the_fields_of_the_contract() {
    let fakes = FakeTools::new([("openclaw:core:never", Behavior::Never), ("mcp:docs:never", Behavior::Never)]);
    let tools = json!({"codeMode": {"enabled": true, "timeoutMs": 300, "maxWaitMs": 300}});
    let parts = Parts { workers: Workers::Jailed, tools, sources: vec![fakes], ..Parts::default() };
    let run = parts.open().await.run();
    let waiting = ["status", "runId", "reason", "pendingToolCalls", "output", "telemetry"];

    let completed = run.exec("text('a'); json({ b: 1 }); return 1").await;
    assert_eq!(fields(&completed), sorted(["status", "value", "output", "telemetry"]));
    let items = json!([{"type": "text", "text": "a"}, {"type": "json", "value": {"b": 1}}]);
    assert_eq!((&completed["status"], &completed["output"]), (&json!("completed"), &items));
    let nothing = run.exec("const unused = 1").await;
    assert_eq!((fields(&nothing), &nothing["value"]), (fields(&completed), &Value::Null), "a value is always there");

    let (yielded, suspended) = run.suspend("await yield_control(); throw new Error('mine')").await;
    assert_eq!((fields(&suspended), &suspended["reason"]), (sorted(waiting).to_vec(), &json!("yield")));
    let failed = run.wait(&yielded).await;
    assert_eq!(fields(&failed), sorted(["status", "error", "output", "telemetry"]), "no code: {failed}");
    let refused = run.exec("return require('fs')").await;
    assert_eq!(fields(&refused), sorted(["status", "error", "code", "output", "telemetry"]));

    // What a cell waits for: a tool, an MCP tool, and a timer.
    for (cell, method, tool) in [
        ("await tools.never({})", "call", json!("openclaw:core:never")),
        ("await MCP.docs.never({})", "namespace", json!("mcp:docs:never")),
        ("await new Promise(done => setTimeout(done, 60000))", "timer", Value::Null),
    ] {
        let (run_id, suspended) = run.suspend(cell).await;
        let still = run.wait(&run_id).await;
        for result in [&suspended, &still] {
            assert_eq!((fields(result), &result["reason"]), (sorted(waiting).to_vec(), &json!("pending_tools")));
            assert!(run_id.as_str().starts_with("cm_") && result["runId"] == json!(run_id), "{result}");
            let [pending] = result["pendingToolCalls"].as_array().unwrap().as_slice() else { panic!("{result}") };
            assert_eq!((&pending["method"], &pending["toolId"]), (&json!(method), &tool), "{result}");
            let named = if tool.is_null() {
                vec!["id", "method", "sinceMs", "state"]
            } else {
                vec!["id", "method", "sinceMs", "state", "toolId"]
            };
            assert_eq!(fields(pending), named);
        }
    }
}
