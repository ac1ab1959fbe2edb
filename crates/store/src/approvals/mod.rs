//! A person's word on a call: asked for once, given once, used once; or given for good, and listed.

mod decide;
mod read;
mod request;
mod rules;

use serde::Serialize;
use serde_json::Value;

use crate::Millis;

pub use decide::DecisionRefused;
pub(crate) use request::{mark_used, withdraw, write};
pub use rules::{RuleSubject, StandingRule};

/// What is asked. It holds for this call of this run, this input and this definition of the tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ApprovalRequest {
    pub approval_id: String,
    pub call: u32,
    pub tool_id: String,
    pub tool_hash: String,
    /// What the tool runs on, as `ToolSource::identity` says: for an MCP server a hash of its command or address. None
    /// where the source has no identity; then a standing approval cannot be made.
    pub source_identity: Option<String>,
    pub input: Value,
    pub input_hash: String,
    /// Why it is asked, for the person who answers.
    pub reason: String,
    pub requested_at: Millis,
    pub expires_at: Millis,
    /// What the tool itself wants to know, as the executor writes questions; none where it is asked whether the call
    /// may be made.
    pub question: Option<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalState {
    Pending,
    Approved,
    Denied,
    Used,
    /// Its run is over, or its time is.
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

/// A request and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    pub approval_id: String,
    pub run_id: String,
    pub call: u32,
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
    pub decided_by: Option<String>,
    pub note: Option<String>,
    pub edited_input: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question: Option<Value>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    Approve { edited_input: Option<Value>, reach: ApprovalScope },
    Deny { note: String },
}

/// How far a yes goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalScope {
    Once,
    /// This tool as it is defined now, for the rest of the session.
    Session,
    /// This tool as it is defined now, for this agent, until the rule is revoked.
    Agent,
}

impl Approval {
    /// Whether somebody can still say something.
    pub fn is_open(&self, now: Millis) -> bool {
        self.state == ApprovalState::Pending && self.expires_at > now
    }
}
