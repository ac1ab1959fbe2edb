//! A client that knows JSON lines and nothing of any protocol library.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Result;

/// Longer than any answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server on standard streams, killed when dropped.
pub(crate) struct Client {
    child: Mutex<Child>,
    pid: i32,
    stdin: Mutex<Option<ChildStdin>>,
    asked: Arc<Mutex<HashMap<i64, Sender<Answer>>>>,
    next_id: AtomicI64,
    started: Instant,
}

pub(crate) struct Answer {
    pub(crate) result: Value,
    /// Of the whole line, its end left out.
    pub(crate) bytes: usize,
    pub(crate) came: Instant,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Client {
    /// Starts it and greets it.
    pub(crate) fn start(mut command: Command) -> Result<Self> {
        let started = Instant::now();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a process without pipes".into());
        };
        let asked = Arc::new(Mutex::new(HashMap::new()));
        let answered = Arc::clone(&asked);
        std::thread::spawn(move || read(stdout, &answered));
        let (pid, stdin, next_id) = (i32::try_from(child.id())?, Mutex::new(Some(stdin)), AtomicI64::new(1));
        let client = Self { child: Mutex::new(child), pid, stdin, asked, next_id, started };
        let who = json!({"name": "bench", "version": "1"});
        client.ask("initialize", &json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": who}))?;
        client.write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
        Ok(client)
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// From its start to this answer.
    pub(crate) fn since_start(&self, answer: &Answer) -> Duration {
        answer.came.saturating_duration_since(self.started)
    }

    pub(crate) fn send(&self, method: &str, params: &Value) -> Result<Receiver<Answer>> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (tell, told) = channel();
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).insert(id, tell);
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        Ok(told)
    }

    pub(crate) fn ask(&self, method: &str, params: &Value) -> Result<Answer> {
        let told = self.send(method, params)?;
        told.recv_timeout(PATIENCE).map_err(|_| format!("no answer to {method}").into())
    }

    /// Starts a cell without waiting for it.
    pub(crate) fn begin(&self, code: &str) -> Result<Receiver<Answer>> {
        self.send("tools/call", &json!({"name": "exec", "arguments": {"code": code, "language": "javascript"}}))
    }

    /// A cell's value and the answer that has it, waited for as a model would.
    pub(crate) fn exec(&self, code: &str) -> Result<(Value, Answer)> {
        self.finish(&self.begin(code)?)
    }

    pub(crate) fn finish(&self, begun: &Receiver<Answer>) -> Result<(Value, Answer)> {
        let mut answer = begun.recv_timeout(PATIENCE).map_err(|_| "a cell was not answered")?;
        loop {
            let told = answer.result.get("structuredContent").unwrap_or(&Value::Null);
            match told.get("status").and_then(Value::as_str) {
                Some("completed") => return Ok((told.get("value").cloned().unwrap_or(Value::Null), answer)),
                Some("waiting") => {
                    let arguments = json!({"runId": told.get("runId")});
                    answer = self.ask("tools/call", &json!({"name": "wait", "arguments": arguments}))?;
                }
                _ => return Err(format!("a cell did not complete: {}", answer.result).into()),
            }
        }
    }

    fn write(&self, message: &Value) -> Result<()> {
        let mut stdin = self.stdin.lock().unwrap_or_else(PoisonError::into_inner);
        let stdin = stdin.as_mut().ok_or("its input is closed")?;
        stdin.write_all(format!("{message}\n").as_bytes())?;
        Ok(stdin.flush()?)
    }

    /// What a client does that has no more to say.
    pub(crate) fn close_input(&self) {
        self.stdin.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Closes its input and waits until it has ended, so that all it had to write is written.
    pub(crate) fn end(self) -> Result<()> {
        self.close_input();
        let closed = Instant::now();
        while !self.has_ended()? {
            if closed.elapsed() > PATIENCE {
                return Err("it did not end when its input was closed".into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Kills it where it still runs, and waits so that no zombie is left.
    pub(crate) fn kill(&self) {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        // The only failure is that it has ended already.
        drop(child.kill());
        drop(child.wait());
    }

    /// Whether it has ended; it is waited for where it has.
    pub(crate) fn has_ended(&self) -> Result<bool> {
        Ok(self.child.lock().unwrap_or_else(PoisonError::into_inner).try_wait()?.is_some())
    }
}

fn read(stdout: ChildStdout, asked: &Mutex<HashMap<i64, Sender<Answer>>>) {
    for line in BufReader::new(stdout).lines().map_while(std::result::Result::ok) {
        let came = Instant::now();
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        let id = message.get("id").and_then(Value::as_i64).filter(|_| message.get("method").is_none());
        let told = id.and_then(|id| asked.lock().unwrap_or_else(PoisonError::into_inner).remove(&id));
        if let Some(told) = told {
            let result = message.get("result").or(message.get("error")).cloned().unwrap_or(Value::Null);
            // Whoever asked may have gone away.
            drop(told.send(Answer { result, bytes: line.len(), came }));
        }
    }
    // Nobody is told any more.
    asked.lock().unwrap_or_else(PoisonError::into_inner).clear();
}
