//! Fault injection without the feature `inject`: no function has an effect.

use std::time::Duration;

use crate::InjectedFault;

/// A fault point; always succeeds.
#[inline(always)]
pub fn point(_name: &'static str) -> Result<(), InjectedFault> {
    Ok(())
}

/// Returns the result of a commit unchanged.
#[inline(always)]
pub fn commit_result<E>(answer: Result<(), E>) -> Result<(), E> {
    answer
}

/// Returns `None`: the caller reads the system clock.
#[inline(always)]
pub fn time() -> Option<Duration> {
    None
}

/// Returns zero: timers and clocks agree.
#[inline(always)]
pub fn clock_lead() -> Duration {
    Duration::ZERO
}

/// Returns `false`: the caller fills the bytes from system randomness.
#[inline(always)]
pub fn fill_random(_bytes: &mut [u8]) -> bool {
    false
}

/// Waits for the simulation's turn; returns at once.
#[inline(always)]
pub async fn wait_for_turn() {}

/// Waits for the turn of a task that holds a connection; returns at once.
#[inline(always)]
pub async fn wait_for_turn_holding_connection() {}

/// Runs the future.
#[inline(always)]
pub async fn run_in_turn<T>(future: impl Future<Output = T>) -> T {
    future.await
}
