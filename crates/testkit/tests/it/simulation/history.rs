//! A history: clients, nodes, tools and faults, all random from one seed. Then the faults stop, and every run must
//! end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use contract::ids::{ApprovalId, CallId, RunId};
use fault::POINTS;
use serde_json::Value;
use store::Decision;

use super::super::faults::program::Chance;
use super::fault_plan::{ArmedFault, COMMITS, Fault};
use super::inspector::{Sabotage, StoreInspector, empty_store};
use super::node::LEASE;
use super::nodes::Nodes;
use super::oracle;
use super::programs::Kind;
use super::requests::Request;
use super::tools::World;

/// The log of a history, and its failure if the oracle found one.
pub(super) struct HistoryResult {
    pub log: Vec<String>,
    pub failure: Option<String>,
}

/// Steps with faults: the minimum, and the bound of the random number added to it.
const STEPS: (usize, usize) = (80, 240);

/// Rounds without faults within which every run must end: minutes of simulated time.
const ROUNDS: usize = 300;

/// A cell that a client has started, and what clients know about it.
#[derive(Debug, Default)]
pub(super) struct StartedCell {
    /// The agent run of the cell. All cells belong to one session and share its values.
    pub agent_run: String,
    pub calls: Vec<Kind>,
    /// What the cell adds to the session's list `log`.
    pub tokens: Vec<String>,
    pub run: Option<RunId>,
    /// All final results that were returned for it.
    pub ends: Vec<Value>,
    pub last_result: Option<Value>,
    /// Whether a client has requested its abort.
    pub aborted: bool,
}

pub(super) struct History {
    pub chance: Chance,
    pub nodes: Nodes,
    pub world: Arc<World>,
    pub inspector: StoreInspector,
    seed: u64,
    pub cells: Vec<StartedCell>,
    /// The purpose of each request that is not answered yet.
    pub requests: BTreeMap<u64, PendingRequest>,
    /// Outcomes that were accepted, by run and call.
    pub acknowledged: BTreeMap<(RunId, CallId), Value>,
    pub outcomes_sent: usize,
    /// All decisions that were sent, by approval; any of them may have been stored.
    pub decisions: BTreeMap<ApprovalId, Vec<Decision>>,
    /// The kinds of faults that were injected so far.
    pub faults_injected: FaultKinds,
    /// The kinds of faults that may be injected in this history.
    allowed: FaultKinds,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FaultKinds {
    /// A node crashed, was paused or slow, or had a wrong clock.
    pub nodes: bool,
    /// A fault point returned an error.
    pub errors: bool,
}

pub(super) enum PendingRequest {
    /// An `exec` or `wait` of this cell.
    Cell(usize),
    Settle {
        run: RunId,
        call: CallId,
        value: Value,
    },
    Other,
}

pub(super) fn run(seed: u64, sabotage: Sabotage) -> HistoryResult {
    let (_folder, path) = empty_store(sabotage);
    let world = Arc::new(World::default());
    let mut chance = Chance::new(seed);
    let nodes = Nodes::new(2 + chance.below(2), Arc::clone(&world), path.clone(), None);
    let allowed = match chance.below(8) {
        0 => FaultKinds::default(),
        1 | 2 => FaultKinds { nodes: true, errors: true },
        _ => FaultKinds { nodes: true, errors: false },
    };
    let mut history = History {
        chance,
        nodes,
        world: Arc::clone(&world),
        inspector: StoreInspector::open(&path),
        seed,
        cells: Vec::new(),
        requests: BTreeMap::new(),
        acknowledged: BTreeMap::new(),
        outcomes_sent: 0,
        decisions: BTreeMap::new(),
        faults_injected: FaultKinds::default(),
        allowed,
    };
    let failure = history.run().err();
    HistoryResult { log: world.log_lines(), failure }
}

/// `Err` describes what went wrong.
pub(super) type StepResult = Result<(), String>;

impl History {
    fn run(&mut self) -> StepResult {
        for node in 0..self.nodes.len() {
            self.nodes.start(node, self.seed)?;
        }
        let steps = STEPS.0 + self.chance.below(STEPS.1);
        for _ in 0..steps {
            self.step()?;
            self.process_answers();
        }
        self.world.log("faults stop".to_owned());
        self.nodes.stop_faults(self.seed)?;
        self.process_answers();
        self.finish_runs()?;
        oracle::judge(self)
    }

    fn step(&mut self) -> StepResult {
        let turns = self.nodes.waiting_for_turn();
        match self.chance.below(100) {
            0..70 if !turns.is_empty() => {
                let node = turns[self.chance.below(turns.len())];
                self.nodes.give_turn(node, &mut self.chance)
            }
            0..85 => self.client_action(),
            85..94 => {
                let ms = [1, 5, 30, 30, 120, 300, 1100][self.chance.below(7)];
                self.advance_time(Duration::from_millis(ms))
            }
            _ => self.inject_fault(),
        }
    }

    /// Advances the time. Tasks that wait for a turn are delayed, as on a busy machine, and may lose their lease. If
    /// node faults are not allowed, all nodes become idle first.
    fn advance_time(&mut self, time: Duration) -> StepResult {
        if self.allowed.nodes {
            self.faults_injected.nodes |= !self.nodes.waiting_for_turn().is_empty();
        } else {
            (0..self.nodes.len()).try_for_each(|node| self.nodes.run_until_idle(node, &mut self.chance))?;
        }
        self.nodes.advance(time)
    }

    fn inject_fault(&mut self) -> StepResult {
        let node = self.chance.below(self.nodes.len());
        if !self.nodes.is_up(node) {
            return self.nodes.start(node, self.seed);
        }
        if !self.allowed.nodes || !self.nodes.active().contains(&node) {
            return Ok(());
        }
        let lease = LEASE.as_millis() as usize;
        let fault = match self.chance.below(12) {
            0..4 => Fault::Crash,
            4..7 => Fault::Pause(Duration::from_millis((lease / 2 + self.chance.below(lease * 3)) as u64)),
            7..9 => Fault::LoseAnswer,
            9 if self.allowed.errors => Fault::Error,
            9 | 10 => {
                let ms = self.chance.below(4 * lease) as i64 - 2 * lease as i64;
                self.faults_injected.nodes = true;
                self.nodes.set_clock_skew(node, ms);
                return Ok(());
            }
            _ => {
                // The node shuts down cleanly, like a program that receives SIGTERM.
                let request = self.nodes.ask(node, Request::Leave)?;
                self.requests.insert(request, PendingRequest::Other);
                self.nodes.run_until_idle(node, &mut self.chance)?;
                self.faults_injected.nodes = true;
                return self.nodes.stop(node);
            }
        };
        match fault {
            Fault::Error => self.faults_injected.errors = true,
            Fault::Crash | Fault::Pause(_) => self.faults_injected.nodes = true,
            Fault::LoseAnswer => {}
        }
        let points: &[&'static str] = if matches!(fault, Fault::LoseAnswer) { &COMMITS } else { &POINTS };
        let named = self.chance.below(2) == 0;
        let at = named.then(|| points[self.chance.below(points.len())]);
        let left = 1 + if named { self.chance.below(2) } else { self.chance.below(30) } as u32;
        self.nodes.arm(node, ArmedFault { fault, at, left })
    }

    /// Settles calls, decides approvals and waits until all runs have ended.
    fn finish_runs(&mut self) -> StepResult {
        let mut waits: BTreeMap<usize, u64> = BTreeMap::new();
        for _ in 0..ROUNDS {
            let mut open = 0;
            for cell in 0..self.cells.len() {
                self.find_run(cell);
                let Some(run) = self.cells[cell].run.clone() else { continue };
                if self.inspector.row(&run).state.is_over() {
                    continue;
                }
                open += 1;
                let node = self.chance.below(self.nodes.len());
                self.settle_open_calls(node, &run)?;
                self.decide(node, &run)?;
                if waits.get(&cell).is_none_or(|request| !self.nodes.is_open(*request)) {
                    waits.insert(cell, self.wait(node, cell, &run)?);
                }
            }
            if open == 0 && self.requests.keys().all(|request| !self.nodes.is_open(*request)) {
                return Ok(());
            }
            for node in 0..self.nodes.len() {
                self.nodes.run_until_idle(node, &mut self.chance)?;
            }
            self.nodes.advance(Duration::from_millis(200))?;
            self.process_answers();
        }
        let left: Vec<_> = self.cells.iter().filter_map(|cell| cell.run.as_ref()).collect();
        let left = left.into_iter().map(|run| format!("{run} {:?}", self.inspector.row(run).state));
        Err(format!("runs do not end: {:?}", left.collect::<Vec<_>>()))
    }
}
