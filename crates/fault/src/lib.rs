//! Fault injection: named points where a test can kill, block or fail the process, and hooks for simulated time,
//! randomness and scheduling.
//!
//! Without the feature `inject` all of this compiles to nothing. With it, a point does nothing until a program arms it
//! (as the host that tests kill does) or a thread joins a simulation.

#[cfg(feature = "inject")]
mod armed;
#[cfg(feature = "inject")]
mod simulated;

#[cfg(feature = "inject")]
pub use armed::{Unarmed, arm, reached};
#[cfg(feature = "inject")]
pub use simulated::{
    Simulation, Verdict, give_turn, leave_simulation, simulate, take_turns, under_way, waiting, waiting_connected,
};

#[cfg(not(feature = "inject"))]
mod disabled;

#[cfg(not(feature = "inject"))]
pub use disabled::{commit_answer, fill_random, point, run_in_turn, time, wait_for_connection_turn, wait_for_turn};
#[cfg(feature = "inject")]
pub use simulated::{commit_answer, fill_random, run_in_turn, time, wait_for_connection_turn, wait_for_turn};

/// The names of all fault points, grouped by the operation they interrupt.
pub const POINTS: [&str; 43] = [
    "open.before_commit",
    "open.after_commit",
    "exec.before_start",
    "exec.guest_running",
    "exec.before_insert",
    "leg.ended",
    "commit.before_begin",
    "commit.in_transaction",
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
    "approval.before_go_on",
    "suspend.after_freeze",
    "suspend.before_commit",
    "suspend.after_commit",
    "rest.before_release",
    "rest.after_release",
    "settle.before_commit",
    "settle.after_commit",
    "decide.before_commit",
    "decide.after_commit",
    "wait.before_take",
    "wait.after_take",
    "wait.after_restore",
    "wait.before_deliver",
    "wait.before_cas",
    "wait.after_cas",
    "renew.after_update",
    "abort.before_bury",
    "abort.after_seize",
    "sweep.after_expire",
    "sweep.in_forget",
    "sweep.before_commit",
    "sweep.after_commit",
];

/// A fault point. Fails only if a test armed it or a simulation lets it fail.
#[cfg(feature = "inject")]
pub fn point(name: &'static str) -> Result<(), InjectedFault> {
    match simulated::at(name) {
        Some(Verdict::Continue | Verdict::LoseAnswer) => Ok(()),
        Some(Verdict::Fail) => Err(InjectedFault(name)),
        None => armed::hit(name),
    }
}

/// The error of a fault point that a test made fail. Never created without the feature `inject`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a test injected a fault at {0}")]
pub struct InjectedFault(&'static str);
