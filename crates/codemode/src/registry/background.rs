//! Background tasks of the registry: lease renewal, clock synchronization, sweep, notifications of other processes.

use std::sync::{Arc, Weak};
use std::time::Duration;

use store::Watch;
use telemetry::LogIgnored;

use super::RunRegistry;

/// The default lease: how long a process keeps its runs without renewing.
pub(crate) const DEFAULT_LEASE: Duration = Duration::from_millis(3_000);

/// How often a lease is renewed within its length.
const RENEWALS: u32 = 3;

/// How often expired data is swept. The first sweep is soon, so that short-lived processes sweep, too.
const SWEEP_EVERY: Duration = Duration::from_secs(10);
const FIRST_SWEEP: Duration = Duration::from_secs(1);

/// How often the store's clock is read.
const CLOCK_INTERVAL: Duration = Duration::from_secs(1);

/// Starts the background tasks. Each ends when the registry is dropped.
pub(super) fn spawn(registry: &Arc<RunRegistry>, lease: Duration, watch: Watch) {
    tokio::spawn(renew(Arc::downgrade(registry), lease));
    tokio::spawn(sync_clock(Arc::downgrade(registry)));
    tokio::spawn(sweep(Arc::downgrade(registry)));
    tokio::spawn(listen(Arc::downgrade(registry), watch));
}

/// Renews the leases of this process's runs.
async fn renew(registry: Weak<RunRegistry>, lease: Duration) {
    let every = lease / RENEWALS;
    loop {
        tokio::time::sleep(every).await;
        let Some(registry) = registry.upgrade() else { return };
        // A failed renewal is retried before the lease expires. If it keeps failing, the process loses its runs.
        registry.renew().await.log_ignored("renew the leases");
    }
}

/// Reads the store's clock, at once and then periodically. A separate task, so that renewals do not wait for it.
async fn sync_clock(registry: Weak<RunRegistry>) {
    loop {
        let Some(held) = registry.upgrade() else { return };
        held.set_clock().await;
        drop(held);
        tokio::time::sleep(CLOCK_INTERVAL).await;
    }
}

/// Deletes expired data periodically. A separate task, so that renewals do not wait for it.
async fn sweep(registry: Weak<RunRegistry>) {
    let mut pause = FIRST_SWEEP;
    loop {
        tokio::time::sleep(pause).await;
        let Some(registry) = registry.upgrade() else { return };
        // If it fails, the next sweep does it, here or in another process.
        registry.store.sweep(registry.lease.now_ms()).await.log_ignored("sweep the store");
        pause = SWEEP_EVERY;
    }
}

/// Passes notifications from the store to the registry.
async fn listen(registry: Weak<RunRegistry>, mut watch: Watch) {
    loop {
        let change = watch.next().await;
        let Some(registry) = registry.upgrade() else { return };
        registry.on_run_change(change);
    }
}
