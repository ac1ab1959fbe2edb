//! Errors and delays at fault points: the host stays up, and no call is made twice.

use std::time::{Duration, Instant};

use fault::POINTS;
use serde_json::{Value, json};

use super::clients::{Clients, LEASE_MS};
use super::oracle::{judge_effects, judge_one_end};
use super::program::{Chance, Program};
use super::run_parallel;

/// Waits until a run has ended, possibly with an error, and returns its state and result.
fn end_of(clients: &mut Clients, run: &str) -> (String, Value) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        assert!(Instant::now() < deadline, "{run} did not end within 60 seconds");
        clients.settle_and_decide(run);
        let end = clients.ask_until_answered(&json!({"op": "wait", "runId": run}));
        let row = clients.ask_until_answered(&json!({"op": "run", "runId": run}));
        let state = row["state"].as_str().unwrap().to_owned();
        if !["running", "waiting"].contains(&state.as_str()) && end["status"] != "waiting" {
            return (state, clients.ask_until_answered(&json!({"op": "wait", "runId": run})));
        }
    }
}

fn history(fault: String, seed: usize) {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store.db").display().to_string();
    let mut chance = Chance::new(seed as u64);
    let program = Program::new(&mut chance);
    let opening = fault.starts_with("open.");
    let mut clients = Clients::of_host_with_fault(store, folder.path(), chance, Some(fault));
    if let (Some(run), _) = clients.exec(&program.code) {
        let (state, end) = end_of(&mut clients, &run);
        judge_one_end(&mut clients, &run, &end, &state);
    }
    judge_effects(&clients);
    // Only a store that cannot be opened makes the host exit.
    assert_eq!(clients.deaths, u32::from(opening && clients.deaths > 0));
    // The host works afterwards. The first cell may fail, because the fault may happen only now.
    let exec = json!({"op": "exec", "code": "return (await tools.call('openclaw:ledger:read', {})).did"});
    let ends = [clients.ask_until_answered(&exec), clients.ask_until_answered(&exec)];
    assert_eq!(ends[1]["status"], "completed", "{ends:?}");
}

#[test]
fn an_error_at_any_fault_point_ends_a_run_once_and_the_host_stays_up() {
    let faults: Vec<(usize, String)> =
        POINTS.iter().enumerate().map(|(seed, point)| (seed, format!("{point}:{}:error", 1 + seed % 2))).collect();
    run_parallel(&faults, |(seed, fault)| history(fault.clone(), *seed));
}

#[test]
fn a_delay_past_the_lease_at_any_fault_point_does_no_harm() {
    let late = LEASE_MS + 200;
    let faults: Vec<(usize, String)> =
        POINTS.iter().enumerate().map(|(seed, point)| (seed, format!("{point}:1:sleep={late}"))).collect();
    run_parallel(&faults, |(seed, fault)| history(fault.clone(), *seed));
}
