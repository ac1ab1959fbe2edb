//! The stored form of runs, legs and calls.

use contract::frame::{Method, ReplyValue};
use contract::ids::{CallId, RunId};
use contract::limits::JOURNAL_ROW_BYTES;
use contract::scope::Scope;
use contract::tool::ContentHash;
use serde::{Deserialize, Serialize};

use crate::Millis;
use crate::error::StoreError;

/// The state of a run; the contract defines these six.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunState {
    /// A process runs it.
    Running,
    /// The run is suspended.
    Waiting,
    /// The cell returned a value.
    Completed,
    /// The cell failed.
    Failed,
    /// The run waited for too long.
    Expired,
    /// The run was cancelled.
    Aborted,
}

impl RunState {
    /// All states.
    pub const ALL: [Self; 6] =
        [Self::Running, Self::Waiting, Self::Completed, Self::Failed, Self::Expired, Self::Aborted];

    /// Returns the name of the state.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Expired => "expired",
            Self::Aborted => "aborted",
        }
    }

    /// Whether the run has ended.
    pub fn is_over(self) -> bool {
        !matches!(self, Self::Running | Self::Waiting)
    }

    pub(crate) fn parse(text: &str) -> Result<Self, StoreError> {
        Self::ALL
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or_else(|| StoreError::Corrupt(format!("run state `{text}`")))
    }
}

/// The state of a nested call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    /// Requested by the cell; not yet processed.
    Requested,
    /// Waiting for a person to approve it.
    Approval,
    /// Dispatched to its tool, or about to be. After a crash in this state the outcome is unknown.
    Dispatched,
    /// Waiting for an outcome that another party reports with `settle`.
    Parked,
    /// Running as a task of its tool, which continues without this process; its outcome is reported with `settle`.
    Away,
    /// The outcome is stored; the cell has not received it.
    Settled,
    /// The cell has received the outcome.
    Delivered,
    /// Cancelled by the cell, which no longer needs the outcome.
    Cleared,
}

impl CallState {
    pub const ALL: [Self; 8] = [
        Self::Requested,
        Self::Approval,
        Self::Dispatched,
        Self::Parked,
        Self::Away,
        Self::Settled,
        Self::Delivered,
        Self::Cleared,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Approval => "approval",
            Self::Dispatched => "dispatched",
            Self::Parked => "parked",
            Self::Away => "away",
            Self::Settled => "settled",
            Self::Delivered => "delivered",
            Self::Cleared => "cleared",
        }
    }

    pub(crate) fn parse(text: &str) -> Result<Self, StoreError> {
        Self::ALL
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or_else(|| StoreError::Corrupt(format!("call state `{text}`")))
    }
}

/// A stored run.
#[derive(Clone, Debug)]
pub struct RunRow {
    pub run_id: RunId,
    pub scope: Scope,
    pub tool_call_id: String,
    pub state: RunState,
    pub created_at: Millis,
    pub expires_at: Millis,
    /// The hash, in hex, of the catalog tables that the cell reads.
    pub catalog: String,
    /// What the run was started with, in the format of the caller that started it.
    pub definition: String,
    /// Counters and similar state as of the last commit.
    pub progress: String,
    /// The leg after which the snapshot was taken.
    pub snapshot_leg: Option<i64>,
    pub snapshot: Option<Vec<u8>>,
    pub result: Option<String>,
}

/// A summary that identifies a run in a list for the model.
#[derive(Clone, Debug)]
pub struct RunSummary {
    pub run_id: RunId,
    pub state: RunState,
    pub created_at: Millis,
    pub updated_at: Millis,
    pub definition: String,
}

/// A run in the operator's list of all runs.
#[derive(Clone, Debug)]
pub struct RunListEntry {
    pub run_id: RunId,
    pub scope: Scope,
    pub state: RunState,
    pub created_at: Millis,
    pub updated_at: Millis,
    pub expires_at: Millis,
    /// The number of calls whose result the cell has not received; none if the run has ended.
    pub open_calls: u64,
    /// The start of the run's definition, in the format of the caller that started it.
    pub definition_head: String,
    /// The target of the run's first call.
    pub first_target: Option<String>,
}

/// Which runs the operator's list contains.
#[derive(Clone, Debug, Default)]
pub struct RunFilter {
    /// Only runs in one of these states; all if it is empty.
    pub states: Vec<RunState>,
    /// Only runs that started at this time or later.
    pub since: Option<Millis>,
    /// Only runs whose id starts with one of these texts; all if it is empty.
    pub prefixes: Vec<String>,
}

/// A leg of a run: its inputs and its end. The names of its fields are in stored texts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegRow {
    pub leg: i64,
    /// The time that the guest saw, in microseconds since 1970.
    pub clock_us: u64,
    /// The calls whose replies the leg received, in order.
    pub replies: Vec<CallId>,
    /// `None` while the leg runs, or if its end was never stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<StoredLegEnd>,
}

impl LegRow {
    /// Returns the row of a leg that is about to run.
    pub fn begun(leg: i64, clock_us: u64, replies: Vec<CallId>) -> Self {
        Self { leg, clock_us, replies, ended: None }
    }
}

/// How a leg ended. A replayed leg must end in the same way and make the same calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredLegEnd {
    pub kind: LegEndKind,
    /// A digest of the leg's output, in the format of the caller that stored it.
    pub output_digest: String,
}

/// The way in which a leg ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LegEndKind {
    Suspended,
    Completed,
    Failed,
}

impl LegEndKind {
    pub const ALL: [Self; 3] = [Self::Suspended, Self::Completed, Self::Failed];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Suspended => "suspended",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }

    pub(crate) fn parse(text: &str) -> Result<Self, StoreError> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or_else(|| StoreError::Corrupt(format!("leg end `{text}`")))
    }
}

/// A stored call of a run. The names of its fields are in stored texts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallRow {
    pub call: CallId,
    /// The leg that made the call.
    pub leg: i64,
    pub method: String,
    pub target: String,
    /// The payload as the cell sent it.
    pub payload: String,
    /// The payload's hash; a replayed leg must send the same payload.
    pub input_hash: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_id: Option<String>,
    /// The tool's input, if it differs from the payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_hash: Option<String>,
    pub state: CallState,
    pub attempt: i64,
    /// When a timer fires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Millis>,
    pub since: Millis,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settle_order: Option<i64>,
    /// The tool's outcome, in the executor's format.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply: Option<StoredReply>,
    /// The control call under which the transcript shows this call, even if it is made later.
    pub parent: String,
    /// What the tool's source needs to resume the call, in the source's format.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ticket: Option<String>,
}

impl CallRow {
    /// Returns the row of a new call of the first leg.
    pub fn requested(call: CallId, method: &str, target: &str, payload: String, parent: &str, since: Millis) -> Self {
        let hash = ContentHash::of(payload.as_bytes());
        Self::requested_with_hash(call, method, target, (payload, hash), parent, since)
    }

    /// Returns the row of a new call whose payload is recorded in another form than the one that is hashed.
    pub fn requested_with_hash(
        call: CallId,
        method: &str,
        target: &str,
        (payload, hash): (String, ContentHash),
        parent: &str,
        since: Millis,
    ) -> Self {
        Self {
            call,
            leg: 0,
            method: method.to_owned(),
            target: target.to_owned(),
            input_hash: hash.to_string(),
            payload,
            tool_id: None,
            input: None,
            tool_hash: None,
            state: CallState::Requested,
            attempt: 0,
            due_at: None,
            since,
            settle_order: None,
            outcome: None,
            reply: None,
            parent: parent.to_owned(),
            ticket: None,
        }
    }
}

/// The longest part of an input or result that is written to a transcript; the journal stores all of it.
pub const MAX_TRANSCRIPT_BYTES: usize = 64 << 10;

impl CallRow {
    /// Returns the bytes that the row counts for in its run's journal, including its transcript entries.
    pub fn journal_bytes(&self) -> usize {
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let reply = self.reply.as_ref().map_or(0, |reply| self.reply_bytes(reply.text().len()));
        let texts = self.target.len() + self.payload.len() + length(&self.input) + length(&self.outcome);
        JOURNAL_ROW_BYTES + texts + length(&self.ticket) + self.transcript_bytes() + reply
    }

    /// Returns the bytes that a reply of this length to the call counts for. The transcript has the content and the details
    /// of a tool's result, and no other reply.
    pub fn reply_bytes(&self, length: usize) -> usize {
        if self.calls_a_tool() { length + 2 * length.min(MAX_TRANSCRIPT_BYTES) } else { length }
    }

    /// Returns the bytes of the call's arguments in the transcript.
    fn transcript_bytes(&self) -> usize {
        if self.calls_a_tool() { self.payload.len().min(MAX_TRANSCRIPT_BYTES) } else { 0 }
    }

    fn calls_a_tool(&self) -> bool {
        [Method::Call, Method::Namespace].iter().any(|method| method.as_str() == self.method)
    }
}

/// A call that was dispatched to its tool, without its texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DispatchedCall {
    pub call: CallId,
    pub tool_id: String,
    /// The start of the stored reply; `None` if the cell has none yet.
    pub reply_start: Option<String>,
    /// The start of the outcome, for a call that was settled through the store.
    pub outcome_start: Option<String>,
    /// How often the call was dispatched.
    pub attempt: i64,
}

/// Totals over all calls of a run's journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalTotals {
    pub calls: usize,
    pub bytes: usize,
    /// The highest call id; 0 if there are no calls.
    pub last_call: CallId,
    pub settle_order: i64,
    /// Whether any tool was called.
    pub had_effects: bool,
}

/// The reply that the cell receives for a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoredReply {
    Resolved(String),
    Rejected(String),
}

impl StoredReply {
    pub fn text(&self) -> &str {
        match self {
            Self::Resolved(text) | Self::Rejected(text) => text,
        }
    }
}

impl From<&ReplyValue> for StoredReply {
    fn from(value: &ReplyValue) -> Self {
        let text = |json: &[u8]| contract::json::text(json).into_owned();
        match value {
            ReplyValue::Resolved(json) => Self::Resolved(text(json)),
            ReplyValue::Rejected(json) => Self::Rejected(text(json)),
        }
    }
}

impl From<StoredReply> for ReplyValue {
    fn from(stored: StoredReply) -> Self {
        match stored {
            StoredReply::Resolved(json) => Self::Resolved(json.into_bytes()),
            StoredReply::Rejected(json) => Self::Rejected(json.into_bytes()),
        }
    }
}
