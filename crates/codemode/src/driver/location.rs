//! The location of a cell between its legs, in a worker or in a snapshot, and the operations that change it: start the
//! cell, deliver replies to it, which runs its next leg, and freeze it.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use contract::error::ErrorCode;
use contract::frame::{Deliver, Failure, Leg, Start};
use contract::limits::MAX_KEPT_SNAPSHOT_BYTES;
use contract::tables::CatalogTables;
use executor::Journal;
use fault::InjectedFault;
use store::CommitError;
use telemetry::IncidentId;

use crate::cell::Event;
use crate::failure::failure;
use crate::pool::{FreezeError, Lease, Pool, PoolError};

/// Where a cell is between its legs.
pub(super) enum CellLocation {
    /// Nowhere: the cell has not started, is lost, or the [`CellOperation`] in progress owns its location.
    None,
    /// In a worker.
    Live(Lease),
    /// In a snapshot; no worker has the cell.
    Frozen {
        snapshot: Vec<u8>,
        /// Whether the store has the snapshot, too.
        is_stored: bool,
    },
    /// In a snapshot that is only in the store.
    Stored(Arc<Journal>),
}

impl CellLocation {
    /// Drops a large snapshot that is stored, so that many suspended runs take little memory.
    pub(super) fn drop_stored_snapshot(&mut self, journal: &Arc<Journal>) {
        if self.is_large_and_stored() {
            *self = Self::Stored(Arc::clone(journal));
        }
    }

    fn is_large_and_stored(&self) -> bool {
        matches!(self, Self::Frozen { snapshot, is_stored: true } if snapshot.len() > MAX_KEPT_SNAPSHOT_BYTES)
    }
}

/// How many times reading a snapshot from the store is tried, and the pause between two attempts.
const READ_ATTEMPTS: usize = 10;
const READ_PAUSE: Duration = Duration::from_millis(500);

/// A leg or a freeze in progress. It owns the cell's location, and returns the new location and the event that the
/// driver passes to the state machine.
pub(super) type CellOperation = Pin<Box<dyn Future<Output = (CellLocation, Event)> + Send>>;

/// Delivers replies to the cell, which runs its next leg. A frozen cell is thawed first.
pub(super) fn deliver(location: CellLocation, pool: Pool, tables: CatalogTables, deliver: Deliver) -> CellOperation {
    match location {
        CellLocation::Live(mut lease) => Box::pin(async move {
            let leg = lease.deliver(deliver.budget, deliver.replies).await;
            after_leg(leg.map(|leg| (lease, leg)))
        }),
        CellLocation::Frozen { snapshot, .. } => Box::pin(thaw(pool, tables, snapshot, deliver)),
        CellLocation::Stored(journal) => Box::pin(async move {
            match read_snapshot(&journal).await {
                Ok(snapshot) => thaw(pool, tables, snapshot, deliver).await,
                Err(failure) => (CellLocation::None, Event::Lost(failure)),
            }
        }),
        CellLocation::None => Box::pin(async { (CellLocation::None, Event::Lost(no_location())) }),
    }
}

/// Freezes the cell into a snapshot of at most `max_bytes`.
pub(super) fn freeze(location: CellLocation, max_bytes: u64) -> CellOperation {
    match location {
        CellLocation::Live(lease) => Box::pin(async move {
            match lease.freeze(max_bytes).await {
                Ok(snapshot) => {
                    if let Err(error) = fault::point("suspend.after_freeze") {
                        return (CellLocation::None, Event::Lost(injected_failure(&error)));
                    }
                    let bytes = snapshot.len() as u64;
                    (CellLocation::Frozen { snapshot, is_stored: false }, Event::Froze { bytes })
                }
                Err(FreezeError::Refused(failure)) => (CellLocation::None, Event::Lost(failure)),
                Err(FreezeError::Pool(error)) => (CellLocation::None, Event::Lost(error.failure())),
            }
        }),
        CellLocation::Frozen { .. } | CellLocation::Stored(_) | CellLocation::None => {
            Box::pin(async { (CellLocation::None, Event::Lost(no_location())) })
        }
    }
}

async fn thaw(pool: Pool, tables: CatalogTables, snapshot: Vec<u8>, deliver: Deliver) -> (CellLocation, Event) {
    if let Err(error) = fault::point("wait.before_deliver") {
        return (CellLocation::None, Event::Lost(injected_failure(&error)));
    }
    after_leg(pool.thaw_cell(&tables, snapshot, deliver).await)
}

/// Reads the snapshot from the store. A store that is unavailable for a moment does not end the run.
async fn read_snapshot(journal: &Journal) -> Result<Vec<u8>, Failure> {
    let mut attempts = 1;
    loop {
        match journal.snapshot().await {
            Ok(Some(snapshot)) => return Ok(snapshot),
            Ok(None) => return Err(no_location()),
            Err(CommitError::Store(error)) if attempts < READ_ATTEMPTS => {
                tracing::warn!(%error, "cannot read a snapshot; trying again");
                attempts += 1;
                tokio::time::sleep(READ_PAUSE).await;
            }
            Err(error) => {
                let incident = IncidentId::log("read a snapshot", &error);
                let message = format!(
                    "the state of the cell could not be read (incident {incident}), so the cell cannot continue; check \
                     whether its calls took effect before you run it again"
                );
                return Err(failure(ErrorCode::InternalError, message));
            }
        }
    }
}

/// Runs the first leg of a new cell.
pub(super) fn start(pool: Pool, tables: CatalogTables, start: Start) -> CellOperation {
    Box::pin(async move {
        let (leg, point) = tokio::join!(pool.start_cell(&tables, start), async { fault::point("exec.guest_running") });
        match point {
            Ok(()) => after_leg(leg),
            Err(error) => (CellLocation::None, Event::Lost(injected_failure(&error))),
        }
    })
}

/// Waits for the leg or freeze in progress. Never returns if there is none.
pub(super) async fn wait_for(operation: &mut Option<CellOperation>) -> (CellLocation, Event) {
    match operation {
        Some(operation) => operation.await,
        None => std::future::pending().await,
    }
}

/// Returns the location and event after a leg.
fn after_leg(leg: Result<(Lease, Leg), PoolError>) -> (CellLocation, Event) {
    match leg {
        Ok((lease, leg)) => match fault::point("leg.ended") {
            Ok(()) => (CellLocation::Live(lease), Event::LegEnded(leg)),
            Err(error) => (CellLocation::None, Event::Lost(injected_failure(&error))),
        },
        Err(error) => (CellLocation::None, Event::Lost(error.failure())),
    }
}

fn injected_failure(error: &InjectedFault) -> Failure {
    failure(ErrorCode::InternalError, error.to_string())
}

fn no_location() -> Failure {
    failure(ErrorCode::InternalError, "internal error: the cell has neither a worker nor a snapshot")
}

#[cfg(test)]
mod tests {
    use contract::limits::MAX_KEPT_SNAPSHOT_BYTES;

    use super::CellLocation;

    #[test]
    fn only_large_stored_snapshots_are_dropped() {
        let is_dropped =
            |bytes, is_stored| CellLocation::Frozen { snapshot: vec![0; bytes], is_stored }.is_large_and_stored();
        assert!(is_dropped(MAX_KEPT_SNAPSHOT_BYTES + 1, true));
        assert!(!is_dropped(MAX_KEPT_SNAPSHOT_BYTES, true));
        assert!(!is_dropped(MAX_KEPT_SNAPSHOT_BYTES + 1, false), "the store does not have it");
    }
}
