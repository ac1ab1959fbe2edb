//! What can go wrong with a node, and where.

use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub enum Fault {
    Dies,
    IsHeldUp(Duration),
    Fails,
    LosesAnswer,
}

/// What will happen, and where: at the so-manieth place from now, or the so-manieth time at this one.
#[derive(Clone, Copy, Debug)]
pub struct Armed {
    pub fault: Fault,
    pub at: Option<&'static str>,
    pub left: u32,
}

impl Armed {
    /// What happens at this place, once it does.
    pub fn at(&mut self, point: &str) -> Option<Fault> {
        let fits = self.at.is_none_or(|at| at == point);
        if !fits || matches!(self.fault, Fault::LosesAnswer) && !COMMITS.contains(&point) {
            return None;
        }
        self.left = self.left.saturating_sub(1);
        (self.left == 0).then_some(self.fault)
    }
}

/// Places before a commit whose answer can be lost.
pub const COMMITS: [&str; 4] =
    ["commit.before_commit", "settle.before_commit", "decide.before_commit", "wait.before_take"];

/// Places where a store may be locked.
pub const IN_TRANSACTION: [&str; 9] = [
    "open.before_commit",
    "exec.before_insert",
    "commit.in_transaction",
    "commit.before_commit",
    "wait.before_take",
    "settle.before_commit",
    "decide.before_commit",
    "sweep.in_forget",
    "sweep.before_commit",
];
