//! Thousands of suspended runs on a host that is killed: the next host starts fast, resumes them all, and needs little
//! memory.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::node::{Node, Start};
use super::{number, run_parallel};

/// Limits for ten thousand runs.
const MAX_STORE_BYTES: u64 = 300 << 20;
const MAX_GROWTH_BYTES: u64 = 200 << 20;
const MAX_READY: Duration = Duration::from_secs(2);

/// Limit on a busy machine, where any host takes longer to start.
const MAX_READY_BUSY: Duration = Duration::from_secs(6);

#[test]
fn thousands_of_suspended_runs_survive_a_host_crash() {
    let folder = tempfile::tempdir().unwrap();
    let (store, ledger) = (folder.path().join("store.db").display().to_string(), folder.path().join("ledger"));
    let start = Start { store: &store, ledger: &ledger, lease_ms: 1000, wait_ms: 10_000, environment: Vec::new() };
    let count = number("CELLMATE_FAULT_SUSPENDED", 400);
    let numbers: Vec<usize> = (0..count).collect();
    let runs: Vec<std::sync::OnceLock<Value>> = numbers.iter().map(|_| std::sync::OnceLock::new()).collect();
    let suspend = |n: usize| json!({"op": "exec", "code": format!("await yield_control(); return {n}")});

    let node = Node::start(&start);
    // The memory that every host needs does not count.
    node.ask(&json!({"op": "exec", "code": "return 1"})).unwrap();
    let before = node.resident();
    run_parallel(&numbers, |n| {
        let waiting = node.ask(&suspend(*n)).unwrap();
        assert_eq!(waiting["status"], "waiting", "{waiting}");
        runs[*n].set(waiting["runId"].clone()).unwrap();
    });
    let grown = node.resident().saturating_sub(before);
    assert!(grown <= MAX_GROWTH_BYTES, "the host grew by {grown} bytes");
    drop(node);

    let bytes: u64 = ["store.db", "store.db-wal"]
        .iter()
        .filter_map(|name| std::fs::metadata(folder.path().join(name)).ok())
        .map(|file| file.len())
        .sum();
    assert!(bytes <= MAX_STORE_BYTES, "the store has {bytes} bytes");

    let idle =
        start_and_measure(&Start { store: &folder.path().join("empty.db").display().to_string(), ..start.clone() }).1;
    let (node, ready) = start_and_measure(&start);
    assert!(
        ready <= MAX_READY || ready <= idle * 2 && ready <= MAX_READY_BUSY,
        "ready after {ready:?}, and after {idle:?} with an empty store"
    );
    let before = node.resident();
    run_parallel(&numbers, |n| {
        let end = node.ask(&json!({"op": "wait", "runId": runs[*n].get().unwrap()})).unwrap();
        assert_eq!((&end["status"], &end["value"]), (&json!("completed"), &json!(n)), "{end}");
    });
    let grown = node.resident().saturating_sub(before);
    assert!(grown <= MAX_GROWTH_BYTES, "the host grew by {grown} bytes");
    assert_eq!(node.ask(&json!({"op": "runs"})).unwrap(), json!([]));
    println!("{count} runs: {bytes} bytes in the store, ready after {ready:?}, grown by {grown} bytes");
}

/// Starts a host and measures the time until its first answer.
fn start_and_measure(start: &Start<'_>) -> (Node, Duration) {
    let began = Instant::now();
    let node = Node::start(start);
    node.ask(&json!({"op": "runs"})).unwrap();
    (node, began.elapsed())
}
