//! A turn, which is one `exec` or `wait` of the model: how long it lasts, and how long guest code may run in it.

use contract::limits::Limits;

/// How many turns a cell may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turns {
    Many,
    /// One turn: the cell fails if it is not finished when the turn's time is over. Until then it waits, even for
    /// people.
    One,
}

#[derive(Debug)]
pub(super) struct Turn {
    pub(super) kind: TurnKind,
    pub(super) began: u64,
    pub(super) guest_us: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnKind {
    Exec,
    Wait,
}

impl Turn {
    pub(super) fn hold_until(&self, limits: &Limits) -> u64 {
        self.began
            + match self.kind {
                TurnKind::Exec => limits.timeout_ms,
                TurnKind::Wait => limits.max_wait_ms,
            }
    }

    /// Returns how long guest code may still run in this turn.
    pub(super) fn run_ms(&self, limits: &Limits, now: u64) -> u64 {
        let unspent = limits.timeout_ms.saturating_sub(self.guest_us / 1000);
        match self.kind {
            TurnKind::Exec => unspent.min(self.hold_until(limits).saturating_sub(now)),
            TurnKind::Wait => unspent,
        }
    }
}
