//! The results of tasks that a driver spawned.

use std::time::Duration;

use contract::cell::PendingState;
use contract::frame::ReplyValue;
use contract::ids::CallId;
use executor::Reservation;
use store::CommitError;

use crate::session_values::Sizes;

/// The result of a task that the driver spawned.
pub(super) struct TaskCompletion {
    pub(super) call: CallId,
    pub(super) what: TaskResult,
    pub(super) elapsed: Duration,
}

impl TaskCompletion {
    /// The result of a task whose time does not count as time of tools.
    pub(super) fn instant(call: CallId, what: TaskResult) -> Self {
        Self { call, what, elapsed: Duration::ZERO }
    }
}

pub(super) enum TaskResult {
    TimerFired,
    Replied {
        reply: ReplyValue,
        /// The reservation for the memory of the reply. `None` for replies that need none.
        held: Option<Reservation>,
    },
    /// The reply to a call that reads stored outputs.
    OutputRead {
        reply: ReplyValue,
        held: Option<Reservation>,
    },
    Parked(PendingState),
    Decided,
    /// A delayed `wait` can proceed.
    WaitNow,
    /// Outcomes and decisions that other processes have stored.
    Polled {
        arrived: Vec<CallId>,
        decided: Vec<CallId>,
    },
    /// A task for a call that reads or writes session values.
    Session(SessionResult),
    Stopped(CommitError),
    /// The task has no result.
    Nothing,
}

/// The result of a task that reads or writes the store for a call.
pub(super) enum SessionResult {
    /// The session's values were read. The call is decided again.
    Read(Sizes),
    Replied {
        reply: ReplyValue,
        held: Option<Reservation>,
    },
    Stopped(CommitError),
}
