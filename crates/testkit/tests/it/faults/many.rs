//! Thousands of suspended runs on one host, which is killed: the next has them all, soon, and without much memory.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::node::{Node, Start};
use super::{number, side_by_side};

/// What ten thousand may take.
const MAX_STORE_BYTES: u64 = 300 << 20;
const MAX_GROWTH_BYTES: u64 = 200 << 20;
const MAX_READY: Duration = Duration::from_secs(2);

/// A host on a busy machine takes longer to start, whatever it has to do.
const BUSY: Duration = Duration::from_secs(6);

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
    // What a host has anyway does not count.
    node.ask(&json!({"op": "exec", "code": "return 1"})).unwrap();
    let before = node.resident();
    side_by_side(&numbers, |n| {
        let waiting = node.ask(&suspend(*n)).unwrap();
        assert_eq!(waiting["status"], "waiting", "{waiting}");
        runs[*n].set(waiting["runId"].clone()).unwrap();
    });
    let grown = node.resident().saturating_sub(before);
    assert!(grown <= MAX_GROWTH_BYTES, "it grew by {grown} bytes");
    drop(node);

    let bytes: u64 = ["store.db", "store.db-wal"]
        .iter()
        .filter_map(|name| std::fs::metadata(folder.path().join(name)).ok())
        .map(|file| file.len())
        .sum();
    assert!(bytes <= MAX_STORE_BYTES, "the store has {bytes} bytes");

    let idle = started(&Start { store: &folder.path().join("empty.db").display().to_string(), ..start.clone() }).1;
    let (node, ready) = started(&start);
    assert!(ready <= MAX_READY || ready <= idle * 2 && ready <= BUSY, "{ready:?}, and {idle:?} with nothing to do");
    let before = node.resident();
    side_by_side(&numbers, |n| {
        let end = node.ask(&json!({"op": "wait", "runId": runs[*n].get().unwrap()})).unwrap();
        assert_eq!((&end["status"], &end["value"]), (&json!("completed"), &json!(n)), "{end}");
    });
    let grown = node.resident().saturating_sub(before);
    assert!(grown <= MAX_GROWTH_BYTES, "it grew by {grown} bytes");
    assert_eq!(node.ask(&json!({"op": "runs"})).unwrap(), json!([]));
    println!("{count} runs: {bytes} bytes in the store, ready after {ready:?}, grown by {grown} bytes");
}

/// A host, and how long it took until it could answer.
fn started(start: &Start<'_>) -> (Node, Duration) {
    let began = Instant::now();
    let node = Node::start(start);
    node.ask(&json!({"op": "runs"})).unwrap();
    (node, began.elapsed())
}
