//! The location of a cell between its legs: in a worker, in a snapshot, or lost.

use std::pin::Pin;

use contract::error::ErrorCode;
use contract::frame::{Budget, Deliver, Failure, Leg, Reply, Start};
use contract::tables::CatalogTables;
use fault::InjectedFault;

use super::Driver;
use crate::cell::Event;
use crate::pool::{FreezeError, Lease, Pool, PoolError};

pub(super) enum CellLocation {
    None,
    Live(Lease),
    Frozen { snapshot: Vec<u8>, saved: bool },
}

/// A leg or a freeze in progress. It owns the cell's location and returns the new one.
pub(super) type Work = Pin<Box<dyn Future<Output = (CellLocation, Event)> + Send>>;

impl Driver {
    pub(super) fn deliver(&mut self, budget: Budget, replies: Vec<Reply>) -> Work {
        match std::mem::replace(&mut self.location, CellLocation::None) {
            CellLocation::Live(mut lease) => Box::pin(async move {
                let leg = lease.deliver(budget, replies).await;
                ran(leg.map(|leg| (lease, leg)))
            }),
            CellLocation::Frozen { snapshot, .. } => {
                let (pool, tables) = (self.run.pool.clone(), self.run.tables.clone());
                let deliver = Deliver { budget, replies };
                Box::pin(async move {
                    if let Err(error) = fault::point("wait.before_deliver") {
                        return (CellLocation::None, Event::Lost(broken(&error)));
                    }
                    ran(pool.thaw_cell(&tables, snapshot, deliver).await)
                })
            }
            CellLocation::None => Box::pin(async { (CellLocation::None, Event::Lost(no_location())) }),
        }
    }

    pub(super) fn freeze(&mut self) -> Work {
        let max_bytes = self.run.definition.limits.snapshot_bytes;
        match std::mem::replace(&mut self.location, CellLocation::None) {
            CellLocation::Live(lease) => Box::pin(async move {
                match lease.freeze(max_bytes).await {
                    Ok(snapshot) => {
                        if let Err(error) = fault::point("suspend.after_freeze") {
                            return (CellLocation::None, Event::Lost(broken(&error)));
                        }
                        let bytes = snapshot.len() as u64;
                        (CellLocation::Frozen { snapshot, saved: false }, Event::Froze { bytes })
                    }
                    Err(FreezeError::Refused(failure)) => (CellLocation::None, Event::Lost(failure)),
                    Err(FreezeError::Pool(error)) => (CellLocation::None, Event::Lost(pool_failure(&error))),
                }
            }),
            CellLocation::Frozen { .. } | CellLocation::None => {
                Box::pin(async { (CellLocation::None, Event::Lost(no_location())) })
            }
        }
    }
}

pub(super) fn start(pool: Pool, tables: CatalogTables, start: Start) -> Work {
    Box::pin(async move {
        let (leg, point) = tokio::join!(pool.start_cell(&tables, start), async { fault::point("exec.guest_running") });
        match point {
            Ok(()) => ran(leg),
            Err(error) => (CellLocation::None, Event::Lost(broken(&error))),
        }
    })
}

pub(super) async fn work(work: &mut Option<Work>) -> (CellLocation, Event) {
    match work {
        Some(work) => work.await,
        None => std::future::pending().await,
    }
}

fn ran(leg: Result<(Lease, Leg), PoolError>) -> (CellLocation, Event) {
    match leg {
        Ok((lease, leg)) => match fault::point("leg.ended") {
            Ok(()) => (CellLocation::Live(lease), Event::LegEnded(leg)),
            Err(error) => (CellLocation::None, Event::Lost(broken(&error))),
        },
        Err(error) => (CellLocation::None, Event::Lost(pool_failure(&error))),
    }
}

pub(super) fn pool_failure(error: &PoolError) -> Failure {
    let code = match error {
        PoolError::Unavailable(_) | PoolError::Full | PoolError::QueueFull => ErrorCode::RuntimeUnavailable,
        PoolError::WorkerDied(_) => ErrorCode::InternalError,
    };
    Failure { code: Some(code), message: error.to_string(), place: None }
}

fn broken(error: &InjectedFault) -> Failure {
    Failure { code: Some(ErrorCode::InternalError), message: error.to_string(), place: None }
}

fn no_location() -> Failure {
    Failure {
        code: Some(ErrorCode::InternalError),
        message: "internal error: the cell has neither a worker nor a snapshot".to_owned(),
        place: None,
    }
}
