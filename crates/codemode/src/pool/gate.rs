//! Where legs wait for their turn: [`Admission`] decides, this hands its grants to the tasks that wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use contract::ids::CellId;
use tokio::sync::oneshot;

use super::admission::{Admission, Capacity, Grant, Principal, QueueFull, Request, WorkerId};
use super::worker::Worker;

#[derive(Debug)]
pub(super) struct Gate {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    admission: Admission,
    workers: HashMap<WorkerId, Weak<Worker>>,
    waiting: HashMap<CellId, oneshot::Sender<Granted>>,
}

/// A turn, and the worker that it is a turn of.
type Granted = (Turn, Arc<Worker>);

/// Why there was no turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoTurn {
    QueueFull,
    /// All slots are taken, or resting cells hold the memory.
    NoRoom,
    /// The cell's worker ended.
    WorkerEnded,
}

/// A turn of a worker. Dropped before it has ended, it is given back as if it had not been granted.
#[derive(Debug)]
pub(super) struct Turn {
    gate: Arc<Gate>,
    worker: WorkerId,
    cell: CellId,
    ended: bool,
}

impl Gate {
    pub(super) fn new(capacity: Capacity) -> Arc<Self> {
        let admission = Admission::new(capacity);
        Arc::new(Self { state: Mutex::new(State { admission, workers: HashMap::new(), waiting: HashMap::new() }) })
    }

    pub(super) fn worker_up(self: &Arc<Self>, worker: &Arc<Worker>) {
        self.change(|state| {
            state.workers.insert(worker.id(), Arc::downgrade(worker));
            state.admission.worker_up(worker.id())
        });
    }

    /// Requests of cells that rest in the worker fail.
    pub(super) fn worker_down(self: &Arc<Self>, worker: WorkerId) {
        self.change(|state| {
            state.workers.remove(&worker);
            let grants = state.admission.worker_down(worker);
            let State { admission, waiting, .. } = state;
            waiting.retain(|cell, _| admission.is_waiting(*cell) || grants.iter().any(|grant| grant.cell == *cell));
            grants
        });
    }

    /// Waits for a turn. Where any worker would do, this fails if slots or memory are still full after `room_wait`;
    /// waiting for the legs of other cells to end takes as long as it takes.
    pub(super) async fn enter(
        self: &Arc<Self>,
        principal: &Principal,
        cell: CellId,
        request: Request,
        source_bytes: usize,
        room_wait: Duration,
    ) -> Result<Granted, NoTurn> {
        let mut granted = match self.request(principal, cell, request, source_bytes)? {
            Requested::Granted(granted) => return Ok(granted),
            Requested::Waits(granted) => granted,
        };
        let _place = Place { gate: self, cell };
        loop {
            match tokio::time::timeout(room_wait, &mut granted).await {
                Ok(granted) => return granted.map_err(|_| NoTurn::WorkerEnded),
                Err(_) if self.lacks_room(principal, request) => return Err(NoTurn::NoRoom),
                Err(_) => {}
            }
        }
    }

    /// The cell is not wanted any more.
    pub(super) fn drop_cell(self: &Arc<Self>, worker: WorkerId, cell: CellId) {
        self.change(|state| state.admission.drop_cell(worker, cell));
    }

    fn request(
        self: &Arc<Self>,
        principal: &Principal,
        cell: CellId,
        request: Request,
        source_bytes: usize,
    ) -> Result<Requested, NoTurn> {
        let mut state = self.state();
        if let Request::Resume { worker } | Request::Freeze { worker } = request
            && !state.workers.contains_key(&worker)
        {
            return Err(NoTurn::WorkerEnded);
        }
        let grants = state.admission.request(principal, cell, request, source_bytes);
        let grants = grants.map_err(|QueueFull| NoTurn::QueueFull)?;
        let (own, others): (Vec<_>, Vec<_>) = grants.into_iter().partition(|grant| grant.cell == cell);
        let own = own.first().and_then(|grant| self.granted(&state, *grant));
        let requested = match own {
            Some(granted) => Requested::Granted(granted),
            None => {
                let (tell, granted) = oneshot::channel();
                state.waiting.insert(cell, tell);
                Requested::Waits(granted)
            }
        };
        let unwanted = self.hand_out(&mut state, others);
        drop(state);
        drop(unwanted);
        Ok(requested)
    }

    fn lacks_room(&self, principal: &Principal, request: Request) -> bool {
        match request {
            Request::Start { limit } | Request::Thaw { limit } => self.state().admission.lacks_room(principal, limit),
            Request::Resume { .. } | Request::Freeze { .. } => false,
        }
    }

    fn change(self: &Arc<Self>, change: impl FnOnce(&mut State) -> Vec<Grant>) {
        let mut state = self.state();
        let grants = change(&mut state);
        let unwanted = self.hand_out(&mut state, grants);
        drop(state);
        // Dropped turns come back here, so not while the state is locked.
        drop(unwanted);
    }

    /// Sends grants to the tasks that wait for them, and returns those whose task is gone.
    fn hand_out(self: &Arc<Self>, state: &mut State, grants: Vec<Grant>) -> Vec<Granted> {
        let mut unwanted = Vec::new();
        for grant in grants {
            let Some(granted) = self.granted(state, grant) else { continue };
            match state.waiting.remove(&grant.cell) {
                Some(tell) => unwanted.extend(tell.send(granted).err()),
                None => unwanted.push(granted),
            }
        }
        unwanted
    }

    fn granted(self: &Arc<Self>, state: &State, Grant { cell, worker: id }: Grant) -> Option<Granted> {
        // A worker that is gone takes its cells along in a moment.
        let worker = state.workers.get(&id)?.upgrade()?;
        Some((Turn { gate: Arc::clone(self), worker: id, cell, ended: false }, worker))
    }

    /// Held for one decision, never across an await.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Requested {
    Granted(Granted),
    Waits(oneshot::Receiver<Granted>),
}

/// A request in the queue; dropped, it is withdrawn.
struct Place<'a> {
    gate: &'a Arc<Gate>,
    cell: CellId,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.gate.state();
        // Where it was granted meanwhile, the turn is dropped with the receiver.
        if state.waiting.remove(&self.cell).is_some() {
            state.admission.cancel(self.cell);
        }
    }
}

impl Turn {
    /// The worker has answered. The cell rests with this much memory, or is gone.
    pub(super) fn end(mut self, rests_with: Option<u64>) {
        self.ended = true;
        let (worker, cell) = (self.worker, self.cell);
        self.gate.change(|state| state.admission.turn_ended(worker, cell, rests_with));
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.ended {
            let (worker, cell) = (self.worker, self.cell);
            self.gate.change(|state| state.admission.turn_unused(worker, cell));
        }
    }
}
