//! Where a cell is between its legs, and how it gets from one place to another.

use std::pin::Pin;

use contract::error::ErrorCode;
use contract::frame::{Budget, Deliver, Failure, Leg, Reply, Start};
use contract::tables::CatalogTables;
use store::{StoreError, fault};

use super::Driver;
use crate::cell::Event;
use crate::pool::{FreezeError, Lease, Pool, PoolError};

pub(super) enum Whereabouts {
    Nowhere,
    Live(Lease),
    Frozen { snapshot: Vec<u8>, saved: bool },
}

/// A leg or a freeze under way, with the cell's place moved into it.
pub(super) type Work = Pin<Box<dyn Future<Output = (Whereabouts, Event)> + Send>>;

impl Driver {
    pub(super) fn deliver(&mut self, budget: Budget, replies: Vec<Reply>) -> Work {
        match std::mem::replace(&mut self.whereabouts, Whereabouts::Nowhere) {
            Whereabouts::Live(mut lease) => Box::pin(async move {
                let leg = lease.deliver(budget, replies).await;
                ran(leg.map(|leg| (lease, leg)))
            }),
            Whereabouts::Frozen { snapshot, .. } => {
                let (pool, tables) = (self.run.pool.clone(), self.run.tables.clone());
                let deliver = Deliver { budget, replies };
                Box::pin(async move {
                    if let Err(error) = fault::point("wait.before_deliver") {
                        return (Whereabouts::Nowhere, Event::Lost(broken(&error)));
                    }
                    ran(pool.thaw_cell(&tables, snapshot, deliver).await)
                })
            }
            Whereabouts::Nowhere => Box::pin(async { (Whereabouts::Nowhere, Event::Lost(nowhere())) }),
        }
    }

    pub(super) fn freeze(&mut self) -> Work {
        let max_bytes = self.run.definition.limits.snapshot_bytes;
        match std::mem::replace(&mut self.whereabouts, Whereabouts::Nowhere) {
            Whereabouts::Live(lease) => Box::pin(async move {
                match lease.freeze(max_bytes).await {
                    Ok(snapshot) => {
                        if let Err(error) = fault::point("suspend.after_freeze") {
                            return (Whereabouts::Nowhere, Event::Lost(broken(&error)));
                        }
                        let bytes = snapshot.len() as u64;
                        (Whereabouts::Frozen { snapshot, saved: false }, Event::Froze { bytes })
                    }
                    Err(FreezeError::Refused(failure)) => (Whereabouts::Nowhere, Event::Lost(failure)),
                    Err(FreezeError::Pool(error)) => (Whereabouts::Nowhere, Event::Lost(pool_failure(&error))),
                }
            }),
            Whereabouts::Frozen { .. } | Whereabouts::Nowhere => {
                Box::pin(async { (Whereabouts::Nowhere, Event::Lost(nowhere())) })
            }
        }
    }
}

pub(super) fn start(pool: Pool, tables: CatalogTables, start: Start) -> Work {
    Box::pin(async move {
        let (leg, point) = tokio::join!(pool.start_cell(&tables, start), async { fault::point("exec.guest_running") });
        match point {
            Ok(()) => ran(leg),
            Err(error) => (Whereabouts::Nowhere, Event::Lost(broken(&error))),
        }
    })
}

pub(super) async fn work(work: &mut Option<Work>) -> (Whereabouts, Event) {
    match work {
        Some(work) => work.await,
        None => std::future::pending().await,
    }
}

fn ran(leg: Result<(Lease, Leg), PoolError>) -> (Whereabouts, Event) {
    match leg {
        Ok((lease, leg)) => match fault::point("leg.ended") {
            Ok(()) => (Whereabouts::Live(lease), Event::LegEnded(leg)),
            Err(error) => (Whereabouts::Nowhere, Event::Lost(broken(&error))),
        },
        Err(error) => (Whereabouts::Nowhere, Event::Lost(pool_failure(&error))),
    }
}

pub(super) fn pool_failure(error: &PoolError) -> Failure {
    let code = match error {
        PoolError::Unavailable(_) | PoolError::Full | PoolError::QueueFull => ErrorCode::RuntimeUnavailable,
        PoolError::WorkerDied(_) => ErrorCode::InternalError,
    };
    Failure { code: Some(code), message: error.to_string(), place: None }
}

fn broken(error: &StoreError) -> Failure {
    Failure { code: Some(ErrorCode::InternalError), message: error.to_string(), place: None }
}

fn nowhere() -> Failure {
    Failure {
        code: Some(ErrorCode::InternalError),
        message: "the cell was to go on but is nowhere".to_owned(),
        place: None,
    }
}
