//! The clients of a history, as one value: it sends commands to one or several hosts, settles calls, decides approvals
//! and restarts a host that died.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::node::{Node, Start};
use super::oracle::{Line, lines};
use super::program::Chance;

/// The lease of a run. It is short, so that the next host soon takes over the runs of a dead one.
pub(super) const LEASE_MS: u64 = 300;
/// How long a `wait` waits.
pub(super) const WAIT_MS: u64 = 100;

/// The time limit of a history, long enough for a busy machine.
const TIME_LIMIT: Duration = Duration::from_secs(120);

pub(super) struct Clients {
    /// The file to which the tools of all hosts append one line per call.
    pub ledger: PathBuf,
    session: String,
    chance: Chance,
    hosts: Hosts,
    /// How often the single host has died. Deaths of hosts that are shared with other clients are not counted.
    pub deaths: u32,
    pub tolerance: Tolerance,
    /// Outcomes that a host has accepted, by run and call.
    pub acknowledged: BTreeMap<(String, u32), Value>,
    outcomes_sent: u32,
    deadline: Instant,
}

/// What the checks accept although no host died.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tolerance {
    /// Calls of non-repeatable tools may end with an unknown outcome.
    pub unknown_outcomes: bool,
    /// An outcome may be stored although its client got no acknowledgement.
    pub lost_answers: bool,
}

enum Hosts {
    /// A host with a fault that may kill it. It is restarted without the fault.
    Single { store: String, fault: Option<String>, node: Option<Node> },
    /// Several hosts that are shared with other clients, and whose store may be unavailable at times.
    Shared(Vec<Arc<Node>>),
}

impl Clients {
    /// Starts a host with a fault on the first command.
    pub(super) fn of_host_with_fault(store: String, folder: &Path, chance: Chance, fault: Option<String>) -> Self {
        let hosts = Hosts::Single { store, fault, node: None };
        Self::new(hosts, folder.join("ledger"), "session".to_owned(), chance)
    }

    /// Uses a host that is already running and has no fault.
    pub(super) fn of_host(node: Node, store: String, folder: &Path, chance: Chance) -> Self {
        let hosts = Hosts::Single { store, fault: None, node: Some(node) };
        Self::new(hosts, folder.join("ledger"), "session".to_owned(), chance)
    }

    /// Uses running hosts that other clients use too. Each command goes to a random one.
    pub(super) fn of_nodes(nodes: Vec<Arc<Node>>, ledger: PathBuf, session: String, chance: Chance) -> Self {
        Self::new(Hosts::Shared(nodes), ledger, session, chance)
    }

    fn new(hosts: Hosts, ledger: PathBuf, session: String, chance: Chance) -> Self {
        let deadline = Instant::now() + TIME_LIMIT;
        let acknowledged = BTreeMap::new();
        let tolerance = Tolerance::default();
        Self { ledger, session, chance, hosts, deaths: 0, tolerance, acknowledged, outcomes_sent: 0, deadline }
    }

    /// Sends a command to a host. Returns `None` if the host died; the next command starts a new one.
    pub(super) fn ask(&mut self, line: &Value) -> Option<Value> {
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
    pub(super) fn ask_until_answered(&mut self, line: &Value) -> Value {
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

    /// Starts a cell. Returns the id of its run if it is now waiting, or its result if it has already ended. Returns
    /// neither if the host failed before it stored the run.
    pub(super) fn exec(&mut self, code: &str) -> (Option<String>, Option<Value>) {
        let before = self.runs();
        match self.ask(&json!({"op": "exec", "code": code})) {
            Some(result) if result["status"] == "waiting" => (Some(result["runId"].as_str().unwrap().to_owned()), None),
            Some(result) if !is_temporary_failure(&result) => (None, Some(result)),
            // The answer with the run's id was lost. If the run was stored, it is the one that was not there before.
            Some(_) | None => (self.runs().into_iter().find(|run| !before.contains(run)), None),
        }
    }

    /// Runs a cell to its end. Starts it again if the host failed before it stored the run.
    pub(super) fn exec_to_end(&mut self, code: &str) -> Value {
        loop {
            match self.exec(code) {
                (_, Some(end)) => return end,
                (Some(run), None) => return self.finish(&run),
                (None, None) => {}
            }
        }
    }

    fn runs(&mut self) -> Vec<String> {
        let runs = self.ask_until_answered(&json!({"op": "runs"}));
        runs.as_array().unwrap().iter().map(|run| run.as_str().unwrap().to_owned()).collect()
    }

    /// Settles the calls of a run, decides its approvals and waits until it ends.
    pub(super) fn finish(&mut self, run_id: &str) -> Value {
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

    /// Sends another `wait` for a run that has ended with the result `end`. Repeats it while a host reports that its
    /// store is unavailable, unless that report is `end` itself.
    pub(super) fn wait_again(&mut self, run_id: &str, end: &Value) -> Value {
        loop {
            let result = self.ask_until_answered(&json!({"op": "wait", "runId": run_id}));
            if result == *end || !is_temporary_failure(&result) {
                return result;
            }
            self.pause();
        }
    }

    /// Settles a random part of a run's parked calls, and decides a random part of the pending approvals.
    pub(super) fn settle_and_decide(&mut self, run_id: &str) {
        self.settle_parked_calls(run_id);
        self.decide();
    }

    /// Settles a random part of a run's parked calls, including calls whose earlier outcome was not acknowledged.
    fn settle_parked_calls(&mut self, run_id: &str) {
        for Line { name, run, call, .. } in lines(&self.ledger) {
            let unsettled = run == run_id && !self.acknowledged.contains_key(&(run.clone(), call));
            if !unsettled || !["task", "pick"].contains(&name.as_str()) || self.chance.below(4) == 0 {
                continue;
            }
            self.outcomes_sent += 1;
            let value = json!(format!("settled {call} ({})", self.outcomes_sent));
            let settled = self.ask(&json!({"op": "settle", "runId": run, "call": call, "value": value}));
            if settled.is_some_and(|answer| answer["settled"] == "Ok(WillDeliver)") {
                self.acknowledged.insert((run, call), value);
            }
        }
    }

    fn decide(&mut self) {
        let Some(pending) = self.ask(&json!({"op": "approvals"})) else { return };
        for approval in pending.as_array().into_iter().flatten() {
            if self.chance.below(4) > 0 {
                // If the answer is lost, the decision may not be stored; then the approval is decided the next time.
                drop(self.ask(&json!({"op": "decide", "approvalId": approval["approvalId"]})));
            }
        }
    }
}

/// Returns whether a host reports that its store is unavailable. The run is unchanged, and a later `wait` returns its
/// state.
fn is_temporary_failure(result: &Value) -> bool {
    result["status"] == "failed" && ["internal_error", "runtime_unavailable"].iter().any(|code| result["code"] == *code)
}
