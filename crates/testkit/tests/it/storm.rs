//! Waits, outcomes, decisions and aborts from two hosts on one store, in any order: every run ends once, its calls are
//! made once, and no driver is left.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use contract::ids::RunId;
use executor::{Outcome, ParkedOn, ToolResult};
use serde_json::{Value, json};
use store::{ApprovalScope, Decision, RunState};

use crate::fake_tools::{Behavior, FakeTools, eventually};
use crate::world::{Parts, World};

const RUNS: u64 = 12;
const CELL: &str = "return await Promise.all([tools.pick({}), tools.asked({ n: 2 }), tools.slow({ n: 3 })])";

async fn worlds(folder: &std::path::Path, fakes: &Arc<FakeTools>) -> [World; 2] {
    let parts = || Parts {
        tools: json!({"codeMode": {"enabled": true, "timeoutMs": 150, "maxWaitMs": 150}}),
        sources: vec![fakes.clone()],
        ask: vec!["asked"],
        store: Some(folder.join("store.db")),
        ..Parts::default()
    };
    [parts().open().await, parts().open().await]
}

/// A pseudo-random number that is the same for the same seed.
fn random(seed: u64, below: u64) -> u64 {
    let mixed = (seed ^ 0x9E37_79B9_7F4A_7C15).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed ^ (mixed >> 29)).wrapping_mul(0x94D0_49BB_1331_11EB) % below
}

async fn settle(world: World, fakes: Arc<FakeTools>, run_id: RunId) {
    let token =
        fakes.calls().into_iter().find(|call| call.token.run == run_id && call.id == "client:app:pick").unwrap().token;
    // The second outcome is refused.
    for _ in 0..2 {
        drop(world.code_mode.settle(&token, &Outcome::Returned(ToolResult::json(json!("picked")))).await);
    }
}

async fn decide(world: World, run_id: RunId) {
    let approval = world.store().approvals_of_run(&run_id).await.unwrap().remove(0);
    let decision = Decision::Approve { edited_input: None, reach: ApprovalScope::Once };
    for _ in 0..2 {
        drop(world.code_mode.decide(&approval.approval_id, &decision, "ada").await);
    }
}

async fn wait_to_end(world: World, run_id: RunId) -> Value {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let result = world.run().wait(&run_id).await;
        if result["status"] != "waiting" {
            return result;
        }
        assert!(Instant::now() < deadline, "{run_id} does not end: {result}");
        // `wait` returns at once for a run that waits only for approvals: do not starve the other tasks.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_waits_outcomes_decisions_and_aborts_end_each_run_once() {
    let folder = tempfile::tempdir().unwrap();
    let fakes = FakeTools::new([
        ("client:app:pick", Behavior::Park(ParkedOn::Client)),
        ("openclaw:core:asked", Behavior::Echo),
        ("openclaw:core:slow", Behavior::After(400)),
    ]);
    let worlds = worlds(folder.path(), &fakes).await;
    let mut runs = Vec::new();
    for number in 0..RUNS {
        runs.push((number, worlds[(number % 2) as usize].run().suspend(CELL).await.0));
    }
    let mut tasks = Vec::new();
    for (number, run_id) in runs.clone() {
        let world = |salt: u64| worlds[random(number * 7 + salt, 2) as usize].clone();
        let pause = |salt: u64| tokio::time::sleep(Duration::from_millis(random(number * 31 + salt, 500)));
        let (one, two, three, four) = (world(1), world(2), world(3), world(4));
        let (fakes, aborted) = (fakes.clone(), number % 4 == 3);
        let pauses = (pause(1), pause(2), pause(3));
        let id = run_id.clone();
        let others = tokio::spawn(async move {
            let settle = async {
                pauses.0.await;
                settle(one, fakes, id.clone()).await
            };
            let decide = async {
                pauses.1.await;
                decide(two, id.clone()).await
            };
            let abort = async {
                pauses.2.await;
                aborted && three.code_mode.abort(&id).await
            };
            tokio::join!(settle, decide, abort).2
        });
        let waits =
            [four, worlds[0].clone(), worlds[1].clone()].map(|world| tokio::spawn(wait_to_end(world, run_id.clone())));
        tasks.push((run_id, others, waits));
    }
    for (run_id, others, waits) in tasks {
        let aborted = others.await.unwrap();
        let state = if aborted { RunState::Aborted } else { RunState::Completed };
        for wait in waits {
            let result = wait.await.unwrap();
            if aborted {
                assert_eq!(result["code"], "aborted", "{result}");
            } else {
                assert_eq!(result["value"], json!(["picked", {"n": 2}, {"n": 3}]), "{result}");
            }
        }
        assert_eq!(worlds[0].store().run(&run_id).await.unwrap().unwrap().state, state);
    }
    let mut made: BTreeMap<(RunId, String), usize> = BTreeMap::new();
    fakes.calls().into_iter().for_each(|call| *made.entry((call.token.run, call.id)).or_default() += 1);
    assert!(made.values().all(|count| *count == 1), "{made:?}");
    for world in &worlds {
        eventually("all drivers exit", async || world.code_mode.live_runs() == 0).await;
        assert_eq!(world.store().live_runs().await.unwrap(), 0);
    }
}
