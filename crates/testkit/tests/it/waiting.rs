//! `exec` and `wait`: settled calls resume a cell, `wait` resumes a suspended cell, and only from the cell's scope.

use std::sync::Arc;
use std::time::{Duration, Instant};

use contract::ids::{CallId, RunId};
use contract::limits::MAX_KEPT_SNAPSHOT_BYTES;
use contract::scope::Scope;
use executor::run::RunRequest;
use executor::{CallToken, Outcome, ParkedOn, ToolResult};
use serde_json::{Value, json};
use store::{RunState, SettleError, SettleResult};

use crate::fake_tools::{Behavior, FakeTools, eventually};
use crate::world::{Parts, World, code, request, scope, value};

fn short_timeouts() -> Value {
    json!({"codeMode": {"enabled": true, "timeoutMs": 400, "maxWaitMs": 400}})
}

async fn world(tools: Value) -> (World, Arc<FakeTools>) {
    let fakes = FakeTools::new([
        ("openclaw:core:read", Behavior::Echo),
        ("openclaw:core:gate", Behavior::WaitForGate),
        ("openclaw:core:slow", Behavior::After(700)),
        ("client:app:pick", Behavior::Park(ParkedOn::Client)),
        ("openclaw:core:task", Behavior::Park(ParkedOn::Task)),
    ]);
    (Parts { tools, sources: vec![fakes.clone()], ..Parts::default() }.open().await, fakes)
}

fn returned(value: Value) -> Outcome {
    Outcome::Returned(ToolResult::json(value))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_settled_call_resumes_the_cell_while_another_is_pending() {
    let (world, fakes) = world(short_timeouts()).await;
    let run = world.run();
    let code = "const gate = tools.gate({ n: 2 })
                const read = []
                for (let n = 0; n < 5; n++) { read.push((await tools.read({ n })).n); text(n) }
                return [read, (await gate).n, Date.now() > 0]";
    let (run_id, waiting) = run.suspend(code).await;
    assert_eq!(waiting["output"].as_array().unwrap().len(), 5, "{waiting}");
    assert_eq!(waiting["pendingToolCalls"][0]["state"], "running");
    assert_eq!(fakes.called().len(), 6);
    fakes.gate.notify_one();
    let done = run.wait(&run_id).await;
    assert_eq!(value(&done), &json!([[0, 1, 2, 3, 4], 2, true]));
    assert_eq!(done["output"], json!([]), "output that was returned before is not repeated");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_settled_between_turns_is_delivered_by_the_next_wait() {
    let (world, fakes) = world(short_timeouts()).await;
    let run = world.run();
    let (run_id, _) = run.suspend("const slow = await tools.slow({ n: 1 }); text('after'); return slow").await;
    eventually("the driver exits", async || world.code_mode.live_runs() == 0).await;
    let done = run.wait(&run_id).await;
    assert_eq!((value(&done), &done["output"][0]["text"]), (&json!({"n": 1}), &json!("after")));
    assert_eq!(fakes.called(), ["openclaw:core:slow"]);
    assert_eq!(done["telemetry"]["snapshots"]["restored"], 1, "{done}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_cell_that_waits_for_a_call_is_read_from_the_store_again() {
    let (world, fakes) = world(json!({"codeMode": {"enabled": true, "timeoutMs": 60_000, "maxWaitMs": 400}})).await;
    let run = world.run();
    let code = "let seed = 1
                const kept = Array.from({ length: 100000 }, () => (seed = (seed * 48271) % 2147483647))
                const sum = () => kept.reduce((sum, n) => (sum + n) % 1000003, 0)
                const before = sum()
                await tools.gate({ n: 1 })
                return [before > 0, before === sum()]";
    let (run_id, waiting) = run.suspend(code).await;
    let bytes = waiting["telemetry"]["snapshots"]["bytes"].as_u64().unwrap();
    assert!(bytes > 2 * MAX_KEPT_SNAPSHOT_BYTES as u64, "{bytes}");
    fakes.gate.notify_one();
    assert_eq!(value(&run.wait(&run_id).await), &json!([true, true]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_yield_returns_at_once_and_resumes_with_its_variables() {
    let (world, _) = world(short_timeouts()).await;
    let run = world.run();
    let (run_id, waiting) = run.suspend("const kept = { n: 1 }; text('one'); const back = await yield_control('look'); text('two'); return [kept, back === undefined]").await;
    assert_eq!((&waiting["reason"], &waiting["output"][0]["text"]), (&json!("yield"), &json!("one")));
    let done = run.wait(&run_id).await;
    assert_eq!((value(&done), &done["output"]), (&json!([{"n": 1}, true]), &json!([{"type": "text", "text": "two"}])));
    // A second `wait` returns the same result.
    let again = run.wait(&run_id).await;
    assert_eq!((value(&again), &again["output"]), (value(&done), &done["output"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_has_the_state_of_a_run_and_its_snapshot_only_while_it_waits() {
    let (world, fakes) = world(short_timeouts()).await;
    let state = async |run_id: &RunId| {
        let row = world.store().run(run_id).await.unwrap().unwrap();
        (row.state, row.snapshot.is_some())
    };
    for (end, expected) in [("return 1", RunState::Completed), ("throw new Error('no')", RunState::Failed)] {
        let before = fakes.calls().len();
        let run = world.run();
        let cell = format!("await tools.gate({{}}); await yield_control(); {end}");
        let exec = tokio::spawn(async move { run.exec(&cell).await });
        fakes.until(before + 1).await;
        let run_id = fakes.calls()[before].token.run.clone();
        assert_eq!(state(&run_id).await.0, RunState::Running, "{end}");
        fakes.gate.notify_one();
        assert_eq!(exec.await.unwrap()["status"], "waiting", "{end}");
        assert_eq!(state(&run_id).await, (RunState::Waiting, true), "{end}");
        world.run().wait(&run_id).await;
        assert_eq!(state(&run_id).await, (expected, false), "{end}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_a_sandboxed_agent_is_resumed_and_forked_only_with_the_rules_of_the_sandbox() {
    let (world, _) = world(short_timeouts()).await;
    let run_for = |sandboxed: bool| {
        let own = request("main/session/run");
        world.prepared(&RunRequest { scope: Scope { sandboxed, ..own.scope.clone() }, ..own })
    };
    let (run_id, _) = run_for(true).suspend("await yield_control(); return 1").await;
    let refused = run_for(false).wait(&run_id).await;
    assert_eq!(code(&refused), "invalid_input");
    assert!(refused["error"].as_str().unwrap().contains("--sandboxed"), "{refused}");
    let (run, own) = (run_for(false), scope("main/session/run"));
    let forked = world.code_mode.fork(&own, &run.prepared.config.code_mode, "fork-1", &run_id, 1).await;
    assert!(forked.is_err(), "{forked:?}");
    assert_eq!(value(&run_for(true).wait(&run_id).await), 1);
    // A run without a sandbox may be resumed with more rules.
    let (run_id, _) = run_for(false).suspend("await yield_control(); return 2").await;
    assert_eq!(value(&run_for(true).wait(&run_id).await), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_found_from_its_own_scope_only() {
    let (world, _) = world(short_timeouts()).await;
    let (run_id, _) = world.run().suspend("await yield_control(); return 1").await;
    let unknown = world.run().wait("cm_00000000000000000000000000000000").await;
    assert_eq!(code(&unknown), "invalid_input");
    for foreign in ["other/session/run", "main/other/run", "main/session/other"] {
        assert_eq!(world.run_as(foreign).wait(&run_id).await, unknown, "{foreign}");
    }
    assert!(scope("main/session/run").admits(&world.run().prepared.executor.scope().as_ref().clone()));
    assert_eq!(value(&world.run().wait(&run_id).await), 1);
    // The same is true after the end of the run.
    assert_eq!(world.run_as("main/other/run").wait(&run_id).await, unknown);
    for bad in [json!({}), json!({"runId": ""}), json!({"runId": 3})] {
        let run = world.run();
        let config = &run.prepared.config.code_mode;
        let result = json!(world.code_mode.wait_json(&run.prepared.executor, config, "wait-1", &bad).await);
        assert_eq!(code(&result), "invalid_input", "{bad}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_wait_joins_the_first() {
    let (world, fakes) = world(json!({"codeMode": {"enabled": true, "timeoutMs": 300, "maxWaitMs": 8000}})).await;
    let run = world.run();
    // A run that is active, and one that is suspended in the store.
    for cell in ["return await tools.gate({ n: 1 })", "await yield_control(); return await tools.gate({ n: 1 })"] {
        let before = fakes.calls().len();
        let (run_id, _) = run.suspend(cell).await;
        let waits: Vec<_> = (0..6)
            .map(|number| {
                let (run, run_id) = (run.clone(), run_id.clone());
                tokio::spawn(async move { run.wait_as(&format!("wait-{number}"), &run_id).await })
            })
            .collect();
        fakes.until(before + 1).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        fakes.gate.notify_one();
        for wait in waits {
            assert_eq!(value(&wait.await.unwrap()), &json!({"n": 1}), "{cell}");
        }
        assert_eq!(fakes.calls().len(), before + 1, "{cell}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_call_is_settled_once_by_its_token() {
    let (world, fakes) = world(short_timeouts()).await;
    let run = world.run();
    let (run_id, waiting) = run.suspend("return await Promise.all([tools.pick({ n: 1 }), tools.task({ n: 2 })])").await;
    let states: Vec<&Value> =
        waiting["pendingToolCalls"].as_array().unwrap().iter().map(|call| &call["state"]).collect();
    assert_eq!(states, ["client", "running"]);
    let mut tokens: Vec<CallToken> = fakes.calls().into_iter().map(|call| call.token).collect();
    tokens.sort_by_key(|token| token.call);
    for (token, value) in tokens.iter().zip(["picked", "done"]) {
        assert_eq!(world.code_mode.settle(token, &returned(json!(value))).await.unwrap(), SettleResult::WillDeliver);
        let twice = world.code_mode.settle(token, &returned(json!("other"))).await;
        assert!(matches!(twice, Err(SettleError::NotWaiting)), "{twice:?}");
    }
    assert_eq!(value(&run.wait(&run_id).await), &json!(["picked", "done"]));
    let unknown = CallToken { run: run_id, call: CallId(9) };
    assert!(world.code_mode.settle(&unknown, &Outcome::Unknown).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_process_releases_its_run_for_another_to_resume() {
    let folder = tempfile::tempdir().unwrap();
    let fakes = FakeTools::new([("openclaw:core:slow", Behavior::After(2000))]);
    let parts = || Parts {
        tools: short_timeouts(),
        sources: vec![fakes.clone()],
        store: Some(folder.path().join("store.db")),
        ..Parts::default()
    };
    let (one, other) = (parts().open().await, parts().open().await);
    let (run_id, _) = one.run().suspend("return await tools.slow({ n: 1 })").await;
    // While the first process runs it, the second reports it as running.
    let held = other.run().wait(&run_id).await;
    assert_eq!(
        (&held["status"], &held["pendingToolCalls"][0]["state"]),
        (&json!("waiting"), &json!("running")),
        "{held}"
    );
    eventually("the first process releases the run", async || one.code_mode.live_runs() == 0).await;
    let began = Instant::now();
    assert_eq!(value(&other.run().wait(&run_id).await), &json!({"n": 1}));
    assert!(
        began.elapsed() < Duration::from_millis(1500),
        "it does not have to wait until the lease expires: {:?}",
        began.elapsed()
    );
    assert_eq!(fakes.called(), ["openclaw:core:slow"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_panics_fails_only_its_own_call() {
    let fakes = FakeTools::new([("openclaw:core:read", Behavior::Echo), ("openclaw:core:breaks", Behavior::Panic)]);
    let world = Parts { sources: vec![fakes], ..Parts::default() }.open().await;
    let cell = "const [broken, read] = await Promise.allSettled([tools.breaks({}), tools.read({ n: 1 })]); return [broken.reason.message, read.value]";
    let message = "the tool panicked and may have taken effect; check before calling it again";
    assert_eq!(world.run().value(cell).await, json!([message, {"n": 1}]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_applies_the_current_policy() {
    let (mut world, fakes) = world(short_timeouts()).await;
    let cell = "const gate = tools.gate({}); await yield_control(); await gate; return await tools.read({}).catch(error => error.message)";
    let (run_id, _) = world.run().suspend(cell).await;
    // The run is active in this process when its agent loses access to a tool.
    assert_eq!(world.code_mode.live_runs(), 1);
    let denied = json!({"codeMode": short_timeouts()["codeMode"], "deny": ["read"]});
    world.host.config = contract::config::AgentsConfig::resolve(&denied, &Value::Null).unwrap();
    let run = world.run();
    let waiting = tokio::spawn(async move { run.wait(&run_id).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(world.code_mode.live_runs(), 1, "the run was active all the time");
    fakes.gate.notify_one();
    let result = waiting.await.unwrap();
    assert!(value(&result).as_str().unwrap().starts_with("unknown tool"), "{result}");
    assert_eq!(fakes.called(), ["openclaw:core:gate"]);
}
