//! Tests the example program.
#![expect(clippy::unwrap_used, reason = "a test that meets what it does not expect has failed")]

use std::path::Path;
use std::process::Command;

use serde_json::Value;

fn embed(arguments: &[&str]) -> Vec<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_embed")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn a_letter_is_approved_and_sent_by_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let folder = Path::new(folder.path()).to_str().unwrap();
    let started = embed(&["start", folder]);
    assert_eq!(started[0], "the model sees: exec, wait");
    let waiting: Value = serde_json::from_str(&started[1]).unwrap();
    assert_eq!((&waiting["status"], &waiting["pendingToolCalls"][0]["state"]), (&"waiting".into(), &"approval".into()));

    let finished = embed(&["finish", folder, waiting["runId"].as_str().unwrap()]);
    assert!(finished[0].starts_with("approving the call of plugin:post:send_letter"), "{finished:?}");
    let completed: Value = serde_json::from_str(&finished[1]).unwrap();
    assert_eq!(completed["value"], serde_json::json!({"number": 1, "to": "Ada"}));
    assert_eq!(completed["output"][0]["text"], "letter 1 is on its way");
    let transcript: Vec<Value> = finished[2..].iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<&str> = transcript.iter().map(|entry| entry["kind"].as_str().unwrap()).collect();
    // The notes are the request for approval and the decision.
    let first = ["control_call", "note", "control_result", "note"];
    let then = ["control_call", "tool_call", "tool_result", "control_result"];
    assert_eq!(kinds, [first, then].concat());
}
