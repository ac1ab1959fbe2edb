//! What must be done again and again while a process has runs.

use std::sync::Weak;
use std::time::Duration;

use super::inner::RunRegistry;

/// How long a process that says nothing keeps its runs, where nobody says otherwise.
pub(super) const LEASE: Duration = Duration::from_millis(3_000);

/// A lease is renewed this many times before it could run out.
const RENEWALS: u32 = 3;

/// How often what is over is put away. Short-lived processes come to it, too: the first time is soon.
const SWEEP_EVERY: Duration = Duration::from_secs(10);
const FIRST_SWEEP: Duration = Duration::from_secs(1);

/// How often the store's clock is looked at.
const LOOK_AT_CLOCK: Duration = Duration::from_secs(1);

pub(super) async fn keep(inner: Weak<RunRegistry>, lease: Duration) {
    let every = lease / RENEWALS;
    loop {
        tokio::time::sleep(every).await;
        let Some(inner) = inner.upgrade() else { return };
        // One that fails is tried again before the lease is over; one that fails for long loses the runs.
        drop(inner.renew().await);
    }
}

/// Looks at the store's clock, at once and then again and again: renewals must not wait for that either.
pub(super) async fn keep_time(inner: Weak<RunRegistry>) {
    loop {
        let Some(held) = inner.upgrade() else { return };
        held.set_clock().await;
        drop(held);
        tokio::time::sleep(LOOK_AT_CLOCK).await;
    }
}

/// Puts away what is over. Not beside the renewals: those must not wait for it.
pub(super) async fn put_away(inner: Weak<RunRegistry>) {
    let mut pause = FIRST_SWEEP;
    loop {
        tokio::time::sleep(pause).await;
        let Some(inner) = inner.upgrade() else { return };
        // What fails is done by the next sweep, here or elsewhere.
        drop(inner.store.sweep(inner.lease.now_ms()).await);
        pause = SWEEP_EVERY;
    }
}
