//! A host process that handles commands from several threads.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Senders for the pending answers by command id; `None` once the host has died.
type Waiting = Arc<Mutex<Option<HashMap<u64, Sender<Value>>>>>;

pub(super) struct Node {
    child: Mutex<Child>,
    input: Mutex<ChildStdin>,
    waiting: Waiting,
    next: AtomicU64,
}

/// Time limit of a cell, long enough for a busy machine.
const EXEC_MS: u64 = 20_000;

/// The parameters of a host process.
#[derive(Clone, Debug)]
pub(super) struct Start<'a> {
    pub store: &'a str,
    pub ledger: &'a Path,
    pub lease_ms: u64,
    pub wait_ms: u64,
    pub environment: Vec<(&'static str, String)>,
}

impl Node {
    pub(super) fn start(start: &Start<'_>) -> Self {
        // Beside the ledger, where a failed test is investigated.
        let log = OpenOptions::new().create(true).append(true).open(start.ledger.with_extension("log")).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_ledger-host"))
            .arg(start.store)
            .arg(start.ledger)
            .args([format!("lease={}", start.lease_ms), format!("wait={}", start.wait_ms)])
            .args([format!("exec={EXEC_MS}"), "attached=yes".to_owned()])
            .envs(start.environment.iter().cloned())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let waiting: Waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        let pending = Arc::clone(&waiting);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // A host that was killed may have written only a part of its last line.
                let Ok(mut line) = serde_json::from_str::<Value>(&line) else { break };
                let id = line["id"].as_u64().unwrap();
                let sender = pending.lock().unwrap().as_mut().and_then(|waiting| waiting.remove(&id));
                if let Some(sender) = sender {
                    // The receiver may have been dropped.
                    drop(sender.send(line["answer"].take()));
                }
            }
            *pending.lock().unwrap() = None;
        });
        Self { child: Mutex::new(child), input: Mutex::new(input), waiting, next: AtomicU64::new(0) }
    }

    /// Sends a command and returns the receiver of its answer, which is disconnected if the host dies.
    pub(super) fn send(&self, line: &Value) -> Receiver<Value> {
        let (sender, receiver) = channel();
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        if let Some(waiting) = self.waiting.lock().unwrap().as_mut() {
            waiting.insert(id, sender);
        }
        let mut line = line.clone();
        line["id"] = id.into();
        // If the host has died, the reading thread notices it.
        drop(writeln!(self.input.lock().unwrap(), "{line}"));
        receiver
    }

    /// Sends a command and waits for its answer; `None` if the host dies.
    pub(super) fn ask(&self, line: &Value) -> Option<Value> {
        self.send(line).recv().ok()
    }

    pub(super) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.lock().unwrap().id() as i32).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Returns the resident memory in bytes.
    pub(super) fn resident(&self) -> u64 {
        let id = self.child.lock().unwrap().id();
        testkit::processes::memory(id, "VmRSS").unwrap()
    }

    /// Waits until the host exits and returns its status.
    pub(super) fn exit_status(&self) -> Option<ExitStatus> {
        self.child.lock().unwrap().wait().ok()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let mut child = self.child.lock().unwrap();
        let _result = child.kill();
        let _status = child.wait();
    }
}
