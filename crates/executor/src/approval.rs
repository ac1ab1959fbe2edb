//! Approval of calls: parks a call while a person is asked, and resumes it when they have decided.

use contract::cell::PendingState;
use contract::tool::{InputHash, Source, ToolSpec};
use serde_json::Value;
use store::{Approval, ApprovalRequest, ApprovalState, CallState, CommitError, Millis, RuleSubject, StoreError};

use crate::clock::now_ms;
use crate::door::{Admitted, Consent, Executor, check_arguments};
use crate::journal::Journal;
use crate::record::recorded;
use crate::request::{CallEnd, CallRequest};

/// The identity of sources that are part of the program itself.
const EMBEDDED: &str = "embedded";

impl Executor {
    /// Resumes a call after people have decided: about the call itself, or by answering its tool's questions.
    pub async fn resume_decided(&self, journal: &Journal, request: &CallRequest, said: &[Approval]) -> CallEnd {
        match said {
            [approval] if approval.question.is_none() => self.resume_approved(journal, request, approval).await,
            _ => self.resume_answered(journal, request, said).await,
        }
    }

    async fn resume_approved(&self, journal: &Journal, request: &CallRequest, approval: &Approval) -> CallEnd {
        let Some(tool) = self.catalog.get(&request.id) else {
            return self.refuse(journal, request, self.unknown(&request.id));
        };
        let input_hash = InputHash::of(request.input.to_string().as_bytes());
        let bound = approval.tool_hash == tool.hash().to_string() && approval.input_hash == input_hash.to_string();
        let refused = match approval.state {
            ApprovalState::Approved if bound => None,
            ApprovalState::Approved => {
                Some("the tool has changed since it was approved; call it again to request a new approval".to_owned())
            }
            ApprovalState::Denied => Some(denied(approval)),
            ApprovalState::Pending | ApprovalState::Used | ApprovalState::Void => {
                Some("this call was not approved in time; call the tool again to request a new approval".to_owned())
            }
        };
        if let Some(message) = refused {
            return self.refuse(journal, request, message);
        }
        let input = approval.edited_input.clone().unwrap_or_else(|| request.input.clone());
        if let Err(message) = check_arguments(tool, &input) {
            return self.refuse(journal, request, message);
        }
        if let Err(error) = fault::point("approval.before_go_on") {
            return CallEnd::Stopped(error.into());
        }
        let consent = Consent { approvals: vec![approval.approval_id.clone()], approved: true, answers: None };
        self.dispatch(journal, request, Admitted { tool: tool.clone(), input, ask: None, consent }).await
    }

    /// Returns the decisions on the last requests of a call, expired ones included. `None` while any of them is open.
    pub async fn decisions_for(&self, journal: &Journal, call: u32) -> Result<Option<Vec<Approval>>, StoreError> {
        let mut asked = journal.store().approvals_of_run(journal.run_id()).await?;
        asked.retain(|one| one.call == call);
        let Some(last) = asked.last().map(|last| (last.question.is_some(), last.requested_at)) else { return Ok(None) };
        asked.retain(|one| (one.question.is_some(), one.requested_at) == last);
        let now = now_ms();
        Ok(Some(asked).filter(|asked| asked.iter().all(|one| !one.is_open(now))))
    }

    pub(crate) async fn has_standing_approval(&self, journal: &Journal, tool: &ToolSpec) -> Result<bool, CommitError> {
        let (agent, session) = (&self.scope.agent_id, &self.scope.session_id);
        let Some(source_identity) = self.source_identity(tool) else { return Ok(false) };
        let tool_hash = tool.hash().to_string();
        let subject =
            RuleSubject { tool_id: tool.id.as_str(), tool_hash: &tool_hash, source_identity: &source_identity };
        Ok(journal.store().has_standing_approval(subject, agent, session).await?)
    }

    /// Returns the source identity that standing approvals of this tool are bound to, beside its definition. Tools of
    /// the embedding program share one identity. `None` for the tool of an MCP server whose source has no identity.
    fn source_identity(&self, tool: &ToolSpec) -> Option<String> {
        let identity = self.routes.to(&tool.id)?.identity();
        identity.or_else(|| (tool.id.source() != Source::Mcp).then(|| EMBEDDED.to_owned()))
    }

    /// Builds the approval request for a call. The caller fills in the reason.
    pub(crate) fn new_approval_request(
        &self,
        now: Millis,
        approval_id: String,
        call: u32,
        tool: &ToolSpec,
        input: &Value,
    ) -> ApprovalRequest {
        ApprovalRequest {
            approval_id,
            call,
            tool_id: tool.id.as_str().to_owned(),
            tool_hash: tool.hash().to_string(),
            source_identity: self.source_identity(tool),
            input_hash: InputHash::of(input.to_string().as_bytes()).to_string(),
            input: input.clone(),
            reason: String::new(),
            requested_at: now,
            expires_at: now + self.approval_ms,
            question: None,
        }
    }

    pub(crate) async fn park_for_approval(
        &self,
        journal: &Journal,
        request: &CallRequest,
        admitted: &Admitted,
        reason: String,
    ) -> CallEnd {
        let approval_id = approval_id(journal.run_id(), request.call);
        let asked = self.new_approval_request(now_ms(), approval_id, request.call, &admitted.tool, &admitted.input);
        let asked = ApprovalRequest { reason, ..asked };
        let input = admitted.input.to_string();
        journal.entry(recorded(request, &admitted.tool).asked(&asked));
        let parked = journal.park(request.call, CallState::Approval, |row, change| {
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
            Ok(()) => CallEnd::Parked(PendingState::Approval),
            Err(CommitError::Quota(exceeded)) => self.refuse(journal, request, exceeded.to_string()),
            Err(error) => CommitError::into(error),
        }
    }
}

fn denied(approval: &Approval) -> String {
    match approval.note.as_deref().filter(|note| !note.is_empty()) {
        Some(note) => format!("a person denied this call: {note}"),
        None => "a person denied this call".to_owned(),
    }
}

/// Returns the id of the approval for a call. One per call is enough: approval is requested once.
fn approval_id(run_id: &str, call: u32) -> String {
    format!("apr_{}_{call}", run_id.trim_start_matches("cm_"))
}
