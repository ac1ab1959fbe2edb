//! The request for a tool call, and its result.

use contract::cell::PendingState;
use serde_json::Value;
use store::CommitError;

use crate::listener::{ProgressSink, StateSink};
use crate::source::Outcome;

/// A request to make a tool call.
#[derive(Clone, Debug)]
pub struct CallRequest {
    pub call: u32,
    pub id: String,
    pub input: Value,
    /// The id of the control call that it is made from; its own id if it is made directly.
    pub parent: String,
    pub updates: ProgressSink,
    /// Receives the call's state changes. If it is not set, the tool cannot ask questions while it is running.
    pub states: StateSink,
}

/// The result of making or resuming a call.
#[derive(Debug)]
pub enum CallEnd {
    Settled(Outcome),
    Parked(PendingState),
    /// Another process holds the run, or it cannot be written: nothing was done.
    Stopped(CommitError),
}

impl From<CommitError> for CallEnd {
    fn from(error: CommitError) -> Self {
        Self::Stopped(error)
    }
}
