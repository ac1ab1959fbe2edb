//! A cell's place in a worker. Dropped, it takes the cell with it.

use std::sync::Arc;
use std::time::Duration;

use contract::frame::{Budget, Deliver, Failure, FromWorker, Leg, LegEnd, Reply, ToWorker};
use contract::ids::CellId;
use contract::json;
use contract::limits::{MAX_BRIDGE_VALUE_BYTES, MAX_BRIDGE_VALUE_DEPTH, MAX_OUTSTANDING_CALLS};
use contract::tables::CatalogTables;

use super::admission::{Principal, Request};
use super::gate::{Gate, NoTurn, Turn};
use super::worker::Worker;
use super::{PoolError, ROOM_WAIT};

/// How much longer than its budget a leg may take before the worker itself is given up. The worker
/// stops a cell at its deadline; this is for the worker that does not.
const GRACE: Duration = Duration::from_millis(1000);

/// How long a freeze may take: memory is read, compared and compressed, the largest in seconds.
const FREEZE_WAIT: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct Lease {
    worker: Arc<Worker>,
    cell: CellId,
    principal: Principal,
    gate: Arc<Gate>,
    /// Whether the worker has, or may have, the cell.
    occupied: bool,
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum FreezeError {
    #[error("{}", .0.message)]
    Refused(Failure),
    #[error(transparent)]
    Pool(#[from] PoolError),
}

impl Lease {
    pub(super) fn new(worker: Arc<Worker>, cell: CellId, principal: Principal, gate: Arc<Gate>) -> Self {
        Self { worker, cell, principal, gate, occupied: false }
    }

    /// Runs the first leg of a cell that was started or thawed.
    pub(super) async fn first_leg(
        &mut self,
        turn: Turn,
        tables: &CatalogTables,
        frame: &ToWorker,
        budget: Budget,
    ) -> Result<Leg, PoolError> {
        self.leg(turn, budget, Some(tables), frame).await
    }

    /// Runs the cell's next leg.
    pub async fn deliver(&mut self, budget: Budget, replies: Vec<Reply>) -> Result<Leg, PoolError> {
        let frame = ToWorker::Deliver(self.cell, Deliver { budget, replies });
        let turn = self.turn(Request::Resume { worker: self.worker.id() }).await?;
        self.leg(turn, budget, None, &frame).await
    }

    /// Turns the resting cell into bytes; its place is free afterwards.
    pub async fn freeze(mut self, max_bytes: u64) -> Result<Vec<u8>, FreezeError> {
        let frame = ToWorker::Freeze { cell: self.cell, max_bytes };
        let turn = self.turn(Request::Freeze { worker: self.worker.id() }).await?;
        let answer = self.ask(turn, None, &frame, FREEZE_WAIT).await?;
        self.occupied = false;
        match answer {
            FromWorker::Frozen { snapshot, .. } if snapshot.len() as u64 <= max_bytes => Ok(snapshot),
            FromWorker::NotFrozen { failure, .. } => Err(FreezeError::Refused(failure)),
            _ => Err(self.broke_protocol("it answered a freeze with something else").into()),
        }
    }

    async fn leg(
        &mut self,
        turn: Turn,
        budget: Budget,
        tables: Option<&CatalogTables>,
        frame: &ToWorker,
    ) -> Result<Leg, PoolError> {
        let wait = Duration::from_millis(budget.run_ms) + GRACE;
        match self.ask(turn, tables, frame, wait).await? {
            FromWorker::Leg(_, leg) => {
                if let Err(what) = within_bounds(&leg, budget) {
                    return Err(self.broke_protocol(what));
                }
                self.occupied = matches!(leg.end, LegEnd::Suspended { .. });
                Ok(leg)
            }
            _ => Err(self.broke_protocol("it answered a leg with something else")),
        }
    }

    /// Waits until the cell may use its worker. That time is not part of the cell's budget.
    async fn turn(&mut self, request: Request) -> Result<Turn, PoolError> {
        store::fault::turn().await;
        match self.gate.enter(&self.principal, self.cell, request, 0, ROOM_WAIT).await {
            Ok((turn, _)) => Ok(turn),
            Err(NoTurn::WorkerEnded | NoTurn::QueueFull | NoTurn::NoRoom) => Err(self.died()),
        }
    }

    async fn ask(
        &mut self,
        turn: Turn,
        tables: Option<&CatalogTables>,
        frame: &ToWorker,
        wait: Duration,
    ) -> Result<FromWorker, PoolError> {
        let worker = Arc::clone(&self.worker);
        self.occupied = true;
        let told = worker.ask(self.cell, turn, tables, frame).await;
        match tokio::time::timeout(wait, told).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(self.died()),
            Err(_) => {
                worker.condemn(format!("it did not answer within {} ms", wait.as_millis()));
                Err(self.died())
            }
        }
    }

    fn died(&mut self) -> PoolError {
        self.occupied = false;
        PoolError::WorkerDied(self.worker.why_it_ended())
    }

    fn broke_protocol(&mut self, what: &str) -> PoolError {
        self.worker.condemn(format!("it broke the protocol: {what}"));
        self.died()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let (gate, worker, cell) = (Arc::clone(&self.gate), Arc::clone(&self.worker), self.cell);
        let runtime = tokio::runtime::Handle::try_current().ok().filter(|_| self.occupied);
        let Some(runtime) = runtime else { return gate.drop_cell(worker.id(), cell) };
        runtime.spawn(async move {
            worker.send(&ToWorker::Drop(cell)).await;
            // The slot is free once the worker knows: what is sent next comes behind it.
            gate.drop_cell(worker.id(), cell);
        });
    }
}

/// What a worker must have seen to already, seen to again.
fn within_bounds(leg: &Leg, budget: Budget) -> Result<(), &'static str> {
    let shown: usize = leg.output.iter().map(contract::cell::OutputItem::bytes).sum();
    if shown as u64 > budget.output_bytes {
        return Err("more output than was allowed");
    }
    let LegEnd::Suspended { calls, cleared } = &leg.end else { return Ok(()) };
    if calls.len() > MAX_OUTSTANDING_CALLS || cleared.len() > MAX_OUTSTANDING_CALLS {
        return Err("more calls than a cell may have");
    }
    if !calls.is_sorted_by_key(|call| call.id) {
        return Err("calls out of order");
    }
    let too_large = calls.iter().any(|call| {
        call.payload.len() > MAX_BRIDGE_VALUE_BYTES
            || call.target.len() > MAX_BRIDGE_VALUE_BYTES
            || json::depth(&call.payload) > MAX_BRIDGE_VALUE_DEPTH
    });
    if too_large { Err("a call larger than one may be") } else { Ok(()) }
}
