//! Runs the hostile cells of `spec/hostile` with the `hostile` program. It is a separate process, because its children,
//! sockets and memory are checked, too.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Factor for time limits: the test build is not optimised, and other tests run at the same time.
const SLACK: &str = "5";

fn drive(folder: &Path) -> (Value, bool) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_hostile")).arg(folder).args(["--json", "--slack", SLACK]).output().unwrap();
    let report = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    (report, output.status.success())
}

#[test]
fn every_hostile_cell_is_contained() {
    let (report, succeeded) = drive(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/hostile"));
    let cells = report["cells"].as_array().unwrap();
    let failed: Vec<&Value> = cells.iter().filter(|cell| cell["passed"] != true).collect();
    println!("{} hostile cells, {} failed", cells.len(), failed.len());
    assert!(failed.is_empty(), "{failed:#?}");
    assert_eq!(report["host"], Value::from(Vec::<Value>::new()));
    assert!(succeeded && cells.len() >= 100);
}

#[test]
fn the_judge_reports_wrong_outcomes_effects_and_leaks() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("wrong.js", "return 1");
    write("effects.js", "await tools.counter(); return 1");
    write("leak.js", "await tools.echo({ word: ['CANARY', 'SECRET'].join('_') }); return 'FORBIDDEN_WORD'");
    write(
        "index.json",
        r#"{"cells": [
            {"id": "a", "file": "wrong.js", "title": "", "expect": [{"status": "completed", "value": 2}, {"status": "failed"}]},
            {"id": "b", "file": "effects.js", "title": "", "expect": [{"status": "completed"}],
             "side_effects": {"openclaw:test:counter": {"max": 0}}},
            {"id": "c", "file": "leak.js", "title": "", "expect": [{"status": "completed"}], "forbid": ["FORBIDDEN_WORD"]},
            {"id": "d", "file": "wrong.js", "title": "", "expect": [{"status": "completed", "value": 1}]}
        ]}"#,
    );
    let (report, succeeded) = drive(folder.path());
    let problems: Vec<&Value> = report["cells"].as_array().unwrap().iter().map(|cell| &cell["problems"]).collect();
    assert_eq!(*problems[0], serde_json::json!(["unexpected outcome"]));
    assert_eq!(*problems[1], serde_json::json!(["`openclaw:test:counter` took effect 1 times"]));
    assert_eq!(
        *problems[2],
        serde_json::json!([
            "`CANARY_SECRET` is in the transcript",
            "`FORBIDDEN_WORD` is in a result",
            "`FORBIDDEN_WORD` is in the transcript"
        ])
    );
    assert_eq!(*problems[3], serde_json::json!([]));
    assert_eq!(report["host"], serde_json::json!(["`CANARY_SECRET` is on disk"]));
    assert!(!succeeded);
}
