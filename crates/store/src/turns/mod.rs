//! Turns of the gateway: their steps, the tool calls that the gateway asks clients to make, and the responses that
//! clients received. A turn is the work on one request of a client, from its message to the model's final answer.
//!
//! Like a run, a turn has a sequence, a fence and a lease in its row. Every id that a client sends is looked up
//! together with the client's principal, so that a client cannot find out whether another principal's row exists.

pub(crate) mod commit;
pub(crate) mod lease;
mod limits;
pub(crate) mod messages;
pub(crate) mod read;
pub(crate) mod retention;
mod rows;
pub(crate) mod usage;

use contract::ids::{CallId, RunId, TurnId};

use crate::Millis;
use crate::error::StoreError;
use crate::transcript::Entry;
use limits::TurnTotals;

pub use messages::{TurnMessage, TurnMessageKind};
pub use usage::{ModelUse, UsageFilter, UsageGroup, UsageTotals};

/// The wire of turns that summarize the conversation up to their parent.
pub const COMPACTION: &str = "compact";

/// The state of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TurnState {
    /// A process works on the turn, or must take it over.
    Running,
    /// The turn waits only for its client or for people's decisions. No process holds it.
    Waiting,
    Completed,
    Failed,
    Aborted,
}

impl TurnState {
    pub const ALL: [Self; 5] = [Self::Running, Self::Waiting, Self::Completed, Self::Failed, Self::Aborted];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Aborted => "aborted",
        }
    }

    /// Whether the turn has ended.
    pub fn is_over(self) -> bool {
        !matches!(self, Self::Running | Self::Waiting)
    }

    pub(crate) fn parse(text: &str) -> Result<Self, StoreError> {
        Self::ALL
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or_else(|| StoreError::Corrupt(format!("turn state `{text}`")))
    }
}

/// A stored turn without its steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnRow {
    pub turn_id: TurnId,
    pub principal: String,
    pub agent_id: String,
    pub session_id: String,
    /// The turn whose conversation this one continues.
    pub parent: Option<TurnId>,
    /// The API that the client uses (the `wire` crate's name of it), such as `responses`.
    pub wire: String,
    pub request_digest: String,
    pub state: TurnState,
    /// The number of stored steps.
    pub steps: u32,
    /// The process that holds the turn or held it last.
    pub holder: String,
    /// When the lease ends; 0 if it was released.
    pub lease_until: Millis,
    pub created_at: Millis,
    pub updated_at: Millis,
    pub expires_at: Millis,
    /// The bytes that the turn takes in the store.
    pub bytes: u64,
}

/// A stored step of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnStep {
    /// The position of the step in its turn, from 0.
    pub number: u32,
    pub at: Millis,
    pub kind: String,
    /// JSON, in the gateway's format.
    pub body: String,
}

/// A turn that is about to be stored.
#[derive(Clone, Debug)]
pub struct NewTurn {
    pub turn_id: TurnId,
    pub principal: String,
    pub agent_id: String,
    pub session_id: String,
    pub parent: Option<TurnId>,
    pub wire: String,
    pub request_digest: String,
    pub expires_at: Millis,
}

/// The right to change a turn, valid until another process takes over the turn.
#[derive(Clone, Debug)]
pub struct HeldTurn {
    pub turn_id: TurnId,
    pub principal: String,
    pub agent_id: String,
    pub session_id: String,
    pub holder: String,
    pub(crate) sequence: i64,
    pub(crate) fence: i64,
    totals: TurnTotals,
}

impl HeldTurn {
    /// Returns the number that the next step will get.
    pub fn next_step(&self) -> u32 {
        u32::try_from(self.totals.steps).unwrap_or(u32::MAX)
    }

    /// Returns the turn's fence, which rises by one when a process takes over the turn; 1 at first.
    pub fn fence(&self) -> i64 {
        self.fence
    }
}

/// A step that is about to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewStep {
    pub kind: String,
    /// JSON, in the gateway's format.
    pub body: String,
}

/// A call that the client is asked to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDelivery {
    /// The id under which the client sends the call's result. It is unique for the principal.
    pub call_id: String,
    /// The run and the call that the client's result settles.
    pub run_id: RunId,
    pub call: CallId,
    /// The number of the response that sent the call to the client. Calls of one response have the same number.
    pub round: u32,
}

/// A response for the client that is stored for retrieval and replay. One with the id of an earlier response of the turn
/// replaces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewResponse {
    pub response_id: String,
    pub body: String,
    /// The ids of its items, by which a later request may refer to them.
    pub item_ids: Vec<String>,
    pub expires_at: Millis,
}

/// Whether a change releases the turn's lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReleaseLease {
    /// The process keeps the lease. A turn that waits or has ended is released in any case.
    #[default]
    Keep,
    /// The process gives up the lease, so that another one can take over the turn at once.
    Release,
}

/// A change of a turn. It is written in one transaction; fields that are `None` or empty change nothing.
#[derive(Clone, Debug, Default)]
pub struct TurnChange {
    pub steps: Vec<NewStep>,
    pub state: Option<TurnState>,
    pub expires_at: Option<Millis>,
    pub release: ReleaseLease,
    pub deliveries: Vec<NewDelivery>,
    /// Ids of calls for which the client has sent a result. A call keeps the time of its first result; ids of other
    /// turns are ignored.
    pub answered: Vec<String>,
    /// Digests of the conversation after this turn, as a client may send it back. They find the turn that a new request
    /// continues; if two turns have the same digest, the newer one.
    pub conversations: Vec<String>,
    pub response: Option<NewResponse>,
    /// Entries for the session's transcript. Each gets a `turnId`.
    pub transcript: Vec<Entry>,
    /// A request to a model, which is added to the usage of its day.
    pub model_use: Option<ModelUse>,
    /// Ids of messages to the turn that this change makes part of it. They are deleted; the end of a turn deletes all.
    pub messages: Vec<String>,
}

impl TurnChange {
    /// Whether no process holds the lease after this change.
    fn releases(&self) -> bool {
        self.release == ReleaseLease::Release || self.state.is_some_and(|state| state != TurnState::Running)
    }

    fn is_end(&self) -> bool {
        self.state.is_some_and(TurnState::is_over)
    }
}

/// A stored call that a client was asked to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryRow {
    pub call_id: String,
    pub turn_id: TurnId,
    pub run_id: RunId,
    pub call: CallId,
    pub round: u32,
    pub sent_at: Millis,
    /// `None` if the client has not answered it.
    pub answered_at: Option<Millis>,
}

/// A stored response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseRow {
    pub response_id: String,
    pub turn_id: TurnId,
    pub at: Millis,
    pub expires_at: Millis,
    pub body: String,
}

/// Which sessions a list contains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionFilter {
    pub principal: Option<String>,
    pub agent: Option<String>,
}

/// A session of the gateway in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionSummary {
    pub session_id: String,
    pub agent_id: String,
    pub principal: String,
    pub turns: u64,
    /// When its first turn began.
    pub first_at: Millis,
    /// When one of its turns last changed.
    pub last_at: Millis,
}
