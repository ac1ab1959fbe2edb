//! A host process that many talk to at once.

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

/// Who waits for which answer; nobody any more once the host has died.
type Waiting = Arc<Mutex<Option<HashMap<u64, Sender<Value>>>>>;

pub struct Node {
    child: Mutex<Child>,
    input: Mutex<ChildStdin>,
    waiting: Waiting,
    next: AtomicU64,
}

/// What a cell may take, also where a machine has much else to do.
const EXEC_MS: u64 = 20_000;

/// How a host is started.
#[derive(Clone, Debug)]
pub struct Start<'a> {
    pub store: &'a str,
    pub ledger: &'a Path,
    pub lease_ms: u64,
    pub wait_ms: u64,
    pub environment: Vec<(&'static str, String)>,
}

impl Node {
    pub fn start(start: &Start<'_>) -> Self {
        // Beside the ledger: whoever looks into a failure looks there.
        let said = OpenOptions::new().create(true).append(true).open(start.ledger.with_extension("log")).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_ledger-host"))
            .arg(start.store)
            .arg(start.ledger)
            .args([format!("lease={}", start.lease_ms), format!("wait={}", start.wait_ms)])
            .args([format!("exec={EXEC_MS}"), "attached=yes".to_owned()])
            .envs(start.environment.iter().cloned())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(said)
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let waiting: Waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        let answered = Arc::clone(&waiting);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let mut line: Value = serde_json::from_str(&line).unwrap();
                let id = line["id"].as_u64().unwrap();
                let waits = answered.lock().unwrap().as_mut().and_then(|waiting| waiting.remove(&id));
                if let Some(waits) = waits {
                    // Whoever asked may have gone.
                    drop(waits.send(line["answer"].take()));
                }
            }
            *answered.lock().unwrap() = None;
        });
        Self { child: Mutex::new(child), input: Mutex::new(input), waiting, next: AtomicU64::new(0) }
    }

    /// Where the answer will come. Nothing comes from a host that has died.
    pub fn tell(&self, line: &Value) -> Receiver<Value> {
        let (sender, receiver) = channel();
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        if let Some(waiting) = self.waiting.lock().unwrap().as_mut() {
            waiting.insert(id, sender);
        }
        let mut line = line.clone();
        line["id"] = id.into();
        // A host that has died hears nothing, and its silence is heard by the reader.
        drop(writeln!(self.input.lock().unwrap(), "{line}"));
        receiver
    }

    pub fn ask(&self, line: &Value) -> Option<Value> {
        self.tell(line).recv().ok()
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.lock().unwrap().id() as i32).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Size in memory, in bytes.
    pub fn resident(&self) -> u64 {
        let id = self.child.lock().unwrap().id();
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
    }

    /// How a host that said nothing ended.
    pub fn ended(&self) -> Option<ExitStatus> {
        self.child.lock().unwrap().wait().ok()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let mut child = self.child.lock().unwrap();
        let _dead = child.kill();
        let _gone = child.wait();
    }
}
