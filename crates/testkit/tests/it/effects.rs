//! The effects of runs that did not complete: which calls their results list.

use contract::config::Quotas;
use serde_json::{Value, json};

use crate::fake_tools::{Behavior, FakeTools};
use crate::host::Host;
use crate::session_values::reads;
use crate::world::{Parts, Workers, World, code};

async fn world() -> (World, std::sync::Arc<FakeTools>) {
    let tools = FakeTools::new([
        ("openclaw:a:write", Behavior::Echo),
        ("openclaw:a:fail", Behavior::Fail("no")),
        ("openclaw:a:hang", Behavior::Never),
        ("openclaw:a:ask", Behavior::Echo),
    ]);
    tools.put(reads("openclaw:a:read"), Behavior::Echo);
    let parts = Parts {
        workers: Workers::Attached,
        tools: json!({"codeMode": {"enabled": true, "timeoutMs": 1000, "maxWaitMs": 1000}}),
        sources: vec![tools.clone()],
        ask: vec!["openclaw:a:ask"],
        ..Parts::default()
    };
    (parts.open().await, tools)
}

/// Returns the listed effects as `tool state`, without the tools' common prefix.
fn effects(result: &Value) -> Vec<String> {
    let effects = result["effects"].as_array().into_iter().flatten();
    let short = |effect: &Value| {
        let tool = effect["tool"].as_str().unwrap().rsplit(':').next().unwrap().to_owned();
        format!("{} {tool} {}", effect["call"], effect["state"].as_str().unwrap())
    };
    effects.map(short).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_cell_lists_the_calls_that_may_have_changed_something() {
    let (world, _tools) = world().await;
    let code = "const call = (name) => tools.call(`openclaw:a:${name}`, {}); \
                await call('write'); await call('read'); await call('fail').catch(() => {}); \
                call('hang'); await call('write'); throw new Error('odd')";
    let failed = world.run().exec(code).await;
    assert_eq!(effects(&failed), ["1 write done", "3 fail failed", "4 hang unknown", "5 write done"], "{failed}");
    let failed = world.run().exec("await tools.call('openclaw:a:read', {}); throw new Error('odd')").await;
    assert_eq!(failed.get("effects"), None, "{failed}");
    let completed = world.run().exec("await tools.call('openclaw:a:write', {}); return 1").await;
    assert_eq!(completed.get("effects"), None, "{completed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_was_not_approved_is_no_effect() {
    let (world, _tools) = world().await;
    let run = world.run();
    let code = "tools.call('openclaw:a:ask', {}); await tools.call('openclaw:a:write', {}); await yield_control()";
    let (waiting, _) = run.suspend(code).await;
    assert!(world.code_mode.abort_with(&run.prepared.executor, &waiting).await);
    let aborted = run.wait(&waiting).await;
    assert_eq!((self::code(&aborted), effects(&aborted)), ("aborted", vec!["2 write done".to_owned()]), "{aborted}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timed_out_cell_lists_its_effects() {
    let (world, _tools) = world().await;
    let failed = world.run().exec("await tools.call('openclaw:a:write', {}); for (;;);").await;
    assert_eq!((code(&failed), effects(&failed)), ("timeout", vec!["1 write done".to_owned()]), "{failed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_run_lists_its_effects() {
    let (world, _tools) = world().await;
    let run = world.run();
    let code =
        "await tools.call('openclaw:a:read', {}); await tools.call('openclaw:a:write', {}); await yield_control()";
    let (waiting, _) = run.suspend(code).await;
    world.store().expire(i64::MAX).await.unwrap();
    let expired = run.wait(&waiting).await;
    assert_eq!((self::code(&expired), effects(&expired)), ("snapshot_expired", vec!["2 write done".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_a_quota_fails_lists_its_effects() {
    let tools = FakeTools::new([("openclaw:a:write", Behavior::Echo)]);
    let quotas = Quotas { waiting_runs: 0, ..Quotas::DEFAULT };
    let parts = Parts { workers: Workers::Attached, sources: vec![tools], quotas, ..Parts::default() };
    let world = parts.open().await;
    let failed = world.run().exec("await tools.call('openclaw:a:write', {}); await yield_control()").await;
    assert_eq!((code(&failed), effects(&failed)), ("runtime_unavailable", vec!["1 write done".to_owned()]), "{failed}");
}

#[test]
fn a_run_that_fails_in_another_process_lists_the_effects_of_both() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = Host::start(folder.path());
    let code = "await tools.call('openclaw:ledger:slow', {}); await tools.call('openclaw:ledger:read', {}); \
                await yield_control(); await tools.call('openclaw:ledger:slow', {}); throw new Error('odd')";
    let waiting = host.ask(&json!({"op": "exec", "code": code}));
    assert_eq!(waiting["status"], "waiting", "{waiting}");
    host.kill();
    let mut host = Host::start(folder.path());
    let wait = json!({"op": "wait", "runId": waiting["runId"]});
    let mut end = host.ask(&wait);
    while end["status"] == "waiting" {
        end = host.ask(&wait);
    }
    let listed = effects(&end);
    assert_eq!(listed.iter().filter(|one| one.ends_with("slow done")).count(), 2, "{end}");
    assert!(!listed.iter().any(|one| one.contains("read")), "{end}");
    assert_eq!(host.ask(&wait), end, "the stored result has them, too");
}
