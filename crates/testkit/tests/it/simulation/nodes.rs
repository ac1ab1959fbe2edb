//! The nodes of a history: which of them run, are paused or have exited, and their open requests.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use super::super::faults::program::Chance;
use super::fault_plan::ArmedFault;
use super::node::{Node, Order, Report, Start};
use super::requests::{Answer, Request};
use super::tools::World;

/// A node that is not idle after this many turns does not become idle.
const MAX_TURNS: usize = 20_000;

pub(super) struct Nodes {
    slots: Vec<Slot>,
    world: Arc<World>,
    store: PathBuf,
    /// The address of the model, if the nodes have gateways.
    model: Option<String>,
    /// Simulated time since the history began.
    pub now: Duration,
    next_request: u64,
    /// Answers that are not processed yet.
    pub answers: Vec<(u64, Answer)>,
}

struct Slot {
    node: Option<Node>,
    /// How often the node was started.
    starts: u64,
    skew: Arc<AtomicI64>,
    /// The number of its tasks that wait for a turn.
    waiting: usize,
    /// End and start of its pause, if it is paused.
    paused: Option<(Duration, Duration)>,
    /// Requests that were neither answered nor lost in a crash.
    open_requests: Vec<u64>,
}

type StepResult = Result<(), String>;

impl Nodes {
    pub(super) fn new(count: usize, world: Arc<World>, store: PathBuf, model: Option<String>) -> Self {
        let slots = (0..count).map(|_| fresh()).collect();
        Self { slots, world, store, model, now: Duration::ZERO, next_request: 0, answers: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn is_up(&self, node: usize) -> bool {
        self.slots[node].node.is_some()
    }

    fn is_active(&self, node: usize) -> bool {
        self.is_up(node) && self.slots[node].paused.is_none()
    }

    /// Returns the nodes that run and are not paused.
    pub(super) fn active(&self) -> Vec<usize> {
        (0..self.len()).filter(|node| self.is_active(*node)).collect()
    }

    /// Returns the active nodes that have a task waiting for a turn.
    pub(super) fn waiting_for_turn(&self) -> Vec<usize> {
        self.active().into_iter().filter(|node| self.slots[*node].waiting > 0).collect()
    }

    /// Whether the request may still be answered.
    pub(super) fn is_open(&self, request: u64) -> bool {
        self.slots.iter().any(|slot| slot.open_requests.contains(&request))
    }

    pub(super) fn start(&mut self, node: usize, seed: u64) -> StepResult {
        let slot = &mut self.slots[node];
        slot.starts += 1;
        self.world.log(format!("{}: starts", name(node)));
        let started = Node::start(Start {
            name: name(node),
            store: self.store.clone(),
            world: Arc::clone(&self.world),
            seed: seed ^ (slot.starts << 8 | node as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15),
            now: self.now,
            skew: Arc::clone(&slot.skew),
            model: self.model.clone(),
        });
        let report = started.report();
        self.slots[node].node = Some(started);
        self.on_report(node, report?);
        Ok(())
    }

    fn order(&mut self, node: usize, order: Order) -> StepResult {
        let Some(ordered) = &self.slots[node].node else { return Ok(()) };
        let report = ordered.order(order)?;
        self.on_report(node, report);
        Ok(())
    }

    fn on_report(&mut self, node: usize, report: Report) {
        let slot = &mut self.slots[node];
        match report {
            Report::Idle { waiting, answers } => {
                slot.waiting = waiting;
                slot.open_requests.retain(|open| !answers.iter().any(|(answered, _)| answered == open));
                for (request, answer) in &answers {
                    self.world.log(format!("{}: answer to {request}: {answer:?}", name(node)));
                }
                self.answers.extend(answers);
            }
            Report::Paused(time) => slot.paused = Some((self.now + time, self.now)),
            Report::Exited => {
                self.world.log(format!("{}: exits", name(node)));
                *slot = Slot { node: None, starts: slot.starts, skew: Arc::clone(&slot.skew), ..fresh() };
            }
        }
    }

    pub(super) fn ask(&mut self, node: usize, request: Request) -> Result<u64, String> {
        self.next_request += 1;
        let id = self.next_request;
        self.world.log(format!("{}: request {id}: {request:?}", name(node)));
        self.slots[node].open_requests.push(id);
        self.order(node, Order::Ask(id, request))?;
        Ok(id)
    }

    pub(super) fn give_turn(&mut self, node: usize, chance: &mut Chance) -> StepResult {
        let waiting = self.slots[node].waiting;
        let which = chance.below(waiting);
        self.world.log(format!("{}: turn {} of {waiting}", name(node), which + 1));
        self.order(node, Order::Turn(which))
    }

    /// Advances the time of all nodes, and resumes those whose pause is over.
    pub(super) fn advance(&mut self, time: Duration) -> StepResult {
        self.now += time;
        self.world.log(format!("all: {time:?} later"));
        for node in 0..self.len() {
            match self.slots[node].paused {
                Some((until, since)) if until <= self.now => {
                    self.slots[node].paused = None;
                    self.world.log(format!("{}: resumes", name(node)));
                    self.order(node, Order::Advance(self.now - since))?;
                }
                Some(_) => {}
                None => self.order(node, Order::Advance(time))?,
            }
        }
        Ok(())
    }

    pub(super) fn arm(&mut self, node: usize, armed: ArmedFault) -> StepResult {
        self.world.log(format!("{}: {armed:?}", name(node)));
        self.order(node, Order::Arm(armed))
    }

    pub(super) fn disarm(&mut self, node: usize) -> StepResult {
        self.order(node, Order::Disarm)
    }

    /// Makes a node's clock wrong by this much.
    pub(super) fn set_clock_skew(&mut self, node: usize, ms: i64) {
        self.world.log(format!("{}: clock skew {ms} ms", name(node)));
        self.slots[node].skew.store(ms, Ordering::Relaxed);
    }

    pub(super) fn stop(&mut self, node: usize) -> StepResult {
        self.order(node, Order::Stop)
    }

    /// Gives a node turns until none of its tasks waits for one.
    pub(super) fn run_until_idle(&mut self, node: usize, chance: &mut Chance) -> StepResult {
        for _ in 0..MAX_TURNS {
            if !self.waiting_for_turn().contains(&node) {
                return Ok(());
            }
            self.give_turn(node, chance)?;
        }
        Err(format!("a node is not idle after {MAX_TURNS} turns"))
    }

    /// Corrects clocks, resumes paused nodes, disarms faults and restarts crashed nodes.
    pub(super) fn stop_faults(&mut self, seed: u64) -> StepResult {
        for node in 0..self.len() {
            self.set_clock_skew(node, 0);
        }
        while (0..self.len()).any(|node| self.is_up(node) && !self.active().contains(&node)) {
            self.advance(Duration::from_secs(1))?;
        }
        for node in 0..self.len() {
            if self.is_up(node) {
                self.disarm(node)?;
            }
        }
        for node in 0..self.len() {
            if !self.is_up(node) {
                self.start(node, seed)?;
            }
        }
        Ok(())
    }
}

fn fresh() -> Slot {
    Slot { node: None, starts: 0, skew: Arc::default(), waiting: 0, paused: None, open_requests: Vec::new() }
}

fn name(node: usize) -> String {
    format!("node {node}")
}
