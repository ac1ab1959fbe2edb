//! `exec` and `wait`: what settles goes on at once, what suspends comes back, from the same scope only.

use std::sync::Arc;
use std::time::{Duration, Instant};

use executor::{CallToken, Outcome, Parked, Returned};
use serde_json::{Value, json};
use store::{SettleRefused, Settled};

use crate::desk::{Desk, Does, eventually};
use crate::world::{Parts, World, code, scope, value};

fn quick() -> Value {
    json!({"codeMode": {"enabled": true, "timeoutMs": 400, "maxWaitMs": 400}})
}

async fn world(tools: Value) -> (World, Arc<Desk>) {
    let desk = Desk::new([
        ("openclaw:core:read", Does::Echo),
        ("openclaw:core:gate", Does::AtTheGate),
        ("openclaw:core:slow", Does::After(700)),
        ("client:app:pick", Does::Parks(Parked::Client)),
        ("openclaw:core:task", Does::Parks(Parked::Task)),
    ]);
    (Parts { tools, sources: vec![desk.clone()], ..Parts::default() }.open().await, desk)
}

fn returned(value: Value) -> Outcome {
    Outcome::Returned(Returned::json(value))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_settles_resumes_the_cell_while_another_call_is_pending() {
    let (world, desk) = world(quick()).await;
    let run = world.run();
    let code = "const gate = tools.gate({ n: 2 })
                const read = []
                for (let n = 0; n < 5; n++) { read.push((await tools.read({ n })).n); text(n) }
                return [read, (await gate).n, Date.now() > 0]";
    let (run_id, waiting) = run.suspend(code).await;
    assert_eq!(waiting["output"].as_array().unwrap().len(), 5, "{waiting}");
    assert_eq!(waiting["pendingToolCalls"][0]["state"], "running");
    assert_eq!(desk.called().len(), 6);
    desk.gate.notify_one();
    let done = run.wait(&run_id).await;
    assert_eq!(value(&done), &json!([[0, 1, 2, 3, 4], 2, true]));
    assert_eq!(done["output"], json!([]), "what was shown is not shown again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_settles_between_turns_is_there_at_the_next() {
    let (world, desk) = world(quick()).await;
    let run = world.run();
    let (run_id, _) = run.suspend("const slow = await tools.slow({ n: 1 }); text('after'); return slow").await;
    eventually("nobody works on it any more", async || world.code_mode.live_runs() == 0).await;
    let done = run.wait(&run_id).await;
    assert_eq!((value(&done), &done["output"][0]["text"]), (&json!({"n": 1}), &json!("after")));
    assert_eq!(desk.called(), ["openclaw:core:slow"]);
    assert_eq!(done["telemetry"]["snapshots"]["restored"], 1, "{done}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_yield_hands_over_at_once_and_goes_on_with_its_variables() {
    let (world, _) = world(quick()).await;
    let run = world.run();
    let (run_id, waiting) = run.suspend("const kept = { n: 1 }; text('one'); const back = await yield_control('look'); text('two'); return [kept, back === undefined]").await;
    assert_eq!((&waiting["reason"], &waiting["output"][0]["text"]), (&json!("yield"), &json!("one")));
    let done = run.wait(&run_id).await;
    assert_eq!((value(&done), &done["output"]), (&json!([{"n": 1}, true]), &json!([{"type": "text", "text": "two"}])));
    // Who asks again is told the same.
    let again = run.wait(&run_id).await;
    assert_eq!((value(&again), &again["output"]), (value(&done), &done["output"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_found_from_its_own_scope_only() {
    let (world, _) = world(quick()).await;
    let (run_id, _) = world.run().suspend("await yield_control(); return 1").await;
    let unknown = world.run().wait("cm_00000000000000000000000000000000").await;
    assert_eq!(code(&unknown), "invalid_input");
    for foreign in ["other/session/run", "main/other/run", "main/session/other"] {
        assert_eq!(world.run_as(foreign).wait(&run_id).await, unknown, "{foreign}");
    }
    assert!(scope("main/session/run").admits(&world.run().prepared.executor.scope().as_ref().clone()));
    assert_eq!(value(&world.run().wait(&run_id).await), 1);
    // After the end, too.
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
    let (world, desk) = world(json!({"codeMode": {"enabled": true, "timeoutMs": 300, "maxWaitMs": 8000}})).await;
    let run = world.run();
    // One that is worked on, and one that lies in the store.
    for cell in ["return await tools.gate({ n: 1 })", "await yield_control(); return await tools.gate({ n: 1 })"] {
        let before = desk.calls().len();
        let (run_id, _) = run.suspend(cell).await;
        let waits: Vec<_> = (0..6)
            .map(|number| {
                let (run, run_id) = (run.clone(), run_id.clone());
                tokio::spawn(async move { run.wait_as(&format!("wait-{number}"), &run_id).await })
            })
            .collect();
        desk.until(before + 1).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        desk.gate.notify_one();
        for wait in waits {
            assert_eq!(value(&wait.await.unwrap()), &json!({"n": 1}), "{cell}");
        }
        assert_eq!(desk.calls().len(), before + 1, "{cell}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_parked_is_settled_once_by_its_token() {
    let (world, desk) = world(quick()).await;
    let run = world.run();
    let (run_id, waiting) = run.suspend("return await Promise.all([tools.pick({ n: 1 }), tools.task({ n: 2 })])").await;
    let states: Vec<&Value> =
        waiting["pendingToolCalls"].as_array().unwrap().iter().map(|call| &call["state"]).collect();
    assert_eq!(states, ["client", "running"]);
    let mut tokens: Vec<CallToken> = desk.calls().into_iter().map(|call| call.token).collect();
    tokens.sort_by_key(|token| token.call);
    for (token, told) in tokens.iter().zip(["picked", "done"]) {
        assert_eq!(world.code_mode.settle(token, &returned(json!(told))).await.unwrap(), Settled::Taken);
        let twice = world.code_mode.settle(token, &returned(json!("other"))).await;
        assert!(matches!(twice, Err(SettleRefused::NotParked)), "{twice:?}");
    }
    assert_eq!(value(&run.wait(&run_id).await), &json!(["picked", "done"]));
    let nobody = CallToken { run: run_id, call: 9 };
    assert!(world.code_mode.settle(&nobody, &Outcome::Unknown).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_no_more_to_do_lets_others_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let desk = Desk::new([("openclaw:core:slow", Does::After(2000))]);
    let parts = || Parts {
        tools: quick(),
        sources: vec![desk.clone()],
        store: Some(folder.path().join("store.db")),
        ..Parts::default()
    };
    let (one, other) = (parts().open().await, parts().open().await);
    let (run_id, _) = one.run().suspend("return await tools.slow({ n: 1 })").await;
    // While the first works on it, the second says so.
    let held = other.run().wait(&run_id).await;
    assert_eq!(
        (&held["status"], &held["pendingToolCalls"][0]["state"]),
        (&json!("waiting"), &json!("running")),
        "{held}"
    );
    eventually("the first has let go", async || one.code_mode.live_runs() == 0).await;
    let began = Instant::now();
    assert_eq!(value(&other.run().wait(&run_id).await), &json!({"n": 1}));
    assert!(began.elapsed() < Duration::from_millis(1500), "no lease has to run out: {:?}", began.elapsed());
    assert_eq!(desk.called(), ["openclaw:core:slow"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_panics_fails_its_own_call() {
    let desk = Desk::new([("openclaw:core:read", Does::Echo), ("openclaw:core:breaks", Does::Panics)]);
    let world = Parts { sources: vec![desk], ..Parts::default() }.open().await;
    let cell = "const [broken, read] = await Promise.allSettled([tools.breaks({}), tools.read({ n: 1 })]); return [broken.reason.message, read.value]";
    let message = "the tool panicked and may have taken effect; check before calling it again";
    assert_eq!(world.run().value(cell).await, json!([message, {"n": 1}]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_brings_the_policy_of_its_own_time() {
    let (mut world, desk) = world(quick()).await;
    let cell = "const gate = tools.gate({}); await yield_control(); await gate; return await tools.read({}).catch(error => error.message)";
    let (run_id, _) = world.run().suspend(cell).await;
    // The run is at work in this process when its agent loses a tool.
    assert_eq!(world.code_mode.live_runs(), 1);
    let denied = json!({"codeMode": quick()["codeMode"], "deny": ["read"]});
    world.host.config = contract::config::AgentsConfig::resolve(&denied, &Value::Null).unwrap();
    let run = world.run();
    let waiting = tokio::spawn(async move { run.wait(&run_id).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(world.code_mode.live_runs(), 1, "it was at work all the time");
    desk.gate.notify_one();
    let told = waiting.await.unwrap();
    assert!(value(&told).as_str().unwrap().starts_with("unknown tool"), "{told}");
    assert_eq!(desk.called(), ["openclaw:core:gate"]);
}
