//! Tool calls: the only path of a call to its tool.
//!
//! [`dispatch`] authorizes a call, runs the hooks ([`hooks`]), parks it if it needs approval ([`approval`]), journals it
//! and passes it to its source. While the source works, the tool may ask questions ([`elicitation`]). A call that has
//! not settled when its source returns is parked ([`parked`]) and resumed later ([`resume`]), possibly by another
//! process. Large texts of a result are stored ([`stored_results`]). [`direct`] makes calls without a cell.

pub(crate) mod approval;
pub(crate) mod context;
pub(crate) mod direct;
pub(crate) mod dispatch;
pub(crate) mod elicitation;
pub(crate) mod hooks;
pub(crate) mod parked;
pub(crate) mod resume;
pub(crate) mod stored_results;
pub(crate) mod transcript;

use contract::cell::PendingState;
use contract::ids::CallId;
use serde_json::Value;
use store::CommitError;

use crate::outcome::Outcome;
use crate::sink::{ProgressSink, StateSink};

/// A request to make a tool call.
#[derive(Clone, Debug)]
pub struct CallRequest {
    pub call: CallId,
    pub id: String,
    pub input: Value,
    /// The id of the control call that it is made from; its own id if it is made directly.
    pub parent: String,
    pub updates: ProgressSink,
    /// Receives the call's state changes. If it is not set, the tool cannot ask questions while it is running.
    pub states: StateSink,
}

impl CallRequest {
    /// Returns an id that is unique within a session: the parent's id followed by the call's number.
    pub fn tool_call_id(&self) -> String {
        if self.call == CallId(0) {
            return self.parent.clone();
        }
        [self.parent.as_str(), ":", itoa::Buffer::new().format(self.call.0)].concat()
    }
}

/// The result of making or resuming a call.
#[derive(Debug)]
pub enum CallEnd {
    Settled(Outcome),
    Parked(PendingState),
    /// The run is held by another process or cannot be written.
    Stopped(CommitError),
}

impl From<CommitError> for CallEnd {
    fn from(error: CommitError) -> Self {
        Self::Stopped(error)
    }
}
