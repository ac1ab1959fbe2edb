//! Fault injection without the feature `faults`: every function is a no-op.

use std::time::Duration;

use crate::backend::StoreError;

/// A fault point; always succeeds.
#[inline(always)]
pub fn point(_name: &'static str) -> Result<(), StoreError> {
    Ok(())
}

/// Returns the answer of a commit unchanged.
#[inline(always)]
pub fn answered(answer: Result<(), sqlx::Error>) -> Result<(), sqlx::Error> {
    answer
}

/// Returns `None`: the caller reads the system clock.
#[inline(always)]
pub fn time() -> Option<Duration> {
    None
}

/// Returns `false`: the caller fills the bytes from system randomness.
#[inline(always)]
pub fn chance(_bytes: &mut [u8]) -> bool {
    false
}

/// Waits for the simulation's turn; returns at once.
#[inline(always)]
pub async fn turn() {}

/// Waits for the turn of a task that has a connection; returns at once.
#[inline(always)]
pub async fn turn_of_connection() {}

/// Runs the future.
#[inline(always)]
pub async fn alone<T>(future: impl Future<Output = T>) -> T {
    future.await
}
