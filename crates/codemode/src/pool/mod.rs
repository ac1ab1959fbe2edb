//! The workers: started, watched, replaced; and the cells in them.
//!
//! A worker is hostile until proven otherwise. It is believed only in frames that decode, that answer
//! what was asked, and that stay within what was allowed; the first that does not is its last.

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

use contract::frame::{Budget, Deliver, Hello, Leg, Start, Thaw, ToWorker};
use contract::ids::{CellId, ImageId};
use contract::limits::{MAX_QUEUED_CELLS, MAX_WORKER_TURNS, MEMORY_LIMIT_BYTES, WORKER_HEAP_BYTES};
use contract::tables::CatalogTables;
use tokio::sync::watch;

use admission::{Capacity, Principal, Request};
use gate::{Gate, NoTurn};
use seat::Seat;

/// How many workers there are and what each is.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    pub launch: Launch,
    pub jail: JailPolicy,
    pub workers: usize,
    /// Cells that can be in one worker at once, running or between legs.
    pub slots: u32,
    /// Threads of one worker. At most `MAX_WORKER_TURNS` of them run cells; more give memory back meanwhile.
    pub threads: usize,
    /// Memory limit of one cell, as configured. The heap of a worker is made for it.
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

    /// Heap that the cells of one worker may take together. Where one cell may take nearly all of it, there is some more,
    /// so that cells can rest beside it.
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

#[derive(Clone, Debug, thiserror::Error)]
pub enum PoolError {
    #[error("no sandbox worker could be started: {0}")]
    Unavailable(String),
    #[error("every sandbox worker stayed full for {} ms; try again, or allow more workers", ROOM_WAIT.as_millis())]
    Full,
    #[error(
        "{MAX_QUEUED_CELLS} cells, or as many as fit in memory, wait for a sandbox worker already; wait for them to finish, \
         or abort some, before starting more"
    )]
    QueueFull,
    #[error("the sandbox worker that held the cell died: {0}")]
    WorkerDied(String),
}

/// How long a cell waits for a slot in a worker, or for memory that resting cells hold, before it is refused.
const ROOM_WAIT: Duration = Duration::from_secs(10);

/// How long a pool waits for its first worker.
const START_WAIT: Duration = Duration::from_secs(15);

/// A handle to the workers; the last one dropped ends them all.
#[derive(Clone, Debug)]
pub struct Pool {
    inner: Arc<Inner>,
    /// What its workers run: they are of one build.
    image: ImageId,
    principal: Principal,
}

#[derive(Debug)]
struct Inner {
    seats: Vec<Seat>,
    next_cell: AtomicU64,
    gate: Arc<Gate>,
}

impl Pool {
    /// Starts all workers and waits for the first to be ready; fails where none can be had.
    pub async fn start(options: PoolOptions) -> Result<Self, PoolError> {
        let options = Arc::new(options);
        let gate = Gate::new(options.capacity());
        let seats: Vec<Seat> =
            (0..options.workers.max(1)).map(|_| Seat::fill(Arc::clone(&options), Arc::clone(&gate))).collect();
        let inner = Arc::new(Inner { seats, next_cell: AtomicU64::new(1), gate });
        let image = inner.first_worker().await?.image;
        Ok(Self { inner, image, principal: Principal::default() })
    }

    /// The same workers, for cells of this principal. Workers are shared fairly between principals.
    pub fn for_principal(&self, principal: &str) -> Self {
        Self { principal: principal.into(), ..self.clone() }
    }

    /// The guest image that cells are started in.
    pub fn image(&self) -> ImageId {
        self.image
    }

    /// Whether a frozen cell can be put into a worker: it is of another image after an upgrade.
    pub fn can_thaw(&self, snapshot: &[u8]) -> bool {
        contract::snapshot::image_of(snapshot) == Some(self.image)
    }

    /// Runs a cell's first leg.
    pub async fn start_cell(&self, tables: &CatalogTables, start: Start) -> Result<(Lease, Leg), PoolError> {
        let (budget, source_bytes) = (start.budget, start.source.len());
        let request = Request::Start { limit: budget.memory_bytes };
        self.first_leg(tables, request, source_bytes, budget, |cell| ToWorker::Start(cell, start)).await
    }

    /// Puts a frozen cell into a worker, delivers replies to it, and runs it.
    pub async fn thaw_cell(
        &self,
        tables: &CatalogTables,
        snapshot: Vec<u8>,
        deliver: Deliver,
    ) -> Result<(Lease, Leg), PoolError> {
        let budget = deliver.budget;
        let request = Request::Thaw { limit: budget.memory_bytes };
        let thaw = Thaw { catalog: tables.hash(), snapshot, deliver };
        self.first_leg(tables, request, 0, budget, |cell| ToWorker::Thaw(cell, thaw)).await
    }

    async fn first_leg(
        &self,
        tables: &CatalogTables,
        request: Request,
        source_bytes: usize,
        budget: Budget,
        frame: impl FnOnce(CellId) -> ToWorker,
    ) -> Result<(Lease, Leg), PoolError> {
        let cell = CellId(self.inner.next_cell.fetch_add(1, Ordering::Relaxed));
        let gate = &self.inner.gate;
        fault::wait_for_turn().await;
        let entered = gate.enter(&self.principal, cell, request, source_bytes, ROOM_WAIT).await;
        let (turn, worker) = entered.map_err(|refused| match refused {
            NoTurn::QueueFull => PoolError::QueueFull,
            NoTurn::NoRoom | NoTurn::WorkerEnded => self.why_no_room(),
        })?;
        let mut lease = Lease::new(worker, cell, Arc::clone(&self.principal), Arc::clone(gate));
        let leg = lease.first_leg(turn, tables, &frame(cell), budget).await?;
        Ok((lease, leg))
    }

    /// What the workers that are up said of themselves.
    pub fn workers(&self) -> Vec<Hello> {
        self.inner.seats.iter().filter_map(Seat::worker).map(|worker| worker.hello()).collect()
    }

    /// How many legs and freezes are under way.
    pub fn at_work(&self) -> usize {
        self.inner.seats.iter().filter_map(Seat::worker).map(|worker| worker.asked()).sum()
    }

    /// Process ids of the workers that are up.
    pub fn worker_pids(&self) -> Vec<u32> {
        self.inner.seats.iter().filter_map(Seat::worker).filter_map(|worker| worker.pid()).collect()
    }

    fn why_no_room(&self) -> PoolError {
        let reasons = self.inner.seats.iter().map(Seat::reason).collect::<Option<Vec<_>>>();
        match reasons.and_then(|reasons| reasons.into_iter().next()) {
            Some(reason) => PoolError::Unavailable(reason),
            None => PoolError::Full,
        }
    }
}

impl Inner {
    async fn first_worker(&self) -> Result<Hello, PoolError> {
        let Some(first) = self.seats.first() else {
            return Err(PoolError::Unavailable("the pool has no seats".to_owned()));
        };
        let mut state: watch::Receiver<seat::State> = first.watch();
        let settled = tokio::time::timeout(START_WAIT, async {
            loop {
                match &*state.borrow_and_update() {
                    seat::State::Up(worker) => return Ok(worker.hello()),
                    seat::State::Failed(reason) => return Err(PoolError::Unavailable(reason.clone())),
                    seat::State::Starting => {}
                }
                if state.changed().await.is_err() {
                    return Err(PoolError::Unavailable("its supervisor ended".to_owned()));
                }
            }
        })
        .await;
        settled.unwrap_or_else(|_| Err(PoolError::Unavailable("it did not say hello in time".to_owned())))
    }
}
