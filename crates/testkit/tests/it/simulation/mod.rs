//! Deterministic simulation: histories of clients, nodes, store and tools with injected faults, each generated from a
//! seed.
//!
//! `CELLMATE_SIM_SEED=… cargo test … simulation::histories` prints the log of one history.

mod clients;
mod fault_plan;
mod gateway_node;
mod history;
mod inspector;
mod node;
mod nodes;
mod oracle;
mod programs;
mod requests;
mod tools;
mod turns;
mod worker;

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use history::{HistoryResult, run};
use inspector::Sabotage;

/// Default of `CELLMATE_SIM_HISTORIES`.
const HISTORIES: usize = 60;

/// A broken rule must be detected within this many histories.
const DETECTED_WITHIN: u64 = 200;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Runs histories in parallel and returns the failed one with the lowest seed.
fn first_failure(first: u64, count: u64, run: impl Fn(u64) -> HistoryResult + Sync) -> Option<(u64, HistoryResult)> {
    let (next, failed) = (AtomicUsize::new(0), std::sync::Mutex::new(None::<(u64, HistoryResult)>));
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = first + next.fetch_add(1, Ordering::Relaxed) as u64;
                    if seed >= first + count || failed.lock().unwrap().is_some() {
                        return;
                    }
                    let result = run(seed);
                    if result.failure.is_some() {
                        let mut failed = failed.lock().unwrap();
                        if failed.as_ref().is_none_or(|(earlier, _)| seed < *earlier) {
                            *failed = Some((seed, result));
                        }
                    }
                }
            });
        }
    });
    failed.into_inner().unwrap()
}

/// Runs histories, or the one that `CELLMATE_SIM_SEED` names, and fails with the first seed that fails.
fn check_histories(count: u64, run: impl Fn(u64) -> HistoryResult + Sync) {
    if let Some(seed) = number("CELLMATE_SIM_SEED") {
        let result = run(seed);
        println!("{}", result.log.join("\n"));
        assert_eq!(result.failure, None, "seed {seed}");
        return;
    }
    let first = number("CELLMATE_SIM_FIRST").unwrap_or(0);
    let began = Instant::now();
    if let Some((seed, result)) = first_failure(first, count, run) {
        panic!("seed {seed} failed (CELLMATE_SIM_SEED={seed} prints its log): {}", result.failure.unwrap_or_default());
    }
    println!("{count} histories from seed {first}: {:?}", began.elapsed());
}

/// Runs each history twice, and compares them step by step.
fn check_reproduction(seeds: Range<u64>, run: impl Fn(u64) -> HistoryResult) {
    for seed in seeds {
        let (one, other) = (run(seed), run(seed));
        assert!(one.log.len() > 100, "seed {seed}: {} steps", one.log.len());
        for (step, (one, other)) in one.log.iter().zip(&other.log).enumerate() {
            assert_eq!(one, other, "seed {seed}, step {step}");
        }
        assert_eq!(one.log.len(), other.log.len());
    }
}

#[test]
fn histories_with_faults_lose_nothing_repeat_nothing_and_end() {
    let count = number("CELLMATE_SIM_HISTORIES").unwrap_or(HISTORIES as u64);
    check_histories(count, |seed| run(seed, Sabotage::None));
}

#[test]
fn a_seed_reproduces_the_same_history_step_by_step() {
    check_reproduction(1000..1004, |seed| run(seed, Sabotage::None));
}

#[test]
fn a_sabotaged_store_is_detected_and_its_seed_reproduces_the_failure() {
    for sabotage in [Sabotage::NoIntent, Sabotage::LostOutcome, Sabotage::UnusedApproval, Sabotage::LostValue] {
        let Some((seed, result)) = first_failure(0, DETECTED_WITHIN, |seed| run(seed, sabotage)) else {
            panic!("{sabotage:?} was not detected within {DETECTED_WITHIN} histories");
        };
        let again = run(seed, sabotage);
        assert_eq!((&again.failure, &again.log), (&result.failure, &result.log), "{sabotage:?}, seed {seed}");
        println!("{sabotage:?}: seed {seed}: {}", result.failure.unwrap_or_default());
    }
}
