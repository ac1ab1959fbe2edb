//! The worker pool: starts, supervises and replaces workers, and runs cells in them.
//!
//! Workers are not trusted. A frame of a worker must decode, answer a request and stay within its limits; otherwise the
//! worker is terminated.

mod admission;
mod gate;
mod launch;
mod lease;
mod line;
mod seat;
mod worker;

pub use launch::{JailPolicy, Launch};
pub use lease::{FreezeError, Lease};

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use contract::error::ErrorCode;
use contract::frame::{Budget, Deliver, Failure, Hello, Leg, Start, Thaw, ToWorker};
use contract::ids::{CellId, ImageId};
use contract::limits::{MAX_QUEUED_CELLS, MAX_WORKER_TURNS, MEMORY_LIMIT_BYTES, WORKER_HEAP_BYTES};
use contract::tables::CatalogTables;
use telemetry::IncidentId;
use tokio::sync::watch;

use admission::{AdmissionRequest, Capacity, Principal};
use gate::{Gate, TurnError};
use seat::Seat;
use worker::Worker;

/// The number of workers, and the resources of each.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    pub launch: Launch,
    pub jail: JailPolicy,
    pub workers: usize,
    /// The number of cells that can be in one worker at once, running or between legs.
    pub slots: u32,
    /// The number of threads of one worker. At most `MAX_WORKER_TURNS` of them run cells; the others free memory.
    pub threads: usize,
    /// The configured memory limit of one cell. The heap of a worker is sized for it.
    pub memory_limit_bytes: u64,
}

impl PoolOptions {
    pub fn new(launch: Launch) -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            launch,
            jail: JailPolicy::Required,
            workers: cores.clamp(2, 8),
            slots: 64,
            threads: 2 * MAX_WORKER_TURNS,
            memory_limit_bytes: MEMORY_LIMIT_BYTES.default,
        }
    }

    /// Returns the heap that the cells of one worker share. If one cell may take nearly all of it, the heap is larger,
    /// so that other cells can rest beside it.
    pub fn heap_bytes(&self) -> u64 {
        WORKER_HEAP_BYTES.max(self.memory_limit_bytes.saturating_add(WORKER_HEAP_BYTES / 4))
    }

    fn capacity(&self) -> Capacity {
        Capacity {
            workers: self.workers.max(1),
            slots: self.slots as usize,
            turns: self.threads.clamp(1, MAX_WORKER_TURNS),
            heap_bytes: self.heap_bytes(),
        }
    }
}

/// Why a pool could not be started, or a cell could not run in it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PoolError {
    #[error("no sandbox worker could be started: {0}")]
    Unavailable(String),
    #[error("all sandbox workers were full for {} ms; try again later, or allow more workers", ROOM_WAIT.as_millis())]
    Full,
    #[error(
        "{MAX_QUEUED_CELLS} cells, or as many as fit in memory, already wait for a sandbox worker; wait for them to finish, \
         or abort some, before starting more"
    )]
    QueueFull,
    #[error("the cell was lost with its sandbox worker: {0}")]
    WorkerDied(String),
}

impl PoolError {
    /// Returns the failure of a cell that lost its slot in the pool, or got none. Why a worker cannot be started is an
    /// operator's concern, so the model reads only an incident id.
    pub(crate) fn failure(&self) -> Failure {
        let (code, message) = match self {
            Self::Unavailable(_) => {
                let incident = IncidentId::log("start a worker", self);
                let message = format!("no sandbox worker could be started (incident {incident}); try again later");
                (ErrorCode::RuntimeUnavailable, message)
            }
            Self::Full | Self::QueueFull => (ErrorCode::RuntimeUnavailable, self.to_string()),
            Self::WorkerDied(_) => (ErrorCode::InternalError, self.to_string()),
        };
        Failure { code: Some(code), message, position: None }
    }
}

/// How long a cell waits for a slot in a worker, or for memory that resting cells hold, before it is refused.
const ROOM_WAIT: Duration = Duration::from_secs(10);

/// How long the start of a pool waits for the worker in its first seat.
const START_WAIT: Duration = Duration::from_secs(15);

/// A handle to the workers. Dropping the last handle ends them all.
#[derive(Clone, Debug)]
pub struct Pool {
    inner: Arc<SharedWorkers>,
    /// The guest image of all workers: they are of one build.
    image: ImageId,
    /// The size of that image in a cell's memory.
    image_bytes: u64,
    principal: Principal,
}

/// What all handles to a pool share.
#[derive(Debug)]
struct SharedWorkers {
    /// The seats, one for each worker. Its supervisor replaces a worker that has ended.
    seats: Vec<Seat>,
    next_cell: AtomicU64,
    gate: Arc<Gate<Worker>>,
    /// Why there are no workers, and never will be.
    unavailable: Option<String>,
}

impl Pool {
    /// Starts all workers, and waits until the one in the first seat is ready. Fails if that one cannot be started; the
    /// others are not waited for.
    pub async fn start(options: PoolOptions) -> Result<Self, PoolError> {
        let options = Arc::new(options);
        let gate = Gate::new(options.capacity());
        let seats: Vec<Seat> =
            (0..options.workers.max(1)).map(|_| Seat::fill(Arc::clone(&options), Arc::clone(&gate))).collect();
        let inner = Arc::new(SharedWorkers { seats, next_cell: AtomicU64::new(1), gate, unavailable: None });
        let Hello { image, image_bytes, .. } = inner.first_worker().await?;
        Ok(Self { inner, image, image_bytes, principal: Principal::default() })
    }

    /// Returns a pool that has no workers because of this error: for a process whose tools need no cells. Cells that are
    /// started in it fail with `runtime_unavailable`.
    pub fn without_workers(why: &PoolError) -> Self {
        let gate = Gate::new(Capacity { workers: 1, slots: 1, turns: 1, heap_bytes: WORKER_HEAP_BYTES });
        let inner =
            SharedWorkers { seats: Vec::new(), next_cell: AtomicU64::new(1), gate, unavailable: Some(why.to_string()) };
        Self { inner: Arc::new(inner), image: ImageId([0; 32]), image_bytes: 0, principal: Principal::default() }
    }

    /// Returns a handle to these workers for cells of this principal. Workers are shared fairly between principals.
    pub fn for_principal(&self, principal: &str) -> Self {
        Self { principal: principal.into(), ..self.clone() }
    }

    /// Returns the guest image that cells are started in.
    pub fn image(&self) -> ImageId {
        self.image
    }

    /// Returns whether a worker can thaw this snapshot. It cannot if an upgrade has changed the guest image since.
    pub fn can_thaw(&self, snapshot: &[u8]) -> bool {
        contract::snapshot::image_of(snapshot) == Some(self.image)
    }

    /// Returns the heap of a frozen cell: the memory that it takes when it is thawed, beyond the image. `None` if no
    /// worker can thaw it.
    pub fn heap_of(&self, snapshot: &[u8]) -> Option<u64> {
        let memory = contract::snapshot::memory_of(snapshot).filter(|_| self.can_thaw(snapshot))?;
        Some(memory.saturating_sub(self.image_bytes))
    }

    /// Starts a cell in a worker, and runs its first leg.
    pub async fn start_cell(&self, tables: &CatalogTables, start: Start) -> Result<(Lease, Leg), PoolError> {
        let (budget, source_bytes) = (start.budget, start.source.len());
        let request = AdmissionRequest::Start { limit: budget.memory_bytes };
        self.enter_worker(tables, request, source_bytes, budget, |cell| ToWorker::Start(cell, start)).await
    }

    /// Thaws a frozen cell in a worker, delivers replies to it, and runs its next leg.
    pub async fn thaw_cell(
        &self,
        tables: &CatalogTables,
        snapshot: Vec<u8>,
        deliver: Deliver,
    ) -> Result<(Lease, Leg), PoolError> {
        let budget = deliver.budget;
        let request = AdmissionRequest::Thaw { limit: budget.memory_bytes };
        let thaw = Thaw { catalog: tables.hash(), snapshot, deliver };
        self.enter_worker(tables, request, 0, budget, |cell| ToWorker::Thaw(cell, thaw)).await
    }

    /// Waits for a slot in a worker, sends the frame that starts or thaws the cell there, and runs the next leg.
    async fn enter_worker(
        &self,
        tables: &CatalogTables,
        request: AdmissionRequest,
        source_bytes: usize,
        budget: Budget,
        frame: impl FnOnce(CellId) -> ToWorker,
    ) -> Result<(Lease, Leg), PoolError> {
        if let Some(why) = &self.inner.unavailable {
            return Err(PoolError::Unavailable(why.clone()));
        }
        let cell = CellId(self.inner.next_cell.fetch_add(1, Ordering::Relaxed));
        let gate = &self.inner.gate;
        fault::wait_for_turn().await;
        let entered = gate.enter(&self.principal, cell, request, source_bytes, ROOM_WAIT).await;
        let (turn, worker) = entered.map_err(|refused| match refused {
            TurnError::QueueFull => PoolError::QueueFull,
            TurnError::NoRoom | TurnError::WorkerEnded => self.why_no_room(),
        })?;
        let mut lease = Lease::new(worker, cell, Arc::clone(&self.principal), Arc::clone(gate));
        let leg = lease.first_leg(turn, tables, &frame(cell), budget).await?;
        Ok((lease, leg))
    }

    /// Returns what each worker that is up has reported about itself.
    pub fn workers(&self) -> Vec<Hello> {
        self.inner.seats.iter().filter_map(Seat::worker).map(|worker| worker.hello()).collect()
    }

    /// Returns how many legs and freezes are in progress.
    pub fn running_legs(&self) -> usize {
        self.inner.seats.iter().filter_map(Seat::worker).map(|worker| worker.asked()).sum()
    }

    /// Returns the process ids of the workers that are up.
    pub fn worker_pids(&self) -> Vec<u32> {
        self.inner.seats.iter().filter_map(Seat::worker).filter_map(|worker| worker.pid()).collect()
    }

    /// Returns the error of a cell that got no slot: the reason if no worker could be started, otherwise `Full`.
    fn why_no_room(&self) -> PoolError {
        let reasons = self.inner.seats.iter().map(Seat::reason).collect::<Option<Vec<_>>>();
        match reasons.and_then(|reasons| reasons.into_iter().next()) {
            Some(reason) => PoolError::Unavailable(reason),
            None => PoolError::Full,
        }
    }
}

impl SharedWorkers {
    /// Waits for the worker in the first seat.
    async fn first_worker(&self) -> Result<Hello, PoolError> {
        let Some(first) = self.seats.first() else {
            return Err(PoolError::Unavailable("the pool has no seats".to_owned()));
        };
        let mut state: watch::Receiver<seat::SeatState> = first.watch();
        let settled = tokio::time::timeout(START_WAIT, async {
            loop {
                match &*state.borrow_and_update() {
                    seat::SeatState::Up(worker) => return Ok(worker.hello()),
                    seat::SeatState::Failed(reason) => return Err(PoolError::Unavailable(reason.clone())),
                    seat::SeatState::Starting => {}
                }
                if state.changed().await.is_err() {
                    return Err(PoolError::Unavailable("the supervisor of the worker ended".to_owned()));
                }
            }
        })
        .await;
        settled.unwrap_or_else(|_| Err(PoolError::Unavailable("the worker was not ready in time".to_owned())))
    }
}
