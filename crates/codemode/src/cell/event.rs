//! The events that a cell handles, and the actions that it returns.

use contract::cell::{OutputItem, PendingState, PendingToolCall, WaitingReason};
use contract::frame::{Failure, HostCall, Leg, Reply, ReplyValue};
use contract::ids::CallId;
use serde_json::value::RawValue;

#[derive(Debug)]
pub enum Event {
    /// The model called `wait`. (There is no event for `exec`: it creates the cell.)
    Wait,
    LegEnded(Leg),
    Settled(CallId, ReplyValue),
    /// A call waits for a person, a client or a task.
    Parked(CallId, PendingState),
    /// A person has decided about a call: it can be resumed.
    Decided(CallId),
    Froze {
        bytes: u64,
    },
    /// The cell could not be frozen, or its worker died under it.
    Lost(Failure),
    /// The time of an [`Action::WakeAt`] has come, or there may be something new to do.
    Woke,
    Abort,
}

#[derive(Debug)]
pub enum Action {
    Dispatch(HostCall),
    /// Resume a call that a person has decided about.
    ResumeDecided(CallId),
    SetTimer {
        call: CallId,
        after_ms: u64,
    },
    CancelTimer(CallId),
    /// Run a leg with these replies, after thawing the cell if it is frozen.
    Deliver {
        replies: Vec<Reply>,
        run_ms: u64,
        output_bytes: u64,
    },
    Freeze,
    WakeAt(u64),
    /// Return the result of the model's call.
    Answer(Answer),
    /// The run is over: cancel what still runs for it.
    Close,
}

#[derive(Debug)]
pub enum Answer {
    Completed { value: Box<RawValue>, output: Vec<OutputItem> },
    Waiting { reason: WaitingReason, pending: Vec<(CallId, PendingToolCall)>, output: Vec<OutputItem> },
    Failed { failure: Failure, output: Vec<OutputItem> },
}
