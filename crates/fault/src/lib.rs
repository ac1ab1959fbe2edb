//! Fault injection: named points in the code where a test can kill the process, block the thread or return an error,
//! and hooks for simulated time, randomness and scheduling.
//!
//! Without the feature `inject`, nothing is injected or simulated. With it, a fault point has an effect only if the process
//! armed it with `arm` (the test host `ledger-host` does) or the thread belongs to a simulation (`simulate`).

#![cfg_attr(not(test), warn(clippy::print_stdout))]

#[cfg(feature = "inject")]
mod armed;
#[cfg(feature = "inject")]
mod simulated;

#[cfg(feature = "inject")]
pub use armed::{InvalidFault, arm, reached};
#[cfg(feature = "inject")]
pub use simulated::{
    PointVerdict, Simulation, enable_turns, give_turn, in_flight, leave_simulation, simulate, waiting,
    waiting_with_connection,
};

#[cfg(not(feature = "inject"))]
mod disabled;

#[cfg(not(feature = "inject"))]
pub use disabled::{
    clock_lead, commit_result, fill_random, point, run_in_turn, time, wait_for_turn, wait_for_turn_holding_connection,
};
#[cfg(feature = "inject")]
pub use simulated::{
    clock_lead, commit_result, fill_random, run_in_turn, time, wait_for_turn, wait_for_turn_holding_connection,
};

/// The names of the fault points that runs of cells reach, grouped by the operation they interrupt.
pub const POINTS: [&str; 45] = [
    "open.before_commit",
    "open.after_commit",
    "exec.before_start",
    "exec.guest_running",
    "exec.before_insert",
    "leg.ended",
    "commit.before_begin",
    "commit.in_transaction",
    "output.between_pieces",
    "values.in_transaction",
    "commit.before_commit",
    "commit.after_commit",
    "journal.before_flush",
    "journal.after_flush",
    "dispatch.before_journal",
    "dispatch.after_journal",
    "dispatch.before_send",
    "dispatch.after_send",
    "dispatch.before_park",
    "dispatch.after_park",
    "approval.before_park",
    "approval.after_park",
    "approval.before_dispatch",
    "suspend.after_freeze",
    "suspend.before_commit",
    "suspend.after_commit",
    "release.before_commit",
    "release.after_commit",
    "settle.before_commit",
    "settle.after_commit",
    "decide.before_commit",
    "decide.after_commit",
    "wait.before_take",
    "wait.after_take",
    "wait.after_restore",
    "wait.before_deliver",
    "finish.before_commit",
    "finish.after_commit",
    "renew.after_update",
    "abort.before_take",
    "abort.after_take",
    "sweep.after_expire",
    "sweep.in_transaction",
    "sweep.before_commit",
    "sweep.after_commit",
];

/// The names of the fault points that only turns of the gateway reach, grouped by the operation they interrupt.
pub const GATEWAY_POINTS: [&str; 14] = [
    "turn.before_create",
    "turn.after_create",
    "turn.before_model",
    "turn.after_model",
    "turn.before_commit",
    "turn.after_commit",
    "delivery.before_commit",
    "delivery.after_commit",
    "answer.before_commit",
    "answer.after_commit",
    "answer.before_settle",
    "answer.after_settle",
    "turn.before_end",
    "turn.after_end",
];

/// Marks a fault point. Fails only if the point is armed with an error, or a simulation decides that it fails.
#[cfg(feature = "inject")]
pub fn point(name: &'static str) -> Result<(), InjectedFault> {
    match simulated::verdict_at(name) {
        Some(PointVerdict::Continue | PointVerdict::LoseAnswer) => Ok(()),
        Some(PointVerdict::Fail) => Err(InjectedFault(name)),
        None => armed::reach(name),
    }
}

/// The error that a fault point returns. Never created without the feature `inject`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a test injected a fault at {0}")]
pub struct InjectedFault(&'static str);
