//! Approval of calls by a person: requested, decided once, used once.

use std::sync::Arc;

use contract::tool::ToolSpec;
use executor::{CallEnd, Outcome, ProgressSink};
use serde_json::{Value, json};
use store::{ApprovalScope, ApprovalState, Decision, DecisionError};

use crate::fake_tools::{Behavior, FakeTools, eventually, spec};
use crate::world::{Parts, World, value};

const PAY: &str = "openclaw:bank:pay";
const PAID: &str = "return await tools.call('openclaw:bank:pay', { amount: 1 }).catch(error => error.message)";

fn pay() -> ToolSpec {
    let schema =
        json!({"type": "object", "properties": {"amount": {"type": "integer"}}, "additionalProperties": false});
    ToolSpec { parameters: schema, ..spec(PAY) }
}

async fn world() -> (World, Arc<FakeTools>) {
    let fakes = FakeTools::new([("openclaw:core:read", Behavior::Echo), ("openclaw:core:slow", Behavior::After(300))]);
    fakes.put(pay(), Behavior::Echo);
    (Parts { sources: vec![fakes.clone()], ask: vec![PAY], ..Parts::default() }.open().await, fakes)
}

fn once(edited_input: Option<Value>) -> Decision {
    Decision::Approve { edited_input, reach: ApprovalScope::Once }
}

async fn decide(world: &World, decision: &Decision) {
    let pending = world.pending().await;
    world.code_mode.decide(&pending[0].approval_id, decision, "ada").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_needs_approval_is_parked_while_its_siblings_continue() {
    let (world, fakes) = world().await;
    let run = world.run();
    let code = "const [paid, read] = await Promise.all([tools.pay({ amount: 1 }), tools.read({ n: 1 }).then(read => { text('read'); return read })])
                return [paid, read]";
    let (run_id, waiting) = run.suspend(code).await;
    assert_eq!((&waiting["reason"], &waiting["output"][0]["text"]), (&json!("pending_tools"), &json!("read")));
    let pending = &waiting["pendingToolCalls"];
    assert_eq!((pending.as_array().unwrap().len(), &pending[0]["state"]), (1, &json!("approval")));
    assert_eq!((&pending[0]["method"], &pending[0]["toolId"]), (&json!("call"), &json!(PAY)));
    assert_eq!(fakes.called(), ["openclaw:core:read"]);
    // Nothing was decided yet: `wait` returns at once, and the call is still pending.
    assert_eq!(run.wait(&run_id).await["pendingToolCalls"][0]["state"], "approval");
    decide(&world, &once(None)).await;
    assert_eq!(value(&run.wait(&run_id).await), &json!([{"amount": 1}, {"n": 1}]));
    assert_eq!(fakes.called(), ["openclaw:core:read", PAY]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pending_approval_names_the_tool_input_run_and_reason() {
    let (world, _) = world().await;
    let (run_id, _) = world.run().suspend(PAID).await;
    let pending = world.pending().await;
    let [approval] = pending.as_slice() else { panic!("{pending:?}") };
    assert_eq!((approval.tool_id.as_str(), &approval.input, &approval.run_id), (PAY, &json!({"amount": 1}), &run_id));
    assert_eq!((approval.agent_id.as_str(), approval.session_id.as_str()), ("main", "session"));
    assert_eq!((approval.state, approval.reason.is_empty()), (ApprovalState::Pending, false));
    assert!(approval.expires_at > approval.requested_at);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denial_reaches_the_cell_with_its_note() {
    for (note, expected) in [("too much", "a person denied this call: too much"), ("", "a person denied this call")] {
        let (world, fakes) = world().await;
        let run = world.run();
        let (run_id, _) = run.suspend(PAID).await;
        decide(&world, &Decision::Deny { note: note.to_owned() }).await;
        assert_eq!(value(&run.wait(&run_id).await), expected);
        assert_eq!(fakes.called(), [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn edited_arguments_are_validated_and_passed_to_the_tool() {
    for (edited, allowed) in
        [(json!({"amount": 2}), true), (json!({"amount": "2"}), false), (json!({"amout": 2}), false)]
    {
        let (world, fakes) = world().await;
        let run = world.run();
        let (run_id, _) = run.suspend(PAID).await;
        decide(&world, &once(Some(edited.clone()))).await;
        let result = run.wait(&run_id).await;
        if allowed {
            assert_eq!((value(&result), &fakes.calls()[0].input), (&edited, &edited));
        } else {
            let message = value(&result).as_str().unwrap();
            assert!(message.starts_with("`openclaw:bank:pay` cannot be called with this:"), "{message}");
            assert_eq!(fakes.called(), [""; 0], "{edited}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_pending_calls_of_a_run_can_be_approved_at_once() {
    let (world, fakes) = world().await;
    let run = world.run();
    let code = "return (await Promise.all([1, 2, 3].map(amount => tools.pay({ amount })))).map(paid => paid.amount)";
    let (run_id, waiting) = run.suspend(code).await;
    assert_eq!(waiting["pendingToolCalls"].as_array().unwrap().len(), 3, "{waiting}");
    let decided = world.code_mode.decide_all(&run_id, &once(None), "ada").await.unwrap();
    assert_eq!(decided.len(), 3);
    assert_eq!(value(&run.wait(&run_id).await), &json!([1, 2, 3]));
    assert_eq!((fakes.called().len(), world.pending().await.len()), (3, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_is_valid_for_one_call_only() {
    let (world, fakes) = world().await;
    let run = world.run();
    let (run_id, _) = run.suspend(&format!("const first = await tools.pay({{ amount: 1 }}); {PAID}")).await;
    let first = world.pending().await.remove(0);
    decide(&world, &once(None)).await;
    let again = world.code_mode.decide(&first.approval_id, &once(None), "ada").await;
    assert!(matches!(again, Err(DecisionError::NotPending)), "{again:?}");
    // A second call with the same input needs a second approval.
    assert_eq!(run.wait(&run_id).await["pendingToolCalls"][0]["state"], "approval");
    assert_eq!(fakes.called(), [PAY]);
    let states: Vec<_> = world.store().approvals_of_run(&run_id).await.unwrap().iter().map(|one| one.state).collect();
    assert_eq!(states, [ApprovalState::Used, ApprovalState::Pending]);
    let unknown = world.code_mode.decide(&"apr_nothing".into(), &once(None), "ada").await;
    assert!(matches!(unknown, Err(DecisionError::NotPending)), "{unknown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_is_void_if_the_tool_has_changed() {
    let (world, fakes) = world().await;
    // A run that is still active has the definitions with which it started.
    let is_suspended = async || world.code_mode.live_runs() == 0;
    let (run_id, _) = world.run().suspend(PAID).await;
    eventually("the run is suspended", is_suspended).await;
    fakes.put(ToolSpec { description: "Pays twice.".to_owned(), ..pay() }, Behavior::Echo);
    decide(&world, &once(None)).await;
    let result = world.run().wait(&run_id).await;
    assert_eq!(value(&result), "the tool has changed since it was approved; call it again to request a new approval");
    // A call of a tool that was removed is refused, too.
    let (run_id, _) = world.run().suspend(PAID).await;
    eventually("the run is suspended", is_suspended).await;
    fakes.remove(PAY);
    decide(&world, &once(None)).await;
    assert!(value(&world.run().wait(&run_id).await).as_str().unwrap().starts_with("unknown tool"));
    assert_eq!(fakes.called(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_approval_cannot_be_granted() {
    let (world, fakes) = world().await;
    let mut run = world.run();
    run.prepared.executor = run.prepared.executor.with_approval_ms(50);
    let (run_id, _) = run.suspend(PAID).await;
    let asked = world.pending().await.remove(0);
    tokio::time::sleep(std::time::Duration::from_millis(80)).await;
    let late = world.code_mode.decide(&asked.approval_id, &once(None), "ada").await;
    assert!(matches!(late, Err(DecisionError::NotPending)), "{late:?}");
    assert_eq!(
        value(&run.wait(&run_id).await),
        "this call was not approved in time; call the tool again to request a new approval"
    );
    assert_eq!(fakes.called(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_has_as_long_as_a_suspended_run_is_kept() {
    let fakes = FakeTools::new([]);
    fakes.put(pay(), Behavior::Echo);
    let tools = json!({"codeMode": {"enabled": true, "snapshotTtlSeconds": 86_400}});
    let world = Parts { tools, sources: vec![fakes], ask: vec![PAY], ..Parts::default() }.open().await;
    world.run().suspend(PAID).await;
    let asked = world.pending().await.remove(0);
    assert_eq!(asked.expires_at - asked.requested_at, 86_400_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_of_an_aborted_run_cannot_be_granted() {
    let (world, fakes) = world().await;
    let (run_id, _) = world.run().suspend(PAID).await;
    let asked = world.pending().await.remove(0);
    assert!(world.code_mode.abort(&run_id).await);
    let late = world.code_mode.decide(&asked.approval_id, &once(None), "ada").await;
    assert!(matches!(late, Err(DecisionError::NotPending)), "{late:?}");
    assert_eq!(world.pending().await, [], "the approval is no longer pending");
    assert_eq!(fakes.called(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_made_while_siblings_run_takes_effect_in_the_same_turn() {
    let (world, fakes) = world().await;
    let run = world.run();
    let code = "return await Promise.all([tools.slow({ n: 1 }), tools.pay({ amount: 1 })])";
    let waiting = tokio::spawn(async move { run.exec(code).await });
    eventually("an approval is pending", async || !world.pending().await.is_empty()).await;
    world.approve_all(ApprovalScope::Once).await;
    // One turn: the cell was never suspended.
    assert_eq!(value(&waiting.await.unwrap()), &json!([{"n": 1}, {"amount": 1}]));
    assert_eq!(fakes.called().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_direct_call_needs_approval_too() {
    for (decision, expected) in
        [(once(None), None), (Decision::Deny { note: String::new() }, Some("a person denied this call"))]
    {
        let (world, fakes) = world().await;
        let executor = world.run().prepared.executor;
        let input = json!({"amount": 1});
        let call = executor.call_directly(world.store(), "call-1", PAY, input, ProgressSink::default()).await.unwrap();
        assert!(matches!(call.end, CallEnd::Parked(_)), "{call:?}");
        let early = executor.resume_direct_call(world.store(), &call.run_id, ProgressSink::default()).await;
        assert!(matches!(early.end, CallEnd::Parked(_)), "{early:?}");
        decide(&world, &decision).await;
        let end = executor.resume_direct_call(world.store(), &call.run_id, ProgressSink::default()).await.end;
        let CallEnd::Settled(outcome) = end else { panic!("{end:?}") };
        match expected {
            Some(message) => assert_eq!(outcome, Outcome::Failed(message.to_owned())),
            None => assert_eq!(fakes.called(), [PAY]),
        }
        assert_eq!(world.store().live_runs().await.unwrap(), 0);
        // The call has ended and is not made again.
        let again = executor.resume_direct_call(world.store(), &call.run_id, ProgressSink::default()).await.end;
        assert!(matches!(again, CallEnd::Stopped(_)), "{again:?}");
    }
}
