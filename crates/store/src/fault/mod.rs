//! Named places where a test may end the process, hold it up, or let it fail; and whose time and chance it is.
//!
//! Without the feature `faults` all of this is nothing. With it, nothing happens either until a program arms a place
//! (the host that tests kill does) or a thread is given to a simulation.

#[cfg(feature = "faults")]
mod armed;
#[cfg(feature = "faults")]
mod simulated;

#[cfg(feature = "faults")]
pub use armed::{Unarmed, arm, reached};
#[cfg(feature = "faults")]
pub use simulated::{
    Simulation, Verdict, give_turn, leave_simulation, simulate, take_turns, under_way, waiting, waiting_connected,
};

#[cfg(not(feature = "faults"))]
mod nothing;

#[cfg(not(feature = "faults"))]
pub use nothing::{alone, answered, chance, point, time, turn, turn_of_connection};
#[cfg(feature = "faults")]
pub use simulated::{alone, answered, chance, time, turn, turn_of_connection};

/// Every place there is, by the part of a run's life it is in.
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

/// A place. Fails only where a test said so.
#[cfg(feature = "faults")]
pub fn point(name: &'static str) -> Result<(), crate::backend::StoreError> {
    match simulated::at(name) {
        Some(Verdict::GoOn | Verdict::LoseAnswer) => Ok(()),
        Some(Verdict::Fail) => Err(broken(name)),
        None => armed::hit(name),
    }
}

#[cfg(feature = "faults")]
fn broken(name: &str) -> crate::backend::StoreError {
    crate::backend::StoreError::Corrupt(format!("a test broke it at {name}"))
}
