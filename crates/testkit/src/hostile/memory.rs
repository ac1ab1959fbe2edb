//! Memory of the host process and its workers while a cell runs, read from `/proc`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::process;
use crate::processes::memory;

/// Resident memory that the host, and each worker, may reach while a cell runs.
pub(super) const MAX_PEAK_BYTES: u64 = 400 << 20;

/// How much larger than at the start the host, and each worker, may be some time after a cell. The allocator cannot
/// return pages that contain a block in use: after the largest cells it keeps 45 to 65 MiB of them, however often these
/// cells are repeated.
pub(super) const MAX_GROWTH_BYTES: u64 = 96 << 20;

const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The resident memory of the host and of its largest worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryUsage {
    pub host_bytes: u64,
    pub worker_bytes: u64,
}

impl MemoryUsage {
    /// Returns the resident memory that is not mapped from files. The program's own pages are, and without optimisation
    /// they are tens of megabytes, which become resident one by one as tests use them.
    pub fn now() -> Self {
        Self::read("RssAnon")
    }

    /// Reads a field of `/proc/PID/status`, such as `VmHWM`, the peak of the resident memory.
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

    /// Returns a message for the host, and for the largest worker, if it is above a limit.
    fn problems_above(self, limit: u64, what: &str) -> Vec<String> {
        let sides = [("the host", self.host_bytes), ("a worker", self.worker_bytes)];
        let large = sides.into_iter().filter(|(_, bytes)| *bytes > limit);
        large.map(|(name, bytes)| format!("{name} {what} {} MiB of {}", bytes >> 20, limit >> 20)).collect()
    }
}

/// Records memory peaks on a separate thread from its start until [`PeakMonitor::stop`].
#[derive(Debug)]
pub(super) struct PeakMonitor {
    stopped: Arc<AtomicBool>,
    sampler: JoinHandle<MemoryUsage>,
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
            let mut peak = MemoryUsage::default();
            while !seen.load(Ordering::Relaxed) {
                peak = peak.max(MemoryUsage::read("VmHWM"));
                std::thread::sleep(SAMPLE_INTERVAL);
            }
            peak.max(MemoryUsage::read("VmHWM"))
        })?;
        Ok(Self { stopped, sampler })
    }

    /// Stops recording and returns the peaks, with a message for each that exceeds its limit.
    pub(super) fn stop(self) -> (MemoryUsage, Vec<String>) {
        self.stopped.store(true, Ordering::Relaxed);
        let peak = self.sampler.join().unwrap_or_default();
        (peak, peak.problems_above(MAX_PEAK_BYTES, "reached"))
    }
}

/// Waits until host and workers have grown by at most `MAX_GROWTH_BYTES` since the start. Returns the growth, and a
/// message for each that has still grown by more after the time `within`.
pub(super) async fn wait_for_release(start: MemoryUsage, within: Duration) -> (MemoryUsage, Vec<String>) {
    let began = Instant::now();
    loop {
        let grown = MemoryUsage::now().minus(start);
        let problems = grown.problems_above(MAX_GROWTH_BYTES, "has still grown by");
        if problems.is_empty() || began.elapsed() >= within {
            return (grown, problems);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::{MemoryUsage, PeakMonitor};

    #[test]
    fn a_memory_peak_between_start_and_stop_is_recorded() {
        let monitor = PeakMonitor::start().unwrap();
        let taken = std::hint::black_box(vec![1_u8; 450 << 20]);
        drop(taken);
        let (peak, problems) = monitor.stop();
        assert!(peak.host_bytes > 450 << 20, "{peak:?}");
        assert_eq!(problems, [format!("the host reached {} MiB of 400", peak.host_bytes >> 20)]);
        assert!(MemoryUsage::now().host_bytes < 400 << 20);
    }
}
