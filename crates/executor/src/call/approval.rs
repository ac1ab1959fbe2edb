//! Approval of calls: standing approvals, and requests for a person's decision.

use std::collections::{HashMap, HashSet};

use contract::cell::PendingState;
use contract::ids::{ApprovalId, CallId, RunId};
use contract::tool::{ContentHash, ToolSpec};
use serde_json::Value;
use store::{
    Approval, ApprovalRequest, ApprovalScope, CallState, CommitError, Decision, DecisionError, Millis, RuleSubject,
    Store, StoreError,
};
use telemetry::LogIgnored;

use super::CallEnd;
use super::context::Call;
use super::transcript::RecordedCall;
use crate::clock::now_ms;
use crate::journal::Journal;

/// Who decided a call that a standing approval covers although it was requested.
const BY_RULE: &str = "a standing approval";

/// The hexadecimal digits in an id. Among a million approvals, two are equal with a probability of 3 in 100 million.
const ID_DIGITS: usize = 16;

/// The definitions and source identities that standing approvals are bound to, by tool. They are compared with the
/// tools' current definitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StandingApprovals(HashMap<String, HashSet<(String, Option<String>)>>);

impl StandingApprovals {
    /// Loads the standing approvals from the store, without the revoked ones.
    pub async fn in_store(store: &Store) -> Result<Self, StoreError> {
        let mut approved = Self::default();
        for rule in store.rules().await?.into_iter().filter(|rule| rule.revoked_at.is_none()) {
            approved.0.entry(rule.tool_id).or_default().insert((rule.tool_hash, rule.source_identity));
        }
        Ok(approved)
    }

    /// Returns whether this tool has standing approvals, but none for its current definition and source. If so, its
    /// next call requests approval again.
    pub fn changed(&self, tool: &ToolSpec, source_identity: &str) -> bool {
        let now = (tool.hash().to_string(), Some(source_identity.to_owned()));
        self.0.get(tool.id.as_str()).is_some_and(|approved| !approved.contains(&now))
    }
}

/// Returns whether a standing approval allows the call without a person's decision.
pub(crate) async fn has_standing_approval(call: Call<'_>, tool: &ToolSpec) -> Result<bool, CommitError> {
    let scope = &call.context.scope;
    let Some(source_identity) = call.context.source_identity(tool) else { return Ok(false) };
    let tool_hash = call.context.catalog.hash_of(tool).to_string();
    let subject = RuleSubject { tool_id: tool.id.as_str(), tool_hash: &tool_hash, source_identity: &source_identity };
    Ok(call.store().has_standing_approval(subject, &scope.agent_id, &scope.session_id).await?)
}

/// Returns the decisions on the last requests of a call, expired ones included. `None` while any of them is open.
pub(crate) async fn decisions_for(journal: &Journal, call: CallId) -> Result<Option<Vec<Approval>>, StoreError> {
    let mut asked = journal.store().approvals_of_run(journal.run_id()).await?;
    asked.retain(|one| one.call == call);
    let Some(last) = asked.last().map(|last| (last.question.is_some(), last.requested_at)) else { return Ok(None) };
    asked.retain(|one| (one.question.is_some(), one.requested_at) == last);
    let now = now_ms();
    Ok(Some(asked).filter(|asked| asked.iter().all(|one| !one.is_open(now))))
}

/// Builds the approval request for a call. The caller fills in the reason.
pub(crate) fn new_request(
    call: Call<'_>,
    now: Millis,
    approval_id: ApprovalId,
    tool: &ToolSpec,
    input: &Value,
) -> ApprovalRequest {
    ApprovalRequest {
        approval_id,
        call: call.number(),
        tool_id: tool.id.as_str().to_owned(),
        tool_hash: call.context.catalog.hash_of(tool).to_string(),
        source_identity: call.context.source_identity(tool),
        input_hash: ContentHash::of(input.to_string().as_bytes()).to_string(),
        input: input.clone(),
        reason: String::new(),
        requested_at: now,
        expires_at: now + call.context.approval_ms,
        question: None,
    }
}

/// Requests approval of a call, and parks the call until a person has decided.
pub(crate) async fn park(call: Call<'_>, tool: &ToolSpec, input: &Value, reason: String) -> CallEnd {
    let approval_id = approval_id(call.run_id(), call.number());
    let asked = new_request(call, now_ms(), approval_id.clone(), tool, input);
    let asked = ApprovalRequest { reason, ..asked };
    let input = input.to_string();
    call.journal.entry(RecordedCall::new(call.request, tool).approval_request_entry(&asked));
    let parked = call.journal.park(call.number(), CallState::Approval, |row, change| {
        // The person sees, and the tool receives, the input as the hooks rewrote it.
        row.input = Some(input).filter(|input| *input != row.payload);
        row.tool_id = Some(asked.tool_id.clone());
        row.tool_hash = Some(asked.tool_hash.clone());
        change.approvals.push(asked);
    });
    let parked = async {
        fault::point("approval.before_park")?;
        parked.await?;
        Ok(fault::point("approval.after_park")?)
    };
    match parked.await {
        Ok(()) => {
            tracing::info!(approval = approval_id.as_str(), "approval requested");
            // If this fails, a person decides.
            approve_if_covered(call, tool, &approval_id).await.log_ignored("look for a new standing approval");
            CallEnd::Parked(PendingState::Approval)
        }
        Err(CommitError::Quota(exceeded)) => call.refuse(exceeded.to_string()),
        Err(error) => CommitError::into(error),
    }
}

/// Approves a call that was just parked, if a person created a standing approval between the check before and the
/// request. The call is then resumed like any other that was approved while it was being parked.
async fn approve_if_covered(call: Call<'_>, tool: &ToolSpec, approval_id: &ApprovalId) -> Result<(), CommitError> {
    if !has_standing_approval(call, tool).await? {
        return Ok(());
    }
    let once = Decision::Approve { edited_input: None, reach: ApprovalScope::Once };
    match call.store().decide(approval_id, &once, BY_RULE, now_ms()).await {
        Ok(decided) => {
            call.journal.entry(RecordedCall::new(call.request, tool).approval_decision_entry(&decided.approval));
            Ok(())
        }
        Err(DecisionError::Store(error)) => Err(error.into()),
        // A person was faster.
        Err(_) => Ok(()),
    }
}

/// Returns the id of the approval for a call. One per call is enough: approval is requested once.
fn approval_id(run_id: &RunId, call: CallId) -> ApprovalId {
    short_id(&format!("{run_id}\0{call}")).into()
}

/// Returns an id that is short enough to be typed, and differs from others in its first characters.
pub(crate) fn short_id(unique_name: &str) -> String {
    let digits: String = ContentHash::of(unique_name.as_bytes()).to_string().chars().take(ID_DIGITS).collect();
    format!("apr_{digits}")
}

#[cfg(test)]
mod tests {
    use contract::ids::CallId;

    use super::approval_id;

    #[test]
    fn ids_are_short_and_the_ids_of_one_run_have_no_long_common_prefix() {
        let ids = (1..=100).map(|call| approval_id(&"cm_0123456789abcdef0123456789abcdef".into(), CallId(call)));
        let ids: Vec<String> = ids.map(|id| id.to_string()).collect();
        assert!(ids.iter().all(|id| id.len() == 20 && id.starts_with("apr_")), "{ids:?}");
        let prefixes: std::collections::BTreeSet<&str> = ids.iter().map(|id| &id[..12]).collect();
        assert_eq!(prefixes.len(), 100, "{ids:?}");
    }
}
