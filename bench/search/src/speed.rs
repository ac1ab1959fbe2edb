//! Measures the CPU time of building an index and of a search, on one core.

use std::path::Path;
use std::time::Duration;

use catalog::search::{Document, Index, Meaning, Weights};
use figures::machine::{mebibytes, resident_bytes};
use rustix::time::{ClockId, clock_gettime};

use crate::Result;
use crate::data::{MIXED, read};
use crate::measure::SHOWN;

/// Prints the times and returns whether every bar was met.
pub(crate) fn run(data: &Path) -> Result<bool> {
    // Load the table of meanings first, because it is not part of an index.
    let meaning = Meaning::shipped();
    let few = read(data, "livemcp_agent")?;
    let many = read(data, MIXED)?;
    let mut met = true;
    let mut bar = |what: &str, took: Duration, most: Duration| {
        met &= took <= most;
        println!("{what:36}{took:>12.2?}  bar {most:?}  {}", if took <= most { "pass" } else { "FAIL" });
    };
    let half: Vec<Document> = few.documents.iter().take(500).cloned().collect();
    bar(
        "index of 500 tools",
        median(9, || Index::new(half.clone(), meaning, Weights::SHIPPED)),
        Duration::from_millis(100),
    );
    let before = resident_bytes("self")?;
    let index = Index::new(many.documents.clone(), meaning, Weights::SHIPPED);
    let held = resident_bytes("self")?.saturating_sub(before);
    let build = median(3, || Index::new(many.documents.clone(), meaning, Weights::SHIPPED));
    bar("index of 12,653 tools", build, Duration::from_millis(1_500));
    let changed: Vec<Document> = many.documents.iter().skip(40).cloned().collect();
    bar("update to 40 tools fewer", median(3, || index.updated(changed.clone())), Duration::from_millis(300));
    let small = Index::new(few.documents, meaning, Weights::SHIPPED);
    bar("a search in 527 tools, p50", search(&small, &few.queries), Duration::from_micros(200));
    bar("a search in 12,653 tools, p50", search(&index, &many.queries), Duration::from_millis(2));
    let words = Index::new(many.documents.clone(), None, Weights::SHIPPED);
    bar("the same search by words alone", search(&words, &many.queries), Duration::from_millis(1));
    let mib = mebibytes(held);
    println!(
        "{:36}{mib:>9.1} MiB  bar 40 MiB  {}",
        "memory of 12,653 tools",
        if mib <= 40.0 { "pass" } else { "FAIL" }
    );
    Ok(met && mib <= 40.0)
}

fn search(index: &Index, queries: &[crate::data::Query]) -> Duration {
    let mut took: Vec<Duration> = queries
        .iter()
        .map(|query| {
            let start = cpu_time();
            std::hint::black_box(index.rank(&query.text, SHOWN, |_| true));
            cpu_time().saturating_sub(start)
        })
        .collect();
    took.sort();
    took.get(took.len() / 2).copied().unwrap_or_default()
}

fn median<T>(rounds: usize, mut work: impl FnMut() -> T) -> Duration {
    let mut took: Vec<Duration> = (0..rounds)
        .map(|_| {
            let start = cpu_time();
            let made = work();
            let took = cpu_time().saturating_sub(start);
            drop(made);
            took
        })
        .collect();
    took.sort();
    took.get(rounds / 2).copied().unwrap_or_default()
}

/// CPU time of this thread. Nothing here waits, so on an idle machine it equals the elapsed time.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or_default(), u32::try_from(time.tv_nsec).unwrap_or_default())
}
