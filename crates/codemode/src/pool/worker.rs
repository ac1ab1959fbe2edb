//! A running worker: sends frames to it, passes its answers to the waiting tasks, and terminates it.

use std::collections::HashMap;
use std::io;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use contract::frame::{BadFrame, FrameBuffer, FromWorker, Hello, LegEnd, ToWorker};
use contract::ids::CellId;
use contract::tables::CatalogTables;
use parking_lot::{Mutex, MutexGuard};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, oneshot, watch};

use super::admission::WorkerId;
use super::gate::{Gate, WorkerTurn};
use super::line::WorkerSender;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

#[derive(Debug)]
pub(super) struct Worker {
    id: WorkerId,
    hello: Hello,
    pid: Option<u32>,
    line: Arc<AsyncMutex<WorkerSender>>,
    /// `None` once the worker has ended.
    waiting: Mutex<Option<HashMap<CellId, PendingAnswer>>>,
    /// Why it is terminated; `None` while it may run.
    fate: watch::Sender<Option<String>>,
}

/// A leg or a freeze that the worker has not answered yet.
#[derive(Debug)]
struct PendingAnswer {
    sender: oneshot::Sender<FromWorker>,
    turn: WorkerTurn<Worker>,
}

/// Why a worker failed, for its supervisor.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error("the worker closed its socket")]
    HungUp,
    #[error("the worker's socket failed")]
    Socket(#[from] io::Error),
    #[error("the worker broke the protocol: {0}")]
    BadFrame(#[from] BadFrame),
    #[error("the worker sent an answer to no request")]
    Unexpected,
    #[error("{0}")]
    Unfit(String),
}

/// The receiving end of a worker's socket.
#[derive(Debug)]
pub(super) struct WorkerReceiver {
    socket: OwnedReadHalf,
    buffer: FrameBuffer,
    chunk: Vec<u8>,
}

impl Worker {
    /// Waits until the worker reports that it is ready.
    pub(super) async fn greet(socket: StdUnixStream, pid: Option<u32>) -> Result<(Arc<Self>, WorkerReceiver), Fault> {
        let (read, write) = UnixStream::from_std(socket)?.into_split();
        let mut incoming = WorkerReceiver { socket: read, buffer: FrameBuffer::default(), chunk: vec![0; 64 << 10] };
        let hello = match incoming.next().await? {
            FromWorker::Hello(hello) => hello,
            FromWorker::Unfit { reason } => return Err(Fault::Unfit(reason)),
            FromWorker::Leg(..) | FromWorker::Frozen { .. } | FromWorker::NotFrozen { .. } => {
                return Err(Fault::Unexpected);
            }
        };
        let worker = Self {
            id: WorkerId(NEXT_ID.fetch_add(1, Ordering::Relaxed)),
            hello,
            pid,
            line: Arc::new(AsyncMutex::new(WorkerSender::new(write))),
            waiting: Mutex::new(Some(HashMap::new())),
            fate: watch::Sender::new(None),
        };
        Ok((Arc::new(worker), incoming))
    }

    /// Passes every answer to the task that waits for it, until the worker fails or is terminated.
    pub(super) async fn listen(&self, gate: &Arc<Gate<Self>>, mut incoming: WorkerReceiver) {
        let mut fate = self.fate.subscribe();
        let reason = tokio::select! {
            fault = self.hand_out(&mut incoming) => {
                tracing::debug!(pid = self.pid, error = telemetry::error_chain(&fault), "worker failed");
                fault.to_string()
            }
            fate = fate.wait_for(Option::is_some) => fate.ok().and_then(|fate| fate.clone()).unwrap_or_default(),
        };
        self.fate.send_replace(Some(reason));
        // This comes first, so that turns that are returned below are not granted again.
        gate.worker_down(self.id);
        // Dropping the senders wakes the waiting tasks, which read the reason above.
        let unanswered = self.waiting().take();
        drop(unanswered);
    }

    async fn hand_out(&self, incoming: &mut WorkerReceiver) -> Fault {
        loop {
            let frame = match incoming.next().await {
                Ok(frame) => frame,
                Err(fault) => return fault,
            };
            let (cell, rests_with) = match &frame {
                FromWorker::Leg(cell, leg) => {
                    (*cell, matches!(leg.end, LegEnd::Suspended { .. }).then_some(leg.memory_bytes))
                }
                FromWorker::Frozen { cell, .. } | FromWorker::NotFrozen { cell, .. } => (*cell, None),
                FromWorker::Hello(_) | FromWorker::Unfit { .. } => return Fault::Unexpected,
            };
            let pending = self.waiting().as_mut().and_then(|waiting| waiting.remove(&cell));
            let Some(PendingAnswer { sender, turn }) = pending else { return Fault::Unexpected };
            turn.end(rests_with);
            // The waiting task is gone if the cell was dropped while it ran.
            drop(sender.send(frame));
        }
    }

    /// Sends a frame for a cell, preceded by the catalog that it needs, and returns the receiver of the answer. The
    /// turn ends with the answer, even if the receiver was dropped.
    pub(super) async fn ask(
        &self,
        cell: CellId,
        turn: WorkerTurn<Self>,
        tables: Option<&CatalogTables>,
        frame: &ToWorker,
    ) -> oneshot::Receiver<FromWorker> {
        let mut line = Arc::clone(&self.line).lock_owned().await;
        let bytes = match tables {
            Some(tables) => line.with_catalog(tables, frame),
            None => frame.encode(),
        };
        let (sender, answer) = oneshot::channel();
        // From here on the frame is sent, even if the caller is dropped.
        let refused = match self.waiting().as_mut() {
            Some(waiting) => waiting.insert(cell, PendingAnswer { sender, turn }),
            None => Some(PendingAnswer { sender, turn }),
        };
        drop(refused);
        self.send_on(line, bytes).await;
        answer
    }

    pub(super) async fn send(&self, frame: &ToWorker) {
        let line = Arc::clone(&self.line).lock_owned().await;
        self.send_on(line, frame.encode()).await;
    }

    async fn send_on(&self, mut line: OwnedMutexGuard<WorkerSender>, mut bytes: Vec<u8>) {
        match line.try_send(&bytes) {
            Ok(written) if written == bytes.len() => {}
            Ok(written) => {
                bytes.drain(..written);
                let fate = self.fate.clone();
                // In a separate task: the caller may be dropped, but the frame must be sent completely.
                let rest = tokio::spawn(async move {
                    if let Err(error) = line.send_rest(&bytes).await {
                        terminate(&fate, socket_failed(error));
                    }
                });
                if rest.await.is_err() {
                    self.terminate("the task that sends to the worker failed".to_owned());
                }
            }
            Err(error) => self.terminate(socket_failed(error)),
        }
    }

    /// Terminates the worker: its supervisor kills it and starts another.
    pub(super) fn terminate(&self, reason: String) {
        terminate(&self.fate, reason);
    }

    pub(super) fn why_it_ended(&self) -> String {
        self.fate.borrow().clone().unwrap_or_else(|| "the worker ended".to_owned())
    }

    pub(super) fn id(&self) -> WorkerId {
        self.id
    }

    pub(super) fn hello(&self) -> Hello {
        self.hello
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// Returns how many legs and freezes wait for an answer.
    pub(super) fn asked(&self) -> usize {
        self.waiting().as_ref().map_or(0, HashMap::len)
    }

    /// Locks the pending answers. The guard is never held across an await.
    fn waiting(&self) -> MutexGuard<'_, Option<HashMap<CellId, PendingAnswer>>> {
        self.waiting.lock()
    }
}

/// Returns the reason for which a worker is terminated whose socket failed. It can reach the model, so the error itself
/// is only logged.
fn socket_failed(error: io::Error) -> String {
    let fault = Fault::Socket(error);
    tracing::debug!(error = telemetry::error_chain(&fault), "cannot send to a worker");
    fault.to_string()
}

/// Sets the reason, unless there is one already.
fn terminate(fate: &watch::Sender<Option<String>>, reason: String) {
    fate.send_if_modified(|fate| {
        let first = fate.is_none();
        if first {
            *fate = Some(reason);
        }
        first
    });
}

impl WorkerReceiver {
    async fn next(&mut self) -> Result<FromWorker, Fault> {
        loop {
            if let Some(frame) = self.buffer.next_frame()? {
                return Ok(FromWorker::decode(frame)?);
            }
            let count = self.socket.read(&mut self.chunk).await?;
            let received = self.chunk.get(..count).filter(|received| !received.is_empty()).ok_or(Fault::HungUp)?;
            self.buffer.extend(received);
        }
    }
}
