//! Checks the calls of a leg against the state of the run.
//!
//! The worker enforces the same rules. A worker that lets a leg break them is broken or hostile: the leg is not used,
//! and the driver terminates the worker.

use std::collections::BTreeSet;

use contract::frame::{Leg, LegEnd, Method};
use contract::ids::CallId;
use contract::limits::{MAX_OUTSTANDING_BYTES, MAX_OUTSTANDING_CALLS};

use super::Cell;

impl Cell {
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
