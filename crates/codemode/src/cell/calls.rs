//! A cell's open calls: queued, running, parked, settled.
//!
//! The worker enforces the rules that [`Cell::vet`] checks. A worker that lets a leg break them is broken or hostile:
//! the leg is not used, and the driver terminates the worker.

use std::collections::BTreeSet;

use contract::cell::{PendingState, PendingToolCall};
use contract::frame::{HostCall, Leg, LegEnd, Method, Reply, ReplyValue};
use contract::ids::CallId;
use contract::limits::{MAX_OUTSTANDING_BYTES, MAX_OUTSTANDING_CALLS, MAX_YIELD_REASON_CHARS};

use super::turn::Turns;
use super::{Action, Cell};

#[derive(Debug)]
pub(super) struct OpenCall {
    pub(super) method: Method,
    pub(super) target: String,
    pub(super) state: PendingState,
    pub(super) since: u64,
    /// Whether it counts against the limit of concurrent calls. A call that waits for a person does not.
    pub(super) holds_slot: bool,
    /// Length of its target and payload together.
    pub(super) bytes: usize,
    /// The text that the cell passed to `yield_control`.
    pub(super) reason: Option<String>,
}

/// A call whose reply was not delivered to the cell yet.
#[derive(Debug)]
pub(super) struct SettledCall {
    pub(super) method: Method,
    pub(super) reply: Reply,
}

#[derive(Debug)]
pub(super) enum QueuedCall {
    New(HostCall),
    Decided(CallId),
}

/// A call that was open when its run was suspended.
#[derive(Debug)]
pub struct ReopenedCall {
    pub call: HostCall,
    /// The state in the resumed cell. A queued call is dispatched.
    pub state: PendingState,
    /// Whether the driver that resumes the run works on it.
    pub worked_on: bool,
    /// Whether a person has decided about it since.
    pub decided: bool,
    pub since: u64,
}

impl Cell {
    pub(super) fn open_call(&mut self, call: HostCall, now: u64, actions: &mut Vec<Action>) {
        let state = match call.method {
            Method::Yield | Method::Timer => PendingState::Running,
            Method::Search | Method::Describe | Method::Call | Method::Namespace | Method::Output | Method::State => {
                PendingState::Queued
            }
        };
        self.last_call = self.last_call.max(call.id);
        self.open.insert(call.id, OpenCall::new(&call, state, now));
        match call.method {
            Method::Yield if self.turns == Turns::One => {
                // A cell of Tool Search cannot yield: no `wait` would follow.
                self.settle(call.id, ReplyValue::Resolved(b"null".to_vec()));
            }
            Method::Yield => {}
            Method::Timer => {
                let after_ms = std::str::from_utf8(&call.payload).ok().and_then(|text| text.parse::<f64>().ok());
                // A delay that is not a number fires at once; the cast saturates.
                actions.push(Action::SetTimer { call: call.id, after_ms: after_ms.unwrap_or(0.0) as u64 });
            }
            Method::Search | Method::Describe | Method::Call | Method::Namespace | Method::Output | Method::State => {
                self.queue.push_back(QueuedCall::New(call));
            }
        }
    }

    pub(super) fn settle(&mut self, call: CallId, value: ReplyValue) {
        let Some(open) = self.open.remove(&call) else { return };
        self.running -= u64::from(open.holds_slot);
        self.settled.push(SettledCall { method: open.method, reply: Reply { call, value } });
    }

    /// Parks a call. It frees its slot for other calls.
    pub(super) fn park(&mut self, call: CallId, state: PendingState) {
        let Some(open) = self.open.get_mut(&call) else { return };
        open.state = state;
        self.running -= u64::from(std::mem::take(&mut open.holds_slot));
    }

    pub(super) fn requeue(&mut self, call: CallId) {
        let Some(open) = self.open.get_mut(&call) else { return };
        if open.state == PendingState::Approval {
            open.state = PendingState::Queued;
            self.queue.push_back(QueuedCall::Decided(call));
        }
    }

    /// Gives the call a slot. Returns false if it is no longer open, and must not be dispatched.
    pub(super) fn begin(&mut self, call: CallId) -> bool {
        let Some(open) = self.open.get_mut(&call) else { return false };
        open.state = PendingState::Running;
        self.running += u64::from(!std::mem::replace(&mut open.holds_slot, true));
        true
    }

    /// Checks a leg that has ended: call ids increase and are never reused, only timers that are set are cleared, and
    /// the outstanding calls stay within their limits. The error says which rule the worker broke.
    pub fn vet(&self, leg: &Leg) -> Result<(), &'static str> {
        let LegEnd::Suspended { calls, cleared } = &leg.end else { return Ok(()) };
        if self.is_over() {
            return Ok(());
        }
        let mut last = self.last_call;
        for call in calls {
            if call.id <= last {
                return Err("the id of a call used again or out of order");
            }
            last = call.id;
        }
        let cleared_once: BTreeSet<CallId> = cleared.iter().copied().collect();
        if cleared_once.len() != cleared.len() || !cleared_once.iter().all(|call| self.is_set_timer(*call)) {
            return Err("a call cleared that is not a timer");
        }
        // The worker counts a call until its reply is delivered, so it never counts fewer calls than this.
        let kept = || self.open.iter().filter(|(call, _)| !cleared_once.contains(call)).map(|(_, open)| open);
        if kept().count() + calls.len() > MAX_OUTSTANDING_CALLS {
            return Err("more calls than a cell may have");
        }
        let bytes =
            kept().map(|open| open.bytes).chain(calls.iter().map(|call| call.target.len() + call.payload.len()));
        if bytes.fold(0, usize::saturating_add) > MAX_OUTSTANDING_BYTES {
            return Err("more bytes of calls than a cell may have");
        }
        Ok(())
    }

    /// Returns whether this is a timer that is set, or that has fired but was not delivered to the cell.
    fn is_set_timer(&self, call: CallId) -> bool {
        self.open.get(&call).is_some_and(|open| open.method == Method::Timer)
            || self.settled.iter().any(|settled| settled.reply.call == call && settled.method == Method::Timer)
    }
}

impl OpenCall {
    /// Creates a call that holds no slot for calls in progress.
    pub(super) fn new(call: &HostCall, state: PendingState, since: u64) -> Self {
        let bytes = call.target.len() + call.payload.len();
        let (method, target) = (call.method, call.target.clone());
        Self { method, target, state, since, holds_slot: false, bytes, reason: yield_reason(call) }
    }

    pub(super) fn pending(&self, call: CallId, now: u64) -> PendingToolCall {
        PendingToolCall {
            id: format!("bridge:{}:{}", self.method.as_str(), call.0),
            method: self.method.as_str().to_owned(),
            tool_id: matches!(self.method, Method::Call | Method::Describe).then(|| self.target.clone()),
            state: self.state,
            since_ms: now.saturating_sub(self.since),
            reason: self.reason.clone(),
        }
    }
}

impl ReopenedCall {
    pub fn pending(&self, now: u64) -> PendingToolCall {
        OpenCall::new(&self.call, self.state, self.since).pending(self.call.id, now)
    }
}

/// Returns the text that a cell passed to `yield_control`, shortened. `None` for other calls, and without a text.
fn yield_reason(call: &HostCall) -> Option<String> {
    if call.method != Method::Yield {
        return None;
    }
    let text = std::str::from_utf8(&call.payload).ok()?;
    let reason = serde_json::from_str::<Option<String>>(text).ok()??;
    let mut short: String = reason.chars().take(MAX_YIELD_REASON_CHARS).collect();
    if short.len() < reason.len() {
        short.push('…');
    }
    (!short.trim().is_empty()).then_some(short)
}
