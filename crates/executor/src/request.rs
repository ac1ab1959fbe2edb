//! A call that somebody wants made, and how far it came.

use contract::cell::PendingState;
use serde_json::Value;
use store::CommitError;

use crate::listener::{ProgressSink, StateSink};
use crate::source::Outcome;

/// A call somebody wants made.
#[derive(Clone, Debug)]
pub struct CallRequest {
    pub call: u32,
    pub id: String,
    pub input: Value,
    /// The control call it is made from; its own id where it is made directly.
    pub parent: String,
    pub updates: ProgressSink,
    /// Where nobody is told, the tool can ask nobody anything while it is at work.
    pub states: StateSink,
}

/// How far a call came.
#[derive(Debug)]
pub enum CallEnd {
    Settled(Outcome),
    Parked(PendingState),
    /// The run is no longer ours, or cannot be written: nothing was done.
    Stopped(CommitError),
}

impl From<CommitError> for CallEnd {
    fn from(error: CommitError) -> Self {
        Self::Stopped(error)
    }
}
