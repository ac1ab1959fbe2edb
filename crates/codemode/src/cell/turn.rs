//! One `exec` or `wait` of the model's: how long it holds on, and how long guest code may run in it.

use contract::limits::Limits;

/// How often the model may come back for a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turns {
    Many,
    /// What is not finished when the turn's time is over has failed; until then it holds on, for people too.
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

    /// What guest code may still run for in this turn.
    pub(super) fn run_ms(&self, limits: &Limits, now: u64) -> u64 {
        let unspent = limits.timeout_ms.saturating_sub(self.guest_us / 1000);
        match self.kind {
            TurnKind::Exec => unspent.min(self.hold_until(limits).saturating_sub(now)),
            TurnKind::Wait => unspent,
        }
    }
}
