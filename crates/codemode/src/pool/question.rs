//! A question to a worker: a leg or a freeze. It waits for a turn, is sent, and waits for the answer.
//!
//! The task that grants the turn sends the frame: it is usually the one that has just read an answer of the same worker.
//! So a worker gets its next leg without a switch to the task that asks, which is woken only by the answer.

use std::sync::Arc;
use std::time::Duration;

use contract::frame::FromWorker;
use contract::ids::CellId;
use contract::tables::CatalogTables;
use parking_lot::Mutex;
use tokio::sync::{OwnedMutexGuard, oneshot};
use tokio::time::Instant;

use super::admission::{Principal, Request};
use super::gate::{Gate, NoTurn, OnGrant, Turn};
use super::line::Line;
use super::place::Place;
use super::worker::{PendingAnswer, Worker};

/// How long a cell waits for a slot in a worker, or for memory that resting cells hold, before it is refused. Waiting
/// for the legs of other cells to end has no time limit.
pub(super) const ROOM_WAIT: Duration = Duration::from_secs(10);

/// A leg or a freeze.
#[derive(Debug)]
pub(super) struct Question<'a> {
    pub(super) gate: &'a Arc<Gate<Worker>>,
    pub(super) principal: &'a Principal,
    pub(super) cell: CellId,
    pub(super) request: Request,
    /// The memory that a waiting new cell takes.
    pub(super) source_bytes: usize,
    /// The tables that a new cell needs.
    pub(super) tables: Option<&'a CatalogTables>,
    /// How long the worker may take to answer.
    pub(super) wait: Duration,
}

/// An answer, and the place of the cell if it is new in its worker.
pub(super) type Answered = (FromWorker, Option<Place>);

/// Why a question has no answer.
#[derive(Debug)]
pub(super) enum NoAnswer {
    NoTurn(NoTurn),
    /// The worker ended, or was terminated because it did not answer.
    WorkerDied(Arc<Worker>),
}

#[derive(Debug)]
enum Progress {
    Waiting,
    /// The frame is sent, or is being sent.
    Asked {
        worker: Arc<Worker>,
        /// When the frame was sent; `None` while a part of it is not.
        at: Option<Instant>,
        /// The place of a new cell, until its task takes it. If the task is gone, the cell is dropped with it.
        place: Option<Place>,
    },
    /// The task that asked is gone. The frame must not be sent.
    Withdrawn,
}

type SharedProgress = Arc<Mutex<Progress>>;

impl Question<'_> {
    /// Waits for a turn, sends the encoded frame and waits for the answer. If the returned future is dropped before the frame
    /// is sent, the request is withdrawn.
    pub(super) async fn ask(self, frame: Vec<u8>) -> Result<Answered, NoAnswer> {
        let (sender, mut answer) = oneshot::channel();
        let progress: SharedProgress = Arc::new(Mutex::new(Progress::Waiting));
        let is_new = matches!(self.request, Request::Start { .. } | Request::Thaw { .. });
        let queued = QueuedFrame {
            cell: self.cell,
            new_in: is_new.then(|| Arc::clone(self.gate)),
            tables: self.tables.cloned(),
            frame,
            sender,
            progress: Arc::clone(&progress),
        };
        let asking = Asking { gate: self.gate, cell: self.cell, progress };
        let on_grant = OnGrant::new(move |turn, worker| queued.send(turn, worker));
        let requested = self.gate.request(self.principal, self.cell, self.request, self.source_bytes, on_grant);
        requested.map_err(NoAnswer::NoTurn)?;
        let mut timer = self.timer();
        loop {
            match tokio::time::timeout_at(timer.next, &mut answer).await {
                Ok(Ok(answer)) => return Ok((answer, asking.take_place())),
                Ok(Err(_)) => return Err(asking.worker_died()),
                Err(_) => self.on_timer(&mut timer, &asking)?,
            }
        }
    }

    fn timer(&self) -> Timer {
        let room_until = Instant::now() + ROOM_WAIT;
        Timer { room_until, next: room_until.min(Instant::now() + self.wait) }
    }

    /// Sets the time of the next check, or returns the error if a wait is over.
    fn on_timer(&self, timer: &mut Timer, asking: &Asking<'_>) -> Result<(), NoAnswer> {
        let now = Instant::now();
        let asked = match &*asking.progress.lock() {
            Progress::Asked { worker, at, .. } => Some((Arc::clone(worker), at.unwrap_or(now) + self.wait)),
            Progress::Waiting | Progress::Withdrawn => None,
        };
        match asked {
            Some((_, deadline)) if deadline > now => timer.next = deadline,
            Some((worker, _)) => {
                worker.terminate(format!("the worker did not answer within {} ms", self.wait.as_millis()));
                return Err(asking.worker_died());
            }
            None if now < timer.room_until => timer.next = timer.room_until.min(now + self.wait),
            None if self.gate.lacks_room(self.principal, self.request) => {
                return Err(NoAnswer::NoTurn(NoTurn::NoRoom));
            }
            None => *timer = self.timer(),
        }
        Ok(())
    }
}

/// One timer for both waits of a question: a timer per wait would be set and cancelled for every leg. The deadline of
/// the answer is not known before the frame is sent, but a timer that is set to `wait` from now never fires after it.
struct Timer {
    /// Until when the cell waits for room.
    room_until: Instant,
    next: Instant,
}

/// The asking task. If it is dropped before the frame is sent, the request is withdrawn.
struct Asking<'a> {
    gate: &'a Arc<Gate<Worker>>,
    cell: CellId,
    progress: SharedProgress,
}

impl Asking<'_> {
    fn take_place(&self) -> Option<Place> {
        match &mut *self.progress.lock() {
            Progress::Asked { place, .. } => place.take(),
            Progress::Waiting | Progress::Withdrawn => None,
        }
    }

    fn worker_died(&self) -> NoAnswer {
        match &mut *self.progress.lock() {
            Progress::Asked { worker, place, .. } => {
                if let Some(place) = place {
                    place.occupied = false;
                }
                NoAnswer::WorkerDied(Arc::clone(worker))
            }
            Progress::Waiting | Progress::Withdrawn => NoAnswer::NoTurn(NoTurn::WorkerEnded),
        }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let is_waiting = {
            let mut progress = self.progress.lock();
            let is_waiting = matches!(*progress, Progress::Waiting);
            if is_waiting {
                *progress = Progress::Withdrawn;
            }
            is_waiting
        };
        if is_waiting {
            self.gate.withdraw(self.cell);
        }
    }
}

/// An encoded frame that waits for a turn.
struct QueuedFrame {
    cell: CellId,
    /// Set for a new cell, whose place is created when the frame is sent.
    new_in: Option<Arc<Gate<Worker>>>,
    tables: Option<CatalogTables>,
    frame: Vec<u8>,
    sender: oneshot::Sender<FromWorker>,
    progress: SharedProgress,
}

impl QueuedFrame {
    /// Sends the frame without waiting. If another frame is being sent, a separate task waits for it.
    fn send(self, turn: Turn<Worker>, worker: Arc<Worker>) {
        match worker.try_lock_line() {
            Some(line) => self.send_on(line, turn, worker),
            None => {
                let sender = Arc::clone(&worker);
                sender.spawn(async move {
                    let line = worker.lock_line().await;
                    self.send_on(line, turn, worker);
                });
            }
        }
    }

    fn send_on(self, line: OwnedMutexGuard<Line>, turn: Turn<Worker>, worker: Arc<Worker>) {
        let mut progress = self.progress.lock();
        if matches!(*progress, Progress::Withdrawn) {
            // The turn and the line are dropped after the guard of the progress.
            return;
        }
        let pending = PendingAnswer { sender: self.sender, turn };
        let rest = worker.ask(line, self.cell, pending, self.tables.as_ref(), self.frame);
        let (asked, cell) = (Arc::clone(&worker), self.cell);
        let place = self.new_in.map(|gate| Place { worker: asked, cell, gate, occupied: true });
        let at = rest.is_none().then(Instant::now);
        *progress = Progress::Asked { worker: Arc::clone(&worker), at, place };
        drop(progress);
        if let Some(rest) = rest {
            let progress = self.progress;
            let terminating = Arc::clone(&worker);
            worker.spawn(async move {
                if rest.await.is_err() {
                    terminating.terminate("the task that sends to the worker failed".to_owned());
                }
                if let Progress::Asked { at, .. } = &mut *progress.lock() {
                    *at = Some(Instant::now());
                }
            });
        }
    }
}
