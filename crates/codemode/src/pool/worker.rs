//! One worker that is up: who waits for it, what is sent to it, and how it is ended.

use std::collections::HashMap;
use std::io;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use contract::frame::{BadFrame, FrameBuffer, FromWorker, Hello, ToWorker};
use contract::ids::CellId;
use contract::tables::CatalogTables;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::{Mutex as AsyncMutex, Semaphore, oneshot, watch};

use super::PoolOptions;
use super::line::Line;

#[derive(Debug)]
pub(super) struct Worker {
    hello: Hello,
    pid: Option<u32>,
    line: Arc<AsyncMutex<Line>>,
    waiting: Mutex<HashMap<CellId, oneshot::Sender<FromWorker>>>,
    /// Places for cells, and turns for those of them that run.
    pub(super) places: Arc<Semaphore>,
    pub(super) turns: Semaphore,
    load: AtomicUsize,
    /// Why it must end, once it must.
    fate: watch::Sender<Option<String>>,
}

/// What went wrong with a worker, for its supervisor.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error("it hung up")]
    HungUp,
    #[error("its socket failed: {0}")]
    Socket(#[from] io::Error),
    #[error("it broke the protocol: {0}")]
    BadFrame(#[from] BadFrame),
    #[error("it answered what was not asked")]
    Unasked,
    #[error("{0}")]
    Unfit(String),
}

/// The receiving end of a worker's socket.
#[derive(Debug)]
pub(super) struct Incoming {
    socket: OwnedReadHalf,
    buffer: FrameBuffer,
    chunk: Vec<u8>,
}

impl Worker {
    /// Waits for the worker to say that it is ready.
    pub(super) async fn greet(
        socket: StdUnixStream,
        pid: Option<u32>,
        options: &PoolOptions,
    ) -> Result<(Arc<Self>, Incoming), Fault> {
        let (read, write) = UnixStream::from_std(socket)?.into_split();
        let mut incoming = Incoming { socket: read, buffer: FrameBuffer::default(), chunk: vec![0; 64 << 10] };
        let hello = match incoming.next().await? {
            FromWorker::Hello(hello) => hello,
            FromWorker::Unfit { reason } => return Err(Fault::Unfit(reason)),
            FromWorker::Leg(..) | FromWorker::Frozen { .. } | FromWorker::NotFrozen { .. } => {
                return Err(Fault::Unasked);
            }
        };
        let worker = Self {
            hello,
            pid,
            line: Arc::new(AsyncMutex::new(Line::new(write))),
            waiting: Mutex::default(),
            places: Arc::new(Semaphore::new(options.slots as usize)),
            turns: Semaphore::new(options.threads),
            load: AtomicUsize::new(0),
            fate: watch::Sender::new(None),
        };
        Ok((Arc::new(worker), incoming))
    }

    /// Hands every answer to whoever asked, until the worker is at fault or is condemned.
    pub(super) async fn listen(&self, mut incoming: Incoming) {
        let mut fate = self.fate.subscribe();
        let reason = tokio::select! {
            fault = self.hand_out(&mut incoming) => fault.to_string(),
            fate = fate.wait_for(Option::is_some) => fate.ok().and_then(|fate| fate.clone()).unwrap_or_default(),
        };
        self.places.close();
        self.turns.close();
        self.fate.send_replace(Some(reason));
        // Whoever waits finds its sender gone and reads the reason above.
        self.waiting().clear();
    }

    async fn hand_out(&self, incoming: &mut Incoming) -> Fault {
        loop {
            let frame = match incoming.next().await {
                Ok(frame) => frame,
                Err(fault) => return fault,
            };
            let cell = match &frame {
                FromWorker::Leg(cell, _) | FromWorker::Frozen { cell, .. } | FromWorker::NotFrozen { cell, .. } => {
                    *cell
                }
                FromWorker::Hello(_) | FromWorker::Unfit { .. } => return Fault::Unasked,
            };
            let Some(asked) = self.waiting().remove(&cell) else { return Fault::Unasked };
            // A cell that was dropped while it ran has nobody left to tell.
            drop(asked.send(frame));
        }
    }

    /// Expects an answer about this cell. Call before the question is sent.
    pub(super) fn expect(&self, cell: CellId) -> oneshot::Receiver<FromWorker> {
        let (tell, told) = oneshot::channel();
        self.waiting().insert(cell, tell);
        told
    }

    pub(super) async fn send(&self, frame: &ToWorker) {
        let line = Arc::clone(&self.line).lock_owned().await;
        self.send_on(line, frame.encode()).await;
    }

    pub(super) async fn send_with_catalog(&self, tables: &CatalogTables, frame: &ToWorker) {
        let mut line = Arc::clone(&self.line).lock_owned().await;
        let bytes = line.with_catalog(tables, frame);
        self.send_on(line, bytes).await;
    }

    async fn send_on(&self, mut line: tokio::sync::OwnedMutexGuard<Line>, mut bytes: Vec<u8>) {
        match line.try_send(&bytes) {
            Ok(written) if written == bytes.len() => {}
            Ok(written) => {
                bytes.drain(..written);
                let fate = self.fate.clone();
                // On a task of its own: whoever sends may be dropped, half a frame may not stay.
                let rest = tokio::spawn(async move {
                    if let Err(error) = line.send_rest(&bytes).await {
                        condemn(&fate, format!("its socket failed: {error}"));
                    }
                });
                if rest.await.is_err() {
                    self.condemn("sending to it failed".to_owned());
                }
            }
            Err(error) => self.condemn(format!("its socket failed: {error}")),
        }
    }

    /// Ends the worker: its supervisor kills it and starts another.
    pub(super) fn condemn(&self, reason: String) {
        condemn(&self.fate, reason);
    }

    pub(super) fn why_it_ended(&self) -> String {
        self.fate.borrow().clone().unwrap_or_else(|| "it went away".to_owned())
    }

    pub(super) fn hello(&self) -> Hello {
        self.hello
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.pid
    }

    pub(super) fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed)
    }

    /// How many answers are awaited.
    pub(super) fn asked(&self) -> usize {
        self.waiting().len()
    }

    /// A cell that waits between legs weighs little, one that runs weighs much.
    pub(super) fn add_load(&self, weight: usize) {
        self.load.fetch_add(weight, Ordering::Relaxed);
    }

    pub(super) fn take_load(&self, weight: usize) {
        self.load.fetch_sub(weight, Ordering::Relaxed);
    }

    /// Held for one look-up, never across an await.
    fn waiting(&self) -> MutexGuard<'_, HashMap<CellId, oneshot::Sender<FromWorker>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The first reason stands.
fn condemn(fate: &watch::Sender<Option<String>>, reason: String) {
    fate.send_if_modified(|fate| {
        let first = fate.is_none();
        if first {
            *fate = Some(reason);
        }
        first
    });
}

impl Incoming {
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
