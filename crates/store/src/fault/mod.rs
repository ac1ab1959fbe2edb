//! Named places where a test may end the process, hold it up, or let it fail.
//!
//! Without the feature `faults` a place is nothing. With it, nothing happens either until a program arms one: only
//! the host that tests kill does.

#[cfg(feature = "faults")]
mod armed;

use crate::backend::StoreError;

#[cfg(feature = "faults")]
pub use armed::{Unarmed, arm, reached};

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
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn point(_name: &'static str) -> Result<(), StoreError> {
    Ok(())
}

#[cfg(feature = "faults")]
pub fn point(name: &'static str) -> Result<(), StoreError> {
    armed::hit(name)
}
