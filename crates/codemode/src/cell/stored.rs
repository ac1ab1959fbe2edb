//! Rebuilds a suspended cell from the store.

use contract::cell::PendingState;
use contract::ids::CallId;
use contract::limits::Limits;

use super::calls::{Open, Queued, Reopened};
use super::{Cell, Phase};

/// The resources that a run had used when it was suspended.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    pub guest_us: u64,
    pub snapshots: contract::cell::Snapshots,
    /// The highest id among all calls of the run, open or not.
    pub last_call: u32,
}

impl Cell {
    /// Rebuilds a suspended cell. It is frozen, or, if its legs were run again, in a worker, and the end of its last
    /// leg is still to come as an event.
    pub fn resumed(limits: Limits, open: Vec<Reopened>, spent: Spent, frozen: bool) -> Self {
        let phase = if frozen { Phase::Resting { live_since: None } } else { Phase::Running };
        let mut cell = Self {
            phase,
            turn: None,
            guest_us: spent.guest_us,
            snapshots: spent.snapshots,
            last_call: CallId(spent.last_call),
            ..Self::started(limits, 0)
        };
        for Reopened { call, state, worked_on: holds_slot, decided, since } in open {
            cell.running += u64::from(holds_slot);
            let id = call.id;
            cell.last_call = cell.last_call.max(id);
            cell.open.insert(id, Open::new(&call, state, since, holds_slot));
            if decided {
                cell.requeue(id);
            } else if state == PendingState::Queued {
                cell.queue.push_back(Queued::New(call));
            }
        }
        cell
    }
}
