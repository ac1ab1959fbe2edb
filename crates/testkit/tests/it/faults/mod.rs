//! The host is killed at every named place, on either store, in runs made by chance; and nothing is lost or done twice.

mod disk;
mod errors;
mod many;
mod node;
mod nodes;
mod oracle;
mod people;
pub mod program;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use store::fault::POINTS;
use testkit::postgres::Server;

use people::{People, WAIT_MS};
use program::{Chance, Program};

/// Seeds a place, where `CELLMATE_FAULT_SEEDS` does not say otherwise.
const SEEDS: usize = 10;

/// Hosts at work at once: most of their time they wait for leases.
const AT_ONCE: usize = 8;

/// Long after every run's time is over.
const LATER_MS: i64 = 1_000_000_000;

/// How one history went.
struct Went {
    killed: bool,
    /// How often each place was passed, where nobody was killed.
    reached: BTreeMap<String, usize>,
}

/// A whole history: a run with every kind of call, one that is aborted, one that expires, and a sweep.
fn history(store: String, seed: usize, fault: Option<String>) -> Went {
    let folder = tempfile::tempdir().unwrap();
    let store = if store.is_empty() { folder.path().join("store.db").display().to_string() } else { store };
    let mut chance = Chance::new(seed as u64);
    let program = Program::new(&mut chance);
    let mut people = People::around_one(store, folder.path(), chance, fault);

    let (run, told) = people.exec(&program.code);
    match (run, told) {
        (Some(run), None) => {
            let end = people.finish(&run);
            oracle::judge_end(&people, &program, &run, &end);
            oracle::judge_one_end(&mut people, &run, &end, "completed");
        }
        (None, None) => oracle::judge_nothing(&people),
        (run, told) => panic!("{run:?} ended without ever waiting for anybody: {told:?}"),
    }
    abort(&mut people);
    expire(&mut people);
    oracle::judge_effects(&people);
    let reached = people.insist(&json!({"op": "reached"}));
    let reached = reached.as_object().unwrap().iter();
    let reached = reached.map(|(name, times)| (name.clone(), times.as_u64().unwrap() as usize)).collect();
    Went { killed: people.deaths > 0, reached }
}

fn abort(people: &mut People) {
    // One call ends after its turn, so that the run is let go of with nobody asking.
    let code = format!(
        "await yield_control(); return await Promise.all([tools.call('client:ledger:pick', {{ n: 100 }}), \
         tools.call('openclaw:ledger:slow', {{ n: 101, ms: {} }})])",
        WAIT_MS * 2
    );
    let before = released(people);
    let (Some(run), _) = people.exec(&code) else { return };
    drop(people.ask(&json!({"op": "wait", "runId": run})));
    let deadline = Instant::now() + Duration::from_secs(3);
    while people.deaths == 0 && released(people) == before && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    while people.insist(&json!({"op": "run", "runId": run}))["state"] != "aborted" {
        drop(people.ask(&json!({"op": "abort", "runId": run})));
    }
    let end = people.insist(&json!({"op": "wait", "runId": run}));
    assert_eq!((&end["status"], &end["code"]), (&json!("failed"), &json!("aborted")), "{end}");
    oracle::judge_one_end(people, &run, &end, "aborted");
}

/// How often a run was let go of between turns.
fn released(people: &mut People) -> Option<u64> {
    people.ask(&json!({"op": "reached"}))?.get("rest.after_release")?.as_u64()
}

fn expire(people: &mut People) {
    let (run, _) = people.exec("await yield_control(); return await tools.call('openclaw:ledger:ask', { n: 200 })");
    // Twice: what the first leaves half done the second does, and nothing is left.
    for _ in 0..2 {
        people.insist(&json!({"op": "sweep", "aheadMs": LATER_MS}));
    }
    if let Some(run) = run {
        let state = people.insist(&json!({"op": "run", "runId": run}));
        assert!(state.is_null() || state["state"] == "expired", "{state}");
        let end = people.insist(&json!({"op": "wait", "runId": run}));
        let code = if state.is_null() { "invalid_input" } else { "snapshot_expired" };
        assert_eq!(end["code"], code, "{end}");
    }
    people.insist(&json!({"op": "sweep", "aheadMs": 2 * LATER_MS}));
    assert_eq!(people.insist(&json!({"op": "runs"})), json!([]));
    assert_eq!(people.insist(&json!({"op": "approvals"})), json!([]));
}

/// How many, where the environment does not say otherwise.
fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn seeds() -> usize {
    number("CELLMATE_FAULT_SEEDS", SEEDS)
}

/// Does all of the work, some at once, and is over when all is done or anything went wrong.
fn side_by_side<T: Sync>(work: &[T], each: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(one) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    each(one);
                }
            });
        }
    });
}

/// `store` names a fresh store each time it is asked.
fn at_every_point(store: impl Fn() -> String + Sync) {
    let seeds = seeds();
    // First without a fault: how often a history with this seed passes each place.
    let reached: Mutex<BTreeMap<usize, BTreeMap<String, usize>>> = Mutex::default();
    let all: Vec<usize> = (0..seeds).collect();
    side_by_side(&all, |seed| {
        let went = history(store(), *seed, None);
        assert!(!went.killed);
        reached.lock().unwrap().insert(*seed, went.reached);
    });
    let reached = reached.into_inner().unwrap();
    let names: BTreeSet<&str> = reached.values().flat_map(|names| names.keys().map(String::as_str)).collect();
    assert_eq!(names, BTreeSet::from(POINTS), "the list of places and the places that are passed");

    let cases: Vec<(&str, usize)> = POINTS.iter().flat_map(|point| all.iter().map(|seed| (*point, *seed))).collect();
    let killed: Mutex<BTreeMap<&str, usize>> = Mutex::default();
    side_by_side(&cases, |(point, seed)| {
        let times = reached[seed].get(*point).copied().unwrap_or(1);
        let fault = format!("{point}:{}:kill", 1 + seed % times);
        let went = history(store(), *seed, Some(fault));
        *killed.lock().unwrap().entry(point).or_default() += usize::from(went.killed);
    });
    let killed = killed.into_inner().unwrap();
    for point in POINTS {
        let times = killed.get(point).copied().unwrap_or(0);
        // Two histories with one seed need not pass a place equally often: time has its say in both.
        assert!(times > 0 && times * 3 > seeds, "only {times} of {seeds} hosts were killed at {point}");
    }
}

#[test]
fn a_host_killed_at_any_fault_point_loses_and_repeats_nothing_on_sqlite() {
    at_every_point(String::new);
}

#[test]
fn a_host_killed_at_any_fault_point_loses_and_repeats_nothing_on_postgres() {
    let server = Server::start().unwrap();
    let rooms = server.schemas((POINTS.len() + 1) * seeds()).unwrap();
    let next = AtomicUsize::new(0);
    at_every_point(|| rooms[next.fetch_add(1, Ordering::Relaxed)].clone());
}
