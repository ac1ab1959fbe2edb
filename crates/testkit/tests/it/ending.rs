//! Ends that come from outside: abort in every state, the end of a session, expiry, too many runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use executor::{CallToken, Outcome, Parked, Returned};
use serde_json::{Value, json};
use store::{RunState, Settled};

use crate::desk::{Desk, Does, eventually};
use crate::world::{Parts, Run, World, code, value};

const ASKED: &str = "openclaw:core:asked";

async fn world(config: Value) -> (World, Arc<Desk>) {
    let desk = Desk::new([
        ("openclaw:core:never", Does::Never),
        (ASKED, Does::Echo),
        ("client:app:pick", Does::Parks(Parked::Client)),
        ("openclaw:core:read", Does::Echo),
    ]);
    let parts = Parts {
        tools: json!({ "codeMode": config }),
        sources: vec![desk.clone()],
        ask: vec![ASKED],
        ..Parts::default()
    };
    (parts.open().await, desk)
}

fn patient() -> Value {
    json!({"enabled": true, "timeoutMs": 20000, "maxWaitMs": 20000})
}

fn hasty() -> Value {
    json!({"enabled": true, "timeoutMs": 200, "maxWaitMs": 200})
}

async fn state(world: &World, run_id: &str) -> (RunState, bool) {
    let row = world.store().run(run_id).await.unwrap().unwrap();
    (row.state, row.snapshot.is_some())
}

/// In a turn that is under way.
async fn begin(run: &Run, code: &'static str) -> tokio::task::JoinHandle<Value> {
    let run = run.clone();
    tokio::spawn(async move { run.exec(code).await })
}

async fn over_and_done(world: &World, run_id: &str) {
    assert_eq!(state(world, run_id).await, (RunState::Aborted, false));
    assert_eq!(code(&world.run().wait(run_id).await), "aborted");
    eventually("nobody works on it", async || world.code_mode.live_runs() == 0).await;
    assert!(!world.code_mode.abort(run_id).await, "there is nothing left to end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_guest_is_aborted() {
    let (world, desk) = world(patient()).await;
    let turn = begin(&world.run(), "await tools.read({}); for (;;) {}").await;
    desk.until(1).await;
    let run_id = desk.calls()[0].token.run.clone();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let began = Instant::now();
    assert!(world.code_mode.abort(&run_id).await);
    assert_eq!(code(&turn.await.unwrap()), "aborted");
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    over_and_done(&world, &run_id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn aborting_a_run_cancels_its_running_tool() {
    let (world, desk) = world(patient()).await;
    let turn = begin(&world.run(), "text('before'); return await tools.never({})").await;
    desk.until(1).await;
    let token = desk.calls()[0].token.clone();
    assert!(world.code_mode.abort(&token.run).await);
    let result = turn.await.unwrap();
    assert_eq!((code(&result), &result["output"][0]["text"]), ("aborted", &json!("before")));
    eventually("the tool is told", async || desk.cancelled() == 1).await;
    over_and_done(&world, &token.run).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn aborting_a_run_cancels_a_tool_that_runs_between_turns() {
    let (world, desk) = world(hasty()).await;
    let (run_id, _) = world.run().suspend("return await tools.never({})").await;
    assert_eq!((world.code_mode.live_runs(), desk.cancelled()), (1, 0));
    assert!(world.code_mode.abort(&run_id).await);
    eventually("the tool is told", async || desk.cancelled() == 1).await;
    over_and_done(&world, &run_id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_suspended_or_waits_for_approval_is_aborted() {
    let (world, desk) = world(hasty()).await;
    for cell in [
        "return await tools.asked({})",
        "await yield_control(); return await tools.read({})",
        "return await tools.pick({})",
    ] {
        let (run_id, _) = world.run().suspend(cell).await;
        eventually("it is put away", async || world.code_mode.live_runs() == 0).await;
        assert!(state(&world, &run_id).await.1, "a snapshot is kept");
        assert!(world.code_mode.abort(&run_id).await, "{cell}");
        over_and_done(&world, &run_id).await;
    }
    assert_eq!(desk.called(), ["client:app:pick"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timed_out_run_cancels_its_tools_and_frees_its_worker() {
    let (world, desk) = world(hasty()).await;
    let result = world.run().exec("const never = tools.never({}); await tools.read({}); for (;;) {}").await;
    assert_eq!(code(&result), "timeout");
    let run_id = desk.calls()[0].token.run.clone();
    assert_eq!(state(&world, &run_id).await, (RunState::Failed, false));
    eventually("the tool is told", async || desk.cancelled() == 1).await;
    eventually("nobody works on it", async || world.code_mode.live_runs() == 0).await;
    assert_eq!(code(&world.run().wait(&run_id).await), "timeout", "who asks again is told the same");
    // The worker has its place back.
    assert_eq!(world.run().value("return 1").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finished_run_cannot_be_aborted() {
    let (world, _) = world(hasty()).await;
    let (run_id, _) = world.run().suspend("await yield_control(); return 1").await;
    assert_eq!(value(&world.run().wait(&run_id).await), 1);
    assert!(!world.code_mode.abort(&run_id).await);
    assert!(!world.code_mode.abort("cm_nothing").await);
    assert_eq!(value(&world.run().wait(&run_id).await), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_outcome_is_stored_and_never_delivered() {
    let (world, desk) = world(hasty()).await;
    let (run_id, _) = world.run().suspend("return await tools.pick({})").await;
    let token: CallToken = desk.calls()[0].token.clone();
    world.code_mode.abort(&run_id).await;
    let late = world.code_mode.settle(&token, &Outcome::Returned(Returned::json(json!("late")))).await;
    assert_eq!(late.unwrap(), Settled::Late);
    let calls = world.store().calls(&run_id).await.unwrap();
    assert!(calls[0].outcome.as_deref().unwrap().contains("late"), "{calls:?}");
    assert_eq!(code(&world.run().wait(&run_id).await), "aborted");
    let noted = world.export("session").await.pop().unwrap();
    assert_eq!(
        (&noted["kind"], &noted["note"], &noted["runId"]),
        (&json!("note"), &json!("late_result"), &json!(run_id))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn ending_a_session_aborts_only_its_runs() {
    let (world, desk) = world(patient()).await;
    let (yielded, _) = world.run().suspend("await yield_control(); return 1").await;
    let (other, _) = world.run_as("main/another/run").suspend("await yield_control(); return 1").await;
    // This one has called nothing yet: no store knows it.
    let spinning = begin(&world.run(), "for (;;) {}").await;
    let calling = begin(&world.run(), "return await tools.never({})").await;
    desk.until(1).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(world.code_mode.end_session("session").await, 3);
    for turn in [spinning, calling] {
        assert_eq!(code(&turn.await.unwrap()), "aborted");
    }
    assert_eq!(code(&world.run().wait(&yielded).await), "aborted");
    assert_eq!(value(&world.run_as("main/another/run").wait(&other).await), 1);
    assert_eq!(world.code_mode.end_session("session").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_held_by_another_process_is_aborted() {
    let folder = tempfile::tempdir().unwrap();
    let desk = Desk::new([("openclaw:core:never", Does::Never)]);
    let parts =
        || Parts { sources: vec![desk.clone()], store: Some(folder.path().join("store.db")), ..Parts::default() };
    let (one, other) = (parts().open().await, parts().open().await);
    let turn = begin(&one.run(), "await Promise.race([tools.never({}), new Promise(done => setTimeout(done, 600))]); return await tools.never({})").await;
    desk.until(1).await;
    let run_id = desk.calls()[0].token.run.clone();
    assert!(other.code_mode.abort(&run_id).await);
    assert_eq!(code(&turn.await.unwrap()), "aborted");
    assert_eq!(state(&other, &run_id).await.0, RunState::Aborted);
    assert_eq!(desk.called().len(), 1, "whoever lost the run makes no more calls");
}
