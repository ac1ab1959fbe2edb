//! Decides which cells run in which worker, and when: it takes requests and returns grants. Nothing here waits or does IO.
//!
//! A worker has three resources: slots, turns and heap. Every cell in a worker has a slot. A cell has a turn while it runs
//! a leg or a snapshot of it is taken; it is running then, and otherwise resting. A running cell holds its whole memory
//! limit, a resting cell holds the memory it had at the end of its leg. Running cells cannot be preempted, so one
//! principal never gets all of a worker: a share of each resource stays free for others. Principals that wait are served
//! in turn.
//!
//! A cell that rests keeps its memory while it waits for more, which could deadlock. A grant is therefore made only if
//! all cells can still finish one after another afterwards (the banker's algorithm, in `memory`).

mod memory;
mod queue;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use contract::ids::CellId;

use memory::HeldMemory;
use queue::{Queue, WaitingRequest};

pub(super) use queue::QueueFull;

/// Identifies one worker process. A replaced worker has a new id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct WorkerId(pub(super) u64);

/// The identity that a cell runs for.
pub(super) type Principal = Arc<str>;

/// The resources of each worker, and the number of workers when all are up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capacity {
    pub(super) workers: usize,
    pub(super) slots: usize,
    pub(super) turns: usize,
    pub(super) heap_bytes: u64,
}

impl Capacity {
    /// Returns one principal's share of a worker's slots or turns: three quarters, and at least one.
    fn share_of(count: usize) -> usize {
        (count * 3 / 4).max(1)
    }

    /// Returns one principal's share of a worker's heap: five eighths. With the default limits that is three running
    /// cells and some resting ones, and leaves one running cell and some resting ones to others.
    fn heap_share(&self) -> u64 {
        self.heap_bytes / 8 * 5
    }
}

/// The resources that a cell requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AdmissionRequest {
    /// A slot, a turn and `limit` bytes of heap, in any worker, for a new cell.
    Start { limit: u64 },
    /// A slot, a turn and `limit` bytes of heap, in any worker, for a frozen cell.
    Thaw { limit: u64 },
    /// A turn, and the rest of its memory limit, in the worker where the cell rests.
    Resume { worker: WorkerId },
    /// A turn in the worker where the cell rests.
    Freeze { worker: WorkerId },
}

/// A granted request: the cell may use a turn of this worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) cell: CellId,
    pub(super) worker: WorkerId,
}

/// Whether a cell has a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResidentPhase {
    /// The cell has a turn. `rested_with` is the memory that it held before; `None` if it was not in the worker.
    Running {
        rested_with: Option<u64>,
    },
    Resting,
}

/// A cell in a worker.
#[derive(Clone, Debug)]
struct Resident {
    principal: Principal,
    /// The memory limit of the cell, in bytes.
    limit: u64,
    /// The bytes of heap that are reserved for the cell now.
    held: u64,
    phase: ResidentPhase,
    /// Whether the cell was dropped while it ran. It is removed when its turn ends.
    dropped: bool,
}

impl Resident {
    fn is_running(&self) -> bool {
        matches!(self.phase, ResidentPhase::Running { .. })
    }
}

type Residents = BTreeMap<CellId, Resident>;

/// The cells in all workers, and the requests that wait.
#[derive(Debug)]
pub(super) struct Admission {
    capacity: Capacity,
    workers: BTreeMap<WorkerId, Residents>,
    queue: Queue,
}

impl Admission {
    pub(super) fn new(capacity: Capacity) -> Self {
        Self { capacity, workers: BTreeMap::new(), queue: Queue::default() }
    }

    /// Adds a worker without cells, and returns the requests that are granted now.
    pub(super) fn worker_up(&mut self, worker: WorkerId) -> Vec<Grant> {
        self.workers.entry(worker).or_default();
        self.grant_waiting()
    }

    /// Removes a worker with its cells, and the requests of cells that rested in it, which are never granted. Returns the
    /// requests that are granted now.
    pub(super) fn worker_down(&mut self, worker: WorkerId) -> Vec<Grant> {
        self.workers.remove(&worker);
        self.queue.forget_worker(worker);
        self.grant_waiting()
    }

    /// Queues the request, and returns all requests that are granted now. `source_bytes` is the memory that a new cell
    /// takes while it waits.
    pub(super) fn request(
        &mut self,
        principal: &Principal,
        cell: CellId,
        request: AdmissionRequest,
        source_bytes: usize,
    ) -> Result<Vec<Grant>, QueueFull> {
        self.queue.push(principal, WaitingRequest { cell, request, source_bytes })?;
        Ok(self.grant_waiting())
    }

    /// Withdraws a request that was not granted.
    pub(super) fn cancel(&mut self, cell: CellId) {
        self.queue.remove(cell);
    }

    pub(super) fn is_waiting(&self, cell: CellId) -> bool {
        self.queue.contains(cell)
    }

    /// Takes back a turn that was granted but not used. The cell is as it was before the grant.
    pub(super) fn turn_unused(&mut self, worker: WorkerId, cell: CellId) -> Vec<Grant> {
        let rested_with = self.resident(worker, cell).and_then(|resident| match resident.phase {
            ResidentPhase::Running { rested_with } => rested_with,
            ResidentPhase::Resting => Some(resident.held),
        });
        self.turn_ended(worker, cell, rested_with)
    }

    /// Ends a turn after the worker has answered. The cell rests with this much memory; `None` if it is gone.
    pub(super) fn turn_ended(&mut self, worker: WorkerId, cell: CellId, rests_with: Option<u64>) -> Vec<Grant> {
        let Some(residents) = self.workers.get_mut(&worker) else { return Vec::new() };
        let Some(resident) = residents.get_mut(&cell) else { return Vec::new() };
        match rests_with.filter(|_| !resident.dropped) {
            Some(bytes) => {
                resident.held = bytes.min(resident.limit);
                resident.phase = ResidentPhase::Resting;
            }
            None => drop(residents.remove(&cell)),
        }
        self.grant_waiting()
    }

    /// Removes a cell that is no longer needed. A running cell is removed when its turn ends.
    pub(super) fn drop_cell(&mut self, worker: WorkerId, cell: CellId) -> Vec<Grant> {
        let Some(residents) = self.workers.get_mut(&worker) else { return Vec::new() };
        match residents.get_mut(&cell) {
            Some(resident) if resident.is_running() => {
                resident.dropped = true;
                return Vec::new();
            }
            Some(_) => drop(residents.remove(&cell)),
            None => return Vec::new(),
        }
        self.grant_waiting()
    }

    /// Returns whether a new cell of this principal waits for slots or memory of resting cells, and not for legs to
    /// end.
    pub(super) fn lacks_room(&self, principal: &Principal, limit: u64) -> bool {
        let limit = limit.min(self.capacity.heap_bytes);
        !self.workers.values().any(|residents| {
            let resting = residents.values().filter(|resident| !resident.is_running());
            let (all, own) = resting.fold((0, 0), |(all, own), resident| {
                let is_own = resident.principal == *principal;
                (all + resident.held, own + if is_own { resident.held } else { 0 })
            });
            let own_share = self.capacity.heap_share().max(limit);
            self.has_free_slot(residents, principal)
                && all + limit <= self.capacity.heap_bytes
                && own + limit <= own_share
        })
    }

    fn resident(&self, worker: WorkerId, cell: CellId) -> Option<&Resident> {
        self.workers.get(&worker)?.get(&cell)
    }

    /// Grants waiting requests, one of each principal in turn, until no more can be granted.
    fn grant_waiting(&mut self) -> Vec<Grant> {
        let mut grants = Vec::new();
        let mut refused = 0;
        while refused < self.queue.principals() {
            match self.next_grant() {
                Some(grant) => {
                    grants.push(grant);
                    refused = 0;
                }
                None => refused += 1,
            }
            self.queue.rotate();
        }
        grants
    }

    /// Grants the first request, of the principal at the front of the queue, that can be granted. The queue has started
    /// cells before new ones.
    fn next_grant(&mut self) -> Option<Grant> {
        let (principal, waiting) = self.queue.front()?;
        let mut smallest_refused = u64::MAX;
        let found = waiting.enumerate().find_map(|(position, waiting)| {
            let worker = match waiting.request {
                AdmissionRequest::Start { limit } | AdmissionRequest::Thaw { limit } if limit >= smallest_refused => {
                    None
                }
                AdmissionRequest::Start { limit } | AdmissionRequest::Thaw { limit } => {
                    let worker = self.worker_for(principal, limit);
                    if worker.is_none() {
                        smallest_refused = limit;
                    }
                    worker
                }
                AdmissionRequest::Resume { worker } => {
                    self.can_resume(principal, worker, waiting.cell).then_some(worker)
                }
                AdmissionRequest::Freeze { worker } => self
                    .workers
                    .get(&worker)
                    .is_some_and(|residents| self.has_free_turn(residents, principal))
                    .then_some(worker),
            }?;
            Some((position, worker))
        });
        let (position, worker) = found?;
        let (principal, WaitingRequest { cell, request, .. }) = self.queue.take_from_front(position)?;
        self.give_turn(principal, worker, cell, request);
        Some(Grant { cell, worker })
    }

    /// Gives the cell the turn, and what else it requested, in this worker.
    fn give_turn(&mut self, principal: Principal, worker: WorkerId, cell: CellId, request: AdmissionRequest) {
        let Some(residents) = self.workers.get_mut(&worker) else { return };
        match request {
            AdmissionRequest::Start { limit } | AdmissionRequest::Thaw { limit } => {
                let limit = limit.min(self.capacity.heap_bytes);
                let phase = ResidentPhase::Running { rested_with: None };
                residents.insert(cell, Resident { principal, limit, held: limit, phase, dropped: false });
            }
            AdmissionRequest::Resume { .. } | AdmissionRequest::Freeze { .. } => {
                let Some(resident) = residents.get_mut(&cell) else { return };
                resident.phase = ResidentPhase::Running { rested_with: Some(resident.held) };
                if matches!(request, AdmissionRequest::Resume { .. }) {
                    resident.held = resident.limit;
                }
            }
        }
    }

    /// Returns the least busy worker that can take another cell of this principal with this memory limit.
    fn worker_for(&self, principal: &Principal, limit: u64) -> Option<WorkerId> {
        let limit = limit.min(self.capacity.heap_bytes);
        let free = self.workers.iter().filter(|(_, residents)| {
            self.has_free_turn(residents, principal) && self.has_free_slot(residents, principal)
        });
        let mut free: Vec<_> =
            free.map(|(worker, residents)| (count_running(residents), residents.len(), *worker)).collect();
        free.sort_unstable();
        let mut free = free.into_iter().map(|(_, _, worker)| worker);
        free.find(|worker| self.can_hold(HeldMemory { principal, worker: *worker, held: limit, limit }, None))
    }

    fn can_resume(&self, principal: &Principal, worker: WorkerId, cell: CellId) -> bool {
        let Some(residents) = self.workers.get(&worker) else { return false };
        let Some(resident) = residents.get(&cell) else { return false };
        let limit = resident.limit;
        self.has_free_turn(residents, principal)
            && self.can_hold(HeldMemory { principal, worker, held: limit, limit }, Some(cell))
    }

    /// Returns whether a worker with these cells has a turn for the principal.
    fn has_free_turn(&self, residents: &Residents, principal: &Principal) -> bool {
        let own = residents.values().filter(|one| one.is_running() && one.principal == *principal).count();
        count_running(residents) < self.capacity.turns && own < Capacity::share_of(self.capacity.turns)
    }

    /// Returns whether a worker with these cells has a slot for the principal.
    fn has_free_slot(&self, residents: &Residents, principal: &Principal) -> bool {
        let own = residents.values().filter(|one| one.principal == *principal).count();
        residents.len() < self.capacity.slots && own < Capacity::share_of(self.capacity.slots)
    }

    /// Returns whether all cells can still finish if a cell holds the wanted memory. What the cell `replaced` holds now
    /// does not count.
    fn can_hold(&self, wanted: HeldMemory<'_>, replaced: Option<CellId>) -> bool {
        let share = self.capacity.heap_share();
        let large = |residents: &Residents| residents.values().any(|resident| resident.limit > share);
        // If no cell alone exceeds a principal's share of a worker, the workers do not depend on each other.
        let all_workers = wanted.limit > share || self.workers.values().any(large);
        let workers = self.workers.iter().filter(|(worker, _)| all_workers || **worker == wanted.worker);
        let others = workers.flat_map(|(worker, residents)| {
            residents.iter().filter(move |(cell, _)| Some(**cell) != replaced).map(move |(_, resident)| HeldMemory {
                principal: &resident.principal,
                worker: *worker,
                held: resident.held,
                limit: resident.limit,
            })
        });
        memory::is_safe(&self.capacity, others.chain([wanted]))
    }
}

fn count_running(residents: &Residents) -> usize {
    residents.values().filter(|resident| resident.is_running()).count()
}
