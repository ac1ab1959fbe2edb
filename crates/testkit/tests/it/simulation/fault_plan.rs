//! The faults of a node, and the fault points where they happen.

use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    Crash,
    Pause(Duration),
    Error,
    /// The commit succeeds, but its answer is lost.
    LoseAnswer,
}

/// A fault that happens at the `left`-th fault point from now, or the `left`-th time at the point `at`.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArmedFault {
    pub fault: Fault,
    pub at: Option<&'static str>,
    pub left: u32,
}

impl ArmedFault {
    /// Counts a visit of this fault point and returns the fault if it is due.
    pub(super) fn at(&mut self, point: &str) -> Option<Fault> {
        let fits = self.at.is_none_or(|at| at == point);
        let is_commit = COMMITS.contains(&point) || TURN_COMMITS.contains(&point);
        if !fits || matches!(self.fault, Fault::LoseAnswer) && !is_commit {
            return None;
        }
        self.left = self.left.saturating_sub(1);
        (self.left == 0).then_some(self.fault)
    }
}

/// Fault points before a commit whose answer can be lost.
pub(super) const COMMITS: [&str; 4] =
    ["commit.before_commit", "settle.before_commit", "decide.before_commit", "wait.before_take"];

/// Fault points of turns before a commit whose answer can be lost.
pub(super) const TURN_COMMITS: [&str; 1] = ["turn.before_commit"];

/// Fault points where the node may hold a lock on the store.
pub(super) const IN_TRANSACTION: [&str; 12] = [
    "open.before_commit",
    "exec.before_insert",
    "commit.in_transaction",
    "output.between_pieces",
    "values.in_transaction",
    "commit.before_commit",
    "wait.before_take",
    "settle.before_commit",
    "decide.before_commit",
    "sweep.in_transaction",
    "sweep.before_commit",
    "turn.before_commit",
];
