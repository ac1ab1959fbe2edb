//! A place that fails, or stands still, instead of dying: the host stays up, and nothing is done twice.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use store::fault::POINTS;

use super::oracle::{judge_effects, judge_one_end};
use super::people::{LEASE_MS, People};
use super::program::{Chance, Program};
use super::side_by_side;

/// An end may be that of an error; then it is the only one.
fn end_of(people: &mut People, run: &str) -> (String, Value) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        assert!(Instant::now() < deadline, "{run} does not end");
        people.help(run);
        let end = people.insist(&json!({"op": "wait", "runId": run}));
        let row = people.insist(&json!({"op": "run", "runId": run}));
        let state = row["state"].as_str().unwrap().to_owned();
        if !["running", "waiting"].contains(&state.as_str()) && end["status"] != "waiting" {
            return (state, people.insist(&json!({"op": "wait", "runId": run})));
        }
    }
}

fn history(fault: String, seed: usize) {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store.db").display().to_string();
    let mut chance = Chance::new(seed as u64);
    let program = Program::new(&mut chance);
    let opening = fault.starts_with("open.");
    let mut people = People::around_one(store, folder.path(), chance, Some(fault));
    if let (Some(run), _) = people.exec(&program.code) {
        let (state, end) = end_of(&mut people, &run);
        judge_one_end(&mut people, &run, &end, &state);
    }
    judge_effects(&people);
    // A store that does not open ends the program, which says so; nothing else does.
    assert_eq!(people.deaths, u32::from(opening && people.deaths > 0));
    // And it does what it is asked afterwards; the fault itself may come only now.
    let exec = json!({"op": "exec", "code": "return (await tools.call('openclaw:ledger:read', {})).did"});
    let ends = [people.insist(&exec), people.insist(&exec)];
    assert_eq!(ends[1]["status"], "completed", "{ends:?}");
}

#[test]
fn an_error_at_any_fault_point_ends_a_run_once_and_the_host_stays_up() {
    let faults: Vec<(usize, String)> =
        POINTS.iter().enumerate().map(|(seed, point)| (seed, format!("{point}:{}:error", 1 + seed % 2))).collect();
    side_by_side(&faults, |(seed, fault)| history(fault.clone(), *seed));
}

#[test]
fn a_delay_past_the_lease_at_any_fault_point_does_no_harm() {
    let late = LEASE_MS + 200;
    let faults: Vec<(usize, String)> =
        POINTS.iter().enumerate().map(|(seed, point)| (seed, format!("{point}:1:sleep={late}"))).collect();
    side_by_side(&faults, |(seed, fault)| history(fault.clone(), *seed));
}
