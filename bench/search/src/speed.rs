//! Measures the CPU time of building an index and of a search, on one core.

use std::path::Path;
use std::time::Duration;

use catalog::search::{Document, EmbeddingTable, Index, Weights};
use figures::machine::{mebibytes, resident_bytes};
use figures::{Bar, Claim, Facts};
use rustix::time::{ClockId, clock_gettime};

use crate::Result;
use crate::data::{MIXED, read};
use crate::measure::SHOWN;

/// The largest times and the largest memory that pass.
pub(crate) const CLAIMS: [Claim; 7] = [
    ("index_500_ms", Bar::AtMost(100.0)),
    ("index_12653_ms", Bar::AtMost(1_500.0)),
    ("update_40_fewer_ms", Bar::AtMost(300.0)),
    ("search_527_us", Bar::AtMost(200.0)),
    ("search_12653_us", Bar::AtMost(2_000.0)),
    ("search_12653_words_us", Bar::AtMost(1_000.0)),
    ("index_12653_mib", Bar::AtMost(40.0)),
];

/// Measures the times and the memory, and prints them.
pub(crate) fn run(data: &Path, facts: &mut Facts) -> Result<()> {
    // Load the embedding table first, because it is not part of an index.
    let meaning = EmbeddingTable::shipped();
    let few = read(data, "livemcp_agent")?;
    let many = read(data, MIXED)?;
    let mut milliseconds = |what: &str, name: &str, took: Duration| {
        println!("{what:36}{took:>12.2?}");
        facts.add(name, took.as_secs_f64() * 1e3);
    };
    let first_500: Vec<Document> = few.documents.iter().take(500).cloned().collect();
    let build = median_cpu_time(9, || Index::new(first_500.clone(), meaning, Weights::SHIPPED));
    milliseconds("index of 500 tools", "index_500_ms", build);
    let before = resident_bytes("self")?;
    let index = Index::new(many.documents.clone(), meaning, Weights::SHIPPED);
    let held = resident_bytes("self")?.saturating_sub(before);
    let build = median_cpu_time(3, || Index::new(many.documents.clone(), meaning, Weights::SHIPPED));
    milliseconds("index of 12,653 tools", "index_12653_ms", build);
    let changed: Vec<Document> = many.documents.iter().skip(40).cloned().collect();
    let update = median_cpu_time(3, || index.updated(changed.clone()));
    milliseconds("update to 40 tools fewer", "update_40_fewer_ms", update);
    let mut microseconds = |what: &str, name: &str, took: Duration| {
        println!("{what:36}{took:>12.2?}");
        facts.add(name, took.as_secs_f64() * 1e6);
    };
    let small = Index::new(few.documents, meaning, Weights::SHIPPED);
    microseconds("a search in 527 tools, p50", "search_527_us", median_search_time(&small, &few.queries));
    microseconds("a search in 12,653 tools, p50", "search_12653_us", median_search_time(&index, &many.queries));
    let words = Index::new(many.documents.clone(), None, Weights::SHIPPED);
    let by_words = median_search_time(&words, &many.queries);
    microseconds("the same search by words alone", "search_12653_words_us", by_words);
    let mib = mebibytes(held);
    println!("{:36}{mib:>9.1} MiB\n", "memory of 12,653 tools");
    facts.add("index_12653_mib", mib);
    Ok(())
}

/// Searches for each query once, and returns the median of the CPU times.
fn median_search_time(index: &Index, queries: &[crate::data::Query]) -> Duration {
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

/// Does the work `rounds` times, and returns the median of the CPU times.
fn median_cpu_time<T>(rounds: usize, mut work: impl FnMut() -> T) -> Duration {
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

/// Returns the CPU time of this thread. Nothing here waits, so on an idle machine it equals the elapsed time.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or_default(), u32::try_from(time.tv_nsec).unwrap_or_default())
}
