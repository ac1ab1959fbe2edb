//! The sandbox as a state machine: each frame in gives at most one frame out, independent of the transport.
//!
//! Any number of threads may call [`Sandbox::handle`] at once; each call runs one leg of a cell to its end. A cell runs
//! one leg at a time; the host ensures that.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use contract::error::ErrorCode;
use contract::frame::{Deliver, Failure, FromWorker, Leg, LegEnd, Start, Thaw, ToWorker};
use contract::ids::{CatalogHash, CellId};

use crate::failure;
use crate::image::Image;
use crate::pages::PageFinder;
use crate::snapshot::BadSnapshot;
use crate::source::{self, Rejection};
use crate::spare_thread::SpareThread;
use crate::tables::{CatalogError, Catalogs, Tables};
use crate::vm::Vm;

#[derive(Debug)]
pub struct Sandbox {
    image: Arc<Image>,
    finder: PageFinder,
    spare_thread: SpareThread,
    catalogs: Catalogs,
    cells: Mutex<HashMap<CellId, Slot>>,
}

/// A cell between legs is kept here; while it runs, only its stop flag is.
enum Slot {
    Resting(Box<Vm>),
    Running(Arc<AtomicBool>),
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Resting(_) => "Resting",
            Self::Running(_) => "Running",
        })
    }
}

/// The result of a frame. Send the reply before dropping this value: dropping it frees the memory of a cell that ended,
/// which takes longer than most cells run.
#[derive(Debug, Default)]
pub struct Answer {
    pub reply: Option<FromWorker>,
    _ended: Option<EndedCell>,
    /// Dropped after the cell.
    _release: Option<MemoryRelease>,
}

/// A cell that is kept only to be dropped later.
struct EndedCell(#[expect(dead_code, reason = "kept only to be dropped")] Box<Vm>);

impl std::fmt::Debug for EndedCell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EndedCell")
    }
}

/// Returns free memory of the allocator to the system when it is dropped. The pieces of a large snapshot leave many blocks,
/// which the allocator would keep.
#[derive(Debug)]
struct MemoryRelease;

impl MemoryRelease {
    fn after_snapshot_of(vm: &Vm) -> Option<Self> {
        vm.has_grown().then_some(Self)
    }
}

impl Drop for MemoryRelease {
    fn drop(&mut self) {
        crate::raw::release_free_memory();
    }
}

impl From<FromWorker> for Answer {
    fn from(reply: FromWorker) -> Self {
        Self { reply: Some(reply), ..Self::default() }
    }
}

/// A protocol violation by the host, after which the worker exits.
#[derive(Debug, thiserror::Error)]
pub enum Violation {
    #[error("{0} was started twice")]
    StartedTwice(CellId),
    #[error("{0} is not suspended in this worker")]
    NotResting(CellId),
    #[error("catalog {0} is not loaded in this worker")]
    NoCatalog(CatalogHash),
    #[error("the catalog was rejected: {0}")]
    Catalog(String),
}

impl From<CatalogError> for Violation {
    fn from(refused: CatalogError) -> Self {
        Self::Catalog(refused.to_string())
    }
}

impl Sandbox {
    pub fn new(slots: u32) -> wasmtime::Result<Self> {
        Ok(Self::with(Image::load(slots)?, PageFinder::open()))
    }

    pub(crate) fn with(image: Image, finder: PageFinder) -> Self {
        Self {
            image: Arc::new(image),
            finder,
            spare_thread: SpareThread::default(),
            catalogs: Catalogs::default(),
            cells: Mutex::default(),
        }
    }

    /// Makes this thread compress and decompress parts of other threads' large snapshots, and never returns. Without such
    /// a thread, they do all of it.
    pub fn help(&self) {
        self.spare_thread.run();
    }

    /// Returns the size of the image in a cell's memory.
    pub(crate) fn image_bytes(&self) -> usize {
        self.image.base.len()
    }

    pub fn asks_the_kernel_for_pages(&self) -> bool {
        self.finder.asks_the_kernel()
    }

    /// Stops the cells that have run out of time or were dropped. Without ticks, deadlines are not enforced.
    pub fn tick(&self) {
        self.image.watchdog.tick();
    }

    pub fn handle(&self, frame: ToWorker) -> Result<Answer, Violation> {
        match frame {
            ToWorker::Catalog { hash, tables } => {
                self.catalogs.keep(hash, tables)?;
                Ok(Answer::default())
            }
            ToWorker::Forget { hash } => {
                self.catalogs.forget(hash);
                Ok(Answer::default())
            }
            ToWorker::Start(cell, start) => self.start(cell, start),
            ToWorker::Deliver(cell, deliver) => self.deliver(cell, &deliver),
            ToWorker::Freeze { cell, max_bytes } => self.freeze(cell, max_bytes),
            ToWorker::Thaw(cell, thaw) => self.thaw(cell, thaw),
            ToWorker::Drop(cell) => {
                self.drop_cell(cell);
                Ok(Answer::default())
            }
        }
    }

    fn start(&self, cell: CellId, start: Start) -> Result<Answer, Violation> {
        let tables = self.tables(start.catalog)?;
        let dropped = self.begin(cell)?;
        let prepared = match source::prepare_allowing(&start.source, start.language, start.languages) {
            Ok(prepared) => prepared,
            Err(rejection) => return Ok(self.fail(cell, rejected(rejection))),
        };
        let vm = Vm::new(&self.image, Some(tables), dropped, start.budget.memory_bytes);
        Ok(match vm {
            Ok(mut vm) => {
                let leg = vm.start(prepared, start.seed, start.budget);
                self.rest(cell, Box::new(vm), leg)
            }
            Err(error) => self.fail(cell, unavailable(&error)),
        })
    }

    fn deliver(&self, cell: CellId, deliver: &Deliver) -> Result<Answer, Violation> {
        let mut vm = self.take(cell)?;
        let leg = vm.deliver(&deliver.replies, deliver.budget);
        Ok(self.rest(cell, vm, leg))
    }

    fn freeze(&self, cell: CellId, max_bytes: u64) -> Result<Answer, Violation> {
        let vm = self.take(cell)?;
        let frozen = vm.freeze(&self.finder, &self.spare_thread);
        self.forget(cell);
        let reply = match frozen {
            Ok(snapshot) if snapshot.len() as u64 <= max_bytes => FromWorker::Frozen { cell, snapshot },
            Ok(snapshot) => FromWorker::NotFrozen { cell, failure: failure::snapshot_limit(snapshot.len(), max_bytes) },
            Err(_) => {
                FromWorker::NotFrozen { cell, failure: failure::internal("the suspended cell could not be compressed") }
            }
        };
        let release = MemoryRelease::after_snapshot_of(&vm);
        Ok(Answer { reply: Some(reply), _ended: Some(EndedCell(vm)), _release: release })
    }

    fn thaw(&self, cell: CellId, thaw: Thaw) -> Result<Answer, Violation> {
        let tables = self.tables(thaw.catalog)?;
        let dropped = self.begin(cell)?;
        let budget = thaw.deliver.budget;
        let mut vm = match Vm::new(&self.image, Some(tables), dropped, budget.memory_bytes) {
            Ok(vm) => vm,
            Err(error) => return Ok(self.fail(cell, unavailable(&error))),
        };
        if let Err(bad) = vm.thaw(thaw.snapshot, &self.spare_thread) {
            let code = match bad {
                BadSnapshot::NoMemory => ErrorCode::MemoryLimitExceeded,
                _ => ErrorCode::SnapshotRestoreFailed,
            };
            return Ok(self.fail(
                cell,
                Failure {
                    code: Some(code),
                    message: format!("the suspended cell cannot be resumed: {bad}"),
                    position: None,
                },
            ));
        }
        let release = MemoryRelease::after_snapshot_of(&vm);
        let leg = vm.deliver(&thaw.deliver.replies, budget);
        Ok(Answer { _release: release, ..self.rest(cell, Box::new(vm), leg) })
    }

    fn drop_cell(&self, cell: CellId) {
        let gone = {
            let mut cells = self.lock();
            match cells.get(&cell) {
                Some(Slot::Running(dropped)) => {
                    dropped.store(true, Ordering::Relaxed);
                    None
                }
                Some(Slot::Resting(_)) => cells.remove(&cell),
                None => None,
            }
        };
        // Freeing memory takes time; do it without holding the lock.
        drop(gone);
    }

    fn tables(&self, hash: CatalogHash) -> Result<Arc<Tables>, Violation> {
        self.catalogs.get(hash).ok_or(Violation::NoCatalog(hash))
    }

    fn begin(&self, cell: CellId) -> Result<Arc<AtomicBool>, Violation> {
        match self.lock().entry(cell) {
            Entry::Occupied(_) => Err(Violation::StartedTwice(cell)),
            Entry::Vacant(entry) => {
                let dropped = Arc::new(AtomicBool::new(false));
                entry.insert(Slot::Running(Arc::clone(&dropped)));
                Ok(dropped)
            }
        }
    }

    fn take(&self, cell: CellId) -> Result<Box<Vm>, Violation> {
        match self.lock().entry(cell) {
            Entry::Occupied(mut entry) => match entry.get() {
                Slot::Running(_) => Err(Violation::NotResting(cell)),
                Slot::Resting(vm) => match entry.insert(Slot::Running(vm.dropped())) {
                    Slot::Resting(vm) => Ok(vm),
                    Slot::Running(_) => Err(Violation::NotResting(cell)),
                },
            },
            Entry::Vacant(_) => Err(Violation::NotResting(cell)),
        }
    }

    /// Keeps a suspended cell, hands any other over to be dropped, and reports how the leg ended.
    fn rest(&self, cell: CellId, vm: Box<Vm>, leg: Leg) -> Answer {
        let mut cells = self.lock();
        let wanted = matches!(cells.get(&cell), Some(Slot::Running(dropped)) if !dropped.load(Ordering::Relaxed));
        let ended = if wanted && matches!(leg.end, LegEnd::Suspended { .. }) {
            cells.insert(cell, Slot::Resting(vm));
            None
        } else {
            cells.remove(&cell);
            Some(EndedCell(vm))
        };
        Answer { reply: Some(FromWorker::Leg(cell, leg)), _ended: ended, _release: None }
    }

    fn fail(&self, cell: CellId, failure: Failure) -> Answer {
        self.forget(cell);
        let leg = Leg { end: LegEnd::Failed(failure), output: Vec::new(), run_us: 0, memory_bytes: 0 };
        FromWorker::Leg(cell, leg).into()
    }

    fn forget(&self, cell: CellId) {
        self.lock().remove(&cell);
    }

    /// Locks the cells. Held only for a lookup or a move, never while guest code runs or memory is freed.
    fn lock(&self) -> MutexGuard<'_, HashMap<CellId, Slot>> {
        self.cells.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn rejected(rejection: Rejection) -> Failure {
    Failure { code: Some(rejection.code()), position: rejection.place(), message: rejection.to_string() }
}

fn unavailable(error: &wasmtime::Error) -> Failure {
    Failure {
        code: Some(ErrorCode::RuntimeUnavailable),
        message: format!("this worker has no free slot for another cell: {error}"),
        position: None,
    }
}
