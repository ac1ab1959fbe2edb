//! Standing approvals: created, listed, applied, revoked, and void for changed tools.

use std::sync::Arc;

use contract::tool::ToolSpec;
use serde_json::json;
use store::{ApprovalScope, ApprovalState, Decision};

use crate::fake_tools::{Behavior, FakeTools, spec};
use crate::world::{Parts, World, value};

const PAY: &str = "openclaw:bank:pay";
const PAID: &str = "return await tools.call('openclaw:bank:pay', { amount: 1 })";

async fn world() -> (World, Arc<FakeTools>) {
    let fakes = FakeTools::new([(PAY, Behavior::Echo)]);
    (Parts { sources: vec![fakes.clone()], ask: vec!["bank"], ..Parts::default() }.open().await, fakes)
}

/// Whether a call is made without an approval request.
async fn is_preapproved(world: &World, scope: &str) -> bool {
    let run = world.run_as(scope);
    let result = run.exec(PAID).await;
    if result["status"] == "waiting" {
        world.code_mode.abort(&result["runId"].as_str().unwrap().into()).await;
        return false;
    }
    value(&result) == &json!({"amount": 1})
}

async fn allow(world: &World, reach: ApprovalScope) {
    let run = world.run();
    let (run_id, _) = run.suspend(PAID).await;
    world.approve_all(reach).await;
    value(&run.wait(&run_id).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_for_one_call_creates_no_rule() {
    let (world, _) = world().await;
    allow(&world, ApprovalScope::Once).await;
    assert_eq!(world.store().rules().await.unwrap(), []);
    assert!(!is_preapproved(&world, "main/session/run").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_approval_applies_only_to_that_session() {
    let (world, _) = world().await;
    allow(&world, ApprovalScope::Session).await;
    assert!(is_preapproved(&world, "main/session/run").await);
    assert!(is_preapproved(&world, "main/session/another-run").await);
    assert!(!is_preapproved(&world, "main/another-session/run").await);
    assert!(!is_preapproved(&world, "other/session/run").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_approval_applies_until_it_is_revoked() {
    let (world, _) = world().await;
    allow(&world, ApprovalScope::Agent).await;
    assert!(is_preapproved(&world, "main/another-session/run").await);
    assert!(!is_preapproved(&world, "other/session/run").await);
    let rules = world.store().rules().await.unwrap();
    let [rule] = rules.as_slice() else { panic!("{rules:?}") };
    assert_eq!(
        (rule.tool_id.as_str(), rule.agent_id.as_deref(), rule.session_id.as_deref()),
        (PAY, Some("main"), None)
    );
    assert_eq!((rule.created_by.as_str(), rule.revoked_at), ("ada", None));
    assert!(world.store().revoke_rule(&rule.rule_id, 1).await.unwrap());
    assert!(!world.store().revoke_rule(&rule.rule_id, 2).await.unwrap(), "a rule can be revoked only once");
    assert_eq!(world.store().rules().await.unwrap()[0].revoked_at, Some(1));
    assert!(!is_preapproved(&world, "main/session/run").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_does_not_apply_to_a_changed_tool() {
    let (world, fakes) = world().await;
    allow(&world, ApprovalScope::Agent).await;
    fakes.put(ToolSpec { description: "Pays twice.".to_owned(), ..spec(PAY) }, Behavior::Echo);
    assert!(!is_preapproved(&world, "main/session/run").await);
    // With its original definition, the tool is allowed again.
    fakes.put(spec(PAY), Behavior::Echo);
    assert!(is_preapproved(&world, "main/session/run").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_for_all_calls_settles_the_pending_ones_as_if_each_was_decided() {
    let (world, fakes) = world().await;
    let (run, other) = (world.run(), world.run_as("main/another-session/run"));
    let code =
        "return (await Promise.all([1, 2, 3, 4].map(amount => tools.call('openclaw:bank:pay', { amount })))).length";
    let (run_id, waiting) = run.suspend(code).await;
    assert_eq!(waiting["pendingToolCalls"].as_array().unwrap().len(), 4, "{waiting}");
    let (other_id, _) = other.suspend(PAID).await;
    let (stranger_id, _) = world.run_as("stranger/session/run").suspend(PAID).await;
    let first = world.store().approvals_of_run(&run_id).await.unwrap().remove(0);
    let always = Decision::Approve { edited_input: None, reach: ApprovalScope::Agent };
    let recorded = world.code_mode.decide(&first.approval_id, &always, "ada").await.unwrap();
    assert_eq!(recorded.covered.len(), 4);
    assert_eq!(value(&run.wait(&run_id).await), &json!(4));
    assert_eq!(value(&other.wait(&other_id).await), &json!({"amount": 1}));
    assert_eq!(fakes.called().len(), 5);
    let pending = world.pending().await;
    assert_eq!(pending.iter().map(|one| &one.run_id).collect::<Vec<_>>(), [&stranger_id], "another agent's call");

    // Each call was asked about, decided by the same person and used once.
    for (run_id, session, calls) in [(&run_id, "session", 4), (&other_id, "another-session", 1)] {
        let approvals = world.store().approvals_of_run(run_id).await.unwrap();
        assert!(approvals.iter().all(|approval| approval.state == ApprovalState::Used), "{approvals:?}");
        assert!(approvals.iter().all(|approval| approval.decided_by.as_deref() == Some("ada")), "{approvals:?}");
        let entries = world.export(session).await;
        let decided: Vec<&serde_json::Value> = entries
            .iter()
            .filter(|entry| entry["note"] == "approval_decided" && entry["runId"] == json!(run_id))
            .collect();
        assert_eq!(decided.len(), calls, "{entries:?}");
        for entry in decided {
            assert_eq!((&entry["decision"], &entry["by"]), (&json!("approved"), &json!("ada")), "{entry}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_are_parked_while_all_are_approved_do_not_stay_pending() {
    let (world, fakes) = world().await;
    const RUNS: usize = 24;
    let runs: Vec<_> = (0..RUNS).map(|number| world.run_as(&format!("main/session-{number}/run"))).collect();
    let execs = runs.into_iter().map(|run| {
        tokio::spawn(async move {
            let result = run.exec(PAID).await;
            (run, result)
        })
    });
    let execs: Vec<_> = execs.collect();
    let first = loop {
        match world.pending().await.pop() {
            Some(first) => break first,
            None => tokio::task::yield_now().await,
        }
    };
    let always = Decision::Approve { edited_input: None, reach: ApprovalScope::Agent };
    world.code_mode.decide(&first.approval_id, &always, "ada").await.unwrap();
    for exec in execs {
        let (run, mut result) = exec.await.unwrap();
        if result["status"] == "waiting" {
            let run_id = result["runId"].as_str().unwrap().to_owned();
            result = run.wait(&run_id).await;
        }
        assert_eq!(value(&result), &json!({"amount": 1}), "one decision covers every call");
    }
    assert_eq!((fakes.called().len(), world.pending().await), (RUNS, Vec::new()));
}
