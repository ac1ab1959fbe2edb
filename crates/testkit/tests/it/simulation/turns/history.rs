//! A history of turns: clients, gateways, cells and faults, all random from one seed. Then the faults stop, and every
//! conversation must be answered.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use contract::ids::TurnId;
use fault::{GATEWAY_POINTS, POINTS};
use serde_json::{Value, json};
use store::{HeldTurn, NewStep, TurnRow, TurnState, TurnStep};
use testkit::model::ScriptedModel;

use super::super::super::faults::program::Chance;
use super::super::fault_plan::{ArmedFault, Fault, TURN_COMMITS};
use super::super::gateway_node::PRINCIPAL;
use super::super::history::{HistoryResult, StepResult};
use super::super::inspector::{Sabotage, StoreInspector, TurnInspector, empty_store};
use super::super::node::DAY;
use super::super::nodes::Nodes;
use super::super::requests::{Answer, HttpRequest, Request};
use super::super::tools::World;
use super::client::{Conversation, SentRequest, asked_calls};
use super::oracle;
use super::question::{QUESTIONS, Question, script};

/// Steps with faults: the minimum, and the bound of the random number added to it.
const STEPS: (usize, usize) = (150, 350);

/// Rounds without faults within which every conversation must be answered: minutes of simulated time.
const ROUNDS: usize = 400;

const CONVERSATIONS: usize = 3;

/// The milliseconds of a gateway's lease of a turn.
const TURN_LEASE_MS: usize = 6_000;

/// What a client expects of a request.
enum Pending {
    Turn(SentRequest),
    Other,
}

/// A turn as it was last seen.
pub(super) struct ObservedTurn {
    pub row: TurnRow,
    pub steps: Vec<TurnStep>,
}

pub(super) struct TurnHistory {
    chance: Chance,
    nodes: Nodes,
    pub world: Arc<World>,
    pub inspector: StoreInspector,
    turn_inspector: TurnInspector,
    seed: u64,
    pub conversations: Vec<Conversation>,
    /// The questions of conversations that have not begun.
    upcoming: Vec<Vec<Question>>,
    requests: BTreeMap<u64, Pending>,
    pub turns: BTreeMap<TurnId, ObservedTurn>,
    /// Turns that a process has taken which then stalled.
    stalled: Vec<HeldTurn>,
    /// The number of messages to turns, each with its own text.
    steered: usize,
    /// Whether nodes may crash or stall in this history.
    has_faults: bool,
}

pub(super) fn run(seed: u64, sabotage: Sabotage) -> HistoryResult {
    let (_folder, path) = empty_store(sabotage);
    let world = Arc::new(World::default());
    let mut chance = Chance::new(seed);
    let upcoming: Vec<Vec<Question>> = (0..CONVERSATIONS)
        .map(|conversation| (0..QUESTIONS).map(|number| Question::new(&mut chance, conversation, number)).collect())
        .collect();
    let model = ScriptedModel::start(script(&upcoming).into()).unwrap();
    let nodes = Nodes::new(2 + chance.below(2), Arc::clone(&world), path.clone(), Some(model.url()));
    let inspector = StoreInspector::open(&path);
    let mut history = TurnHistory {
        has_faults: chance.below(8) > 0,
        chance,
        nodes,
        world: Arc::clone(&world),
        turn_inspector: TurnInspector::open(&inspector, &path),
        inspector,
        seed,
        conversations: Vec::new(),
        upcoming,
        requests: BTreeMap::new(),
        turns: BTreeMap::new(),
        stalled: Vec::new(),
        steered: 0,
    };
    let failure = history.run().err();
    HistoryResult { log: world.log_lines(), failure }
}

impl TurnHistory {
    fn run(&mut self) -> StepResult {
        for node in 0..self.nodes.len() {
            self.nodes.start(node, self.seed)?;
        }
        let steps = STEPS.0 + self.chance.below(STEPS.1);
        for _ in 0..steps {
            self.step()?;
            self.process_answers()?;
        }
        self.world.log("faults stop".to_owned());
        self.nodes.stop_faults(self.seed)?;
        self.process_answers()?;
        self.finish()?;
        oracle::judge(self)
    }

    fn step(&mut self) -> StepResult {
        let turns = self.nodes.waiting_for_turn();
        match self.chance.below(100) {
            0..72 if !turns.is_empty() => {
                let node = turns[self.chance.below(turns.len())];
                self.nodes.give_turn(node, &mut self.chance)
            }
            0..82 => self.client_action(),
            82..94 => {
                let ms = [5, 30, 120, 300, 1100, 2500][self.chance.below(6)];
                if !self.has_faults {
                    (0..self.nodes.len()).try_for_each(|node| self.nodes.run_until_idle(node, &mut self.chance))?;
                }
                self.nodes.advance(Duration::from_millis(ms))
            }
            _ => self.inject_fault(),
        }
    }

    fn client_action(&mut self) -> StepResult {
        let active = self.nodes.active();
        if active.is_empty() {
            return Ok(());
        }
        let node = active[self.chance.below(active.len())];
        if !self.upcoming.is_empty() && (self.conversations.is_empty() || self.chance.below(4) == 0) {
            let questions = self.upcoming.remove(0);
            self.conversations.push(Conversation::new(questions));
            return self.send(node, self.conversations.len() - 1);
        }
        match self.chance.below(24) {
            0..16 => {
                let conversation = self.chance.below(self.conversations.len());
                // A client usually waits for its response before it sends the request again.
                if self.is_awaited(conversation) && self.chance.below(6) > 0 {
                    return Ok(());
                }
                self.send(node, conversation)
            }
            16 | 17 => {
                let conversation = self.chance.below(self.conversations.len());
                if !self.conversations[conversation].is_over() && self.conversations[conversation].contradict() {
                    return self.send(node, conversation);
                }
                Ok(())
            }
            18 | 19 => {
                self.steered += 1;
                self.intervene(node, "steer", &json!({"text": format!("steer {}", self.steered)}))
            }
            20 if self.chance.below(3) == 0 => self.intervene(node, "abort", &json!({"reason": "a person's abort"})),
            20 | 21 => self.stall(),
            _ => self.write_stalled(),
        }
    }

    /// Whether a client waits for the response to a request of this conversation.
    fn is_awaited(&self, conversation: usize) -> bool {
        self.requests.iter().any(|(request, pending)| {
            matches!(pending, Pending::Turn(sent) if sent.conversation == conversation) && self.nodes.is_open(*request)
        })
    }

    fn send(&mut self, node: usize, number: usize) -> StepResult {
        let conversation = &mut self.conversations[number];
        if conversation.is_over() {
            return Ok(());
        }
        // Some clients hang up early; the others wait longer than any turn takes.
        let patience = [200, 3_000, 120_000, 120_000, 120_000][self.chance.below(5)];
        let (request, sent) = conversation.request(number, Duration::from_millis(patience));
        let request = self.nodes.ask(node, Request::Http(request))?;
        self.requests.insert(request, Pending::Turn(sent));
        Ok(())
    }

    /// Steers or aborts a turn that is not over, from any node.
    fn intervene(&mut self, node: usize, action: &str, body: &Value) -> StepResult {
        self.observe()?;
        let open: Vec<&TurnId> =
            self.turns.values().filter(|turn| !turn.row.state.is_over()).map(|turn| &turn.row.turn_id).collect();
        if open.is_empty() {
            return Ok(());
        }
        let path = format!("/api/v1/turns/{}/{action}", open[self.chance.below(open.len())]);
        let request = HttpRequest { path, body: body.clone(), retries: 0, patience: Duration::from_secs(120) };
        let request = self.nodes.ask(node, Request::Http(request))?;
        self.requests.insert(request, Pending::Other);
        Ok(())
    }

    fn now_ms(&self) -> i64 {
        i64::try_from((DAY + self.nodes.now).as_millis()).unwrap()
    }

    /// Takes a turn whose process is gone, like a process that stalls right afterwards.
    fn stall(&mut self) -> StepResult {
        self.observe()?;
        let now = self.now_ms();
        let orphans: Vec<TurnId> = self
            .turns
            .values()
            .filter(|turn| turn.row.state == TurnState::Running && turn.row.lease_until < now)
            .map(|turn| turn.row.turn_id.clone())
            .collect();
        if orphans.is_empty() {
            return Ok(());
        }
        let turn_id = &orphans[self.chance.below(orphans.len())];
        let holder = format!("stalled-{}", self.stalled.len());
        if let Some(held) = self.inspector.take_turn(turn_id, &holder, now) {
            self.world.log(format!("{holder}: takes {turn_id}"));
            self.stalled.push(held);
        }
        Ok(())
    }

    /// Lets the stalled processes write whose turns other processes have taken since.
    fn write_stalled(&mut self) -> StepResult {
        let now = self.now_ms();
        for held in &mut self.stalled {
            let row = self.inspector.turn(&held.turn_id);
            if row.holder == held.holder && !row.state.is_over() {
                continue;
            }
            let step = NewStep { kind: "steered".to_owned(), body: json!({"steered": []}).to_string() };
            if self.inspector.write_step(held, step, now) {
                return Err(format!("{} wrote {}, which {} has taken", held.holder, held.turn_id, row.holder));
            }
        }
        Ok(())
    }

    fn inject_fault(&mut self) -> StepResult {
        let node = self.chance.below(self.nodes.len());
        if !self.nodes.is_up(node) {
            return self.nodes.start(node, self.seed);
        }
        if !self.has_faults || !self.nodes.active().contains(&node) {
            return Ok(());
        }
        let fault = match self.chance.below(12) {
            0..5 => Fault::Crash,
            5..8 => {
                Fault::Pause(Duration::from_millis((TURN_LEASE_MS / 2 + self.chance.below(TURN_LEASE_MS * 2)) as u64))
            }
            8..10 => Fault::LoseAnswer,
            10 => {
                self.nodes.set_clock_skew(node, self.chance.below(4_000) as i64 - 2_000);
                return Ok(());
            }
            _ => {
                // The node shuts down cleanly, like a program that receives SIGTERM.
                let request = self.nodes.ask(node, Request::Leave)?;
                self.requests.insert(request, Pending::Other);
                self.nodes.run_until_idle(node, &mut self.chance)?;
                return self.nodes.stop(node);
            }
        };
        let points: Vec<&'static str> = match fault {
            Fault::LoseAnswer => TURN_COMMITS.to_vec(),
            // Most faults hit turns; the others hit their cells.
            _ if self.chance.below(4) > 0 => GATEWAY_POINTS.to_vec(),
            _ => POINTS.to_vec(),
        };
        let named = self.chance.below(4) > 0;
        let at = named.then(|| points[self.chance.below(points.len())]);
        let left = 1 + if named { self.chance.below(2) } else { self.chance.below(30) } as u32;
        self.nodes.arm(node, ArmedFault { fault, at, left })
    }

    /// Repeats requests until every conversation is answered and no turn is in progress.
    fn finish(&mut self) -> StepResult {
        for _ in 0..ROUNDS {
            for conversation in 0..self.conversations.len() {
                if !self.is_awaited(conversation) {
                    let node = self.chance.below(self.nodes.len());
                    self.send(node, conversation)?;
                }
            }
            for node in 0..self.nodes.len() {
                self.nodes.run_until_idle(node, &mut self.chance)?;
            }
            self.process_answers()?;
            self.observe()?;
            let is_running = self.turns.values().any(|turn| turn.row.state == TurnState::Running);
            if !is_running && self.conversations.iter().all(Conversation::is_over) {
                return self.write_stalled();
            }
            self.nodes.advance(Duration::from_millis(500))?;
        }
        let left = self.turns.values().filter(|turn| turn.row.state == TurnState::Running);
        let left: Vec<_> = left.map(|turn| turn.row.turn_id.clone()).collect();
        Err(format!("the conversations do not end; running: {left:?}; {:?}", self.conversations))
    }

    /// Reads all turns. What was stored once must not change: the steps of a turn only grow, and not after its end.
    fn observe(&mut self) -> StepResult {
        for turn_id in self.turn_inspector.turns(&self.inspector) {
            let row = self.inspector.turn(&turn_id);
            if let Some(before) = self.turns.get(&turn_id) {
                if before.row == row {
                    continue;
                }
                if before.row.state.is_over() {
                    return Err(format!("{turn_id} changed after its end: {:?}, {row:?}", before.row));
                }
            }
            let steps = self.inspector.turn_steps(&turn_id);
            if let Some(before) = self.turns.get(&turn_id)
                && !steps.starts_with(&before.steps)
            {
                return Err(format!("{turn_id} had the steps {:?} and now has {steps:?}", before.steps));
            }
            if u32::try_from(steps.len()) != Ok(row.steps) {
                return Err(format!("{turn_id} has {} steps of {}: {steps:?}", steps.len(), row.steps));
            }
            self.turns.insert(turn_id, ObservedTurn { row, steps });
        }
        Ok(())
    }

    fn process_answers(&mut self) -> StepResult {
        for (request, answer) in std::mem::take(&mut self.nodes.answers) {
            let (Some(Pending::Turn(sent)), Answer::Http(Some((status, body)))) =
                (self.requests.remove(&request), answer)
            else {
                continue;
            };
            // A response that was kept alive with spaces has the status 200 already when it fails.
            let has_failed = status == 503 || body["error"]["type"] == "server_error";
            match status {
                // Aborted, interrupted or taken over; the client sends the request again.
                _ if has_failed => {}
                200 => self.receive(&sent, &body)?,
                _ => return Err(format!("a request was answered with {status}: {body}")),
            }
        }
        Ok(())
    }

    /// Checks a response against the store at the moment when the client receives it.
    fn receive(&mut self, sent: &SentRequest, body: &Value) -> StepResult {
        let calls = asked_calls(body);
        let stored = self.inspector.deliveries(PRINCIPAL, &calls);
        if let Some(call) = calls.iter().find(|call| !stored.iter().any(|row| row.call_id == **call)) {
            return Err(format!("a call was sent and is not stored: {call}, {body}"));
        }
        for row in self.inspector.deliveries(PRINCIPAL, &sent.answered) {
            let is_over = self.inspector.turn(&row.turn_id).state.is_over();
            if row.answered_at.is_none() && !is_over {
                return Err(format!("the result of a call was acknowledged and is not stored: {row:?}"));
            }
        }
        self.conversations[sent.conversation].receive(sent, body)?;
        self.observe()
    }
}
