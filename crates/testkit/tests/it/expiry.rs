//! Runs that wait too long expire, with their snapshots, calls and approvals.

use std::time::Duration;

use serde_json::json;
use store::{ApprovalScope, RunState};

use crate::fake_tools::{Behavior, FakeTools, eventually};
use crate::world::{Parts, World, code, value};

async fn world(fakes: &std::sync::Arc<FakeTools>) -> World {
    let tools = json!({"codeMode": {"enabled": true, "timeoutMs": 200, "maxWaitMs": 200, "snapshotTtlSeconds": 1}});
    Parts { tools, sources: vec![fakes.clone()], ask: vec!["asked"], ..Parts::default() }.open().await
}

fn fakes() -> std::sync::Arc<FakeTools> {
    FakeTools::new([("openclaw:core:never", Behavior::Never), ("openclaw:core:asked", Behavior::Echo)])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_cell_expires() {
    let world = world(&fakes()).await;
    let (run_id, _) = world.run().suspend("await yield_control(); return 1").await;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(code(&world.run().wait(&run_id).await), "snapshot_expired");
    let row = world.store().run(&run_id).await.unwrap().unwrap();
    assert_eq!((row.state, row.snapshot), (RunState::Expired, None));
    // A second `wait` returns the same error.
    assert_eq!(code(&world.run().wait(&run_id).await), "snapshot_expired");
    assert_eq!(world.store().live_runs().await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_never_answers_does_not_keep_its_run_alive() {
    let fakes = fakes();
    let world = world(&fakes).await;
    let (run_id, _) = world.run().suspend("return await tools.never({})").await;
    eventually("the tool is cancelled", async || fakes.cancelled() == 1).await;
    eventually("the driver exits", async || world.code_mode.live_runs() == 0).await;
    assert_eq!(world.store().run(&run_id).await.unwrap().unwrap().state, RunState::Expired);
    let expired = world.run().wait(&run_id).await;
    assert_eq!(code(&expired), "snapshot_expired");
    assert!(expired["error"].as_str().unwrap().contains("calls that it made may have taken effect"), "{expired}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pending_approval_expires_with_its_run() {
    let fakes = fakes();
    let world = world(&fakes).await;
    let (run_id, _) = world.run().suspend("return await tools.asked({})").await;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let expired = world.run().wait(&run_id).await;
    assert_eq!(code(&expired), "snapshot_expired");
    assert!(
        expired["error"].as_str().unwrap().contains("it made no call that may have changed something"),
        "{expired}"
    );
    assert_eq!(world.pending().await, []);
    assert_eq!(fakes.called(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_restarts_the_expiry_time_of_its_run() {
    let world = world(&fakes()).await;
    let run = world.run();
    let (run_id, _) = run.suspend("return await tools.asked({ n: 1 })").await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(world.approve_all(ApprovalScope::Once).await, 1);
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(value(&run.wait(&run_id).await), &json!({"n": 1}));
}
