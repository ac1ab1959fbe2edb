//! The location of a cell between its legs, in a worker or in a snapshot, and the operations that move it: start,
//! deliver and freeze.

use std::pin::Pin;

use contract::error::ErrorCode;
use contract::frame::{Deliver, Failure, Leg, Start};
use contract::tables::CatalogTables;
use fault::InjectedFault;

use crate::cell::Event;
use crate::failure::failure;
use crate::pool::{FreezeError, Lease, Pool, PoolError};

pub(super) enum CellLocation {
    /// The cell has not started, is lost, or its location is owned by the [`Work`] in progress.
    None,
    /// In a worker.
    Live(Lease),
    /// In a snapshot; no worker has the cell.
    Frozen {
        snapshot: Vec<u8>,
        /// Whether the snapshot is stored.
        saved: bool,
    },
}

/// A leg or a freeze in progress. It owns the cell's location, and returns the new location and an event for the cell.
pub(super) type Work = Pin<Box<dyn Future<Output = (CellLocation, Event)> + Send>>;

/// Runs the cell's next leg, after thawing the cell if it is frozen.
pub(super) fn deliver(location: CellLocation, pool: Pool, tables: CatalogTables, deliver: Deliver) -> Work {
    match location {
        CellLocation::Live(mut lease) => Box::pin(async move {
            let leg = lease.deliver(deliver.budget, deliver.replies).await;
            after_leg(leg.map(|leg| (lease, leg)))
        }),
        CellLocation::Frozen { snapshot, .. } => Box::pin(async move {
            if let Err(error) = fault::point("wait.before_deliver") {
                return (CellLocation::None, Event::Lost(injected_failure(&error)));
            }
            after_leg(pool.thaw_cell(&tables, snapshot, deliver).await)
        }),
        CellLocation::None => Box::pin(async { (CellLocation::None, Event::Lost(no_location())) }),
    }
}

/// Freezes the cell into a snapshot of at most `max_bytes`.
pub(super) fn freeze(location: CellLocation, max_bytes: u64) -> Work {
    match location {
        CellLocation::Live(lease) => Box::pin(async move {
            match lease.freeze(max_bytes).await {
                Ok(snapshot) => {
                    if let Err(error) = fault::point("suspend.after_freeze") {
                        return (CellLocation::None, Event::Lost(injected_failure(&error)));
                    }
                    let bytes = snapshot.len() as u64;
                    (CellLocation::Frozen { snapshot, saved: false }, Event::Froze { bytes })
                }
                Err(FreezeError::Refused(failure)) => (CellLocation::None, Event::Lost(failure)),
                Err(FreezeError::Pool(error)) => (CellLocation::None, Event::Lost(error.failure())),
            }
        }),
        CellLocation::Frozen { .. } | CellLocation::None => {
            Box::pin(async { (CellLocation::None, Event::Lost(no_location())) })
        }
    }
}

/// Runs the first leg of a new cell.
pub(super) fn start(pool: Pool, tables: CatalogTables, start: Start) -> Work {
    Box::pin(async move {
        let (leg, point) = tokio::join!(pool.start_cell(&tables, start), async { fault::point("exec.guest_running") });
        match point {
            Ok(()) => after_leg(leg),
            Err(error) => (CellLocation::None, Event::Lost(injected_failure(&error))),
        }
    })
}

/// Waits for the leg or freeze in progress. Never returns if there is none.
pub(super) async fn wait_for(work: &mut Option<Work>) -> (CellLocation, Event) {
    match work {
        Some(work) => work.await,
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
