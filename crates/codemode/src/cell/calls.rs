//! A cell's open calls: queued, at work, with somebody, settled.

use contract::cell::{PendingState, PendingToolCall};
use contract::frame::{HostCall, Method, Reply, ReplyValue};
use contract::ids::CallId;

use super::turn::Turns;
use super::{Action, Cell};

#[derive(Debug)]
pub(super) struct Open {
    pub(super) method: Method,
    pub(super) target: String,
    pub(super) state: PendingState,
    pub(super) since: u64,
    /// Whether it counts among the calls that run at once. What waits for a person does not.
    pub(super) holds_slot: bool,
    /// Length of its target and payload together.
    pub(super) bytes: usize,
}

/// A call that has its reply, which the cell has not.
#[derive(Debug)]
pub(super) struct Settled {
    pub(super) method: Method,
    pub(super) reply: Reply,
}

#[derive(Debug)]
pub(super) enum Queued {
    New(HostCall),
    Decided(CallId),
}

/// A call that was open when a run was put away.
#[derive(Debug)]
pub struct Reopened {
    pub call: HostCall,
    /// Queued: it has not been dispatched, and will be.
    pub state: PendingState,
    /// Whoever resumes the run works on it.
    pub worked_on: bool,
    /// Whoever it waited for has said yes or no meanwhile.
    pub decided: bool,
    pub since: u64,
}

impl Cell {
    pub(super) fn open_call(&mut self, call: HostCall, now: u64, actions: &mut Vec<Action>) {
        let state = match call.method {
            Method::Yield | Method::Timer => PendingState::Running,
            Method::Search | Method::Describe | Method::Call | Method::Namespace => PendingState::Queued,
        };
        self.last_call = self.last_call.max(call.id);
        self.open.insert(call.id, Open::new(&call, state, now, false));
        match call.method {
            Method::Yield if self.turns == Turns::One => {
                // There is nobody to yield to.
                self.settle(call.id, ReplyValue::Resolved(b"null".to_vec()));
            }
            Method::Yield => {}
            Method::Timer => {
                let after_ms = std::str::from_utf8(&call.payload).ok().and_then(|text| text.parse::<f64>().ok());
                // What is no number fires at once; a cast saturates.
                actions.push(Action::SetTimer { call: call.id, after_ms: after_ms.unwrap_or(0.0) as u64 });
            }
            Method::Search | Method::Describe | Method::Call | Method::Namespace => {
                self.queue.push_back(Queued::New(call));
            }
        }
    }

    pub(super) fn settle(&mut self, call: CallId, value: ReplyValue) {
        let Some(open) = self.open.remove(&call) else { return };
        self.running -= u64::from(open.holds_slot);
        self.settled.push(Settled { method: open.method, reply: Reply { call, value } });
    }

    /// A call that somebody else works on makes room for its siblings.
    pub(super) fn park(&mut self, call: CallId, state: PendingState) {
        let Some(open) = self.open.get_mut(&call) else { return };
        open.state = state;
        self.running -= u64::from(std::mem::take(&mut open.holds_slot));
    }

    pub(super) fn requeue(&mut self, call: CallId) {
        let Some(open) = self.open.get_mut(&call) else { return };
        if open.state == PendingState::Approval {
            open.state = PendingState::Queued;
            self.queue.push_back(Queued::Decided(call));
        }
    }

    /// Gives the call a slot among those that run at once; false where it is no longer open, and must not be made.
    pub(super) fn begin(&mut self, call: CallId) -> bool {
        let Some(open) = self.open.get_mut(&call) else { return false };
        open.state = PendingState::Running;
        self.running += u64::from(!std::mem::replace(&mut open.holds_slot, true));
        true
    }
}

impl Open {
    pub(super) fn new(call: &HostCall, state: PendingState, since: u64, holds_slot: bool) -> Self {
        let bytes = call.target.len() + call.payload.len();
        Self { method: call.method, target: call.target.clone(), state, since, holds_slot, bytes }
    }
}

impl Reopened {
    pub fn pending(&self, now: u64) -> PendingToolCall {
        let HostCall { id, method, target, .. } = &self.call;
        pending(*id, *method, target, self.state, now.saturating_sub(self.since))
    }
}

pub(super) fn pending(
    call: CallId,
    method: Method,
    target: &str,
    state: PendingState,
    since_ms: u64,
) -> PendingToolCall {
    PendingToolCall {
        id: format!("bridge:{}:{}", method.as_str(), call.0),
        method: method.as_str().to_owned(),
        tool_id: matches!(method, Method::Call | Method::Describe).then(|| target.to_owned()),
        state,
        since_ms,
    }
}
