//! Runs that are ended from outside: by an abort in each state of the run, by a timeout, or with their session.

use std::sync::Arc;
use std::time::{Duration, Instant};

use contract::ids::RunId;
use executor::{CallToken, Outcome, ParkedOn, ToolResult};
use serde_json::{Value, json};
use store::{RunState, SettleResult};

use crate::fake_tools::{Behavior, FakeTools, eventually};
use crate::world::{Parts, Run, World, code, value};

const ASKED: &str = "openclaw:core:asked";

async fn world(config: Value) -> (World, Arc<FakeTools>) {
    let fakes = FakeTools::new([
        ("openclaw:core:never", Behavior::Never),
        (ASKED, Behavior::Echo),
        ("client:app:pick", Behavior::Park(ParkedOn::Client)),
        ("openclaw:core:read", Behavior::Echo),
    ]);
    let parts = Parts {
        tools: json!({ "codeMode": config }),
        sources: vec![fakes.clone()],
        ask: vec![ASKED],
        ..Parts::default()
    };
    (parts.open().await, fakes)
}

fn long_timeouts() -> Value {
    json!({"enabled": true, "timeoutMs": 20000, "maxWaitMs": 20000})
}

fn short_timeouts() -> Value {
    json!({"enabled": true, "timeoutMs": 200, "maxWaitMs": 200})
}

async fn state(world: &World, run_id: &RunId) -> (RunState, bool) {
    let row = world.store().run(run_id).await.unwrap().unwrap();
    (row.state, row.snapshot.is_some())
}

/// Starts an `exec` in a task.
fn spawn_exec(run: &Run, code: &'static str) -> tokio::task::JoinHandle<Value> {
    let run = run.clone();
    tokio::spawn(async move { run.exec(code).await })
}

/// Checks that the run is aborted, and that it has no snapshot and no driver.
async fn assert_aborted(world: &World, run_id: &RunId) {
    assert_eq!(state(world, run_id).await, (RunState::Aborted, false));
    assert_eq!(code(&world.run().wait(run_id).await), "aborted");
    eventually("the driver exits", async || world.code_mode.live_runs() == 0).await;
    assert!(!world.code_mode.abort(run_id).await, "a second abort does nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_guest_is_aborted() {
    let (world, fakes) = world(long_timeouts()).await;
    let exec = spawn_exec(&world.run(), "await tools.read({}); for (;;) {}");
    fakes.until(1).await;
    let run_id = fakes.calls()[0].token.run.clone();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let began = Instant::now();
    assert!(world.code_mode.abort(&run_id).await);
    assert_eq!(code(&exec.await.unwrap()), "aborted");
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert_aborted(&world, &run_id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn aborting_a_run_cancels_its_running_tool() {
    let (world, fakes) = world(long_timeouts()).await;
    let exec = spawn_exec(&world.run(), "text('before'); return await tools.never({})");
    fakes.until(1).await;
    let token = fakes.calls()[0].token.clone();
    assert!(world.code_mode.abort(&token.run).await);
    let result = exec.await.unwrap();
    assert_eq!((code(&result), &result["output"][0]["text"]), ("aborted", &json!("before")));
    eventually("the tool is cancelled", async || fakes.cancelled() == 1).await;
    assert_aborted(&world, &token.run).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn aborting_a_run_cancels_a_tool_that_runs_between_turns() {
    let (world, fakes) = world(short_timeouts()).await;
    let (run_id, _) = world.run().suspend("return await tools.never({})").await;
    assert_eq!((world.code_mode.live_runs(), fakes.cancelled()), (1, 0));
    assert!(world.code_mode.abort(&run_id).await);
    eventually("the tool is cancelled", async || fakes.cancelled() == 1).await;
    assert_aborted(&world, &run_id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_suspended_or_waits_for_approval_is_aborted() {
    let (world, fakes) = world(short_timeouts()).await;
    for cell in [
        "return await tools.asked({})",
        "await yield_control(); return await tools.read({})",
        "return await tools.pick({})",
    ] {
        let (run_id, _) = world.run().suspend(cell).await;
        eventually("the run is suspended", async || world.code_mode.live_runs() == 0).await;
        assert!(state(&world, &run_id).await.1, "a snapshot is stored");
        assert!(world.code_mode.abort(&run_id).await, "{cell}");
        assert_aborted(&world, &run_id).await;
    }
    assert_eq!(fakes.called(), ["client:app:pick"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timed_out_run_cancels_its_tools_and_frees_its_worker() {
    let (world, fakes) = world(short_timeouts()).await;
    let result = world.run().exec("const never = tools.never({}); await tools.read({}); for (;;) {}").await;
    assert_eq!(code(&result), "timeout");
    let run_id = fakes.calls()[0].token.run.clone();
    assert_eq!(state(&world, &run_id).await, (RunState::Failed, false));
    eventually("the tool is cancelled", async || fakes.cancelled() == 1).await;
    eventually("the driver exits", async || world.code_mode.live_runs() == 0).await;
    assert_eq!(code(&world.run().wait(&run_id).await), "timeout", "a second wait returns the same result");
    // The worker accepts another cell.
    assert_eq!(world.run().value("return 1").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finished_run_cannot_be_aborted() {
    let (world, _) = world(short_timeouts()).await;
    let (run_id, _) = world.run().suspend("await yield_control(); return 1").await;
    assert_eq!(value(&world.run().wait(&run_id).await), 1);
    assert!(!world.code_mode.abort(&run_id).await);
    assert!(!world.code_mode.abort(&"cm_nothing".into()).await);
    assert_eq!(value(&world.run().wait(&run_id).await), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_outcome_is_stored_and_never_delivered() {
    let (world, fakes) = world(short_timeouts()).await;
    let (run_id, _) = world.run().suspend("return await tools.pick({})").await;
    let token: CallToken = fakes.calls()[0].token.clone();
    world.code_mode.abort(&run_id).await;
    let late = world.code_mode.settle(&token, &Outcome::Returned(ToolResult::json(json!("late")))).await;
    assert_eq!(late.unwrap(), SettleResult::RunEnded);
    let calls = world.store().calls(&run_id).await.unwrap();
    assert!(calls[0].outcome.as_deref().unwrap().contains("late"), "{calls:?}");
    assert_eq!(code(&world.run().wait(&run_id).await), "aborted");
    let note = world.export("session").await.pop().unwrap();
    assert_eq!((&note["kind"], &note["note"], &note["runId"]), (&json!("note"), &json!("late_result"), &json!(run_id)));
}

#[tokio::test(flavor = "multi_thread")]
async fn ending_a_session_aborts_only_its_runs() {
    let (world, fakes) = world(long_timeouts()).await;
    let (yielded, _) = world.run().suspend("await yield_control(); return 1").await;
    let (other, _) = world.run_as("main/another/run").suspend("await yield_control(); return 1").await;
    // This run has made no call yet, so it is not in the store.
    let spinning = spawn_exec(&world.run(), "for (;;) {}");
    let calling = spawn_exec(&world.run(), "return await tools.never({})");
    fakes.until(1).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(world.code_mode.end_session("session").await, 3);
    for exec in [spinning, calling] {
        assert_eq!(code(&exec.await.unwrap()), "aborted");
    }
    assert_eq!(code(&world.run().wait(&yielded).await), "aborted");
    assert_eq!(value(&world.run_as("main/another/run").wait(&other).await), 1);
    assert_eq!(world.code_mode.end_session("session").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_held_by_another_process_is_aborted() {
    let folder = tempfile::tempdir().unwrap();
    let fakes = FakeTools::new([("openclaw:core:never", Behavior::Never)]);
    let parts =
        || Parts { sources: vec![fakes.clone()], store: Some(folder.path().join("store.db")), ..Parts::default() };
    let (one, other) = (parts().open().await, parts().open().await);
    let exec = spawn_exec(
        &one.run(),
        "await Promise.race([tools.never({}), new Promise(done => setTimeout(done, 600))]); return await tools.never({})",
    );
    fakes.until(1).await;
    let run_id = fakes.calls()[0].token.run.clone();
    assert!(other.code_mode.abort(&run_id).await);
    assert_eq!(code(&exec.await.unwrap()), "aborted");
    assert_eq!(state(&other, &run_id).await.0, RunState::Aborted);
    assert_eq!(fakes.called().len(), 1, "the process that lost the run makes no more calls");
}
