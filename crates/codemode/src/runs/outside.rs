//! External input for runs: outcomes of parked calls and decisions of people.

use contract::ids::CallId;
use executor::clock::now_ms;
use executor::{CallToken, Outcome, Question};
use serde_json::{Value, json};
use store::{Approval, ApprovalScope, Decision, DecisionError, Entry, EntryKind, SettleError, Settled, Store};

use super::CodeMode;
use crate::definition::Definition;
use crate::driver::Command;

impl CodeMode {
    /// Settles a parked call. Any process that uses the store can do so, at any time.
    pub async fn settle(&self, token: &CallToken, outcome: &Outcome) -> Result<Settled, SettleError> {
        let settled = self.inner.store.settle(&token.run, token.call, &outcome.to_json()).await?;
        match settled {
            Settled::Taken => {
                prolong(&self.inner.store, &token.run).await;
                drop(self.inner.send(&token.run, Command::Arrived(CallId(token.call))).await);
            }
            Settled::Late => {
                note(&self.inner.store, &token.run, json!({"note": "late_result", "call": token.call})).await;
            }
        }
        Ok(settled)
    }

    /// Records a person's decision about a call and notifies the run. `by` is the person.
    pub async fn decide(&self, approval_id: &str, decision: &Decision, by: &str) -> Result<Approval, DecisionError> {
        let approval = decide(&self.inner.store, approval_id, decision, by).await?;
        drop(self.inner.send(&approval.run_id, Command::Decided(CallId(approval.call))).await);
        Ok(approval)
    }
}

/// Records a person's decision from a process that runs no cells. The process that holds the run finds it in the store
/// with the next `wait`.
pub async fn decide(
    store: &Store,
    approval_id: &str,
    decision: &Decision,
    by: &str,
) -> Result<Approval, DecisionError> {
    fits(store.approval(approval_id).await?.as_ref(), decision)?;
    let approval = store.decide(approval_id, decision, by, now_ms()).await?;
    prolong(store, &approval.run_id).await;
    let Approval { run_id, state, tool_id, note: reason, .. } = &approval;
    let entry = json!({
        "note": "approval_decided", "approvalId": approval_id, "toolId": tool_id, "call": approval.call,
        "decision": state, "by": by, "reason": reason,
    });
    note(store, run_id, entry).await;
    Ok(approval)
}

impl CodeMode {
    /// Records one decision for all open requests of a run. Requests that are decided elsewhere in the meantime keep
    /// that decision.
    pub async fn decide_all(
        &self,
        run_id: &str,
        decision: &Decision,
        by: &str,
    ) -> Result<Vec<Approval>, DecisionError> {
        let mut decided = Vec::new();
        for asked in self.inner.store.approvals_of_run(run_id).await? {
            if !asked.is_open(now_ms()) {
                continue;
            }
            match self.decide(&asked.approval_id, decision, by).await {
                Ok(approval) => decided.push(approval),
                // It was decided in the meantime, or it is a question that a plain decision does not answer.
                Err(DecisionError::NotPending | DecisionError::Unfit(_)) => {}
                Err(error @ (DecisionError::TooManyRules | DecisionError::Store(_))) => return Err(error),
            }
        }
        Ok(decided)
    }
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
    ask.filled(edited_input.as_ref()).map(drop).map_err(DecisionError::Unfit)
}

/// Restarts the time to live of a run: external input counts as progress.
async fn prolong(store: &Store, run_id: &str) {
    if let Ok(Some(row)) = store.run(run_id).await
        && let Some(definition) = Definition::from_json(&row.definition)
    {
        // If this fails, the run keeps its old expiry.
        drop(store.prolong(run_id, definition.expires_at(now_ms())).await);
    }
}

/// Adds a note to the transcript, where people look. The fact itself is already in the store.
async fn note(store: &Store, run_id: &str, mut entry: Value) {
    if let Some(fields) = entry.as_object_mut() {
        fields.insert("runId".to_owned(), json!(run_id));
    }
    if let Ok(Some(row)) = store.run(run_id).await {
        let entries = [Entry { at: now_ms(), kind: EntryKind::Note, entry }];
        drop(store.note(&row.scope.session_id, run_id, &entries).await);
    }
}
