//! The command line itself.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

fn cellmate(arguments: &[&str], input: &str) -> Output {
    // The user's own configuration and store must not matter.
    let home = concat!(env!("CARGO_TARGET_TMPDIR"), "/command-home");
    let mut child = Command::new(env!("CARGO_BIN_EXE_cellmate"))
        .args(arguments)
        .env("HOME", home)
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("XDG_STATE_HOME")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_cell_comes_from_a_flag_a_file_or_standard_input() {
    let file = concat!(env!("CARGO_TARGET_TMPDIR"), "/cell.ts");
    std::fs::write(file, "const n: number = 3; return n").unwrap();
    for (arguments, input) in [
        (vec!["exec", "-e", "return 3"], ""),
        (vec!["exec", file], ""),
        (vec!["exec"], "return 3"),
        (vec!["exec", "-"], "return 3"),
    ] {
        let output = cellmate(&arguments, input);
        assert_eq!(json_of(&output)["value"], json!(3), "{arguments:?}");
        assert_eq!(output.status.code(), Some(0));
    }
}

#[test]
fn a_cell_that_returns_and_writes_nothing_gets_a_hint_and_others_do_not() {
    let cases = [
        ("1 + 1", json!(null), true),
        ("return null", json!(null), true),
        ("return 1 + 1", json!(2), false),
        ("text('a')", json!(null), false),
    ];
    for (cell, value, has_hint) in cases {
        let output = cellmate(&["exec", "-e", cell], "");
        assert_eq!(json_of(&output)["value"], value, "{cell}");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(stderr.contains("write `return` before the value"), has_hint, "{cell}: {stderr}");
    }
}

#[test]
fn the_exit_code_reports_how_the_cell_ended() {
    let cases = [
        (vec!["exec", "-e", "throw 1"], 1),
        (vec!["exec", "-e", "await yield_control()", "--no-wait"], 3),
        (vec!["exec", "/no/such/file.js"], 2),
        (vec!["exec", "-e", "1", "--catalog", "/no/such/file.json"], 2),
        (vec!["exec", "--no-such-flag"], 2),
        (vec!["exec", "-e", "return 1", "--jail", "preferred"], 0),
        (vec!["exec", "-e", "return 1", "--jail", "off"], 0),
    ];
    for (arguments, code) in cases {
        assert_eq!(cellmate(&arguments, "").status.code(), Some(code), "{arguments:?}");
    }
}

#[test]
fn a_suspended_cell_with_a_canned_catalog_leaves_no_file() {
    let home = concat!(env!("CARGO_TARGET_TMPDIR"), "/no-files");
    drop(std::fs::remove_dir_all(home));
    std::fs::create_dir_all(home).unwrap();
    let catalog = concat!(env!("CARGO_TARGET_TMPDIR"), "/no-files.json");
    std::fs::write(catalog, r#"{"tools": [{"id": "openclaw:test:never", "answers": [{"never": true}]}]}"#).unwrap();
    let cell = "await Promise.race([tools.never(), yield_control()])";
    let output = Command::new(env!("CARGO_BIN_EXE_cellmate"))
        .args(["exec", "--json", "--no-wait", "--catalog", catalog, "-e", cell])
        .env("HOME", home)
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("XDG_STATE_HOME")
        .current_dir(home)
        .output()
        .unwrap();
    assert_eq!(json_of(&output)["status"], "waiting", "{output:?}");
    // Its store is in memory, so the state of the cell is gone with the process.
    let left: Vec<_> = std::fs::read_dir(home).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_bad_catalog_is_refused_with_a_reason() {
    let file = concat!(env!("CARGO_TARGET_TMPDIR"), "/bad-catalog.json");
    for (text, reason) in [
        ("{", "EOF while parsing"),
        (r#"{"tools":[{"id":"nonsense"}]}"#, "`nonsense` is not a tool id"),
        (r#"{"tools":[{"id":"openclaw:a:b"},{"id":"openclaw:a:b"}]}"#, "two tools are called `openclaw:a:b`"),
        (r#"{"tools":[{"id":"openclaw:a:b","answer":1}]}"#, "unknown field `answer`"),
    ] {
        std::fs::write(file, text).unwrap();
        let output = cellmate(&["exec", "-e", "1", "--catalog", file], "");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(stderr.contains(reason) && stderr.contains(file), "{text}: {stderr}");
    }
}

#[test]
fn doctor_reports_the_jail() {
    let output = cellmate(&["doctor", "--json"], "");
    let report = json_of(&output);
    assert_eq!(report["image"].as_str().map(str::len), Some(64));
    assert!(["full", "seccomp", "none"].contains(&report["jail"].as_str().unwrap()));
}
