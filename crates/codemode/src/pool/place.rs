//! The place that a cell has in a worker. Dropping it drops the cell.

use std::sync::Arc;

use contract::frame::ToWorker;
use contract::ids::CellId;

use super::gate::Gate;
use super::worker::Worker;

/// A cell's place in a worker, from the moment that its first frame is sent.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) worker: Arc<Worker>,
    pub(super) cell: CellId,
    pub(super) gate: Arc<Gate<Worker>>,
    /// Whether the worker has, or may have, the cell.
    pub(super) occupied: bool,
}

impl Drop for Place {
    fn drop(&mut self) {
        let (gate, worker, cell) = (Arc::clone(&self.gate), Arc::clone(&self.worker), self.cell);
        let runtime = tokio::runtime::Handle::try_current().ok().filter(|_| self.occupied);
        let Some(runtime) = runtime else { return gate.drop_cell(worker.id(), cell) };
        runtime.spawn(async move {
            worker.send(&ToWorker::Drop(cell)).await;
            // The slot is free once this frame is sent: frames for the next cell come after it.
            gate.drop_cell(worker.id(), cell);
        });
    }
}
