//! What waits too long is put away, with all that belongs to it.

use std::time::Duration;

use serde_json::json;
use store::{ApprovalScope, RunState};

use crate::desk::{Desk, Does, eventually};
use crate::world::{Parts, World, code, value};

async fn world(desk: &std::sync::Arc<Desk>) -> World {
    let tools = json!({"codeMode": {"enabled": true, "timeoutMs": 200, "maxWaitMs": 200, "snapshotTtlSeconds": 1}});
    Parts { tools, sources: vec![desk.clone()], ask: vec!["asked"], ..Parts::default() }.open().await
}

fn desk() -> std::sync::Arc<Desk> {
    Desk::new([("openclaw:core:never", Does::Never), ("openclaw:core:asked", Does::Echo)])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_cell_expires() {
    let world = world(&desk()).await;
    let (run_id, _) = world.run().suspend("await yield_control(); return 1").await;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(code(&world.run().wait(&run_id).await), "snapshot_expired");
    let row = world.store().run(&run_id).await.unwrap().unwrap();
    assert_eq!((row.state, row.snapshot), (RunState::Expired, None));
    // For good.
    assert_eq!(code(&world.run().wait(&run_id).await), "snapshot_expired");
    assert_eq!(world.store().live_runs().await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_never_answers_does_not_keep_its_run_alive() {
    let desk = desk();
    let world = world(&desk).await;
    let (run_id, _) = world.run().suspend("return await tools.never({})").await;
    eventually("the tool is told", async || desk.cancelled() == 1).await;
    eventually("nobody works on it", async || world.code_mode.live_runs() == 0).await;
    assert_eq!(world.store().run(&run_id).await.unwrap().unwrap().state, RunState::Expired);
    assert_eq!(code(&world.run().wait(&run_id).await), "snapshot_expired");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pending_approval_expires_with_its_run() {
    let desk = desk();
    let world = world(&desk).await;
    let (run_id, _) = world.run().suspend("return await tools.asked({})").await;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(code(&world.run().wait(&run_id).await), "snapshot_expired");
    assert_eq!(world.pending().await, []);
    assert_eq!(desk.called(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_restarts_the_expiry_time_of_its_run() {
    let world = world(&desk()).await;
    let run = world.run();
    let (run_id, _) = run.suspend("return await tools.asked({ n: 1 })").await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(world.approve_all(ApprovalScope::Once).await, 1);
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(value(&run.wait(&run_id).await), &json!({"n": 1}));
}
