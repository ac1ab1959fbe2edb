//! Suspended runs in one SQLite file: suspending one more, the size of the file, and another process that opens it.

use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};

use figures::machine::mebibytes;
use figures::{Answer, McpClient, Samples};
use serde_json::{Value, json};

use super::Figures;
use super::host::{Home, content, memory};
use crate::Result;

/// Runs of each size that are suspended one after the other and measured; the others are suspended concurrently.
const SUSPENDED: usize = 200;
const CONCURRENT: usize = 24;

/// Runs of each size that another process resumes.
const RESUMED: usize = 20;

/// Memory is read when the first sweep of a new process, after 1 s, is over.
const SETTLE: Duration = Duration::from_secs(3);

pub(super) fn measure(sizes: &[usize], folder: &Path, found: &mut dyn FnMut(usize, Figures)) -> Result<()> {
    let (_, empty) = open(&Home::new(&folder.join("empty"), &json!({}))?)?.1;
    let home = Home::new(folder, &json!({}))?;
    let mut population = Population::default();
    for size in sizes {
        let client = home.start()?;
        let single = (size - population.runs.len()).min(SUSPENDED);
        population.fill(&client, size - single)?;
        let suspended = population.suspend(&client, single)?;
        let host = memory(&client)?.0;
        client.end()?;
        let stored = home.store_bytes()?;
        let (client, (ready, resident)) = open(&home)?;
        let resumed = population.resume(&client, RESUMED.min(*size))?;
        client.end()?;
        let figures = json!({
            "exec_p50_ms": suspended.p50(),
            "exec_p99_ms": suspended.p99(),
            "store_mib": mebibytes(stored),
            "host_mib": mebibytes(host),
            "ready_ms": ready,
            "memory_mib": mebibytes(resident) - mebibytes(empty),
            "resume_p50_ms": resumed.p50(),
            "resume_p99_ms": resumed.p99(),
        });
        found(*size, serde_json::from_value(figures)?);
    }
    Ok(())
}

/// Starts a process, and returns the time until it has run a first cell, and its memory.
fn open(home: &Home) -> Result<(McpClient, (f64, u64))> {
    let client = home.start()?;
    let (_, answer) = client.exec("return 1")?;
    let ready = client.since_start(&answer).as_secs_f64() * 1e3;
    std::thread::sleep(SETTLE);
    let resident = memory(&client)?.0;
    Ok((client, (ready, resident)))
}

/// The suspended runs: their ids, and the values that they return.
#[derive(Default)]
struct Population {
    runs: Vec<(Value, usize)>,
    begun: usize,
    state: usize,
}

impl Population {
    /// Returns the source of the next cell, which returns its number when it is resumed.
    fn next(&mut self) -> (String, usize) {
        self.begun += 1;
        (format!("const mine = {}; await yield_control(); return mine", self.begun), self.begun)
    }

    fn keep(&mut self, answer: &Answer, number: usize) -> Result<()> {
        match content(answer, "runId") {
            Value::Null => Err(format!("a cell that yields got {}", answer.result).into()),
            run => {
                self.runs.push((run.clone(), number));
                Ok(())
            }
        }
    }

    /// Suspends runs, several at once, until there are `size`.
    fn fill(&mut self, client: &McpClient, size: usize) -> Result<()> {
        let mut pending = VecDeque::new();
        while self.runs.len() < size {
            while pending.len() < CONCURRENT && self.runs.len() + pending.len() < size {
                let (source, number) = self.next();
                pending.push_back((client.begin(&source)?, number));
            }
            if let Some((answer, number)) = pending.pop_front() {
                self.keep(&answer.recv()?, number)?;
            }
        }
        Ok(())
    }

    /// Suspends runs one after the other.
    fn suspend(&mut self, client: &McpClient, count: usize) -> Result<Samples> {
        let mut samples = Samples::default();
        for _ in 0..count {
            let (source, number) = self.next();
            let from = Instant::now();
            let answer = client.begin(&source)?.recv()?;
            samples.push(from.elapsed().as_secs_f64() * 1e3);
            self.keep(&answer, number)?;
        }
        Ok(samples)
    }

    /// Resumes random runs to their end.
    fn resume(&mut self, client: &McpClient, count: usize) -> Result<Samples> {
        let mut samples = Samples::default();
        for _ in 0..count {
            self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (run, number) = self.runs.swap_remove((self.state >> 33) % self.runs.len());
            let from = Instant::now();
            let answer = client.ask("tools/call", &json!({"name": "wait", "arguments": {"runId": run}}))?;
            samples.push(from.elapsed().as_secs_f64() * 1e3);
            if content(&answer, "value") != &json!(number) {
                return Err(format!("run {number} got {}", answer.result).into());
            }
        }
        Ok(samples)
    }
}
