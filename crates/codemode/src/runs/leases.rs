//! What must be done again and again while a process has runs.

use std::sync::Weak;
use std::time::Duration;

use executor::clock::now_ms;

use super::inner::Inner;

/// How long a process that says nothing keeps its runs, where nobody says otherwise.
pub(super) const LEASE: Duration = Duration::from_millis(3_000);

/// A lease is renewed this many times before it could run out.
const RENEWALS: u32 = 3;

/// Runs that nobody asks for are put away within this many renewals.
const SWEEP_EVERY: u32 = 10;

pub(super) async fn keep(inner: Weak<Inner>, lease: Duration) {
    let every = lease / RENEWALS;
    let mut rounds = 0_u32;
    loop {
        tokio::time::sleep(every).await;
        let Some(inner) = inner.upgrade() else { return };
        // One that fails is tried again before the lease is over; one that fails for long loses the runs.
        drop(inner.renew().await);
        rounds = rounds.wrapping_add(1);
        if rounds.is_multiple_of(SWEEP_EVERY) {
            drop(inner.store.expire(now_ms()).await);
        }
    }
}
