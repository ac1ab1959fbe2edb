//! The connection to a running process of a plugin: JSON-RPC 2.0, one message per line, with every number of a
//! plugin's messages limited.
//!
//! An answer that is too large fails its request. A plugin that breaks another limit loses its connection. It cannot affect
//! other plugins: each connection has its own task, and the memory for parsed messages is shared under the budget of the
//! crate `process`.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use contract::limits::{MAX_JSON_VALUES, MAX_LARGE_MESSAGE_BYTES, MAX_PLUGIN_REQUESTS};
use contract::text::plain;
use executor::ProgressSink;
use parking_lot::Mutex;
use process::{
    CLOSE_GRACE, Envelope, FirstReason, LargeMessage, LargeMessages, Line, LineError, LineWriter, Lines,
    MAX_BAD_FRAMES, MAX_FRAME_BYTES, MAX_UNANSWERED_REQUESTS, MAX_UNSENT, MAX_UPDATE_CHARS, MAX_UPDATES, MessageKind,
    PendingReservation, Process, ProcessExit, ProgramEnd, Reservation, StartedProcess, Tail, endless_response, excerpt,
    response_id, response_too_long, too_large,
};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// The notification that is processed; all others are ignored.
const PROGRESS: &str = "progress";

/// Bytes of messages that the plugin has not read, beyond what the pipe holds.
const MAX_UNSENT_BYTES: usize = 40 << 20;

/// The bytes that a permit of the semaphore stands for.
const UNIT: usize = 1 << 10;

/// The number of consecutive requests without an answer in time after which the process is ended.
const MAX_TIMEOUTS: u32 = 3;

/// After this many bytes that nothing processes, reading pauses: a flood then blocks in the plugin's pipe and slows down
/// only that plugin.
const IGNORED_BYTES: usize = 256 << 10;
const PAUSE: Duration = Duration::from_millis(10);

/// How long the end of a connection waits for the last lines of the plugin's standard error, which say why it exited. Its
/// output and its standard error are two pipes, read by two tasks.
const STDERR_GRACE: Duration = Duration::from_millis(200);

/// How long the end of a connection waits until it is known how the plugin ended. A plugin that has exited is known to have
/// ended within milliseconds; one that has only closed its output must be ended first.
const EXIT_GRACE: Duration = Duration::from_secs(1);

/// How much of a plugin's own text an error message shows.
pub(super) const MAX_SHOWN_CHARS: usize = 1_000;

/// JSON-RPC's code for a method that does not exist.
const METHOD_NOT_FOUND: i32 = -32_601;

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloseReason {
    /// The plugin closed its output, or exited in a way that is not known.
    Ended,
    /// The plugin ended by itself.
    Exited(ProgramEnd),
    MessageTooLong,
    /// The plugin sent too many lines in a row that are not messages.
    Garbage,
    /// The plugin does not read the messages sent to it.
    DoesNotRead,
    /// The plugin sent too many requests, of which it has none.
    AsksTooMuch,
    /// The plugin left several requests in a row unanswered.
    Hangs,
    /// This process stopped the plugin.
    Stopped,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => f.write_str("the plugin exited or closed its output"),
            Self::Exited(end) => write!(f, "the plugin {end}"),
            Self::MessageTooLong => write!(f, "the plugin sent a message of more than {MAX_LARGE_MESSAGE_BYTES} bytes"),
            Self::Garbage => write!(f, "the plugin sent {MAX_BAD_FRAMES} lines in a row that are not JSON-RPC"),
            Self::DoesNotRead => {
                write!(f, "the plugin left {MAX_UNSENT} messages or {MAX_UNSENT_BYTES} bytes unread")
            }
            Self::AsksTooMuch => {
                write!(f, "the plugin sent more than {MAX_UNANSWERED_REQUESTS} requests; a plugin only answers")
            }
            Self::Hangs => write!(f, "the plugin left {MAX_TIMEOUTS} requests in a row unanswered"),
            Self::Stopped => f.write_str("the plugin was stopped"),
        }
    }
}

/// Why a request has no result.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum RequestError {
    /// The connection ended before the request was sent.
    NotSent(CloseReason),
    /// The connection ended after that.
    Lost(CloseReason),
    /// The plugin answered with an error.
    Refused {
        code: i64,
        message: String,
    },
    Deadline,
    /// Too many requests were waiting for answers for as long as this one could wait.
    Crowded,
    /// The answer exceeds a limit and was not parsed.
    TooLarge(String),
    /// The answer has neither a result nor an error, or is not JSON.
    Invalid,
}

/// A result, with its part of the budget until the caller has processed it.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) result: Value,
    _reservation: Reservation,
}

type Reply = Result<Answer, RequestError>;

/// The kind of a request. The answers of each have their own limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestKind {
    Handshake,
    Ordinary,
}

struct PendingRequest {
    reply: oneshot::Sender<Reply>,
    kind: RequestKind,
    updates: ProgressSink,
    updates_left: u32,
}

/// What the reading task and the callers share.
struct SharedConnection<W> {
    writer: LineWriter<W>,
    unsent_bytes: Arc<Semaphore>,
    pending: Mutex<HashMap<i64, PendingRequest>>,
    closed: FirstReason<CloseReason>,
    /// Set when nothing more is read from the plugin, and before `closed`, which takes a moment if the plugin has exited.
    is_ending: AtomicBool,
    /// Notified when a message could not be written.
    broken: Notify,
    stop: Notify,
    next_id: AtomicI64,
    timeouts: AtomicU32,
    requests: Arc<Semaphore>,
}

/// A connection to a plugin. Dropping it stops the plugin.
pub(super) struct Connection<W: AsyncWrite + Unpin + Send + 'static = tokio::process::ChildStdin> {
    shared: Arc<SharedConnection<W>>,
    tail: Tail,
    gone: Option<ProcessExit>,
}

impl<W: AsyncWrite + Unpin + Send + 'static> fmt::Debug for Connection<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("closed", &self.shared.closed.get()).finish_non_exhaustive()
    }
}

impl<W: AsyncWrite + Unpin + Send + 'static> Drop for Connection<W> {
    fn drop(&mut self) {
        self.shared.stop.notify_one();
    }
}

impl Connection {
    /// Connects to a process that was just started.
    pub(super) fn new(plugin: &str, started: StartedProcess) -> Self {
        let StartedProcess { process, stdin, stdout, stderr } = started;
        let tail = Tail::default();
        let gone = process.exit();
        let mut draining = tail.drain(plugin, stderr);
        let shared = SharedConnection::new(stdin);
        let reading = MessageReader::new(Arc::clone(&shared));
        let (exit, ending) = (gone.clone(), Arc::clone(&shared));
        tokio::spawn(async move {
            let mut process: Process = process;
            let why = reading.run(stdout).await;
            if why == CloseReason::Ended {
                draining.caught_up(STDERR_GRACE).await;
            }
            tokio::join!(process.end(), async { ending.close(with_exit(why, exit).await) });
            draining.finish().await;
        });
        Self { shared, tail, gone: Some(gone) }
    }
}

impl<W: AsyncWrite + Unpin + Send + 'static> Connection<W> {
    /// Connects to streams, for tests.
    #[cfg(test)]
    fn over(stdout: impl AsyncRead + Unpin + Send + 'static, stdin: W) -> Self {
        let shared = SharedConnection::new(stdin);
        let (reading, ending) = (MessageReader::new(Arc::clone(&shared)), Arc::clone(&shared));
        tokio::spawn(async move { ending.close(reading.run(stdout).await) });
        Self { shared, tail: Tail::default(), gone: None }
    }

    pub(super) fn why_closed(&self) -> Option<CloseReason> {
        self.shared.closed.get()
    }

    /// Waits for the end of the connection.
    pub(super) fn closed(&self) -> impl Future<Output = CloseReason> + Send + use<W> {
        let closed = self.shared.closed.clone();
        async move { closed.wait().await }
    }

    /// Waits until the process and everything that it started have ended.
    pub(super) async fn gone(&self) {
        if let Some(gone) = self.gone.clone() {
            gone.wait().await;
        }
    }

    /// Returns the end of the plugin's standard error.
    pub(super) fn stderr_tail(&self) -> String {
        self.tail.text()
    }

    /// Ends the connection: cancels what is under way, asks the plugin to exit, and ends its process.
    pub(super) fn stop(&self) {
        self.shared.stop.notify_one();
    }

    /// Sends a request and waits for its answer until the deadline. Dropping the future cancels the request.
    pub(super) async fn request(
        &self,
        method: &str,
        params: Value,
        deadline: Instant,
        updates: ProgressSink,
    ) -> Result<Answer, RequestError> {
        self.send_and_wait(RequestKind::Ordinary, method, params, deadline, updates).await
    }

    /// Sends the first request, whose answer has its own limits.
    pub(super) async fn handshake(&self, params: Value, deadline: Instant) -> Result<Answer, RequestError> {
        self.send_and_wait(RequestKind::Handshake, "initialize", params, deadline, ProgressSink::default()).await
    }

    async fn send_and_wait(
        &self,
        kind: RequestKind,
        method: &str,
        params: Value,
        deadline: Instant,
        updates: ProgressSink,
    ) -> Result<Answer, RequestError> {
        let shared = &self.shared;
        let _turn = match timeout_at(deadline, Arc::clone(&shared.requests).acquire_owned()).await {
            Ok(Ok(turn)) => turn,
            Ok(Err(_)) | Err(_) => return Err(RequestError::Crowded),
        };
        if let Some(why) = shared.why_ended().await {
            return Err(RequestError::NotSent(why));
        }
        let id = shared.next_id.fetch_add(1, Ordering::Relaxed);
        let (reply, answer) = oneshot::channel();
        shared.pending.lock().insert(id, PendingRequest { reply, kind, updates, updates_left: MAX_UPDATES });
        let _guard = RequestGuard { shared, id };
        // The connection may have ended since the check above, and then nothing settles this request.
        if let Some(why) = shared.why_ended().await {
            return Err(RequestError::NotSent(why));
        }
        shared.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        // The parameters may be large, and are written by now or copied.
        drop(params);
        match timeout_at(deadline, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(RequestError::Lost(shared.closed.wait().await)),
            Err(_) => {
                if shared.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_TIMEOUTS {
                    shared.closed.set(CloseReason::Hangs);
                }
                Err(RequestError::Deadline)
            }
        }
    }

    /// Sends a notification, if the plugin reads.
    pub(super) fn notify(&self, method: &str, params: Value) {
        if self.why_closed().is_none() {
            self.shared.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
        }
    }
}

/// Cancels a request that is dropped before it is answered.
struct RequestGuard<'a, W: AsyncWrite + Unpin + Send + 'static> {
    shared: &'a Arc<SharedConnection<W>>,
    id: i64,
}

impl<W: AsyncWrite + Unpin + Send + 'static> Drop for RequestGuard<'_, W> {
    fn drop(&mut self) {
        let was_open = self.shared.pending.lock().remove(&self.id).is_some();
        if was_open && self.shared.closed.get().is_none() {
            self.shared.cancel(self.id);
        }
    }
}

impl<W: AsyncWrite + Unpin + Send + 'static> SharedConnection<W> {
    fn new(stdin: W) -> Arc<Self> {
        Arc::new(Self {
            writer: LineWriter::new(stdin),
            unsent_bytes: Arc::new(Semaphore::new(MAX_UNSENT_BYTES / UNIT)),
            pending: Mutex::default(),
            closed: FirstReason::new(),
            is_ending: AtomicBool::new(false),
            broken: Notify::new(),
            stop: Notify::new(),
            next_id: AtomicI64::new(1),
            timeouts: AtomicU32::new(0),
            requests: Arc::new(Semaphore::new(MAX_PLUGIN_REQUESTS)),
        })
    }

    fn cancel(self: &Arc<Self>, id: i64) {
        self.send(&json!({"jsonrpc": "2.0", "method": "cancel", "params": {"requestId": id}}));
    }

    /// Writes a message in a task of its own, because a message of which only a part is written breaks the connection.
    fn send(self: &Arc<Self>, message: &Value) {
        let line = message.to_string().into_bytes();
        let (Some(slot), Some(room)) = (self.writer.reserve(), self.room(line.len())) else {
            self.closed.set(CloseReason::DoesNotRead);
            return;
        };
        let shared = Arc::clone(self);
        // Called before the task is spawned, so that messages keep their order.
        let writing = slot.write(line);
        tokio::spawn(async move {
            let written = tokio::select! {
                written = writing => written,
                _ = shared.closed.wait() => return,
            };
            drop(room);
            if written.is_err() {
                shared.broken.notify_one();
            }
        });
    }

    /// Returns a part of the bytes that may be unread.
    fn room(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let units = u32::try_from(bytes.div_ceil(UNIT)).ok()?;
        Arc::clone(&self.unsent_bytes).try_acquire_many_owned(units).ok()
    }

    fn settle(&self, id: i64, reply: Reply) {
        if let Some(pending) = self.pending.lock().remove(&id) {
            // Sending fails only if the caller no longer waits.
            drop(pending.reply.send(reply));
        }
    }

    /// Returns why the connection ended; `None` if it has not. While the connection ends, it waits for the reason.
    async fn why_ended(&self) -> Option<CloseReason> {
        if self.is_ending.load(Ordering::Relaxed) { Some(self.closed.wait().await) } else { self.closed.get() }
    }

    /// Settles all requests.
    fn close(&self, why: CloseReason) {
        self.closed.set(why);
        self.writer.close();
        // Dropping the senders wakes the callers, which read the reason.
        self.pending.lock().clear();
    }

    fn fail_all(&self, error: &RequestError) {
        for (_, pending) in self.pending.lock().drain() {
            drop(pending.reply.send(Err(error.clone())));
        }
    }
}

/// The task that reads a plugin's messages.
struct MessageReader<W: AsyncWrite + Unpin + Send + 'static> {
    shared: Arc<SharedConnection<W>>,
    /// Invalid messages in a row.
    bad: usize,
    /// Requests of the plugin.
    asked: usize,
    ignored_bytes: usize,
}

impl<W: AsyncWrite + Unpin + Send + 'static> MessageReader<W> {
    fn new(shared: Arc<SharedConnection<W>>) -> Self {
        Self { shared, bad: 0, asked: 0, ignored_bytes: 0 }
    }

    /// Reads until the connection ends, for whatever reason, and returns the reason.
    async fn run(mut self, stdout: impl AsyncRead + Unpin + Send) -> CloseReason {
        let mut lines = Lines::new(stdout, MAX_FRAME_BYTES);
        let shared = Arc::clone(&self.shared);
        let why = tokio::select! {
            why = self.read(&mut lines) => why,
            why = shared.closed.wait() => why,
            () = shared.broken.notified() => CloseReason::Ended,
            () = shared.stop.notified() => {
                self.say_goodbye(&mut lines).await;
                CloseReason::Stopped
            }
        };
        shared.is_ending.store(true, Ordering::Relaxed);
        why
    }

    async fn read(&mut self, lines: &mut Lines<impl AsyncRead + Unpin>) -> CloseReason {
        loop {
            let taken = match lines.next_or_large(LargeMessages::Refused).await {
                Ok(Line::Whole(text)) => self.take(text).await,
                Ok(Line::Large(message)) => self.take_large(message),
                Err(LineError::TooLong) => {
                    self.shared.fail_all(&RequestError::TooLarge(endless_response()));
                    Err(CloseReason::MessageTooLong)
                }
                Err(LineError::Ended) => Err(CloseReason::Ended),
            };
            if let Err(why) = taken {
                return why;
            }
            if self.ignored_bytes >= IGNORED_BYTES {
                self.ignored_bytes = 0;
                sleep(PAUSE).await;
            }
        }
    }

    /// Cancels what is under way, asks the plugin to exit, and waits a moment for it.
    async fn say_goodbye(&mut self, lines: &mut Lines<impl AsyncRead + Unpin>) {
        let open: Vec<i64> = self.shared.pending.lock().keys().copied().collect();
        let cancels = open.iter().map(|id| json!({"jsonrpc": "2.0", "method": "cancel", "params": {"requestId": id}}));
        let messages = cancels.chain([json!({"jsonrpc": "2.0", "method": "shutdown"})]);
        let goodbye = async {
            for message in messages {
                let Some(slot) = self.shared.writer.reserve() else { return };
                if slot.write(message.to_string().into_bytes()).await.is_err() {
                    return;
                }
            }
            self.shared.writer.close();
            while lines.next().await.is_ok() {}
        };
        if timeout(CLOSE_GRACE, goodbye).await.is_err() {
            tracing::debug!("a plugin did not exit when it was asked to");
        }
    }

    /// Handles a message that was too long to be kept: the request that it answers fails, and no other.
    fn take_large(&mut self, message: LargeMessage) -> Result<(), CloseReason> {
        let LargeMessage { skeleton, texts } = message;
        let error = RequestError::TooLarge(texts.err().unwrap_or_else(response_too_long));
        let Some(envelope) = Envelope::scan(&skeleton) else {
            // It may have been the answer to any request.
            self.shared.fail_all(&error);
            return self.garbage(MAX_FRAME_BYTES);
        };
        self.ignore(MAX_FRAME_BYTES);
        match envelope.response_id() {
            _ if envelope.has_method() && envelope.has_id() => return self.refuse(envelope.id()),
            _ if envelope.has_method() => {}
            Some(id) => self.shared.settle(id, Err(error)),
            None if envelope.has_id() => {}
            None => self.shared.fail_all(&error),
        }
        self.bad = 0;
        Ok(())
    }

    async fn take(&mut self, text: Vec<u8>) -> Result<(), CloseReason> {
        let Some(envelope) = Envelope::scan(&text) else {
            // A message that is too large to be scanned may have been the answer to any request.
            if let Some(why) = too_large(&text, MAX_JSON_VALUES) {
                self.shared.fail_all(&RequestError::TooLarge(why));
            }
            return self.garbage(text.len());
        };
        let open = envelope.response_id().and_then(|id| {
            let pending = self.shared.pending.lock();
            Some((id, pending.get(&id)?.kind == RequestKind::Handshake))
        });
        let Some(kind) = MessageKind::of(&envelope, open, &[PROGRESS]) else {
            // The answer to no open request (a wrong id, a second answer), or a notification that nothing processes.
            self.ignore(text.len());
            return Ok(());
        };
        self.bad = 0;
        let measure = match kind.judge(&text) {
            Ok(measure) => measure,
            Err(why) => {
                self.ignore(text.len());
                return match kind {
                    MessageKind::Answer(id) | MessageKind::Handshake(id) => {
                        self.shared.settle(id, Err(RequestError::TooLarge(why)));
                        Ok(())
                    }
                    MessageKind::Request => self.refuse(envelope.id()),
                    MessageKind::Notification => Ok(()),
                };
            }
        };
        if kind == MessageKind::Request {
            return self.refuse(envelope.id());
        }
        let reservation = match kind.answers().and_then(|_| PendingReservation::new(text.len(), measure)) {
            Some(mut reserving) => match reserving.wait().await {
                Some(reservation) => reservation,
                None => {
                    let why = "the host holds too much data of plugins and servers; try again".to_owned();
                    kind.answers()
                        .iter()
                        .for_each(|id| self.shared.settle(*id, Err(RequestError::TooLarge(why.clone()))));
                    return Ok(());
                }
            },
            None => Reservation::default(),
        };
        let parsed = serde_json::from_slice::<Map<String, Value>>(&text).ok();
        match parsed.filter(|message| kind.is(message)) {
            Some(message) => self.process(kind, message, reservation, text.len()),
            None => {
                // The request fails now instead of at its deadline, because no other answer will come.
                kind.answers().iter().for_each(|id| self.shared.settle(*id, Err(RequestError::Invalid)));
                return self.garbage(text.len());
            }
        }
        Ok(())
    }

    fn process(&mut self, kind: MessageKind, mut message: Map<String, Value>, reservation: Reservation, bytes: usize) {
        let Some(id) = message.get("id").and_then(response_id).filter(|_| kind.answers().is_some()) else {
            if !self.progress(&message) {
                self.ignore(bytes);
            }
            return;
        };
        self.shared.timeouts.store(0, Ordering::Relaxed);
        let reply = match (message.remove("result"), message.remove("error")) {
            (Some(result), None) => Ok(Answer { result, _reservation: reservation }),
            (None, Some(error)) => {
                let code = error.get("code").and_then(Value::as_i64).unwrap_or(0);
                let message = error.get("message").and_then(Value::as_str).unwrap_or("an error without a message");
                Err(RequestError::Refused { code, message: plain(message, MAX_SHOWN_CHARS) })
            }
            _ => Err(RequestError::Invalid),
        };
        self.shared.settle(id, reply);
    }

    /// Passes on progress of an open request. Returns whether there was one that may still send some.
    fn progress(&mut self, message: &Map<String, Value>) -> bool {
        let Some(params) = message.get("params") else { return false };
        let Some(id) = params.get("requestId").and_then(response_id) else { return false };
        let mut pending = self.shared.pending.lock();
        let Some(open) = pending.get_mut(&id).filter(|open| open.updates_left > 0) else { return false };
        open.updates_left -= 1;
        let mut update = Map::new();
        for key in ["progress", "total"] {
            if let Some(number) = params.get(key).filter(|value| value.is_number()) {
                update.insert(key.to_owned(), number.clone());
            }
        }
        if let Some(text) = params.get("message").and_then(Value::as_str) {
            update.insert("message".to_owned(), json!(plain(text, MAX_UPDATE_CHARS)));
        }
        let updates = open.updates.clone();
        drop(pending);
        updates.send(Value::Object(update));
        true
    }

    /// Answers a request of the plugin: the protocol has none.
    fn refuse(&mut self, id: Option<Value>) -> Result<(), CloseReason> {
        self.asked += 1;
        if self.asked > MAX_UNANSWERED_REQUESTS {
            return Err(CloseReason::AsksTooMuch);
        }
        let error =
            json!({"code": METHOD_NOT_FOUND, "message": "a plugin sends no requests, only `progress` notifications"});
        self.shared.send(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
        Ok(())
    }

    fn ignore(&mut self, bytes: usize) {
        self.ignored_bytes += bytes.max(64);
    }

    fn garbage(&mut self, bytes: usize) -> Result<(), CloseReason> {
        self.ignore(bytes);
        self.bad += 1;
        if self.bad >= MAX_BAD_FRAMES { Err(CloseReason::Garbage) } else { Ok(()) }
    }
}

/// Returns the reason why a connection ended, with how the plugin ended if it exited.
async fn with_exit(why: CloseReason, exit: ProcessExit) -> CloseReason {
    if why != CloseReason::Ended {
        return why;
    }
    exit.program_end(EXIT_GRACE).await.map_or(why, CloseReason::Exited)
}

/// Logs the end of a connection that the supervisor did not ask for.
pub(super) fn log_end(plugin: &str, why: CloseReason, stderr: &str) {
    let last = excerpt(&telemetry::Redactor::global().redact(stderr)).join(" | ");
    tracing::warn!(plugin, reason = %why, stderr = last, "the connection to a plugin was lost");
}

#[cfg(test)]
mod tests;
