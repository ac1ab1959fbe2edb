//! Disk errors: the N-th write to the store fails, or the disk is full from then on, for every N or a part of them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use sqlx::{AnyConnection, Connection, Row};

use super::clients::{Clients, LEASE_MS, WAIT_MS};
use super::node::{Node, Start};
use super::oracle::{judge_effects, judge_one_end};
use super::program::Chance;
use super::{PARALLEL, number, run_parallel};

const SHIM: &str = include_str!("failing_disk.c");
const CELL: &str = "const got = await tools.call('client:ledger:pick', { n: 1 }).catch(error => error.message)
                    return [got, (await tools.call('openclaw:ledger:read', { n: 2 })).did.n]";

/// More writes than a history makes.
const MAX_WRITES: usize = 2000;

/// Default of `CELLMATE_FAULT_WRITE_STEP`: 1 makes every write fail once, 3 every third.
const WRITE_STEP: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// A single write fails with EIO.
    Fails,
    /// All writes fail with ENOSPC until space is freed.
    Full,
}

#[test]
fn a_disk_error_at_a_write_loses_nothing_and_the_host_stays_up() {
    let folder = tempfile::tempdir().unwrap();
    let shim = build(folder.path());
    let step = number("CELLMATE_FAULT_WRITE_STEP", WRITE_STEP).max(1);
    for (first, fault) in [(1, Fault::Fails), (2, Fault::Full)] {
        let numbers: Vec<usize> = (first..MAX_WRITES).step_by(step).collect();
        let (last, happened) = (AtomicUsize::new(0), AtomicUsize::new(0));
        run_parallel(&numbers, |number| {
            // Two rounds without a fault: a history makes fewer writes than that.
            if *number > last.load(Ordering::Relaxed) + 2 * PARALLEL * step {
                return;
            }
            if history(&shim, fault, *number) {
                last.fetch_max(*number, Ordering::Relaxed);
                happened.fetch_add(1, Ordering::Relaxed);
            }
        });
        let (last, happened) = (last.into_inner(), happened.into_inner());
        let is_whole = last + 2 * PARALLEL * step < MAX_WRITES;
        assert!(is_whole && happened * step > 30, "{fault:?}: {happened} writes failed");
    }
}

fn build(folder: &Path) -> PathBuf {
    let (source, shim) = (folder.join("failing_disk.c"), folder.join("failing_disk.so"));
    std::fs::write(&source, SHIM).unwrap();
    let compiled = ["cc", "gcc", "clang"].iter().any(|compiler| {
        let mut command = Command::new(compiler);
        command.args(["-shared", "-fPIC", "-O1", "-o"]).args([&shim, &source]).arg("-ldl");
        command.status().is_ok_and(|status| status.success())
    });
    assert!(compiled, "no C compiler found; scripts/setup installs one");
    shim
}

/// Runs one history and returns whether the fault happened; the history may end before it.
fn history(shim: &Path, fault: Fault, number: usize) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let mut environment = vec![
        ("LD_PRELOAD", shim.display().to_string()),
        ("CELLMATE_DISK_FAIL_AT", number.to_string()),
        ("CELLMATE_DISK_MARK", path("happened")),
    ];
    if fault == Fault::Full {
        std::fs::write(path("full"), "").unwrap();
        environment.push(("CELLMATE_DISK_FULL", path("full")));
    }
    let (store, ledger) = (path("store.db"), folder.path().join("ledger"));
    let start = Start { store: &store, ledger: &ledger, lease_ms: LEASE_MS, wait_ms: WAIT_MS, environment };
    let mut node = Node::start(&start);
    // A host that cannot open its store reports the error and exits; the next one can, after space is freed.
    if node.ask(&json!({"op": "runs"})).is_none() {
        assert_eq!(
            node.exit_status().and_then(|status| status.code()),
            Some(1),
            "the host must exit with an error, not crash"
        );
        drop(std::fs::remove_file(path("full")));
        node = Node::start(&Start { environment: Vec::new(), ..start });
    }
    let mut clients = Clients::of_host(node, store.clone(), folder.path(), Chance::new(number as u64));
    // Requests fail while the disk is full and succeed after space is freed.
    free_space_later(path("happened").into(), path("full").into());
    let run = loop {
        if let Some(run) = clients.exec(CELL).0 {
            break run;
        }
    };
    let end = clients.finish(&run);
    assert_eq!((&end["status"], &end["value"][1]), (&json!("completed"), &json!(2)), "{fault:?} {number}: {end}");
    let got = end["value"][0].as_str().unwrap();
    let acknowledged = clients.acknowledged.values().next();
    let is_expected = acknowledged.map_or(got.starts_with("the outcome"), |acknowledged| acknowledged == got);
    assert!(is_expected, "{got} for {acknowledged:?}");
    judge_one_end(&mut clients, &run, &end, "completed");
    judge_effects(&clients);
    assert_eq!(clients.deaths, 0, "the host stays up");
    drop(clients);
    assert_eq!(integrity(&store), "ok", "{fault:?} {number}");
    folder.path().join("happened").exists()
}

/// Frees space a while after the fault happened.
fn free_space_later(happened: PathBuf, full: PathBuf) {
    std::thread::spawn(move || {
        while full.exists() && !happened.exists() {
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_millis(150));
        // The history may have ended and removed the folder.
        drop(std::fs::remove_file(full));
    });
}

fn integrity(store: &str) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        sqlx::any::install_default_drivers();
        let mut connection = AnyConnection::connect(&format!("sqlite://{store}")).await.unwrap();
        let row = sqlx::query("PRAGMA integrity_check").fetch_one(&mut connection).await.unwrap();
        row.try_get(0).unwrap()
    })
}
