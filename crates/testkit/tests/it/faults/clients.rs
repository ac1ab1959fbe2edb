//! Clients of one or several hosts: they send requests, settle calls, decide approvals, and restart a host that died.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::node::{Node, Start};
use super::oracle::{Line, lines};
use super::program::Chance;

/// Short, so that the run of a dead host is taken over soon.
pub const LEASE_MS: u64 = 300;
pub const WAIT_MS: u64 = 100;

/// Time limit of a history, generous for busy machines.
const TIME_LIMIT: Duration = Duration::from_secs(120);

pub struct Clients {
    pub ledger: PathBuf,
    session: String,
    chance: Chance,
    hosts: Hosts,
    /// How often the host has died.
    pub deaths: u32,
    pub tolerance: Tolerance,
    /// Outcomes that a host has accepted, by run and call.
    pub acknowledged: BTreeMap<(String, u32), Value>,
    outcomes_sent: u32,
    deadline: Instant,
}

/// Deviations that may happen although no host died.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tolerance {
    pub unknown_outcomes: bool,
    pub lost_answers: bool,
}

enum Hosts {
    /// One host that may die of its fault and is restarted without it.
    Single { store: String, fault: Option<String>, node: Option<Node> },
    /// Several hosts with other clients, whose store may be unavailable at times.
    Shared(Vec<Arc<Node>>),
}

impl Clients {
    pub fn of_host_with_fault(store: String, folder: &Path, chance: Chance, fault: Option<String>) -> Self {
        let hosts = Hosts::Single { store, fault, node: None };
        Self::new(hosts, folder.join("ledger"), "session".to_owned(), chance)
    }

    /// Uses a host that is running already and must not die.
    pub fn of_host(node: Node, store: String, folder: &Path, chance: Chance) -> Self {
        let hosts = Hosts::Single { store, fault: None, node: Some(node) };
        Self::new(hosts, folder.join("ledger"), "session".to_owned(), chance)
    }

    pub fn of_nodes(nodes: Vec<Arc<Node>>, ledger: PathBuf, session: String, chance: Chance) -> Self {
        Self::new(Hosts::Shared(nodes), ledger, session, chance)
    }

    fn new(hosts: Hosts, ledger: PathBuf, session: String, chance: Chance) -> Self {
        let deadline = Instant::now() + TIME_LIMIT;
        let acknowledged = BTreeMap::new();
        let tolerance = Tolerance::default();
        Self { ledger, session, chance, hosts, deaths: 0, tolerance, acknowledged, outcomes_sent: 0, deadline }
    }

    /// Sends a command to a host. Returns `None` if the host died; the next command starts a new one.
    pub fn ask(&mut self, line: &Value) -> Option<Value> {
        assert!(Instant::now() < self.deadline, "the history takes too long: {line}, {}", self.ledger.display());
        let mut line = line.clone();
        line["session"] = json!(self.session);
        match &mut self.hosts {
            Hosts::Shared(nodes) => nodes[self.chance.below(nodes.len())].ask(&line),
            Hosts::Single { store, fault, node } => {
                let host = node.get_or_insert_with(|| {
                    // A fault happens once: the next host has none.
                    let environment = fault.take().map(|fault| ("CELLMATE_FAULT", fault)).into_iter().collect();
                    let (ledger, lease_ms, wait_ms) = (self.ledger.as_path(), LEASE_MS, WAIT_MS);
                    Node::start(&Start { store, ledger, lease_ms, wait_ms, environment })
                });
                let answer = host.ask(&line);
                if answer.is_none() {
                    *node = None;
                    self.deaths += 1;
                    assert!(self.deaths <= 1, "a host without a fault died on {line}");
                }
                answer
            }
        }
    }

    /// Sends a repeatable command until a host answers without an error.
    pub fn ask_until_answered(&mut self, line: &Value) -> Value {
        loop {
            match self.ask(line) {
                Some(answer) if answer.get("error").is_none() || answer.get("status").is_some() => return answer,
                Some(_) => self.pause(),
                None => {}
            }
        }
    }

    fn pause(&self) {
        std::thread::sleep(Duration::from_millis(20));
    }

    /// Starts a cell. Returns its run if it is in the store afterwards, or its result if it ended at once.
    pub fn exec(&mut self, code: &str) -> (Option<String>, Option<Value>) {
        let before = self.runs();
        match self.ask(&json!({"op": "exec", "code": code})) {
            Some(result) if result["status"] == "waiting" => (Some(result["runId"].as_str().unwrap().to_owned()), None),
            Some(result) if !is_temporary_failure(&result) => (None, Some(result)),
            // The answer with the run's id was lost; the run is in the store if it was written at all.
            Some(_) | None => (self.runs().into_iter().find(|run| !before.contains(run)), None),
        }
    }

    fn runs(&mut self) -> Vec<String> {
        let runs = self.ask_until_answered(&json!({"op": "runs"}));
        runs.as_array().unwrap().iter().map(|run| run.as_str().unwrap().to_owned()).collect()
    }

    /// Settles the calls of a run, decides its approvals and waits until it ends.
    pub fn finish(&mut self, run_id: &str) -> Value {
        loop {
            self.settle_and_decide(run_id);
            let result = self.ask_until_answered(&json!({"op": "wait", "runId": run_id}));
            if is_temporary_failure(&result) {
                self.pause();
            } else if result["status"] != "waiting" {
                return result;
            }
        }
    }

    /// Waits again for a run that ended with `end`. Retries while a host reports that its store is unavailable.
    pub fn wait_again(&mut self, run_id: &str, end: &Value) -> Value {
        loop {
            let result = self.ask_until_answered(&json!({"op": "wait", "runId": run_id}));
            if result == *end || !is_temporary_failure(&result) {
                return result;
            }
            self.pause();
        }
    }

    /// Settles the parked calls of a run and decides pending approvals, both at random.
    pub fn settle_and_decide(&mut self, run_id: &str) {
        self.settle_parked_calls(run_id);
        self.decide();
    }

    /// Settles parked calls at random, and again if the outcome was not acknowledged.
    fn settle_parked_calls(&mut self, run_id: &str) {
        for Line { name, run, call, .. } in lines(&self.ledger) {
            let open = run == run_id && !self.acknowledged.contains_key(&(run.clone(), call));
            if !open || !["task", "pick"].contains(&name.as_str()) || self.chance.below(4) == 0 {
                continue;
            }
            self.outcomes_sent += 1;
            let value = json!(format!("settled {call} ({})", self.outcomes_sent));
            let settled = self.ask(&json!({"op": "settle", "runId": run, "call": call, "value": value}));
            if settled.is_some_and(|answer| answer["settled"] == "Ok(Taken)") {
                self.acknowledged.insert((run, call), value);
            }
        }
    }

    fn decide(&mut self) {
        let Some(pending) = self.ask(&json!({"op": "approvals"})) else { return };
        for approval in pending.as_array().into_iter().flatten() {
            if self.chance.below(4) > 0 {
                // If the answer is lost, the approval was either stored or is still pending.
                drop(self.ask(&json!({"op": "decide", "approvalId": approval["approvalId"]})));
            }
        }
    }
}

/// Whether a host reports that its store is unavailable. The run is unchanged, and a later `wait` returns its state.
fn is_temporary_failure(result: &Value) -> bool {
    result["status"] == "failed" && ["internal_error", "runtime_unavailable"].iter().any(|code| result["code"] == *code)
}
