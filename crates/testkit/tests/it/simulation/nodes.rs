//! The nodes of a history: which are up, held up or gone, and what each is asked.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use super::super::faults::program::Chance;
use super::misfortunes::Armed;
use super::node::{Node, Order, Report, Start};
use super::requests::{Answer, Request};
use super::tools::World;

pub struct Nodes {
    slots: Vec<Slot>,
    world: Arc<World>,
    store: PathBuf,
    /// Since the history began.
    pub now: Duration,
    next_request: u64,
    /// What was answered and not yet looked at.
    pub answers: Vec<(u64, Answer)>,
}

struct Slot {
    node: Option<Node>,
    lives: u64,
    skew: Arc<AtomicI64>,
    waiting: usize,
    /// Until when it stands still, and since when.
    held_up: Option<(Duration, Duration)>,
    /// Requests that were neither answered nor lost.
    asked: Vec<u64>,
}

type Moved = Result<(), String>;

impl Nodes {
    pub fn new(count: usize, world: Arc<World>, store: PathBuf) -> Self {
        let slot =
            |_| Slot { node: None, lives: 0, skew: Arc::default(), waiting: 0, held_up: None, asked: Vec::new() };
        let slots = (0..count).map(slot).collect();
        Self { slots, world, store, now: Duration::ZERO, next_request: 0, answers: Vec::new() }
    }

    pub fn len(&self) -> usize {
        self.slots.len()
    }

    pub fn is_up(&self, node: usize) -> bool {
        self.slots[node].node.is_some()
    }

    fn can_move(&self, node: usize) -> bool {
        self.is_up(node) && self.slots[node].held_up.is_none()
    }

    /// Nodes that are up and not held up.
    pub fn movable(&self) -> Vec<usize> {
        (0..self.len()).filter(|node| self.can_move(*node)).collect()
    }

    /// Those of them on which somebody waits for a turn.
    pub fn with_turns(&self) -> Vec<usize> {
        self.movable().into_iter().filter(|node| self.slots[*node].waiting > 0).collect()
    }

    /// Whether the request may still be answered.
    pub fn is_asked(&self, request: u64) -> bool {
        self.slots.iter().any(|slot| slot.asked.contains(&request))
    }

    pub fn start(&mut self, node: usize, seed: u64) -> Moved {
        let slot = &mut self.slots[node];
        slot.lives += 1;
        self.world.tell(format!("{}: starts", name(node)));
        let started = Node::start(Start {
            name: name(node),
            store: self.store.clone(),
            world: Arc::clone(&self.world),
            seed: seed ^ (slot.lives << 8 | node as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15),
            now: self.now,
            skew: Arc::clone(&slot.skew),
        });
        let report = started.report();
        self.slots[node].node = Some(started);
        self.heard(node, report?);
        Ok(())
    }

    fn order(&mut self, node: usize, order: Order) -> Moved {
        let Some(ordered) = &self.slots[node].node else { return Ok(()) };
        let report = ordered.order(order)?;
        self.heard(node, report);
        Ok(())
    }

    fn heard(&mut self, node: usize, report: Report) {
        let slot = &mut self.slots[node];
        match report {
            Report::Quiet { waiting, answers } => {
                slot.waiting = waiting;
                slot.asked.retain(|asked| !answers.iter().any(|(answered, _)| answered == asked));
                for (request, answer) in &answers {
                    self.world.tell(format!("{}: answers {request}: {answer:?}", name(node)));
                }
                self.answers.extend(answers);
            }
            Report::HeldUp(time) => slot.held_up = Some((self.now + time, self.now)),
            Report::Gone => {
                self.world.tell(format!("{}: is gone", name(node)));
                *slot = Slot { node: None, lives: slot.lives, skew: Arc::clone(&slot.skew), ..fresh() };
            }
        }
    }

    pub fn ask(&mut self, node: usize, request: Request) -> Result<u64, String> {
        self.next_request += 1;
        let id = self.next_request;
        self.world.tell(format!("{}: is asked {id}: {request:?}", name(node)));
        self.slots[node].asked.push(id);
        self.order(node, Order::Ask(id, request))?;
        Ok(id)
    }

    pub fn give_turn(&mut self, node: usize, chance: &mut Chance) -> Moved {
        let waiting = self.slots[node].waiting;
        let which = chance.below(waiting);
        self.world.tell(format!("{}: turn {} of {waiting}", name(node), which + 1));
        self.order(node, Order::Turn(which))
    }

    /// Time passes for all; whoever was held up for long enough goes on.
    pub fn pass(&mut self, time: Duration) -> Moved {
        self.now += time;
        self.world.tell(format!("all: {time:?} pass"));
        for node in 0..self.len() {
            match self.slots[node].held_up {
                Some((until, since)) if until <= self.now => {
                    self.slots[node].held_up = None;
                    self.world.tell(format!("{}: goes on", name(node)));
                    self.order(node, Order::Pass(self.now - since))?;
                }
                Some(_) => {}
                None => self.order(node, Order::Pass(time))?,
            }
        }
        Ok(())
    }

    pub fn arm(&mut self, node: usize, armed: Armed) -> Moved {
        self.world.tell(format!("{}: {armed:?}", name(node)));
        self.order(node, Order::Arm(armed))
    }

    pub fn disarm(&mut self, node: usize) -> Moved {
        self.order(node, Order::Disarm)
    }

    /// Sets a node's clock off by so much.
    pub fn set_off(&mut self, node: usize, ms: i64) {
        self.world.tell(format!("{}: its clock is off by {ms} ms", name(node)));
        self.slots[node].skew.store(ms, Ordering::Relaxed);
    }

    pub fn stop(&mut self, node: usize) -> Moved {
        self.order(node, Order::Stop)
    }
}

fn fresh() -> Slot {
    Slot { node: None, lives: 0, skew: Arc::default(), waiting: 0, held_up: None, asked: Vec::new() }
}

fn name(node: usize) -> String {
    format!("node {node}")
}
