//! The workers: started, watched, replaced; and the cells in them.
//!
//! A worker is hostile until proven otherwise. It is believed only in frames that decode, that answer
//! what was asked, and that stay within what was allowed; the first that does not is its last.

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

use contract::frame::{Deliver, Hello, Leg, Start, Thaw, ToWorker};
use contract::ids::{CellId, ImageId};
use contract::tables::CatalogTables;
use tokio::sync::{Notify, watch};

use seat::Seat;
use worker::Worker;

/// How many workers there are and what each is.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    pub launch: Launch,
    pub jail: JailPolicy,
    pub workers: usize,
    /// Cells that can be in one worker at once, running or between legs.
    pub slots: u32,
    /// Cells of one worker that can run at once. More than cores: endless ones share them.
    pub threads: usize,
}

impl PoolOptions {
    pub fn new(launch: Launch) -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Self { launch, jail: JailPolicy::Required, workers: cores.clamp(2, 8), slots: 64, threads: 16 }
    }
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum PoolError {
    #[error("no sandbox worker could be started: {0}")]
    Unavailable(String),
    #[error("every sandbox worker stayed full for {} ms; try again, or allow more workers", ROOM_WAIT.as_millis())]
    Full,
    #[error("the sandbox worker that held the cell died: {0}")]
    WorkerDied(String),
}

/// How long a cell waits for a place in a worker before it is refused.
const ROOM_WAIT: Duration = Duration::from_secs(10);

/// How long a pool waits for its first worker.
const START_WAIT: Duration = Duration::from_secs(15);

/// A handle to the workers; the last one dropped ends them all.
#[derive(Clone, Debug)]
pub struct Pool {
    inner: Arc<Inner>,
    /// What its workers run: they are of one build.
    image: ImageId,
}

#[derive(Debug)]
struct Inner {
    seats: Vec<Seat>,
    next_cell: AtomicU64,
    /// Told whenever a place may have come free or a worker has come up.
    room: Arc<Notify>,
}

impl Pool {
    /// Starts all workers and waits for the first to be ready; fails where none can be had.
    pub async fn start(options: PoolOptions) -> Result<Self, PoolError> {
        let options = Arc::new(options);
        let room = Arc::new(Notify::new());
        let seats: Vec<Seat> =
            (0..options.workers.max(1)).map(|_| Seat::fill(Arc::clone(&options), Arc::clone(&room))).collect();
        let inner = Arc::new(Inner { seats, next_cell: AtomicU64::new(1), room });
        let image = inner.first_worker().await?.image;
        Ok(Self { inner, image })
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
        let mut lease = self.room().await?;
        let budget = start.budget;
        let frame = ToWorker::Start(lease.cell(), start);
        let leg = lease.first_leg(tables, &frame, budget).await?;
        Ok((lease, leg))
    }

    /// Puts a frozen cell into a worker, delivers replies to it, and runs it.
    pub async fn thaw_cell(
        &self,
        tables: &CatalogTables,
        snapshot: Vec<u8>,
        deliver: Deliver,
    ) -> Result<(Lease, Leg), PoolError> {
        let mut lease = self.room().await?;
        let budget = deliver.budget;
        let frame = ToWorker::Thaw(lease.cell(), Thaw { catalog: tables.hash(), snapshot, deliver });
        let leg = lease.first_leg(tables, &frame, budget).await?;
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

    /// A place in the worker that has the least to do.
    async fn room(&self) -> Result<Lease, PoolError> {
        if let Some(lease) = self.try_room() {
            return Ok(lease);
        }
        tokio::time::timeout(ROOM_WAIT, async {
            loop {
                // Listen before looking, so that room made in between is not missed.
                let made = self.inner.room.notified();
                if let Some(lease) = self.try_room() {
                    return lease;
                }
                made.await;
            }
        })
        .await
        .map_err(|_| self.why_no_room())
    }

    fn try_room(&self) -> Option<Lease> {
        let mut up: Vec<Arc<Worker>> = self.inner.seats.iter().filter_map(Seat::worker).collect();
        up.sort_by_key(|worker| worker.load());
        up.into_iter().find_map(|worker| {
            let cell = CellId(self.inner.next_cell.fetch_add(1, Ordering::Relaxed));
            Lease::take(worker, cell, Arc::clone(&self.inner.room))
        })
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
