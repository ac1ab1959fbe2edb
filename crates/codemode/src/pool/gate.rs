//! Makes legs wait for their turn: [`Admission`] decides, and the gate passes its grants to those who wait.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};

use contract::ids::CellId;
use parking_lot::{Mutex, MutexGuard};

use super::admission::{Admission, Capacity, Grant, Principal, QueueFull, Request, WorkerId};

/// Grants turns in workers. `W` is the worker that a turn is granted in.
#[derive(Debug)]
pub(super) struct Gate<W> {
    state: Mutex<State<W>>,
}

#[derive(Debug)]
struct State<W> {
    admission: Admission,
    workers: HashMap<WorkerId, Weak<W>>,
    waiting: HashMap<CellId, OnGrant<W>>,
}

/// A turn and its worker.
type Granted<W> = (Turn<W>, Arc<W>);

/// The use of a turn that is granted later. It is called by the task that made the grant possible, so it must not
/// block. It is dropped without a call if the request fails.
pub(super) struct OnGrant<W>(Box<dyn FnOnce(Turn<W>, Arc<W>) + Send>);

impl<W> OnGrant<W> {
    pub(super) fn new(call: impl FnOnce(Turn<W>, Arc<W>) + Send + 'static) -> Self {
        Self(Box::new(call))
    }
}

impl<W> fmt::Debug for OnGrant<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnGrant")
    }
}

/// Why there was no turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoTurn {
    QueueFull,
    /// All slots are in use, or resting cells hold the memory.
    NoRoom,
    /// The cell's worker ended.
    WorkerEnded,
}

/// The right to run a cell in a worker. If it is dropped before it has ended, it is returned as unused.
#[derive(Debug)]
pub(super) struct Turn<W> {
    gate: Arc<Gate<W>>,
    worker: WorkerId,
    cell: CellId,
    ended: bool,
}

impl<W> Gate<W> {
    pub(super) fn new(capacity: Capacity) -> Arc<Self> {
        let admission = Admission::new(capacity);
        Arc::new(Self { state: Mutex::new(State { admission, workers: HashMap::new(), waiting: HashMap::new() }) })
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
            let State { admission, waiting, .. } = state;
            waiting.retain(|cell, _| admission.is_waiting(*cell) || grants.iter().any(|grant| grant.cell == *cell));
            grants
        });
    }

    /// Requests a turn. It is used as soon as it is granted, which may be before this function returns.
    pub(super) fn request(
        self: &Arc<Self>,
        principal: &Principal,
        cell: CellId,
        request: Request,
        source_bytes: usize,
        on_grant: OnGrant<W>,
    ) -> Result<(), NoTurn> {
        let mut state = self.state();
        if let Request::Resume { worker } | Request::Freeze { worker } = request
            && !state.workers.contains_key(&worker)
        {
            return Err(NoTurn::WorkerEnded);
        }
        let grants = state.admission.request(principal, cell, request, source_bytes);
        let grants = grants.map_err(|QueueFull| NoTurn::QueueFull)?;
        state.waiting.insert(cell, on_grant);
        let granted = self.take_granted(&mut state, grants);
        drop(state);
        granted.hand_out();
        Ok(())
    }

    /// Withdraws a request. A turn that was granted in the meantime must be returned by its [`OnGrant`].
    pub(super) fn withdraw(&self, cell: CellId) {
        let mut state = self.state();
        if state.waiting.remove(&cell).is_some() {
            state.admission.cancel(cell);
        }
    }

    /// Returns whether the request of a new or frozen cell waits for slots or memory of resting cells, and not for legs
    /// to end.
    pub(super) fn lacks_room(&self, principal: &Principal, request: Request) -> bool {
        match request {
            Request::Start { limit } | Request::Thaw { limit } => self.state().admission.lacks_room(principal, limit),
            Request::Resume { .. } | Request::Freeze { .. } => false,
        }
    }

    /// Frees the slot of a cell that is no longer needed.
    pub(super) fn drop_cell(self: &Arc<Self>, worker: WorkerId, cell: CellId) {
        self.change(|state| state.admission.drop_cell(worker, cell));
    }

    fn change(self: &Arc<Self>, change: impl FnOnce(&mut State<W>) -> Vec<Grant>) {
        let mut state = self.state();
        let grants = change(&mut state);
        let granted = self.take_granted(&mut state, grants);
        drop(state);
        granted.hand_out();
    }

    /// Creates the turns of these grants. They must be handed out when the state is no longer locked: using a turn takes
    /// a system call, and dropping one locks the state.
    fn take_granted(self: &Arc<Self>, state: &mut State<W>, grants: Vec<Grant>) -> NewTurns<W> {
        let turns = grants.into_iter().filter_map(|grant| {
            let granted = self.granted(state, grant)?;
            Some((granted, state.waiting.remove(&grant.cell)))
        });
        NewTurns(turns.collect())
    }

    fn granted(self: &Arc<Self>, state: &State<W>, Grant { cell, worker: id }: Grant) -> Option<Granted<W>> {
        // If the worker is gone, its requests fail as soon as it is removed.
        let worker = state.workers.get(&id)?.upgrade()?;
        Some((Turn { gate: Arc::clone(self), worker: id, cell, ended: false }, worker))
    }

    /// Locks the state. The guard is never held across an await.
    fn state(&self) -> MutexGuard<'_, State<W>> {
        self.state.lock()
    }
}

/// Turns that were just granted, with their use.
struct NewTurns<W>(Vec<(Granted<W>, Option<OnGrant<W>>)>);

impl<W> NewTurns<W> {
    fn hand_out(self) {
        for ((turn, worker), on_grant) in self.0 {
            if let Some(OnGrant(call)) = on_grant {
                call(turn, worker);
            }
        }
    }
}

impl<W> Turn<W> {
    /// Ends the turn after the worker has answered. The cell rests with this much memory; `None` if it is gone.
    pub(super) fn end(mut self, rests_with: Option<u64>) {
        self.ended = true;
        let (worker, cell) = (self.worker, self.cell);
        self.gate.change(|state| state.admission.turn_ended(worker, cell, rests_with));
    }
}

impl<W> Drop for Turn<W> {
    fn drop(&mut self) {
        if !self.ended {
            let (worker, cell) = (self.worker, self.cell);
            self.gate.change(|state| state.admission.turn_unused(worker, cell));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use contract::ids::CellId;
    use parking_lot::Mutex;

    use super::{Gate, NoTurn, OnGrant, Turn};
    use crate::pool::admission::{Capacity, Principal, Request, WorkerId};

    const WORKER: WorkerId = WorkerId(1);

    /// A gate with one worker that has one turn, and the turns that were granted.
    struct Lab {
        gate: Arc<Gate<()>>,
        worker: Arc<()>,
        turns: Arc<Mutex<Vec<Turn<()>>>>,
    }

    impl Lab {
        fn new() -> Self {
            let lab = Self {
                gate: Gate::new(Capacity { workers: 1, slots: 8, turns: 1, heap_bytes: 320 }),
                worker: Arc::default(),
                turns: Arc::default(),
            };
            lab.gate.worker_up(WORKER, &lab.worker);
            lab
        }

        fn request(&self, cell: u64, request: Request) -> Result<(), NoTurn> {
            let (principal, turns): (Principal, _) = ("ada".into(), Arc::clone(&self.turns));
            let on_grant = OnGrant::new(move |turn, _| turns.lock().push(turn));
            self.gate.request(&principal, CellId(cell), request, 0, on_grant)
        }

        fn start(&self, cell: u64) -> Result<(), NoTurn> {
            self.request(cell, Request::Start { limit: 64 })
        }

        /// Takes the turns that were granted since the last call.
        fn granted(&self) -> Vec<Turn<()>> {
            std::mem::take(&mut *self.turns.lock())
        }
    }

    fn cells(turns: &[Turn<()>]) -> Vec<u64> {
        turns.iter().map(|turn| turn.cell.0).collect()
    }

    #[test]
    fn a_turn_that_ends_is_used_for_the_next_cell_at_once() {
        let lab = Lab::new();
        lab.start(1).unwrap();
        lab.start(2).unwrap();
        let turns = lab.granted();
        assert_eq!(cells(&turns), [1]);
        turns.into_iter().for_each(|turn| turn.end(None));
        assert_eq!(cells(&lab.granted()), [2]);
    }

    #[test]
    fn a_withdrawn_request_is_not_granted() {
        let lab = Lab::new();
        (1..=3).for_each(|cell| lab.start(cell).unwrap());
        lab.gate.withdraw(CellId(2));
        drop(lab.granted());
        assert_eq!(cells(&lab.granted()), [3]);
    }

    #[test]
    fn requests_of_cells_in_a_worker_that_ended_fail() {
        let lab = Lab::new();
        lab.start(1).unwrap();
        lab.granted().into_iter().for_each(|turn| turn.end(Some(8)));
        lab.start(2).unwrap();
        lab.request(1, Request::Resume { worker: WORKER }).unwrap();
        assert_eq!(Arc::strong_count(&lab.turns), 2, "the resumed cell waits for the turn of the other");
        lab.gate.worker_down(WORKER);
        assert_eq!(Arc::strong_count(&lab.turns), 1);
        assert_eq!(lab.request(1, Request::Resume { worker: WORKER }), Err(NoTurn::WorkerEnded));
    }
}
