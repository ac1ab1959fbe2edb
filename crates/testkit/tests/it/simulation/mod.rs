//! Whole histories of clients, nodes, store and tools, with misfortunes, made from a seed and the same each time.
//!
//! `CELLMATE_SIM_SEED=… cargo test … simulation::histories` tells one of them step by step.

mod eye;
mod history;
mod misfortunes;
mod node;
mod nodes;
mod oracle;
mod people;
mod programs;
mod requests;
mod tools;
mod worker;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use eye::Sabotage;
use history::{Went, run};

/// Histories, where `CELLMATE_SIM_HISTORIES` does not say otherwise.
const HISTORIES: usize = 300;

/// Within so many histories a broken rule must be found.
const FOUND_WITHIN: u64 = 200;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// The first history, in the order of seeds, that goes wrong.
fn first_wrong(first: u64, count: u64, sabotage: Sabotage) -> Option<(u64, Went)> {
    let (next, wrong) = (AtomicUsize::new(0), std::sync::Mutex::new(None::<(u64, Went)>));
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = first + next.fetch_add(1, Ordering::Relaxed) as u64;
                    if seed >= first + count || wrong.lock().unwrap().is_some() {
                        return;
                    }
                    let went = run(seed, sabotage);
                    if went.wrong.is_some() {
                        let mut wrong = wrong.lock().unwrap();
                        if wrong.as_ref().is_none_or(|(earlier, _)| seed < *earlier) {
                            *wrong = Some((seed, went));
                        }
                    }
                }
            });
        }
    });
    wrong.into_inner().unwrap()
}

#[test]
fn histories_with_faults_lose_nothing_repeat_nothing_and_end() {
    if let Some(seed) = number("CELLMATE_SIM_SEED") {
        let went = run(seed, Sabotage::None);
        println!("{}", went.story.join("\n"));
        assert_eq!(went.wrong, None, "seed {seed}");
        return;
    }
    let (first, count) = (number("CELLMATE_SIM_FIRST").unwrap_or(0), number("CELLMATE_SIM_HISTORIES"));
    let count = count.unwrap_or(HISTORIES as u64);
    let began = Instant::now();
    if let Some((seed, went)) = first_wrong(first, count, Sabotage::None) {
        panic!("CELLMATE_SIM_SEED={seed} tells the history in which {}", went.wrong.unwrap_or_default());
    }
    println!("{count} histories from seed {first}: {:?}", began.elapsed());
}

#[test]
fn a_seed_reproduces_the_same_history_step_by_step() {
    for seed in 1000..1010 {
        let (one, other) = (run(seed, Sabotage::None), run(seed, Sabotage::None));
        assert!(one.story.len() > 100, "seed {seed}: {} steps", one.story.len());
        for (step, (one, other)) in one.story.iter().zip(&other.story).enumerate() {
            assert_eq!(one, other, "seed {seed}, step {step}");
        }
        assert_eq!(one.story.len(), other.story.len());
    }
}

#[test]
fn a_sabotaged_store_is_detected_and_its_seed_reproduces_the_failure() {
    for sabotage in [Sabotage::NoIntent, Sabotage::LostOutcome, Sabotage::UnusedApproval] {
        let Some((seed, went)) = first_wrong(0, FOUND_WITHIN, sabotage) else {
            panic!("{sabotage:?} was not found within {FOUND_WITHIN} histories");
        };
        let again = run(seed, sabotage);
        assert_eq!((&again.wrong, &again.story), (&went.wrong, &went.story), "{sabotage:?}, seed {seed}");
        println!("{sabotage:?}: seed {seed}: {}", went.wrong.unwrap_or_default());
    }
}
