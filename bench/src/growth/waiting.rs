//! Measures many suspended runs in one SQLite file: the time to suspend one more, the size of the file, and the start and
//! memory of another process that opens it.

use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};

use figures::machine::mebibytes;
use figures::{Answer, McpClient, Samples};
use serde_json::{Value, json};

use super::Figures;
use super::host::{Home, content, memory};
use crate::Result;

/// The number of runs that are suspended one after the other and measured, at each point of the curve. The others are
/// suspended concurrently.
const MEASURED_SUSPENSIONS: usize = 200;

/// Runs that are suspended at once where the time is not measured.
const CONCURRENT: usize = 24;

/// The number of runs that another process resumes, at each point of the curve.
const MEASURED_RESUMPTIONS: usize = 20;

/// How long to wait before the memory of a new process is read: its first sweep, after 1 s, is over then.
const SETTLE_TIME: Duration = Duration::from_secs(3);

/// Measures a point of the curve for each number of suspended runs in `sizes`, which ascend, and passes it to `report`.
pub(super) fn measure(sizes: &[usize], folder: &Path, report: &mut dyn FnMut(usize, Figures)) -> Result<()> {
    let (_, empty) = start_and_measure(&Home::new(&folder.join("empty"), &json!({}))?)?.1;
    let home = Home::new(folder, &json!({}))?;
    let mut population = Population::default();
    for size in sizes {
        let client = home.start()?;
        let single = (size - population.runs.len()).min(MEASURED_SUSPENSIONS);
        population.fill_to(&client, size - single)?;
        let suspended = population.suspend(&client, single)?;
        let host = memory(&client)?.0;
        client.end()?;
        let stored = home.store_bytes()?;
        let (client, (ready, resident)) = start_and_measure(&home)?;
        let resumed = population.resume(&client, MEASURED_RESUMPTIONS.min(*size))?;
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
        report(*size, serde_json::from_value(figures)?);
    }
    Ok(())
}

/// Starts a process, and returns the milliseconds until it has run a first cell, and its memory in bytes.
fn start_and_measure(home: &Home) -> Result<(McpClient, (f64, u64))> {
    let client = home.start()?;
    let (_, answer) = client.exec("return 1")?;
    let ready = client.since_start(&answer).as_secs_f64() * 1e3;
    std::thread::sleep(SETTLE_TIME);
    let resident = memory(&client)?.0;
    Ok((client, (ready, resident)))
}

/// The suspended runs.
#[derive(Default)]
struct Population {
    /// The id of each run, and the number that it returns.
    runs: Vec<(Value, usize)>,
    /// The number of runs that were started so far.
    started: usize,
    /// The state of the random number generator that selects runs.
    random_state: usize,
}

impl Population {
    /// Returns the source of the next cell and its number, which the cell returns when it is resumed.
    fn next_cell(&mut self) -> (String, usize) {
        self.started += 1;
        (format!("const mine = {}; await yield_control(); return mine", self.started), self.started)
    }

    /// Adds a run that `exec` has suspended.
    fn add(&mut self, answer: &Answer, number: usize) -> Result<()> {
        match content(answer, "runId") {
            Value::Null => Err(format!("a cell that yields got {}", answer.result).into()),
            run => {
                self.runs.push((run.clone(), number));
                Ok(())
            }
        }
    }

    /// Suspends runs, several at once, until there are `size`.
    fn fill_to(&mut self, client: &McpClient, size: usize) -> Result<()> {
        let mut pending = VecDeque::new();
        while self.runs.len() < size {
            while pending.len() < CONCURRENT && self.runs.len() + pending.len() < size {
                let (source, number) = self.next_cell();
                pending.push_back((client.begin(&source)?, number));
            }
            if let Some((answer, number)) = pending.pop_front() {
                self.add(&answer.recv()?, number)?;
            }
        }
        Ok(())
    }

    /// Suspends runs one after the other, and returns the time of each in milliseconds.
    fn suspend(&mut self, client: &McpClient, count: usize) -> Result<Samples> {
        let mut samples = Samples::default();
        for _ in 0..count {
            let (source, number) = self.next_cell();
            let from = Instant::now();
            let answer = client.begin(&source)?.recv()?;
            samples.push(from.elapsed().as_secs_f64() * 1e3);
            self.add(&answer, number)?;
        }
        Ok(samples)
    }

    /// Resumes random runs to their end, and returns the time of each in milliseconds.
    fn resume(&mut self, client: &McpClient, count: usize) -> Result<Samples> {
        let mut samples = Samples::default();
        for _ in 0..count {
            self.random_state =
                self.random_state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (run, number) = self.runs.swap_remove((self.random_state >> 33) % self.runs.len());
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
