//! A call that a person has a say in: parked while they are asked, gone on with when they have spoken.

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
    /// Goes on with a call that people have decided about: whether it may be made, or what its tool wanted to know.
    pub async fn decided(&self, journal: &Journal, request: &CallRequest, said: &[Approval]) -> CallEnd {
        match said {
            [approval] if approval.question.is_none() => self.allowed(journal, request, approval).await,
            _ => self.answered(journal, request, said).await,
        }
    }

    async fn allowed(&self, journal: &Journal, request: &CallRequest, approval: &Approval) -> CallEnd {
        let Some(tool) = self.catalog.get(&request.id) else {
            return self.refuse(journal, request, self.unknown(&request.id));
        };
        let input_hash = InputHash::of(request.input.to_string().as_bytes());
        let bound = approval.tool_hash == tool.hash().to_string() && approval.input_hash == input_hash.to_string();
        let refused = match approval.state {
            ApprovalState::Approved if bound => None,
            ApprovalState::Approved => {
                Some("the tool has changed since it was approved; call it again to ask again".to_owned())
            }
            ApprovalState::Denied => Some(denied(approval)),
            ApprovalState::Pending | ApprovalState::Used | ApprovalState::Void => {
                Some("nobody approved this call in time".to_owned())
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
        let consent = Consent { approvals: vec![approval.approval_id.clone()], agreed: true, answers: None };
        self.make(journal, request, Admitted { tool: tool.clone(), input, ask: None, consent }).await
    }

    /// What people have said to everything a call asked last, or that the time to say anything is over; nothing while
    /// it is not.
    pub async fn decisions_for(&self, journal: &Journal, call: u32) -> Result<Option<Vec<Approval>>, StoreError> {
        let mut asked = journal.store().approvals_of_run(journal.run_id()).await?;
        asked.retain(|one| one.call == call);
        let Some(last) = asked.last().map(|last| (last.question.is_some(), last.requested_at)) else { return Ok(None) };
        asked.retain(|one| (one.question.is_some(), one.requested_at) == last);
        let now = now_ms();
        Ok(Some(asked).filter(|asked| asked.iter().all(|one| !one.is_open(now))))
    }

    pub(crate) async fn is_allowed_for_good(&self, journal: &Journal, tool: &ToolSpec) -> Result<bool, CommitError> {
        let (agent, session) = (&self.scope.agent_id, &self.scope.session_id);
        let Some(source_identity) = self.source_identity(tool) else { return Ok(false) };
        let tool_hash = tool.hash().to_string();
        let subject =
            RuleSubject { tool_id: tool.id.as_str(), tool_hash: &tool_hash, source_identity: &source_identity };
        Ok(journal.store().is_allowed_for_good(subject, agent, session).await?)
    }

    /// What a standing approval of this tool is bound to, beside the definition. Tools of the embedding program share
    /// one identity; an MCP server's tool has none where its source does not say which server it is.
    fn source_identity(&self, tool: &ToolSpec) -> Option<String> {
        let identity = self.routes.to(&tool.id)?.identity();
        identity.or_else(|| (tool.id.source() != Source::Mcp).then(|| EMBEDDED.to_owned()))
    }

    /// What is put to people about a call, for as long as they have; whoever asks says why.
    pub(crate) fn to_be_asked(
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
        let asked = self.to_be_asked(now_ms(), approval_id, request.call, &admitted.tool, &admitted.input);
        let asked = ApprovalRequest { reason, ..asked };
        let input = admitted.input.to_string();
        journal.entry(recorded(request, &admitted.tool).asked(&asked));
        let parked = journal.park(request.call, CallState::Approval, |row, change| {
            // What a hook made of the input is what the person sees, and what is called.
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

/// One for each call that is ever asked about: a call is asked about once.
fn approval_id(run_id: &str, call: u32) -> String {
    format!("apr_{}_{call}", run_id.trim_start_matches("cm_"))
}
