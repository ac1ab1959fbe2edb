//! What the places are in every program but the tests: nothing.

use std::time::Duration;

use crate::backend::StoreError;

/// A place. Fails only where a test said so.
#[inline(always)]
pub fn point(_name: &'static str) -> Result<(), StoreError> {
    Ok(())
}

/// What a commit answered. Another thing only where a test said so.
#[inline(always)]
pub fn answered(answer: Result<(), sqlx::Error>) -> Result<(), sqlx::Error> {
    answer
}

/// The time since 1970 where it is not the system's.
#[inline(always)]
pub fn time() -> Option<Duration> {
    None
}

/// Whether the bytes were filled by a chance that is not the system's.
#[inline(always)]
pub fn chance(_bytes: &mut [u8]) -> bool {
    false
}

/// Whoever is about to wait for another thread waits here until it is its turn, where turns are taken.
#[inline(always)]
pub async fn turn() {}

/// The same, for whoever has a connection already.
#[inline(always)]
pub async fn turn_of_connection() {}

/// The same, for one who is away until the future is done.
#[inline(always)]
pub async fn alone<T>(future: impl Future<Output = T>) -> T {
    future.await
}
