//! Histories of turns: gateways that crash, stall and lose answers, and clients that repeat their requests to any of
//! them, hang up, contradict themselves, steer and abort.
//!
//! `CELLMATE_SIM_SEED=… cargo test … simulation::turns::histories` prints the log of one history.

mod client;
mod history;
mod oracle;
mod question;

use super::inspector::Sabotage;
use super::{check_histories, check_reproduction, first_failure, number};
use history::run;

/// The number of histories, if `CELLMATE_SIM_HISTORIES` is not set.
const HISTORIES: u64 = 12;

/// Histories of turns are longer than those of cells, so a run of many has fewer of them.
const SHARE: u64 = 5;

/// A broken rule must be detected within this many histories.
const DETECTED_WITHIN: u64 = 60;

#[test]
fn histories_of_turns_lose_no_step_apply_each_answer_once_and_end_once() {
    let count = number("CELLMATE_SIM_HISTORIES").map_or(HISTORIES, |count| count.div_ceil(SHARE));
    check_histories(count, |seed| run(seed, Sabotage::None));
}

#[test]
fn a_seed_reproduces_the_same_history_of_turns() {
    check_reproduction(1000..1002, |seed| run(seed, Sabotage::None));
}

#[test]
fn a_store_that_breaks_a_rule_of_turns_is_detected() {
    let all = [Sabotage::LostStep, Sabotage::LostDelivery, Sabotage::LostAnswer, Sabotage::NoFence, Sabotage::OpenEnd];
    for sabotage in all {
        let Some((seed, result)) = first_failure(0, DETECTED_WITHIN, |seed| run(seed, sabotage)) else {
            panic!("{sabotage:?} was not detected within {DETECTED_WITHIN} histories");
        };
        println!("{sabotage:?}: seed {seed}: {}", result.failure.unwrap_or_default());
    }
}
