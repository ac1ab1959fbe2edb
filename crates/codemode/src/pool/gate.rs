//! Makes legs wait for their turn: [`Admission`] decides, and the gate passes its grants to the waiting tasks.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use contract::ids::CellId;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

use super::admission::{Admission, AdmissionRequest, Capacity, Grant, Principal, QueueFull, WorkerId};

/// Grants turns in workers. `W` is the worker that a turn is granted in.
#[derive(Debug)]
pub(super) struct Gate<W> {
    state: Mutex<GateState<W>>,
}

#[derive(Debug)]
struct GateState<W> {
    admission: Admission,
    workers: HashMap<WorkerId, Weak<W>>,
    waiting: HashMap<CellId, oneshot::Sender<GrantedTurn<W>>>,
}

/// A turn and its worker.
type GrantedTurn<W> = (WorkerTurn<W>, Arc<W>);

/// Why there was no turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnError {
    QueueFull,
    /// All slots are in use, or resting cells hold the memory.
    NoRoom,
    /// The cell's worker ended.
    WorkerEnded,
}

/// The right to run a cell in a worker. If it is dropped before it has ended, it is returned as unused.
#[derive(Debug)]
pub(super) struct WorkerTurn<W> {
    gate: Arc<Gate<W>>,
    worker: WorkerId,
    cell: CellId,
    ended: bool,
}

impl<W> Gate<W> {
    pub(super) fn new(capacity: Capacity) -> Arc<Self> {
        let admission = Admission::new(capacity);
        Arc::new(Self { state: Mutex::new(GateState { admission, workers: HashMap::new(), waiting: HashMap::new() }) })
    }

    pub(super) fn worker_up(self: &Arc<Self>, id: WorkerId, worker: &Arc<W>) {
        self.change(|state| {
            state.workers.insert(id, Arc::downgrade(worker));
            state.admission.worker_up(id)
        });
    }

    /// Removes a worker. Requests of cells that rest in it fail.
    pub(super) fn worker_down(self: &Arc<Self>, worker: WorkerId) {
        self.change(|state| {
            state.workers.remove(&worker);
            let grants = state.admission.worker_down(worker);
            let GateState { admission, waiting, .. } = state;
            waiting.retain(|cell, _| admission.is_waiting(*cell) || grants.iter().any(|grant| grant.cell == *cell));
            grants
        });
    }

    /// Waits for a turn. For a new or frozen cell, this fails if slots or memory are still full after `room_wait`.
    /// Waiting for the legs of other cells to end has no time limit.
    pub(super) async fn enter(
        self: &Arc<Self>,
        principal: &Principal,
        cell: CellId,
        request: AdmissionRequest,
        source_bytes: usize,
        room_wait: Duration,
    ) -> Result<GrantedTurn<W>, TurnError> {
        let mut granted = match self.request(principal, cell, request, source_bytes)? {
            TurnRequest::Granted(granted) => return Ok(granted),
            TurnRequest::Waits(granted) => granted,
        };
        let _queued = QueuedRequest { gate: self, cell };
        loop {
            match tokio::time::timeout(room_wait, &mut granted).await {
                Ok(granted) => return granted.map_err(|_| TurnError::WorkerEnded),
                Err(_) if self.lacks_room(principal, request) => return Err(TurnError::NoRoom),
                Err(_) => {}
            }
        }
    }

    /// Frees the slot of a cell that is no longer needed.
    pub(super) fn drop_cell(self: &Arc<Self>, worker: WorkerId, cell: CellId) {
        self.change(|state| state.admission.drop_cell(worker, cell));
    }

    fn request(
        self: &Arc<Self>,
        principal: &Principal,
        cell: CellId,
        request: AdmissionRequest,
        source_bytes: usize,
    ) -> Result<TurnRequest<W>, TurnError> {
        let mut state = self.state();
        if let AdmissionRequest::Resume { worker } | AdmissionRequest::Freeze { worker } = request
            && !state.workers.contains_key(&worker)
        {
            return Err(TurnError::WorkerEnded);
        }
        let grants = state.admission.request(principal, cell, request, source_bytes);
        let grants = grants.map_err(|QueueFull| TurnError::QueueFull)?;
        let (own, others): (Vec<_>, Vec<_>) = grants.into_iter().partition(|grant| grant.cell == cell);
        let own = own.first().and_then(|grant| self.granted(&state, *grant));
        let requested = match own {
            Some(granted) => TurnRequest::Granted(granted),
            None => {
                let (sender, granted) = oneshot::channel();
                state.waiting.insert(cell, sender);
                TurnRequest::Waits(granted)
            }
        };
        let unwanted = self.hand_out(&mut state, others);
        drop(state);
        drop(unwanted);
        Ok(requested)
    }

    fn lacks_room(&self, principal: &Principal, request: AdmissionRequest) -> bool {
        match request {
            AdmissionRequest::Start { limit } | AdmissionRequest::Thaw { limit } => {
                self.state().admission.lacks_room(principal, limit)
            }
            AdmissionRequest::Resume { .. } | AdmissionRequest::Freeze { .. } => false,
        }
    }

    fn change(self: &Arc<Self>, change: impl FnOnce(&mut GateState<W>) -> Vec<Grant>) {
        let mut state = self.state();
        let grants = change(&mut state);
        let unwanted = self.hand_out(&mut state, grants);
        drop(state);
        // Dropping a turn calls this function again, so the state must not be locked.
        drop(unwanted);
    }

    /// Sends grants to the tasks that wait for them, and returns those whose task is gone.
    fn hand_out(self: &Arc<Self>, state: &mut GateState<W>, grants: Vec<Grant>) -> Vec<GrantedTurn<W>> {
        let mut unwanted = Vec::new();
        for grant in grants {
            let Some(granted) = self.granted(state, grant) else { continue };
            match state.waiting.remove(&grant.cell) {
                Some(sender) => unwanted.extend(sender.send(granted).err()),
                None => unwanted.push(granted),
            }
        }
        unwanted
    }

    fn granted(self: &Arc<Self>, state: &GateState<W>, Grant { cell, worker: id }: Grant) -> Option<GrantedTurn<W>> {
        // If the worker is gone, its requests fail as soon as it is removed.
        let worker = state.workers.get(&id)?.upgrade()?;
        Some((WorkerTurn { gate: Arc::clone(self), worker: id, cell, ended: false }, worker))
    }

    /// Locks the state. The guard is never held across an await.
    fn state(&self) -> MutexGuard<'_, GateState<W>> {
        self.state.lock()
    }
}

enum TurnRequest<W> {
    Granted(GrantedTurn<W>),
    Waits(oneshot::Receiver<GrantedTurn<W>>),
}

/// A request in the queue. Dropping it withdraws the request.
struct QueuedRequest<'a, W> {
    gate: &'a Arc<Gate<W>>,
    cell: CellId,
}

impl<W> Drop for QueuedRequest<'_, W> {
    fn drop(&mut self) {
        let mut state = self.gate.state();
        // If it was granted in the meantime, the turn is dropped with the receiver.
        if state.waiting.remove(&self.cell).is_some() {
            state.admission.cancel(self.cell);
        }
    }
}

impl<W> WorkerTurn<W> {
    /// Ends the turn after the worker has answered. The cell rests with this much memory; `None` if it is gone.
    pub(super) fn end(mut self, rests_with: Option<u64>) {
        self.ended = true;
        let (worker, cell) = (self.worker, self.cell);
        self.gate.change(|state| state.admission.turn_ended(worker, cell, rests_with));
    }
}

impl<W> Drop for WorkerTurn<W> {
    fn drop(&mut self) {
        if !self.ended {
            let (worker, cell) = (self.worker, self.cell);
            self.gate.change(|state| state.admission.turn_unused(worker, cell));
        }
    }
}
