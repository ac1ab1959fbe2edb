//! The worker's threads, which take turns reading from the socket: the thread that reads a frame runs it. If that takes
//! long, the next thread reads meanwhile.
//!
//! There is no queue and no hand-over: a leg starts on the thread that read its frame. There are more threads than
//! cores, so that endless cells share the cores with those that end; [`turns`] ensures that short legs use only one of
//! them: there is about one worker per core, and more threads would only wait for each other. The socket is a `File`, because the jail allows only plain `read` and `write`.

use std::fs::File;
use std::io::{Read, Write};
use std::sync::{Arc, Barrier, Condvar, Mutex, PoisonError};
use std::thread::Builder;

use contract::frame::{FrameBuffer, FromWorker, ToWorker};

use super::pulse::Pulse;
use super::turns::Turns;
use crate::engine_config::WASM_STACK_BYTES;
use crate::machine::Sandbox;
use crate::source;

/// The stack holds either the parser's frames or the guest's. Only touched pages take memory.
pub(super) const THREAD_STACK_BYTES: usize = source::STACK_BYTES + WASM_STACK_BYTES;

/// The stack of the thread that compresses and decompresses, of which zstd takes a few KiB.
const SPARE_STACK_BYTES: usize = 256 << 10;

const READ_BYTES: usize = 64 << 10;

/// All threads of a worker, started and waiting for [`Crew::go`].
pub(super) struct Crew {
    shared: Arc<Shared>,
    go: Arc<Barrier>,
}

struct Shared {
    sandbox: Arc<Sandbox>,
    pulse: Pulse,
    turns: Turns,
    incoming: Mutex<Incoming>,
    outgoing: Mutex<File>,
    over: Mutex<bool>,
    ended: Condvar,
}

struct Incoming {
    stream: File,
    buffer: FrameBuffer,
    chunk: Box<[u8]>,
}

impl Crew {
    /// Starts the threads. They do nothing before [`Crew::go`].
    pub(super) fn assemble(sandbox: Arc<Sandbox>, stream: File, threads: usize) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            sandbox,
            pulse: Pulse::default(),
            turns: Turns::default(),
            over: Mutex::new(false),
            ended: Condvar::new(),
            outgoing: Mutex::new(stream.try_clone()?),
            incoming: Mutex::new(Incoming {
                stream,
                buffer: FrameBuffer::default(),
                chunk: vec![0; READ_BYTES].into_boxed_slice(),
            }),
        });
        // The threads for cells, the ticker, the spare thread and this one.
        let up = Arc::new(Barrier::new(threads + 3));
        let go = Arc::new(Barrier::new(threads + 3));

        let ticker = (Arc::clone(&shared), Arc::clone(&up), Arc::clone(&go));
        Builder::new().name("ticker".into()).stack_size(256 << 10).spawn(move || {
            let (shared, up, go) = ticker;
            up.wait();
            go.wait();
            shared.pulse.beat(|| {
                shared.sandbox.tick();
                shared.turns.tick();
            })
        })?;
        let spare = (Arc::clone(&shared.sandbox), Arc::clone(&up), Arc::clone(&go));
        Builder::new().name("spare".into()).stack_size(SPARE_STACK_BYTES).spawn(move || {
            let (sandbox, up, go) = spare;
            up.wait();
            go.wait();
            sandbox.help();
        })?;
        for _ in 0..threads {
            let (shared, up, go) = (Arc::clone(&shared), Arc::clone(&up), Arc::clone(&go));
            Builder::new().name("cells".into()).stack_size(THREAD_STACK_BYTES).spawn(move || {
                // Allocates this thread's signal stack now: the jail would forbid it later.
                wasmtime::Engine::tls_eager_initialize();
                up.wait();
                go.wait();
                shared.take_turns();
            })?;
        }
        up.wait();
        Ok(Self { shared, go })
    }

    pub(super) fn send(&self, frame: &FromWorker) -> std::io::Result<()> {
        self.shared.send(frame)
    }

    pub(super) fn go(&self) {
        self.go.wait();
    }

    /// Waits until the host has disconnected. Returns at once then, even if cells are still running.
    pub(super) fn wait_for_disconnect(self) {
        let mut over = self.shared.over.lock().unwrap_or_else(PoisonError::into_inner);
        while !*over {
            over = self.shared.ended.wait(over).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Shared {
    fn take_turns(&self) {
        loop {
            self.turns.wait();
            let Some(frame) = self.next_to_run() else { break };
            let _running = self.pulse.leg();
            self.turns.begin_leg();
            let Ok(answer) = self.sandbox.handle(frame) else { return self.hang_up() };
            // If the reply cannot be sent, the host is gone and the worker stops.
            if answer.reply.as_ref().is_some_and(|reply| self.send(reply).is_err()) {
                return self.hang_up();
            }
            self.turns.end_leg();
        }
        self.hang_up();
    }

    /// Reads up to the next frame that runs a cell. Frames that only change tables are handled here, before any frame
    /// that was sent after them.
    fn next_to_run(&self) -> Option<ToWorker> {
        let mut incoming = self.incoming.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.is_over() {
            let frame = incoming.read()?;
            match frame {
                ToWorker::Catalog { .. } | ToWorker::Forget { .. } | ToWorker::Drop(_) => {
                    self.sandbox.handle(frame).ok()?;
                }
                ToWorker::Start(..) | ToWorker::Deliver(..) | ToWorker::Freeze { .. } | ToWorker::Thaw(..) => {
                    return Some(frame);
                }
            }
        }
        None
    }

    fn send(&self, frame: &FromWorker) -> std::io::Result<()> {
        let mut outgoing = self.outgoing.lock().unwrap_or_else(PoisonError::into_inner);
        // Encode under the lock: a worker has memory for one large frame at a time.
        outgoing.write_all(&frame.encode())
    }

    fn hang_up(&self) {
        *self.over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.ended.notify_all();
    }

    fn is_over(&self) -> bool {
        *self.over.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Incoming {
    /// Reads the next frame; `None` if the host disconnected or sent an invalid frame.
    fn read(&mut self) -> Option<ToWorker> {
        loop {
            match self.buffer.next_frame() {
                Ok(Some(frame)) => return ToWorker::decode(frame).ok(),
                Ok(None) => {}
                Err(_) => return None,
            }
            match self.stream.read(&mut self.chunk) {
                Ok(0) => return None,
                Ok(count) => self.buffer.extend(self.chunk.get(..count)?),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
    }
}

/// Sends one frame without a crew.
pub(super) fn send(mut stream: &File, frame: &FromWorker) -> std::io::Result<()> {
    stream.write_all(&frame.encode())
}
