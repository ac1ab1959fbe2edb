//! Memory of the host process and its workers while a cell runs, read from `/proc`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::process;
use crate::processes::memory;

/// Resident memory that the host, and each worker, may reach while a cell runs.
pub(super) const MAX_PEAK_BYTES: u64 = 400 << 20;

/// How much larger than at its start the host, and each worker, may be once it has settled after a cell.
pub(super) const MAX_GROWTH_BYTES: u64 = 64 << 20;

/// How much one cell may add to the files of the store: the journal's budget, a snapshot of the largest size that the
/// set configures, and what a database needs around them (pages, indexes, the write-ahead log).
pub(super) const MAX_STORE_GROWTH_BYTES: u64 = 2 * (contract::limits::MAX_JOURNAL_BYTES as u64) + (96 << 20);

const SAMPLE_EVERY: Duration = Duration::from_millis(20);
const POLL_EVERY: Duration = Duration::from_millis(100);

/// Resident bytes of the host and of its largest worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    pub host_bytes: u64,
    pub worker_bytes: u64,
}

impl Usage {
    /// Returns the current resident memory.
    pub fn now() -> Self {
        Self::read("VmRSS")
    }

    fn read(field: &str) -> Self {
        let bytes = |pid: u32| memory(pid, field).unwrap_or(0);
        let workers = process::workers().into_iter().map(bytes);
        Self { host_bytes: bytes(std::process::id()), worker_bytes: workers.max().unwrap_or_default() }
    }

    fn max(self, other: Self) -> Self {
        Self {
            host_bytes: self.host_bytes.max(other.host_bytes),
            worker_bytes: self.worker_bytes.max(other.worker_bytes),
        }
    }

    fn minus(self, start: Self) -> Self {
        Self {
            host_bytes: self.host_bytes.saturating_sub(start.host_bytes),
            worker_bytes: self.worker_bytes.saturating_sub(start.worker_bytes),
        }
    }

    /// Names each of the two that is above a limit.
    fn above(self, limit: u64, what: &str) -> Vec<String> {
        let sides = [("the host", self.host_bytes), ("a worker", self.worker_bytes)];
        let large = sides.into_iter().filter(|(_, bytes)| *bytes > limit);
        large.map(|(name, bytes)| format!("{name} {what} {} MiB of {}", bytes >> 20, limit >> 20)).collect()
    }
}

/// Records memory peaks on a separate thread from its start until [`PeakMonitor::stop`].
#[derive(Debug)]
pub(super) struct PeakMonitor {
    stopped: Arc<AtomicBool>,
    sampler: JoinHandle<Usage>,
}

impl PeakMonitor {
    pub(super) fn start() -> std::io::Result<Self> {
        for pid in process::workers().into_iter().chain([std::process::id()]) {
            // Resets the kernel's record of the peak (`VmHWM`). Where that is not allowed, the record keeps the peak of
            // earlier cells, and one exceeded limit is reported for several cells.
            std::fs::write(format!("/proc/{pid}/clear_refs"), "5").ok();
        }
        let stopped = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stopped);
        let sampler = std::thread::Builder::new().name("peaks".into()).spawn(move || {
            // Repeated, because a worker may die before the end and take its record with it.
            let mut peak = Usage::default();
            while !seen.load(Ordering::Relaxed) {
                peak = peak.max(Usage::read("VmHWM"));
                std::thread::sleep(SAMPLE_EVERY);
            }
            peak.max(Usage::read("VmHWM"))
        })?;
        Ok(Self { stopped, sampler })
    }

    /// Stops recording and returns the peaks, with a message for each that exceeds its limit.
    pub(super) fn stop(self) -> (Usage, Vec<String>) {
        self.stopped.store(true, Ordering::Relaxed);
        let peak = self.sampler.join().unwrap_or_default();
        (peak, peak.above(MAX_PEAK_BYTES, "reached"))
    }
}

/// Waits until host and workers are about as large as at the start, and reports those that are not within the time.
pub(super) async fn settle(start: Usage, within: Duration) -> (Usage, Vec<String>) {
    let began = Instant::now();
    loop {
        let grown = Usage::now().minus(start);
        let problems = grown.above(MAX_GROWTH_BYTES, "has still grown by");
        if problems.is_empty() || began.elapsed() >= within {
            return (grown, problems);
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
}

/// Size of a SQLite store on disk, its write-ahead log included.
#[derive(Debug)]
pub(super) struct StoreSize {
    files: [PathBuf; 2],
    start: u64,
}

impl StoreSize {
    pub(super) fn of(database: &Path) -> Self {
        let mut log = database.as_os_str().to_owned();
        log.push("-wal");
        let mut size = Self { files: [database.to_owned(), log.into()], start: 0 };
        size.start = size.now();
        size
    }

    /// Returns a message if the store has grown by more than one cell may add.
    pub(super) fn problem(&self) -> Option<String> {
        let grown = self.now().saturating_sub(self.start);
        (grown > MAX_STORE_GROWTH_BYTES)
            .then(|| format!("the store has grown by {} MiB of {}", grown >> 20, MAX_STORE_GROWTH_BYTES >> 20))
    }

    fn now(&self) -> u64 {
        self.files.iter().filter_map(|file| std::fs::metadata(file).ok()).map(|file| file.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::{PeakMonitor, Usage};

    #[test]
    fn a_memory_peak_between_start_and_stop_is_recorded() {
        let monitor = PeakMonitor::start().unwrap();
        let taken = std::hint::black_box(vec![1_u8; 450 << 20]);
        drop(taken);
        let (peak, problems) = monitor.stop();
        assert!(peak.host_bytes > 450 << 20, "{peak:?}");
        assert_eq!(problems, [format!("the host reached {} MiB of 400", peak.host_bytes >> 20)]);
        assert!(Usage::now().host_bytes < 400 << 20);
    }
}
