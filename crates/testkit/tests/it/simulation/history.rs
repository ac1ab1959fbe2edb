//! One history: people, nodes, tools and misfortunes, all by chance from one seed; then calm, and everything must end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use store::Decision;
use store::fault::POINTS;

use super::super::faults::program::Chance;
use super::eye::{Eye, Sabotage, empty_store};
use super::misfortunes::{Armed, COMMITS, Fault};
use super::node::LEASE;
use super::nodes::Nodes;
use super::oracle;
use super::programs::Kind;
use super::requests::Request;
use super::tools::World;

/// How a history went: its story, and what was wrong with it.
pub struct Went {
    pub story: Vec<String>,
    pub wrong: Option<String>,
}

/// Steps of trouble: at least, and how many more there may be.
const STEPS: (usize, usize) = (80, 240);

/// Rounds of calm within which every run must have ended: minutes of its time.
const ROUNDS: usize = 300;

/// Turns within one round, before something goes round in circles.
const MOST_TURNS: usize = 5_000;

/// A cell that somebody has started, and what is known of it.
#[derive(Debug, Default)]
pub struct Started {
    pub session: String,
    pub calls: Vec<Kind>,
    pub run: Option<String>,
    /// What was told of it as its end.
    pub ends: Vec<Value>,
    pub last_told: Option<Value>,
    /// Whether anybody has asked for its end.
    pub aborted: bool,
}

pub struct History {
    pub chance: Chance,
    pub nodes: Nodes,
    pub world: Arc<World>,
    pub eye: Eye,
    seed: u64,
    pub cells: Vec<Started>,
    /// What each request was about.
    pub asked: BTreeMap<u64, Asked>,
    /// Outcomes that were brought and count.
    pub acknowledged: BTreeMap<(String, u32), Value>,
    pub brought: usize,
    /// What people said, by the approval: what may have been taken down.
    pub said: BTreeMap<String, Vec<Decision>>,
    /// What went wrong so far on purpose.
    pub troubles: Troubles,
    /// What each kind of trouble may happen in this history.
    allowed: Troubles,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Troubles {
    /// A node died, was held up or busy, or had its clock set.
    pub nodes: bool,
    /// A place answered with an error.
    pub errors: bool,
}

pub enum Asked {
    OfCell(usize),
    Brings { run: String, call: u32, value: Value },
    Other,
}

pub fn run(seed: u64, sabotage: Sabotage) -> Went {
    let (_folder, path) = empty_store(sabotage);
    let world = Arc::new(World::default());
    let mut chance = Chance::new(seed);
    let nodes = Nodes::new(2 + chance.below(2), Arc::clone(&world), path.clone());
    let allowed = match chance.below(8) {
        0 => Troubles::default(),
        1 | 2 => Troubles { nodes: true, errors: true },
        _ => Troubles { nodes: true, errors: false },
    };
    let mut history = History {
        chance,
        nodes,
        world: Arc::clone(&world),
        eye: Eye::open(&path),
        seed,
        cells: Vec::new(),
        asked: BTreeMap::new(),
        acknowledged: BTreeMap::new(),
        brought: 0,
        said: BTreeMap::new(),
        troubles: Troubles::default(),
        allowed,
    };
    let wrong = history.pass_through().err();
    Went { story: world.story(), wrong }
}

/// What is wrong, where something is.
pub type So = Result<(), String>;

impl History {
    fn pass_through(&mut self) -> So {
        for node in 0..self.nodes.len() {
            self.nodes.start(node, self.seed)?;
        }
        let steps = STEPS.0 + self.chance.below(STEPS.1);
        for _ in 0..steps {
            self.step()?;
            self.hear();
        }
        self.world.tell("calm".to_owned());
        self.calm_down()?;
        self.bring_to_an_end()?;
        oracle::judge(self)
    }

    fn step(&mut self) -> So {
        let turns = self.nodes.with_turns();
        match self.chance.below(100) {
            0..70 if !turns.is_empty() => {
                let node = turns[self.chance.below(turns.len())];
                self.nodes.give_turn(node, &mut self.chance)
            }
            0..85 => self.act(),
            85..94 => {
                let ms = [1, 5, 30, 30, 120, 300, 1100][self.chance.below(7)];
                self.let_time_pass(Duration::from_millis(ms))
            }
            _ => self.make_trouble(),
        }
    }

    /// Whoever waits for a turn meanwhile is held up, as by a busy machine: it may lose its lease. Not so where nothing
    /// may go wrong.
    fn let_time_pass(&mut self, time: Duration) -> So {
        if self.allowed.nodes {
            self.troubles.nodes |= !self.nodes.with_turns().is_empty();
        } else {
            (0..self.nodes.len()).try_for_each(|node| self.settle_down(node))?;
        }
        self.nodes.pass(time)
    }

    fn make_trouble(&mut self) -> So {
        let node = self.chance.below(self.nodes.len());
        if !self.nodes.is_up(node) {
            return self.nodes.start(node, self.seed);
        }
        if !self.allowed.nodes || !self.nodes.movable().contains(&node) {
            return Ok(());
        }
        let lease = LEASE.as_millis() as usize;
        let fault = match self.chance.below(12) {
            0..4 => Fault::Dies,
            4..7 => Fault::IsHeldUp(Duration::from_millis((lease / 2 + self.chance.below(lease * 3)) as u64)),
            7..9 => Fault::LosesAnswer,
            9 if self.allowed.errors => Fault::Fails,
            9 | 10 => {
                let ms = self.chance.below(4 * lease) as i64 - 2 * lease as i64;
                self.troubles.nodes = true;
                self.nodes.set_off(node, ms);
                return Ok(());
            }
            _ => {
                // It leaves as a program does that is told to end.
                let request = self.nodes.ask(node, Request::Leave)?;
                self.asked.insert(request, Asked::Other);
                self.settle_down(node)?;
                self.troubles.nodes = true;
                return self.nodes.stop(node);
            }
        };
        match fault {
            Fault::Fails => self.troubles.errors = true,
            Fault::Dies | Fault::IsHeldUp(_) => self.troubles.nodes = true,
            Fault::LosesAnswer => {}
        }
        let places: &[&'static str] = if matches!(fault, Fault::LosesAnswer) { &COMMITS } else { &POINTS };
        let named = self.chance.below(2) == 0;
        let at = named.then(|| places[self.chance.below(places.len())]);
        let left = 1 + if named { self.chance.below(2) } else { self.chance.below(30) } as u32;
        self.nodes.arm(node, Armed { fault, at, left })
    }

    /// Gives a node its turns until nobody on it wants one.
    pub fn settle_down(&mut self, node: usize) -> So {
        for _ in 0..MOST_TURNS {
            if !self.nodes.with_turns().contains(&node) {
                return Ok(());
            }
            self.nodes.give_turn(node, &mut self.chance)?;
        }
        Err("a node goes round in circles".to_owned())
    }

    /// From here on nothing goes wrong any more.
    fn calm_down(&mut self) -> So {
        for node in 0..self.nodes.len() {
            self.nodes.set_off(node, 0);
        }
        while (0..self.nodes.len()).any(|node| self.nodes.is_up(node) && !self.nodes.movable().contains(&node)) {
            self.nodes.pass(Duration::from_secs(1))?;
        }
        for node in 0..self.nodes.len() {
            if self.nodes.is_up(node) {
                self.nodes.disarm(node)?;
            }
        }
        for node in 0..self.nodes.len() {
            if !self.nodes.is_up(node) {
                self.nodes.start(node, self.seed)?;
            }
        }
        self.hear();
        Ok(())
    }

    /// People do what is theirs to do until everything is over.
    fn bring_to_an_end(&mut self) -> So {
        let mut waits: BTreeMap<usize, u64> = BTreeMap::new();
        for _ in 0..ROUNDS {
            let mut open = 0;
            for cell in 0..self.cells.len() {
                self.look_for_run(cell);
                let Some(run) = self.cells[cell].run.clone() else { continue };
                if self.eye.row(&run).state.is_over() {
                    continue;
                }
                open += 1;
                let node = self.chance.below(self.nodes.len());
                self.bring_what_is_open(node, &run)?;
                self.decide(node, &run)?;
                if waits.get(&cell).is_none_or(|request| !self.nodes.is_asked(*request)) {
                    waits.insert(cell, self.wait(node, cell, &run)?);
                }
            }
            if open == 0 && self.asked.keys().all(|request| !self.nodes.is_asked(*request)) {
                return Ok(());
            }
            for node in 0..self.nodes.len() {
                self.settle_down(node)?;
            }
            self.nodes.pass(Duration::from_millis(200))?;
            self.hear();
        }
        let left: Vec<_> = self.cells.iter().filter_map(|cell| cell.run.as_deref()).collect();
        let left = left.into_iter().map(|run| format!("{run} {:?}", self.eye.row(run).state));
        Err(format!("it does not come to an end: {:?}", left.collect::<Vec<_>>()))
    }
}
