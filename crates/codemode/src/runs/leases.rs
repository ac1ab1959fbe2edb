//! Background tasks: lease renewal, clock synchronization, sweep.

use std::sync::Weak;
use std::time::Duration;

use super::inner::RunRegistry;

/// The default lease: how long a process keeps its runs without renewing.
pub(super) const LEASE: Duration = Duration::from_millis(3_000);

/// How often a lease is renewed within its length.
const RENEWALS: u32 = 3;

/// How often expired data is swept. The first sweep is soon, so that short-lived processes sweep, too.
const SWEEP_EVERY: Duration = Duration::from_secs(10);
const FIRST_SWEEP: Duration = Duration::from_secs(1);

/// How often the store's clock is read.
const CLOCK_INTERVAL: Duration = Duration::from_secs(1);

/// Renews the leases of this process's runs.
pub(super) async fn renew(inner: Weak<RunRegistry>, lease: Duration) {
    let every = lease / RENEWALS;
    loop {
        tokio::time::sleep(every).await;
        let Some(inner) = inner.upgrade() else { return };
        // A failed renewal is retried before the lease expires. If it keeps failing, the process loses its runs.
        drop(inner.renew().await);
    }
}

/// Reads the store's clock, at once and then periodically. A separate task, so that renewals do not wait for it.
pub(super) async fn sync_clock(inner: Weak<RunRegistry>) {
    loop {
        let Some(held) = inner.upgrade() else { return };
        held.set_clock().await;
        drop(held);
        tokio::time::sleep(CLOCK_INTERVAL).await;
    }
}

/// Deletes expired data periodically. A separate task, so that renewals do not wait for it.
pub(super) async fn sweep(inner: Weak<RunRegistry>) {
    let mut pause = FIRST_SWEEP;
    loop {
        tokio::time::sleep(pause).await;
        let Some(inner) = inner.upgrade() else { return };
        // If it fails, the next sweep does it, here or in another process.
        drop(inner.store.sweep(inner.lease.now_ms()).await);
        pause = SWEEP_EVERY;
    }
}
