//! What must be done again and again while a process has runs.

use std::sync::Weak;
use std::time::Duration;

use executor::clock::now_ms;

use super::inner::Inner;

/// How long a process that says nothing keeps its runs.
pub(super) const LEASE_MS: i64 = 3_000;
const RENEW_EVERY: Duration = Duration::from_millis(1_000);

/// Runs that nobody asks for are put away within this many renewals.
const SWEEP_EVERY: u32 = 10;

pub(super) async fn keep(inner: Weak<Inner>) {
    let mut rounds = 0_u32;
    loop {
        tokio::time::sleep(RENEW_EVERY).await;
        let Some(inner) = inner.upgrade() else { return };
        let now = now_ms();
        if !inner.lock().is_empty() {
            // One that fails is tried again before the lease is over; one that fails for long loses the runs.
            drop(inner.store.renew(&inner.holder, now + LEASE_MS).await);
        }
        rounds = rounds.wrapping_add(1);
        if rounds.is_multiple_of(SWEEP_EVERY) {
            drop(inner.store.expire(now).await);
        }
    }
}
