//! What a cell is told, and what it wants done.

use contract::cell::{OutputItem, PendingState, PendingToolCall, WaitingReason};
use contract::frame::{Failure, HostCall, Leg, Reply, ReplyValue};
use contract::ids::CallId;
use serde_json::value::RawValue;

#[derive(Debug)]
pub enum Event {
    /// The model called `wait`. (`exec` is how the cell began.)
    Wait,
    LegEnded(Leg),
    Settled(CallId, ReplyValue),
    /// A call turned out to wait for somebody.
    Parked(CallId, PendingState),
    /// Whoever a call waited for has said yes or no: it may go on.
    Decided(CallId),
    Froze {
        bytes: u64,
    },
    /// The cell could not be frozen, or its worker died under it.
    Lost(Failure),
    /// A time asked for with [`Action::WakeAt`] has come.
    Woke,
    Abort,
}

#[derive(Debug)]
pub enum Action {
    Dispatch(HostCall),
    /// Go on with a call that somebody has decided about.
    GoOn(CallId),
    SetTimer {
        call: CallId,
        after_ms: u64,
    },
    CancelTimer(CallId),
    /// Run a leg with these replies, thawing the cell first where it is frozen.
    Deliver {
        replies: Vec<Reply>,
        run_ms: u64,
        output_bytes: u64,
    },
    Freeze,
    WakeAt(u64),
    /// Give the model's call its result.
    Answer(Answer),
    /// The run is over: stop what still runs on its behalf.
    Close,
}

#[derive(Debug)]
pub enum Answer {
    Completed { value: Box<RawValue>, output: Vec<OutputItem> },
    Waiting { reason: WaitingReason, pending: Vec<PendingToolCall>, output: Vec<OutputItem> },
    Failed { failure: Failure, output: Vec<OutputItem> },
}
