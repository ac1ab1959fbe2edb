//! An MCP client that writes and reads JSON lines, without a protocol library.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Result;

/// How long the client waits for an answer: longer than any answer takes in a correct run.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// A client with the server process that it started. The server is killed when the client is dropped.
#[derive(Debug)]
pub struct McpClient {
    child: Mutex<Child>,
    pid: i32,
    stdin: Mutex<Option<ChildStdin>>,
    pending: Arc<Mutex<HashMap<i64, Sender<Answer>>>>,
    next_id: AtomicI64,
    started: Instant,
}

/// The response to one request.
#[derive(Debug)]
pub struct Answer {
    /// The `result` of the response, or its `error` if the request failed.
    pub result: Value,
    /// Length of the whole line without its line break.
    pub bytes: usize,
    pub received: Instant,
}

impl Drop for McpClient {
    fn drop(&mut self) {
        self.kill();
    }
}

impl McpClient {
    /// Starts the server and performs the handshake.
    pub fn start(mut command: Command) -> Result<Self> {
        let started = Instant::now();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a process without pipes".into());
        };
        let pending = Arc::new(Mutex::new(HashMap::new()));
        let for_reader = Arc::clone(&pending);
        std::thread::spawn(move || read_answers(stdout, &for_reader));
        let (pid, stdin, next_id) = (i32::try_from(child.id())?, Mutex::new(Some(stdin)), AtomicI64::new(1));
        let client = Self { child: Mutex::new(child), pid, stdin, pending, next_id, started };
        let info = json!({"name": "bench", "version": "1"});
        client.ask("initialize", &json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}))?;
        client.write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
        Ok(client)
    }

    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Returns the time from the server's start to this answer.
    pub fn since_start(&self, answer: &Answer) -> Duration {
        answer.received.saturating_duration_since(self.started)
    }

    /// Sends a request. The receiver gets its answer, or ends without one if the server ends.
    pub fn send(&self, method: &str, params: &Value) -> Result<Receiver<Answer>> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = channel();
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).insert(id, sender);
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        Ok(receiver)
    }

    /// Sends a request and waits for its answer, which may contain an error of the server.
    pub fn ask(&self, method: &str, params: &Value) -> Result<Answer> {
        let receiver = self.send(method, params)?;
        receiver.recv_timeout(ANSWER_TIMEOUT).map_err(|_| format!("no answer to {method}").into())
    }

    /// Starts a cell without waiting for it. [`finish`](Self::finish) waits.
    pub fn begin(&self, code: &str) -> Result<Receiver<Answer>> {
        self.send("tools/call", &json!({"name": "exec", "arguments": {"code": code, "language": "javascript"}}))
    }

    /// Runs a cell to its end, and returns its value and the answer that contains it.
    pub fn exec(&self, code: &str) -> Result<(Value, Answer)> {
        self.finish(&self.begin(code)?)
    }

    /// Waits for a cell that [`begin`](Self::begin) started, calling `wait` as a model would. Returns its value and the
    /// answer that contains it.
    pub fn finish(&self, begun: &Receiver<Answer>) -> Result<(Value, Answer)> {
        let mut answer = begun.recv_timeout(ANSWER_TIMEOUT).map_err(|_| "no answer to a cell")?;
        loop {
            let result = answer.result.get("structuredContent").unwrap_or(&Value::Null);
            match result.get("status").and_then(Value::as_str) {
                Some("completed") => return Ok((result.get("value").cloned().unwrap_or(Value::Null), answer)),
                Some("waiting") => {
                    let arguments = json!({"runId": result.get("runId")});
                    answer = self.ask("tools/call", &json!({"name": "wait", "arguments": arguments}))?;
                }
                _ => return Err(format!("a cell did not complete: {}", answer.result).into()),
            }
        }
    }

    fn write(&self, message: &Value) -> Result<()> {
        let mut stdin = self.stdin.lock().unwrap_or_else(PoisonError::into_inner);
        let stdin = stdin.as_mut().ok_or("the server's input is closed")?;
        stdin.write_all(format!("{message}\n").as_bytes())?;
        Ok(stdin.flush()?)
    }

    /// Closes the server's input, as a client does when it disconnects.
    pub fn close_input(&self) {
        self.stdin.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Closes the server's input and waits until it has ended, so that all its state is written.
    pub fn end(self) -> Result<()> {
        self.close_input();
        let closed = Instant::now();
        while !self.has_ended()? {
            if closed.elapsed() > ANSWER_TIMEOUT {
                return Err("the server did not end when its input was closed".into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Kills the server if it still runs, and waits for it, so that no zombie is left.
    pub fn kill(&self) {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        // An error means that the process has already ended.
        drop(child.kill());
        drop(child.wait());
    }

    /// Returns whether the server has ended, and reaps it if so.
    pub fn has_ended(&self) -> Result<bool> {
        Ok(self.child.lock().unwrap_or_else(PoisonError::into_inner).try_wait()?.is_some())
    }
}

/// Reads answers until the server closes its output, and sends each to the caller that waits for it.
fn read_answers(stdout: ChildStdout, pending: &Mutex<HashMap<i64, Sender<Answer>>>) {
    for line in BufReader::new(stdout).lines().map_while(std::result::Result::ok) {
        let received = Instant::now();
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        let id = message.get("id").and_then(Value::as_i64).filter(|_| message.get("method").is_none());
        let sender = id.and_then(|id| pending.lock().unwrap_or_else(PoisonError::into_inner).remove(&id));
        if let Some(sender) = sender {
            let result = message.get("result").or(message.get("error")).cloned().unwrap_or(Value::Null);
            // The caller may have stopped waiting.
            drop(sender.send(Answer { result, bytes: line.len(), received }));
        }
    }
    // Drops the senders, so that callers stop waiting.
    pending.lock().unwrap_or_else(PoisonError::into_inner).clear();
}
