//! External input for runs: outcomes of parked calls and decisions of people.

use contract::ids::{ApprovalId, RunId};
use executor::clock::now_ms;
use executor::{CallToken, Outcome, Question};
use serde_json::{Value, json};
use store::{
    Approval, ApprovalScope, Decision, DecisionError, EntryKind, NewEntry, RecordedDecision, RunChange, SettleError,
    SettleResult, Store,
};
use telemetry::LogIgnored;

use crate::definition::Definition;
use crate::driver::Command;
use crate::registry::RunRegistry;

/// Settles a parked call, and notifies its run if it has a driver in this process.
pub(super) async fn settle(
    registry: &RunRegistry,
    token: &CallToken,
    outcome: &Outcome,
) -> Result<SettleResult, SettleError> {
    let settled = registry.store.settle(&token.run, token.call, &outcome.to_json()).await?;
    match settled {
        SettleResult::WillDeliver => {
            prolong(&registry.store, &token.run).await;
            // A run without a driver here finds the outcome in the store.
            drop(registry.send(&token.run, Command::Arrived(token.call)).await);
            registry.announce(RunChange::Run(token.run.clone()));
        }
        SettleResult::RunEnded => {
            note(&registry.store, &token.run, json!({"note": "late_result", "call": token.call})).await;
        }
    }
    Ok(settled)
}

/// Records a person's decision about a call, and notifies the runs of all calls that it decides, if they have a driver
/// in this process.
pub(super) async fn decide_and_notify(
    registry: &RunRegistry,
    approval_id: &ApprovalId,
    decision: &Decision,
    by: &str,
) -> Result<RecordedDecision, DecisionError> {
    let recorded = decide(&registry.store, approval_id, decision, by).await?;
    for approval in recorded.approvals() {
        // A run without a driver here finds the decision in the store.
        drop(registry.send(&approval.run_id, Command::Decided(approval.call)).await);
        registry.announce(RunChange::Run(approval.run_id.clone()));
    }
    Ok(recorded)
}

/// Records one decision for all open requests of a run.
pub(super) async fn decide_all(
    registry: &RunRegistry,
    run_id: &RunId,
    decision: &Decision,
    by: &str,
) -> Result<Vec<Approval>, DecisionError> {
    let mut decided = Vec::new();
    for asked in registry.store.approvals_of_run(run_id).await? {
        if !asked.is_open(now_ms()) {
            continue;
        }
        match decide_and_notify(registry, &asked.approval_id, decision, by).await {
            Ok(RecordedDecision { approval, covered }) => {
                decided.push(approval);
                decided.extend(covered);
            }
            // The request was decided in the meantime, for example by the standing approval that the first decision
            // created, or it is a question that a plain decision does not answer.
            Err(DecisionError::NotPending | DecisionError::Unfit(_)) => {}
            Err(error @ (DecisionError::TooManyRules | DecisionError::Store(_))) => return Err(error),
        }
    }
    Ok(decided)
}

/// Records a person's decision from a process that runs no cells. The processes that hold the runs find it in the store
/// with the next `wait`.
pub async fn decide(
    store: &Store,
    approval_id: &ApprovalId,
    decision: &Decision,
    by: &str,
) -> Result<RecordedDecision, DecisionError> {
    fits(store.approval(approval_id).await?.as_ref(), decision)?;
    let recorded = store.decide(approval_id, decision, by, now_ms()).await?;
    for approval in recorded.approvals() {
        prolong(store, &approval.run_id).await;
        let Approval { approval_id, run_id, state, tool_id, note: reason, .. } = approval;
        let entry = json!({
            "note": "approval_decided", "approvalId": approval_id, "toolId": tool_id, "call": approval.call,
            "decision": state, "by": by, "reason": reason,
        });
        note(store, run_id, entry).await;
    }
    Ok(recorded)
}

/// Checks that the answer to a tool's question matches the question and applies only once.
fn fits(asked: Option<&Approval>, decision: &Decision) -> Result<(), DecisionError> {
    let asked = asked.and_then(|asked| asked.question.as_ref()).and_then(Question::from_json);
    let (Some(ask), Decision::Approve { edited_input, reach }) = (asked, decision) else { return Ok(()) };
    if *reach != ApprovalScope::Once {
        return Err(DecisionError::Unfit(
            "this is a tool's question; an answer applies once and cannot become a rule".to_owned(),
        ));
    }
    ask.parse_answer(edited_input.as_ref()).map(drop).map_err(DecisionError::Unfit)
}

/// Restarts the time to live of a run: external input counts as progress.
async fn prolong(store: &Store, run_id: &RunId) {
    let prolonged = async {
        let row = store.run(run_id).await?;
        match row.and_then(|row| Definition::from_json(&row.definition)) {
            Some(definition) => store.prolong(run_id, definition.expires_at(now_ms())).await.map(drop),
            None => Ok(()),
        }
    };
    // If this fails, the run keeps its old expiry.
    prolonged.await.log_ignored("restart the time to live of a run");
}

/// Adds a note to the transcript, where people look. The fact itself is already in the store.
async fn note(store: &Store, run_id: &RunId, mut entry: Value) {
    if let Some(fields) = entry.as_object_mut() {
        fields.insert("runId".to_owned(), json!(run_id));
    }
    let noted = async {
        let Some(row) = store.run(run_id).await? else { return Ok(()) };
        let entries = [NewEntry::new(now_ms(), EntryKind::Note, &entry)];
        store.note(&row.scope.session_id, run_id, &entries).await
    };
    noted.await.log_ignored("add a note to the transcript");
}
