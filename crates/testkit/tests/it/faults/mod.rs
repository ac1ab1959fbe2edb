//! Crash tests: the host is killed at every fault point, on SQLite and Postgres, in random runs. No result may be lost
//! and no call may be made twice.

mod clients;
mod disk;
mod errors;
mod many;
mod node;
mod nodes;
mod oracle;
pub(crate) mod program;
mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fault::POINTS;
use serde_json::json;
use testkit::postgres::Server;

use clients::{Clients, WAIT_MS};
use program::{Chance, Program};

/// Default of `CELLMATE_FAULT_SEEDS`, the number of seeds for each fault point.
const SEEDS: usize = 1;

/// Hosts that run in parallel; most of the time they wait for leases.
const PARALLEL: usize = 8;

/// Long after the expiry of every run.
const LATER_MS: i64 = 1_000_000_000;

/// The result of one history.
struct HistoryResult {
    killed: bool,
    /// How often each fault point was reached, if no host was killed.
    reached: BTreeMap<String, usize>,
}

/// Runs one history: a run with every kind of call, one whose output is stored, one that is aborted, one that expires, and
/// a sweep.
fn history(store: String, seed: usize, fault: Option<String>) -> HistoryResult {
    let folder = tempfile::tempdir().unwrap();
    let store = if store.is_empty() { folder.path().join("store.db").display().to_string() } else { store };
    let mut chance = Chance::new(seed as u64);
    let program = Program::new(&mut chance);
    let mut clients = Clients::of_host_with_fault(store, folder.path(), chance, fault);

    match clients.exec(&program.code) {
        (Some(run), None) => {
            let end = clients.finish(&run);
            oracle::judge_end(&clients, &program, &run, &end);
            oracle::judge_one_end(&mut clients, &run, &end, "completed");
            oracle::judge_values(&mut clients, &program.tokens);
        }
        (None, None) => {
            oracle::judge_missing_run(&clients);
            oracle::judge_values(&mut clients, &[]);
        }
        (run, end) => panic!("{run:?} ended without waiting for its clients: {end:?}"),
    }
    store_output(&mut clients);
    abort(&mut clients);
    expire(&mut clients);
    oracle::judge_effects(&clients);
    let reached = clients.ask_until_answered(&json!({"op": "reached"}));
    let reached = reached.as_object().unwrap().iter();
    let reached = reached.map(|(name, times)| (name.clone(), times.as_u64().unwrap() as usize)).collect();
    HistoryResult { killed: clients.deaths > 0, reached }
}

/// Outputs a text that is too large for a result, so that it is stored in several pieces. A later cell reads all of it.
fn store_output(clients: &mut Clients) {
    let end = clients.exec_to_end("text('é'.repeat(300000)); return 1");
    let handle = end["output"][0]["handle"].as_str().unwrap_or_else(|| panic!("{end}"));
    let code = format!(
        "let all = ''; \
         for (;;) {{ \
           const page = await output.read('{handle}', {{ offset: all.length, length: 100000 }}); \
           if (page === '') return all === 'é'.repeat(300000); \
           all += page; \
         }}"
    );
    let end = clients.exec_to_end(&code);
    assert_eq!(end["value"], true, "{end}");
}

fn abort(clients: &mut Clients) {
    // One call settles after its turn, so that the host releases the run while no client waits.
    let code = format!(
        "await yield_control(); return await Promise.all([tools.call('client:ledger:pick', {{ n: 100 }}), \
         tools.call('openclaw:ledger:slow', {{ n: 101, ms: {} }})])",
        WAIT_MS * 2
    );
    let before = released(clients);
    let (Some(run), _) = clients.exec(&code) else { return };
    drop(clients.ask(&json!({"op": "wait", "runId": run})));
    let deadline = Instant::now() + Duration::from_secs(3);
    while clients.deaths == 0 && released(clients) == before && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    while clients.ask_until_answered(&json!({"op": "run", "runId": run}))["state"] != "aborted" {
        drop(clients.ask(&json!({"op": "abort", "runId": run})));
    }
    let end = clients.ask_until_answered(&json!({"op": "wait", "runId": run}));
    assert_eq!((&end["status"], &end["code"]), (&json!("failed"), &json!("aborted")), "{end}");
    oracle::judge_one_end(clients, &run, &end, "aborted");
}

/// Returns how often a run was released between turns.
fn released(clients: &mut Clients) -> Option<u64> {
    clients.ask(&json!({"op": "reached"}))?.get("release.after_commit")?.as_u64()
}

fn expire(clients: &mut Clients) {
    let (run, _) = clients.exec("await yield_control(); return await tools.call('openclaw:ledger:ask', { n: 200 })");
    // Twice: if a crash interrupts the first sweep, the second completes it.
    for _ in 0..2 {
        clients.ask_until_answered(&json!({"op": "sweep", "aheadMs": LATER_MS}));
    }
    if let Some(run) = run {
        let state = clients.ask_until_answered(&json!({"op": "run", "runId": run}));
        assert!(state.is_null() || state["state"] == "expired", "{state}");
        let end = clients.ask_until_answered(&json!({"op": "wait", "runId": run}));
        let code = if state.is_null() { "invalid_input" } else { "snapshot_expired" };
        assert_eq!(end["code"], code, "{end}");
    }
    clients.ask_until_answered(&json!({"op": "sweep", "aheadMs": 2 * LATER_MS}));
    assert_eq!(clients.ask_until_answered(&json!({"op": "runs"})), json!([]));
    assert_eq!(clients.ask_until_answered(&json!({"op": "approvals"})), json!([]));
}

/// Reads a number from the environment.
fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn seeds() -> usize {
    number("CELLMATE_FAULT_SEEDS", SEEDS)
}

/// Processes all items on several threads; panics if one of them panics.
fn run_parallel<T: Sync>(items: &[T], each: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..PARALLEL {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    each(item);
                }
            });
        }
    });
}

/// Runs histories that kill the host at every fault point. `store` returns a new store for each.
fn kill_at_every_point(store: impl Fn() -> String + Sync) {
    let seeds = seeds();
    // Without a fault first, to count how often a history with this seed reaches each fault point.
    let reached: Mutex<BTreeMap<usize, BTreeMap<String, usize>>> = Mutex::default();
    let all: Vec<usize> = (0..seeds).collect();
    run_parallel(&all, |seed| {
        let result = history(store(), *seed, None);
        assert!(!result.killed);
        reached.lock().unwrap().insert(*seed, result.reached);
    });
    let reached = reached.into_inner().unwrap();
    let names: BTreeSet<&str> = reached.values().flat_map(|names| names.keys().map(String::as_str)).collect();
    assert_eq!(names, BTreeSet::from(POINTS), "every listed fault point is reached, and every reached one is listed");

    let cases: Vec<(&str, usize)> = POINTS.iter().flat_map(|point| all.iter().map(|seed| (*point, *seed))).collect();
    let killed: Mutex<BTreeMap<&str, usize>> = Mutex::default();
    run_parallel(&cases, |(point, seed)| {
        let times = reached[seed].get(*point).copied().unwrap_or(1);
        let fault = format!("{point}:{}:kill", 1 + seed % times);
        let result = history(store(), *seed, Some(fault));
        *killed.lock().unwrap().entry(point).or_default() += usize::from(result.killed);
    });
    let killed = killed.into_inner().unwrap();
    for point in POINTS {
        let times = killed.get(point).copied().unwrap_or(0);
        // Timing matters: two histories with the same seed may reach a fault point a different number of times.
        assert!(times > 0 && times * 3 > seeds, "only {times} of {seeds} hosts were killed at {point}");
    }
}

#[test]
fn a_host_killed_at_any_fault_point_loses_and_repeats_nothing_on_sqlite() {
    kill_at_every_point(String::new);
}

#[test]
fn a_host_killed_at_any_fault_point_loses_and_repeats_nothing_on_postgres() {
    let server = Server::start().unwrap();
    let schemas = server.schemas((POINTS.len() + 1) * seeds()).unwrap();
    let next = AtomicUsize::new(0);
    kill_at_every_point(|| schemas[next.fetch_add(1, Ordering::Relaxed)].clone());
}
