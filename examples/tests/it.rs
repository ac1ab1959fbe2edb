//! Tests the example programs.
#![expect(clippy::unwrap_used, reason = "a test that meets what it does not expect has failed")]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

/// Runs a program with this input and returns the lines that it prints.
fn lines(program: &str, arguments: &[&str], input: &str) -> Vec<String> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn read(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}

#[test]
fn the_smallest_program_shows_two_tools_and_runs_a_cell() {
    let printed = lines(env!("CARGO_BIN_EXE_embedding"), &[], "");
    let tools = read(&printed[0]);
    let names: Vec<&str> = tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["exec", "wait"]);
    let completed = read(&printed[1]);
    assert_eq!(completed["output"][0]["text"], "Oslo is the warmest");
    assert_eq!(completed["value"], json!({"city": "Oslo", "celsius": 16}));
}

#[test]
fn each_letter_is_approved_or_denied_by_a_person() {
    let printed = lines(env!("CARGO_BIN_EXE_approvals"), &[], "y\nn\n");
    assert_eq!(read(&printed[0])["pendingToolCalls"][0]["state"], "approval");
    assert_eq!(printed[1], r#"call plugin:post:send_letter with {"to":"Ada"}? [y/n]"#);
    assert_eq!(printed[3], r#"call plugin:post:send_letter with {"to":"Grace"}? [y/n]"#);
    let completed = read(&printed[4]);
    assert_eq!(completed["status"], "completed");
    let output = completed["output"].to_string();
    assert!(output.contains("no letter to Grace") && output.contains("not today"), "{output}");
    assert!(printed.concat().contains("letter 1 to Ada is on its way"), "{printed:?}");
}

#[test]
fn a_letter_is_approved_and_sent_by_another_process() {
    let durable = env!("CARGO_BIN_EXE_durable");
    let folder = tempfile::tempdir().unwrap();
    let folder = Path::new(folder.path()).to_str().unwrap();
    let started = lines(durable, &["start", folder], "");
    let waiting = read(&started[0]);
    assert_eq!((&waiting["status"], &waiting["pendingToolCalls"][0]["state"]), (&"waiting".into(), &"approval".into()));

    let finished = lines(durable, &["finish", folder, waiting["runId"].as_str().unwrap()], "");
    assert!(finished[0].starts_with("approving the call of plugin:post:send_letter"), "{finished:?}");
    let completed = read(&finished[1]);
    assert_eq!(completed["value"], json!({"number": 1, "to": "Ada"}));
    assert_eq!(completed["output"][0]["text"], "letter 1 is on its way");
    let transcript: Vec<Value> = finished[2..].iter().map(|line| read(line)).collect();
    let kinds: Vec<&str> = transcript.iter().map(|entry| entry["kind"].as_str().unwrap()).collect();
    // The notes are the request for approval and the decision.
    let first = ["control_call", "note", "control_result", "note"];
    let then = ["control_call", "tool_call", "tool_result", "control_result"];
    assert_eq!(kinds, [first, then].concat());
}

#[test]
fn the_files_of_a_folder_are_tools() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [("groceries", "bread"), ("birthdays", "Ada: 10 December"), ("not:an:id", "hidden")] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let printed = lines(env!("CARGO_BIN_EXE_tool_source"), &[folder.path().to_str().unwrap()], "");
    assert_eq!(read(&printed[0])["value"], json!(["Ada: 10 December", "bread"]), "{printed:?}");
}
