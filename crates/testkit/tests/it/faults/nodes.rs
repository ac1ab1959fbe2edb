//! Three hosts on one Postgres server: races, paused hosts, server restarts and lost answers.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;
use testkit::postgres::Server;
use testkit::proxy::Proxy;

use super::clients::{Clients, Tolerance, WAIT_MS};
use super::node::{Node, Start};
use super::oracle::{self, lines};
use super::program::{Chance, Program, VALUE_FUNCTIONS};
use super::{number, run_parallel};

const NODES: usize = 3;
/// The lease in tests whose runs are taken over.
const LEASE_MS: u64 = 1000;
/// The lease in tests whose runs are not taken over. A node that gets no processor for the time of a lease loses its runs.
const LONG_LEASE_MS: u64 = 30_000;

fn nodes(store: &str, ledger: &Path, lease_ms: u64, wait_ms: u64) -> Vec<Arc<Node>> {
    let start = Start { store, ledger, lease_ms, wait_ms, environment: Vec::new() };
    (0..NODES).map(|_| Arc::new(Node::start(&start))).collect()
}

#[test]
fn concurrent_waits_on_different_nodes_resume_a_run_once() {
    let (server, folder) = (Server::start().unwrap(), tempfile::tempdir().unwrap());
    let ledger = folder.path().join("ledger");
    let nodes = nodes(&server.url(), &ledger, LONG_LEASE_MS, 2000);
    let pairs: Vec<usize> = (0..number("CELLMATE_FAULT_PAIRS", 150)).collect();
    run_parallel(&pairs, |pair| {
        let mut chance = Chance::new(*pair as u64);
        let code = format!("await yield_control(); return await tools.call('openclaw:ledger:slow', {{ n: {pair} }})");
        let exec = json!({"op": "exec", "code": code});
        let waiting = nodes[chance.below(NODES)].ask(&exec).unwrap();
        let wait = json!({"op": "wait", "runId": waiting["runId"]});
        let (one, other) = (chance.below(NODES), 1 + chance.below(NODES - 1));
        let answers = [one, (one + other) % NODES].map(|node| nodes[node].send(&wait));
        for answer in answers {
            let mut end = answer.recv().unwrap();
            while end["status"] == "waiting" {
                end = nodes[chance.below(NODES)].ask(&wait).unwrap();
            }
            assert_eq!(end["value"]["did"]["n"], *pair, "{end}");
        }
    });
    let mut made: Vec<u64> = lines(&ledger).iter().map(|line| line.input["n"].as_u64().unwrap()).collect();
    made.sort_unstable();
    assert_eq!(made, pairs.iter().map(|pair| *pair as u64).collect::<Vec<_>>());
}

/// Two cells on different nodes write the same keys at the same time: one adds to a list with conditional writes, and both
/// store a value without a condition. A write is acknowledged when the cell's `exec` or `wait` has returned.
#[test]
fn racing_cells_on_different_nodes_lose_no_acknowledged_session_value() {
    let (server, folder) = (Server::start().unwrap(), tempfile::tempdir().unwrap());
    let nodes = nodes(&server.url(), &folder.path().join("ledger"), LONG_LEASE_MS, 2000);
    let pairs: Vec<usize> = (0..number("CELLMATE_FAULT_PAIRS", 150)).collect();
    run_parallel(&pairs, |pair| {
        let mut chance = Chance::new(*pair as u64);
        let session = format!("race-{}", pair % 10);
        let ask = |node: usize, mut line: serde_json::Value| {
            line["session"] = json!(session);
            nodes[node % NODES].send(&line)
        };
        let code = |token: &str| {
            format!(
                "{VALUE_FUNCTIONS} const {{ version }} = await add('log-{pair}', '{token}'); \
                 const last = await store('last-{pair}', '{token}'); return {{ version, last: last.version }}"
            )
        };
        let (one, other) = (chance.below(NODES), 1 + chance.below(NODES - 1));
        let answers = [(one, "a"), (one + other, "b")]
            .map(|(node, token)| (token, ask(node, json!({"op": "exec", "code": code(token)}))));
        let ends = answers.map(|(token, answer)| {
            let mut end = answer.recv().unwrap();
            while end["status"] == "waiting" {
                end = ask(chance.below(NODES), json!({"op": "wait", "runId": end["runId"]})).recv().unwrap();
            }
            assert_eq!(end["status"], "completed", "{end}");
            (token, end["value"].take())
        });
        let code = format!(
            "return [await load('log-{pair}', {{ version: true }}), await load('last-{pair}', {{ version: true }})]"
        );
        let read = ask(chance.below(NODES), json!({"op": "exec", "code": code})).recv().unwrap();
        let (log, last) = (&read["value"][0], &read["value"][1]);
        assert!(log["value"] == json!(["a", "b"]) || log["value"] == json!(["b", "a"]), "{read}");
        let (newest, _) = ends.iter().find(|(_, end)| end["version"] == log["version"]).unwrap();
        assert_eq!(log["value"][1], *newest, "{read}");
        let (winner, _) = ends.iter().find(|(_, end)| end["last"] == last["version"]).unwrap();
        assert_eq!(last["value"], *winner, "{read}");
    });
}

#[test]
fn a_node_paused_past_its_lease_writes_and_dispatches_nothing() {
    let (server, folder) = (Server::start().unwrap(), tempfile::tempdir().unwrap());
    let ledger = folder.path().join("ledger");
    let nodes = nodes(&server.url(), &ledger, LEASE_MS, 20_000);
    // Read-only calls are dispatched without a commit, so only the lease's clock can stop them.
    let code =
        "await tools.call('openclaw:ledger:slow', { n: 0 }).catch(() => 'written with the next commit, or unknown')
                for (let n = 1; n < 60; n += 1) await tools.call('openclaw:ledger:read', { n, ms: 40 })
                return (await tools.call('openclaw:ledger:slow', { n: 60 })).did.n";
    let answer = nodes[0].send(&json!({"op": "exec", "code": code}));
    wait_until("the run has made some calls", || lines(&ledger).len() > 5);
    nodes[0].signal(Signal::STOP);
    let before = lines(&ledger).len();
    let run = nodes[1].ask(&json!({"op": "runs"})).unwrap()[0].clone();
    let end = nodes[1].ask(&json!({"op": "wait", "runId": run})).unwrap();
    assert_eq!(end["value"], 60, "{end}");
    let after = lines(&ledger);
    assert!(after.len() > before, "the second node made the remaining calls");
    nodes[0].signal(Signal::CONT);
    // The paused node reports that it lost the run, or how the run ended, and makes no more calls.
    let result = answer.recv().unwrap();
    assert!(result["value"] == 60 || result["status"] == "failed", "{result}");
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(lines(&ledger).len(), after.len(), "the paused node made a call");
    assert_eq!(lines(&ledger).iter().filter(|line| line.name == "slow").count(), 2);
    assert_eq!(nodes[0].ask(&json!({"op": "wait", "runId": run})).unwrap(), end);
}

#[test]
fn an_outcome_or_decision_from_another_node_is_noticed_within_a_second() {
    let (server, folder) = (Server::start().unwrap(), tempfile::tempdir().unwrap());
    let file = folder.path().join("store.db").display().to_string();
    for store in [server.url(), file] {
        let ledger = folder.path().join(format!("ledger-{}", store.len()));
        let nodes = nodes(&store, &ledger, LEASE_MS, 20_000);
        let code = "const task = n => tools.call('openclaw:ledger:task', { n })
                    return [await task(1), await task(2)]";
        // The first node runs the cell in `exec`; the second holds a `wait` for it.
        let exec = nodes[0].send(&json!({"op": "exec", "code": code}));
        wait_until("the task is dispatched", || lines(&ledger).len() == 1);
        let run = lines(&ledger)[0].run.clone();
        wait_until("the run is in the store", || nodes[1].ask(&json!({"op": "runs"})).unwrap() == json!([run]));
        let wait = nodes[1].send(&json!({"op": "wait", "runId": run}));
        for (call, count) in [(1, 2), (2, 2)] {
            let value = json!(format!("settled {call}"));
            let settle = json!({"op": "settle", "runId": run, "call": call, "value": value});
            // Retried, because a task cannot be settled before it is stored as parked.
            wait_until("the outcome is accepted", || nodes[2].ask(&settle).unwrap()["settled"] == "Ok(WillDeliver)");
            let began = Instant::now();
            wait_until("the next task is dispatched", || lines(&ledger).len() >= count);
            assert!(began.elapsed() < NOTICED, "{:?} on {store}", began.elapsed());
        }
        let began = Instant::now();
        for answer in [exec, wait] {
            let end = answer.recv_timeout(Duration::from_secs(20)).unwrap();
            assert_eq!(end["value"], json!(["settled 1", "settled 2"]), "{store}");
            assert!(began.elapsed() < NOTICED, "{:?} on {store}", began.elapsed());
        }
        // A decision on another node while a sibling of the call is still running.
        let code = "return await Promise.all([tools.call('openclaw:ledger:ask', { n: 3 }), \
                    tools.call('openclaw:ledger:slow', { n: 4, ms: 15000 })])";
        let _answer = nodes[0].send(&json!({"op": "exec", "code": code}));
        let approvals = || nodes[2].ask(&json!({"op": "approvals"})).unwrap();
        wait_until("an approval is pending", || approvals() != json!([]));
        let approval = approvals()[0]["approvalId"].clone();
        let decided = nodes[2].ask(&json!({"op": "decide", "approvalId": approval})).unwrap();
        assert_eq!(decided["decided"], true);
        let began = Instant::now();
        wait_until("the approved call is made", || lines(&ledger).iter().any(|line| line.name == "ask"));
        assert!(began.elapsed() < NOTICED, "{:?} on {store}", began.elapsed());
    }
}

/// One second, plus the time that an unoptimised build on a busy machine needs to react.
const NOTICED: Duration = Duration::from_millis(2500);

/// Runs random cells on random nodes while the caller disturbs the server.
fn storm(store: &str, ledger: &Path, tolerance: Tolerance) {
    let nodes = nodes(store, ledger, LEASE_MS, WAIT_MS);
    let seeds: Vec<usize> = (0..number("CELLMATE_FAULT_RUNS", 24)).collect();
    let ended = AtomicUsize::new(0);
    run_parallel(&seeds, |seed| {
        let mut chance = Chance::new(*seed as u64);
        let program = Program::new(&mut chance);
        let mut clients = Clients::of_nodes(nodes.clone(), ledger.to_owned(), format!("session-{seed}"), chance);
        clients.tolerance = tolerance;
        match clients.exec(&program.code) {
            (Some(run), None) => {
                let end = clients.finish(&run);
                oracle::judge_end(&clients, &program, &run, &end);
                oracle::judge_one_end(&mut clients, &run, &end, "completed");
                oracle::judge_values(&mut clients, &program.tokens);
                ended.fetch_add(1, Ordering::Relaxed);
            }
            (None, None) => {}
            other => panic!("{other:?}"),
        }
        oracle::judge_effects(&clients);
    });
    let ended = ended.into_inner();
    assert!(ended * 2 > seeds.len(), "only {ended} of {} runs were started", seeds.len());
}

#[test]
fn repeated_immediate_restarts_of_the_server_lose_nothing() {
    let (mut server, folder) = (Server::start().unwrap(), tempfile::tempdir().unwrap());
    let (url, stop, restarts) = (server.url(), AtomicBool::new(false), AtomicUsize::new(0));
    let tolerance = Tolerance { unknown_outcomes: true, lost_answers: true };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // After the last restart the server stays up, and the remaining runs must end.
            for _ in 0..number("CELLMATE_FAULT_RESTARTS", 5) {
                std::thread::sleep(Duration::from_millis(700));
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                server.restart_immediately().unwrap();
                restarts.fetch_add(1, Ordering::Relaxed);
            }
        });
        let finished = std::panic::catch_unwind(|| storm(&url, &folder.path().join("ledger"), tolerance));
        stop.store(true, Ordering::Relaxed);
        assert!(finished.is_ok());
    });
    assert!(restarts.into_inner() > 1);
}

#[test]
fn a_commit_with_a_lost_answer_is_found_and_not_repeated() {
    let (server, folder) = (Server::start().unwrap(), tempfile::tempdir().unwrap());
    let proxy = Proxy::start(&server.socket()).unwrap();
    // Creates the tables first: a host that cannot open its store exits.
    drop(nodes(&server.url(), &folder.path().join("none"), LEASE_MS, WAIT_MS)[0].ask(&json!({"op": "runs"})).unwrap());
    proxy.cut_every(7);
    let tolerance = Tolerance { unknown_outcomes: false, lost_answers: true };
    storm(&proxy.url(), &folder.path().join("ledger"), tolerance);
    assert!(proxy.cuts() > 10, "only {} answers were lost", proxy.cuts());
}

fn wait_until(description: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "timed out waiting until {description}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
