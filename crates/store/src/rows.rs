//! A run as it is written down.

use contract::frame::{Method, ReplyValue};
use contract::limits::JOURNAL_ROW_BYTES;
use contract::scope::Scope;
use contract::tool::InputHash;
use serde::{Deserialize, Serialize};

use crate::Millis;
use crate::backend::StoreError;

/// The contract's six states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunState {
    Running,
    Waiting,
    Completed,
    Failed,
    Expired,
    Aborted,
}

impl RunState {
    pub const ALL: [Self; 6] =
        [Self::Running, Self::Waiting, Self::Completed, Self::Failed, Self::Expired, Self::Aborted];

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

/// How far a nested call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallState {
    /// Asked for; nothing has been done about it.
    Requested,
    /// A person is asked whether it may be made.
    Approval,
    /// Handed to its tool, or about to be: what a crash leaves here has an unknown outcome.
    Dispatched,
    /// With somebody, who will be heard of by `settle`.
    Parked,
    /// With its tool, which works on without us and will be heard of by `settle`.
    Away,
    /// Its outcome is known; its cell has not seen it.
    Settled,
    /// Its cell has seen it.
    Delivered,
    /// The cell no longer wants it.
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

#[derive(Clone, Debug)]
pub struct RunRow {
    pub run_id: String,
    pub scope: Scope,
    pub tool_call_id: String,
    pub state: RunState,
    pub created_at: Millis,
    pub expires_at: Millis,
    /// Hash of the tables its cell reads, in hex.
    pub catalog: String,
    /// What it was started with, as its starter wrote it.
    pub definition: String,
    /// Counters and the like, as of the last commit.
    pub progress: String,
    /// The leg its snapshot was taken after.
    pub snapshot_leg: Option<i64>,
    pub snapshot: Option<Vec<u8>>,
    pub result: Option<String>,
}

/// A run seen from afar: enough to tell it from others.
#[derive(Clone, Debug)]
pub struct RunGlance {
    pub run_id: String,
    pub state: RunState,
    pub created_at: Millis,
    pub updated_at: Millis,
    pub definition: String,
}

/// A run among all there are.
#[derive(Clone, Debug)]
pub struct RunListed {
    pub run_id: String,
    pub scope: Scope,
    pub state: RunState,
    pub created_at: Millis,
    pub updated_at: Millis,
    pub expires_at: Millis,
    /// Calls that its cell has seen no answer to.
    pub open_calls: u64,
}

/// One leg of a cell: what it was given, and when it was told it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LegRow {
    pub leg: i64,
    pub clock_us: u64,
    /// The calls whose replies it got, in that order.
    pub replies: Vec<u32>,
    /// Nothing while it runs, and where its end was never written.
    pub ended: Option<LegEnded>,
}

impl LegRow {
    /// A leg that is about to run.
    pub fn begun(leg: i64, clock_us: u64, replies: Vec<u32>) -> Self {
        Self { leg, clock_us, replies, ended: None }
    }
}

/// What a leg that is run again is held to, beside the calls it made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LegEnded {
    pub how: LegHow,
    /// What it showed, as whoever wrote it tells outputs apart.
    pub shown: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LegHow {
    Suspended,
    Completed,
    Failed,
}

impl LegHow {
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
            .find(|how| how.as_str() == text)
            .ok_or_else(|| StoreError::Corrupt(format!("a leg's end `{text}`")))
    }
}

/// One call of a cell's, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRow {
    pub call: u32,
    /// The leg that made it.
    pub leg: i64,
    pub method: String,
    pub target: String,
    /// As the cell sent it, and its hash: a leg that is run again must send the same.
    pub payload: String,
    pub input_hash: String,
    pub tool_id: Option<String>,
    /// What the tool is called with, where that is not the payload.
    pub input: Option<String>,
    pub tool_hash: Option<String>,
    pub state: CallState,
    pub attempt: i64,
    /// When a timer fires.
    pub due_at: Option<Millis>,
    pub since: Millis,
    pub settle_order: Option<i64>,
    /// How its tool answered, as the executor writes outcomes.
    pub outcome: Option<String>,
    pub reply: Option<StoredReply>,
    /// The control call it was made from: where a transcript shows it, whenever it is made.
    pub parent: String,
    /// What its source needs to take it up again, in the source's own words.
    pub ticket: Option<String>,
}

impl CallRow {
    /// A call that has just been asked for, by the first leg.
    pub fn requested(call: u32, method: &str, target: &str, payload: String, parent: &str, since: Millis) -> Self {
        Self {
            call,
            leg: 0,
            method: method.to_owned(),
            target: target.to_owned(),
            input_hash: InputHash::of(payload.as_bytes()).to_string(),
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

/// More of an input or a result than this is not written into a transcript; the journal has it whole.
pub const MAX_TRANSCRIPT_BYTES: usize = 64 << 10;

impl CallRow {
    /// Bytes that the row counts for in the journal of its run, with what the transcript shows of it.
    pub fn journal_bytes(&self) -> usize {
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let reply = self.reply.as_ref().map_or(0, |reply| Self::reply_bytes(reply.text().len()));
        let texts = self.target.len() + self.payload.len() + length(&self.input) + length(&self.outcome);
        JOURNAL_ROW_BYTES + texts + length(&self.ticket) + self.transcript_bytes() + reply
    }

    /// A reply of this length, and what the transcript shows of it: content and details.
    pub fn reply_bytes(length: usize) -> usize {
        length + 2 * length.min(MAX_TRANSCRIPT_BYTES)
    }

    /// What the transcript shows of the call's arguments.
    fn transcript_bytes(&self) -> usize {
        let is_tool_call = [Method::Call, Method::Namespace].iter().any(|method| method.as_str() == self.method);
        if is_tool_call { self.payload.len().min(MAX_TRANSCRIPT_BYTES) } else { 0 }
    }
}

/// What a run's journal has come to, all calls together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalTotals {
    pub calls: usize,
    pub bytes: usize,
    /// The highest id of a call; 0 where there is none.
    pub last_call: u32,
    pub settle_order: i64,
    /// Whether any tool was called.
    pub had_effects: bool,
}

/// What the cell is told.
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
        let text = |json: &[u8]| String::from_utf8_lossy(json).into_owned();
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
