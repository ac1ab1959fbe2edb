//! Every error code, produced by a run of code mode as a model uses it.

use std::path::Path;

use contract::error::ErrorCode;
use serde_json::{Value, json};
use sqlx::Connection;

use crate::fake_tools::{Behavior, FakeTools};
use crate::world::{Parts, Workers, World, code};

#[tokio::test(flavor = "multi_thread")]
async fn every_error_code_is_produced_by_a_run() {
    for workers in [Workers::Attached, Workers::Jailed] {
        for expected in ErrorCode::ALL {
            let Some(result) = produce(expected, workers).await else { continue };
            assert_eq!(code(&result), expected.as_str(), "{workers:?}: {result}");
            let error = result["error"].as_str().unwrap_or_default();
            assert!(!error.is_empty() && result["telemetry"].is_object(), "{workers:?}: {result}");
        }
    }
}

/// Runs what fails with this code and returns the result that the model gets. A new code does not compile without it.
async fn produce(code: ErrorCode, workers: Workers) -> Option<Value> {
    Some(match code {
        // Only the program reads configuration files: `while_the_configuration_is_invalid_no_cell_starts_and_suspended_ones_continue`
        // of `crates/cli/tests/it/mcp/reload.rs` produces this code.
        ErrorCode::InvalidConfig => return None,
        ErrorCode::InvalidInput => exec(workers, json!({"code": "return (1"})).await,
        ErrorCode::UnsupportedLanguage => exec(workers, json!({"code": "ls", "language": "bash"})).await,
        ErrorCode::TypescriptTransformFailed => {
            exec(workers, json!({"code": "const a: = 1", "language": "typescript"})).await
        }
        ErrorCode::ModuleAccessDenied => exec(workers, json!({"code": "return require('fs')"})).await,
        ErrorCode::Timeout => exec(workers, json!({"code": "for (;;) {}"})).await,
        ErrorCode::MemoryLimitExceeded => {
            let cell = "const kept = []; for (;;) kept.push(new Uint8Array(1 << 20).fill(1))";
            exec(workers, json!({ "code": cell })).await
        }
        ErrorCode::OutputLimitExceeded => {
            exec(workers, json!({"code": "for (let n = 0; n < 5000; n++) text('0123456789')"})).await
        }
        ErrorCode::SnapshotLimitExceeded => {
            let cell = "const kept = Array.from({ length: 40000 }, () => Math.random())
                await yield_control(); return kept.length";
            exec(workers, json!({ "code": cell })).await
        }
        ErrorCode::TooManyPendingToolCalls => {
            let cell = "return await Promise.all(Array.from({ length: 1100 }, () => tools.gate({})))";
            exec(workers, json!({ "code": cell })).await
        }
        ErrorCode::NestedToolFailed => exec(workers, json!({"code": "return await tools.fails({})"})).await,
        ErrorCode::RuntimeUnavailable => one_run_too_many(workers).await,
        ErrorCode::SnapshotExpired => expired(workers).await,
        ErrorCode::SnapshotRestoreFailed => with_another_key(workers).await,
        ErrorCode::Aborted => aborted(workers).await,
        ErrorCode::InternalError => with_a_closed_store(workers).await,
    })
}

async fn open(workers: Workers, code_mode: Value) -> World {
    let fakes = FakeTools::new([
        ("openclaw:core:gate", Behavior::WaitForGate),
        ("openclaw:core:fails", Behavior::Fail("no such city")),
    ]);
    Parts { workers, tools: json!({ "codeMode": code_mode }), sources: vec![fakes], ..Parts::default() }.open().await
}

/// Runs a cell with small limits.
async fn exec(workers: Workers, input: Value) -> Value {
    let limits = json!({
        "enabled": true, "timeoutMs": 1500, "memoryLimitBytes": 16 << 20, "maxOutputBytes": 1024, "maxStoredOutputBytes": 65536,
        "maxSnapshotBytes": 65536,
    });
    open(workers, limits).await.run().exec_with("exec-1", input).await
}

/// Returns the result of a run beyond the limit of live runs.
async fn one_run_too_many(workers: Workers) -> Value {
    let world = open(workers, json!({"enabled": true, "maxLiveRuns": 2})).await;
    let run = world.run();
    let (first, _) = run.suspend("await yield_control(); return 1").await;
    run.suspend("await yield_control(); return 2").await;
    let refused = run.exec("return 3").await;
    // A waiting run can still be resumed. When it has ended, a new run is accepted.
    assert_eq!(run.wait(&first).await["value"], 1);
    assert_eq!(run.value("return 3").await, 3);
    refused
}

async fn expired(workers: Workers) -> Value {
    let world = open(workers, json!({"enabled": true, "snapshotTtlSeconds": 1})).await;
    let (run_id, _) = world.run().suspend("await yield_control(); return 1").await;
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    world.run().wait(&run_id).await
}

/// Returns the result of resuming a snapshot that was sealed with another key.
async fn with_another_key(workers: Workers) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let parts = |key| Parts {
        workers,
        sources: vec![FakeTools::new([("openclaw:core:read", Behavior::Echo)])],
        store: Some(folder.path().join("store.db")),
        key,
        ..Parts::default()
    };
    let (one, other) = (parts(1).open().await, parts(2).open().await);
    let (run_id, _) = one.run().suspend("await yield_control(); return 1").await;
    let refused = other.run().wait(&run_id).await;
    assert_eq!(code(&one.run().wait(&run_id).await), code(&refused), "the run stays failed");
    refused
}

async fn aborted(workers: Workers) -> Value {
    let world = open(workers, json!(true)).await;
    let (run_id, _) = world.run().suspend("await yield_control(); return 1").await;
    assert!(world.code_mode.abort(&run_id).await);
    world.run().wait(&run_id).await
}

async fn with_a_closed_store(workers: Workers) -> Value {
    let world = open(workers, json!(true)).await;
    let (run_id, _) = world.run().suspend("await yield_control(); return 1").await;
    world.store().close().await;
    world.run().wait(&run_id).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exception_of_the_cell_has_no_code() {
    let result = exec(Workers::Attached, json!({"code": "throw new Error('mine')"})).await;
    assert_eq!((&result["status"], result.get("code")), (&json!("failed"), None), "{result}");
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
