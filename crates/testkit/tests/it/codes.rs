//! Checks that a test produces each error code: a cell in `CELLS`, or a test named in `ELSEWHERE`.

use std::path::Path;

use contract::config::{AgentsConfig, ConfigError};
use contract::error::ErrorCode;
use serde_json::{Value, json};
use sqlx::Connection;

use crate::fake_tools::{Behavior, FakeTools};
use crate::world::{Parts, code};

/// Error codes, each with the `exec` input (without `code`) and the source of a cell that produces it.
const CELLS: &[(ErrorCode, &str, &str)] = &[
    (ErrorCode::InvalidInput, "{}", "return (1"),
    (ErrorCode::TypescriptTransformFailed, r#"{"language": "typescript"}"#, "const a: = 1"),
    (ErrorCode::UnsupportedLanguage, r#"{"language": "bash"}"#, "ls"),
    (ErrorCode::ModuleAccessDenied, "{}", "return require('fs')"),
    (ErrorCode::Timeout, "{}", "for (;;) {}"),
    (ErrorCode::MemoryLimitExceeded, "{}", "const kept = []; for (;;) kept.push(new Uint8Array(1 << 20).fill(1))"),
    (ErrorCode::OutputLimitExceeded, "{}", "for (let n = 0; n < 5000; n++) text('0123456789')"),
    (
        ErrorCode::SnapshotLimitExceeded,
        "{}",
        "const kept = Array.from({ length: 40000 }, () => Math.random()); await yield_control(); return kept.length",
    ),
    (
        ErrorCode::TooManyPendingToolCalls,
        "{}",
        "return await Promise.all(Array.from({ length: 1100 }, () => tools.read({})))",
    ),
    (ErrorCode::NestedToolFailed, "{}", "return await tools.fails({})"),
];

/// The tests that produce the other codes, as `file::test`. Files are relative to the folder of this one.
const ELSEWHERE: &[(ErrorCode, &str)] = &[
    (
        ErrorCode::InvalidConfig,
        "../../../cli/tests/it/mcp/reload::while_the_configuration_is_invalid_no_cell_starts_and_suspended_ones_continue",
    ),
    (ErrorCode::RuntimeUnavailable, "codes::a_run_over_the_live_run_limit_is_rejected"),
    (ErrorCode::SnapshotRestoreFailed, "codes::a_snapshot_that_cannot_be_opened_fails_its_run"),
    (ErrorCode::InternalError, "codes::a_wait_on_a_closed_store_fails_with_internal_error"),
    (ErrorCode::SnapshotExpired, "expiry::a_suspended_cell_expires"),
    (ErrorCode::Aborted, "ending::a_running_guest_is_aborted"),
];

#[test]
fn every_error_code_has_a_test() {
    for code in ErrorCode::ALL {
        let here = CELLS.iter().filter(|(produced, ..)| *produced == code).count();
        let elsewhere: Vec<_> = ELSEWHERE.iter().filter(|(produced, _)| *produced == code).collect();
        assert_eq!(here + elsewhere.len(), 1, "{}", code.as_str());
        for (_, path) in elsewhere {
            let (file, test) = path.split_once("::").unwrap();
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/it/{file}.rs"));
            let text = std::fs::read_to_string(&file).unwrap();
            assert!(text.contains(&format!("fn {test}(")), "{path}");
            assert!(text.contains(&format!("\"{}\"", code.as_str())), "{path} does not contain {}", code.as_str());
        }
    }
}

fn small_limits() -> Value {
    json!({"codeMode": {
        "enabled": true, "timeoutMs": 1500, "memoryLimitBytes": 16 << 20, "maxOutputBytes": 1024, "maxSnapshotBytes": 65536,
    }})
}

#[tokio::test(flavor = "multi_thread")]
async fn cells_fail_with_the_expected_codes() {
    let fakes = FakeTools::new([
        ("openclaw:core:read", Behavior::WaitForGate),
        ("openclaw:core:fails", Behavior::Fail("no such city")),
    ]);
    let world = Parts { tools: small_limits(), sources: vec![fakes], ..Parts::default() }.open().await;
    for (expected, input, source) in CELLS {
        let mut input: Value = serde_json::from_str(input).unwrap();
        input["code"] = json!(source);
        let result = world.run().exec_with("exec-1", input).await;
        assert_eq!(code(&result), expected.as_str(), "{source}: {result}");
    }
    // An exception that the cell throws has no error code; the helper returns "none".
    assert_eq!(code(&world.run().exec("throw new Error('mine')").await), "none");
}

#[test]
fn an_invalid_configuration_is_rejected_with_invalid_config() {
    let errors =
        AgentsConfig::resolve(&json!({"codeMode": {"enabled": "yes", "timoutMs": 1}}), &Value::Null).unwrap_err();
    assert_eq!((errors.len(), ConfigError::CODE.as_str()), (2, "invalid_config"), "{errors:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_over_the_live_run_limit_is_rejected() {
    let fakes = FakeTools::new([("openclaw:core:read", Behavior::Echo)]);
    let tools = json!({"codeMode": {"enabled": true, "maxLiveRuns": 2}});
    let world = Parts { tools, sources: vec![fakes], ..Parts::default() }.open().await;
    let run = world.run();
    let (first, _) = run.suspend("await yield_control(); return 1").await;
    run.suspend("await yield_control(); return 2").await;
    assert_eq!(code(&run.exec("return 3").await), "runtime_unavailable");
    // A waiting run can still be resumed. When it has ended, a new run is accepted.
    assert_eq!(run.wait(&first).await["value"], 1);
    assert_eq!(run.value("return 3").await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_cannot_be_opened_fails_its_run() {
    let folder = tempfile::tempdir().unwrap();
    let parts = |key| Parts {
        sources: vec![FakeTools::new([("openclaw:core:read", Behavior::Echo)])],
        store: Some(folder.path().join("store.db")),
        key,
        ..Parts::default()
    };
    let (one, other) = (parts(1).open().await, parts(2).open().await);
    let (run_id, _) = one.run().suspend("await yield_control(); return 1").await;
    let refused = other.run().wait(&run_id).await;
    assert_eq!(code(&refused), "snapshot_restore_failed", "{refused}");
    assert_eq!(code(&one.run().wait(&run_id).await), "snapshot_restore_failed", "the run stays failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_on_a_closed_store_fails_with_internal_error() {
    let world = Parts::default().open().await;
    let (run_id, _) = world.run().suspend("await yield_control(); return 1").await;
    world.store().close().await;
    assert_eq!(code(&world.run().wait(&run_id).await), "internal_error");
}

/// Makes every statement on the table of runs fail with an error that contains the table's name.
async fn break_store(path: &Path) {
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path);
    let mut connection = sqlx::SqliteConnection::connect_with(&options).await.unwrap();
    sqlx::query("ALTER TABLE runs RENAME TO runs_elsewhere").execute(&mut connection).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_text_of_a_store_error_does_not_reach_the_model() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let fakes = FakeTools::new([("openclaw:core:gate", Behavior::WaitForGate)]);
    let world = Parts { sources: vec![fakes.clone()], store: Some(path.clone()), ..Parts::default() }.open().await;
    let run = world.run();
    let (run_id, _) = run.suspend("await yield_control(); return 1").await;
    let in_progress = tokio::spawn({
        let run = run.clone();
        async move { run.exec("await tools.gate({}); return 1").await }
    });
    fakes.until(1).await;
    break_store(&path).await;
    fakes.gate.notify_one();
    for result in [in_progress.await.unwrap(), run.wait(&run_id).await, run.exec("return 1").await] {
        assert!(["internal_error", "runtime_unavailable"].contains(&code(&result)), "{result}");
        let error = result["error"].as_str().unwrap();
        assert!(error.starts_with("internal error (incident "), "{error}");
        for text in ["no such table", "runs_elsewhere", "SELECT", "UPDATE", "INSERT", "the store failed", "database"] {
            assert!(!error.contains(text), "{error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_lost_its_run_reports_waiting_and_makes_no_more_calls() {
    let fakes = FakeTools::new([("openclaw:core:gate", Behavior::WaitForGate), ("openclaw:core:read", Behavior::Echo)]);
    let tools = json!({"codeMode": {"enabled": true, "timeoutMs": 5000, "maxWaitMs": 300}});
    let world = Parts { tools, sources: vec![fakes.clone()], ..Parts::default() }.open().await;
    let run = world.run();
    let exec = tokio::spawn(async move { run.exec("await tools.gate({}); return await tools.read({})").await });
    fakes.until(1).await;
    let run_id = fakes.calls()[0].token.run.clone();
    world.store().take_forcibly(&run_id, "another process", i64::MAX).await.unwrap();
    fakes.gate.notify_one();
    let result = exec.await.unwrap();
    assert_eq!((&result["status"], &result["runId"]), (&json!("waiting"), &json!(run_id)), "{result}");
    assert_eq!(fakes.called(), ["openclaw:core:gate"], "no more calls are made");
}
