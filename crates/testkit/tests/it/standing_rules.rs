//! Standing approvals: created, listed, applied, revoked, and void for changed tools.

use std::sync::Arc;

use contract::tool::ToolSpec;
use serde_json::json;
use store::ApprovalScope;

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
