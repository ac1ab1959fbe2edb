//! Everybody around one host or several: they ask, bring outcomes, decide, and start a host again when it dies.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::node::{Node, Start};
use super::oracle::{Line, lines};
use super::program::Chance;

/// Short, so that a run of a dead host is soon taken over.
pub const LEASE_MS: u64 = 300;
pub const WAIT_MS: u64 = 100;

/// More than any run takes, on a machine that does other things as well.
const PATIENCE: Duration = Duration::from_secs(120);

pub struct People {
    pub ledger: PathBuf,
    session: String,
    chance: Chance,
    hosts: Hosts,
    /// How often the host has died.
    pub deaths: u32,
    pub expects: Expected,
    /// Outcomes that were brought and acknowledged.
    pub acknowledged: BTreeMap<(String, u32), Value>,
    brought: u32,
    deadline: Instant,
}

/// What may happen without any host having died.
#[derive(Clone, Copy, Debug, Default)]
pub struct Expected {
    pub unknown_outcomes: bool,
    pub lost_answers: bool,
}

enum Hosts {
    /// One that may die of its fault, and is started again without.
    Mortal { store: String, fault: Option<String>, node: Option<Node> },
    /// Some that others talk to as well, whose store is not always there.
    Shared(Vec<Arc<Node>>),
}

impl People {
    pub fn around_one(store: String, folder: &Path, chance: Chance, fault: Option<String>) -> Self {
        let hosts = Hosts::Mortal { store, fault, node: None };
        Self::around(hosts, folder.join("ledger"), "session".to_owned(), chance)
    }

    /// One that is there already, and is not expected to die.
    pub fn around_this_one(node: Node, store: String, folder: &Path, chance: Chance) -> Self {
        let hosts = Hosts::Mortal { store, fault: None, node: Some(node) };
        Self::around(hosts, folder.join("ledger"), "session".to_owned(), chance)
    }

    pub fn around_many(nodes: Vec<Arc<Node>>, ledger: PathBuf, session: String, chance: Chance) -> Self {
        Self::around(Hosts::Shared(nodes), ledger, session, chance)
    }

    fn around(hosts: Hosts, ledger: PathBuf, session: String, chance: Chance) -> Self {
        let deadline = Instant::now() + PATIENCE;
        let acknowledged = BTreeMap::new();
        let expects = Expected::default();
        Self { ledger, session, chance, hosts, deaths: 0, expects, acknowledged, brought: 0, deadline }
    }

    /// Asks a host. Nothing where it died of it: then the next one asked is new.
    pub fn ask(&mut self, line: &Value) -> Option<Value> {
        assert!(Instant::now() < self.deadline, "this takes too long: {line}, {}", self.ledger.display());
        let mut line = line.clone();
        line["session"] = json!(self.session);
        match &mut self.hosts {
            Hosts::Shared(nodes) => nodes[self.chance.below(nodes.len())].ask(&line),
            Hosts::Mortal { store, fault, node } => {
                let asked = node.get_or_insert_with(|| {
                    // A fault happens once: the next host has none.
                    let environment = fault.take().map(|fault| ("CELLMATE_FAULT", fault)).into_iter().collect();
                    let (ledger, lease_ms, wait_ms) = (self.ledger.as_path(), LEASE_MS, WAIT_MS);
                    Node::start(&Start { store, ledger, lease_ms, wait_ms, environment })
                });
                let answer = asked.ask(&line);
                if answer.is_none() {
                    *node = None;
                    self.deaths += 1;
                    assert!(self.deaths <= 1, "a host without a fault died of {line}");
                }
                answer
            }
        }
    }

    /// Asks until there is an answer, and one from the store: for what may be asked twice.
    pub fn insist(&mut self, line: &Value) -> Value {
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

    /// Starts a cell; its run, where there is one to be found afterwards, and its end where it had one at once.
    pub fn exec(&mut self, code: &str) -> (Option<String>, Option<Value>) {
        let before = self.runs();
        match self.ask(&json!({"op": "exec", "code": code})) {
            Some(result) if result["status"] == "waiting" => (Some(result["runId"].as_str().unwrap().to_owned()), None),
            Some(result) if !is_passing(&result) => (None, Some(result)),
            // Whoever asked does not know its name; the store does, if it was written at all.
            Some(_) | None => (self.runs().into_iter().find(|run| !before.contains(run)), None),
        }
    }

    fn runs(&mut self) -> Vec<String> {
        let runs = self.insist(&json!({"op": "runs"}));
        runs.as_array().unwrap().iter().map(|run| run.as_str().unwrap().to_owned()).collect()
    }

    /// Goes on with a run, bringing what it waits for, until it is over.
    pub fn finish(&mut self, run_id: &str) -> Value {
        loop {
            self.help(run_id);
            let result = self.insist(&json!({"op": "wait", "runId": run_id}));
            if is_passing(&result) {
                self.pause();
            } else if result["status"] != "waiting" {
                return result;
            }
        }
    }

    /// What is told of a run that has ended like that; not what a host says whose store is away.
    pub fn told(&mut self, run_id: &str, end: &Value) -> Value {
        loop {
            let told = self.insist(&json!({"op": "wait", "runId": run_id}));
            if told == *end || !is_passing(&told) {
                return told;
            }
            self.pause();
        }
    }

    /// Does what a run may wait for.
    pub fn help(&mut self, run_id: &str) {
        self.bring(run_id);
        self.decide();
    }

    /// Whoever was handed a call answers it, sooner or later, and again if nobody confirmed it.
    fn bring(&mut self, run_id: &str) {
        for Line { name, run, call, .. } in lines(&self.ledger) {
            let open = run == run_id && !self.acknowledged.contains_key(&(run.clone(), call));
            if !open || !["task", "pick"].contains(&name.as_str()) || self.chance.below(4) == 0 {
                continue;
            }
            self.brought += 1;
            let value = json!(format!("brought {call} ({})", self.brought));
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
                // A yes that was not confirmed is found to be given, or asked for again.
                drop(self.ask(&json!({"op": "decide", "approvalId": approval["approvalId"]})));
            }
        }
    }
}

/// What a host says while its store is away. The run is where it was, and whoever asks again is told how it stands.
fn is_passing(result: &Value) -> bool {
    result["status"] == "failed" && ["internal_error", "runtime_unavailable"].iter().any(|code| result["code"] == *code)
}
