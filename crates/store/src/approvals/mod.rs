//! Approvals of calls: each is requested, decided and used once, or becomes a standing approval.

pub(crate) mod requests;
pub(crate) mod rules;

use contract::ids::{ApprovalId, CallId, RunId};
use contract::limits::MAX_STANDING_RULES;
use serde::Serialize;
use serde_json::Value;

use crate::Millis;
use crate::error::StoreError;

pub use rules::{RuleSubject, StandingRule};

/// A request for approval. It covers only this call of this run, with this input and this definition of the tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ApprovalRequest {
    pub approval_id: ApprovalId,
    pub call: CallId,
    pub tool_id: String,
    pub tool_hash: String,
    /// The tool's source, from `ToolSource::identity`: for an MCP server a hash of its command or address. `None` if
    /// the source has no identity; then no standing approval can be created.
    pub source_identity: Option<String>,
    pub input: Value,
    pub input_hash: String,
    /// Why approval is needed, for the person who decides.
    pub reason: String,
    pub requested_at: Millis,
    pub expires_at: Millis,
    /// The tool's own question, in the executor's format; `None` if the request is whether the call may be made.
    pub question: Option<Value>,
}

/// The state of an approval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalState {
    #[default]
    Pending,
    Approved,
    Denied,
    Used,
    /// Withdrawn or expired, or its run has ended.
    Void,
}

impl ApprovalState {
    pub const ALL: [Self; 5] = [Self::Pending, Self::Approved, Self::Denied, Self::Used, Self::Void];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::Used => "used",
            Self::Void => "void",
        }
    }
}

/// A request for approval and its decision.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    pub approval_id: ApprovalId,
    pub run_id: RunId,
    pub call: CallId,
    pub agent_id: String,
    pub session_id: String,
    pub tool_id: String,
    #[serde(skip)]
    pub tool_hash: String,
    #[serde(skip)]
    pub source_identity: Option<String>,
    pub input: Value,
    #[serde(skip)]
    pub input_hash: String,
    pub reason: String,
    pub state: ApprovalState,
    pub requested_at: Millis,
    pub expires_at: Millis,
    pub decided_at: Option<Millis>,
    pub decided_by: Option<String>,
    pub note: Option<String>,
    pub edited_input: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question: Option<Value>,
}

/// A person's decision on a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// The call may be made, or the question is answered.
    Approve {
        /// The input with which the call is made instead of its own, or the answer to a tool's question.
        edited_input: Option<Value>,
        /// The calls that the approval covers.
        reach: ApprovalScope,
    },
    /// The call is not made.
    Deny {
        /// The reason, which the cell and the model read.
        note: String,
    },
}

/// The calls that an approval covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalScope {
    /// The decided call only.
    Once,
    /// Calls of this tool, as it is defined now, for the rest of the session.
    Session,
    /// Calls of this tool, as it is defined now, for this agent, until the rule is revoked.
    Agent,
}

/// A decision that was recorded, and what else it decided.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordedDecision {
    pub approval: Approval,
    /// The other pending approvals that the decision's standing approval covers. They were approved together with it.
    pub covered: Vec<Approval>,
}

impl RecordedDecision {
    /// Returns every approval that the decision decided.
    pub fn approvals(&self) -> impl Iterator<Item = &Approval> {
        std::iter::once(&self.approval).chain(&self.covered)
    }
}

impl Approval {
    /// Whether the request can still be decided.
    pub fn is_open(&self, now: Millis) -> bool {
        self.state == ApprovalState::Pending && self.expires_at > now
    }
}

/// Why a decision was not recorded.
#[derive(Debug, thiserror::Error)]
pub enum DecisionError {
    #[error("no such approval is pending: it was already decided or has expired, or its run has ended")]
    NotPending,
    #[error("the answer does not fit the question: {0}")]
    Unfit(String),
    #[error(
        "this agent already has the maximum of {MAX_STANDING_RULES} standing approvals; revoke one with `cellmate approvals rules revoke ID`, or approve this call once"
    )]
    TooManyRules,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for DecisionError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}
