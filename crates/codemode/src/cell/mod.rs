//! A run as a value: events go in, actions come out. Nothing here waits, reads a clock or does IO.
//!
//! A *turn* is one `exec` or `wait` of the model's. Within it every settled call resumes the guest at
//! once; the turn ends when the cell does, when it yields, when only people are awaited, or when the
//! time to hold on is over. Calls go on between turns.

mod block;

use std::collections::{BTreeMap, VecDeque};

use contract::cell::{OutputItem, PendingState, PendingToolCall, WaitingReason};
use contract::error::ErrorCode;
use contract::frame::{Failure, HostCall, Leg, LegEnd, Method, Reply, ReplyValue};
use contract::ids::CallId;
use contract::limits::Limits;
use serde_json::value::RawValue;

pub(crate) use block::out_of_time;

/// How long a cell that waits keeps its place in a worker. Most tools answer sooner; for the others a
/// snapshot is cheaper than the place.
pub const KEEP_LIVE_MS: u64 = 25;

/// A leg is not worth starting with less.
const LEAST_RUN_MS: u64 = 1;

#[derive(Debug)]
pub enum Event {
    /// The model called `wait`. (`exec` is how the cell began.)
    Wait,
    LegEnded(Leg),
    Settled(CallId, ReplyValue),
    /// A call turned out to wait for somebody.
    Parked(CallId, PendingState),
    /// Whoever a call waited for has said yes or no: it may go on.
    Decided(CallId),
    Froze {
        bytes: u64,
    },
    /// The cell could not be frozen, or its worker died under it.
    Lost(Failure),
    /// A time asked for with [`Action::WakeAt`] has come.
    Woke,
    Abort,
}

#[derive(Debug)]
pub enum Action {
    Dispatch(HostCall),
    /// Go on with a call that somebody has decided about.
    GoOn(CallId),
    SetTimer {
        call: CallId,
        after_ms: u64,
    },
    CancelTimer(CallId),
    /// Run a leg with these replies, thawing the cell first where it is frozen.
    Deliver {
        replies: Vec<Reply>,
        run_ms: u64,
        output_bytes: u64,
    },
    Freeze,
    WakeAt(u64),
    /// Give the model's call its result.
    Answer(Answer),
    /// The run is over: stop what still runs on its behalf.
    Close,
}

#[derive(Debug)]
pub enum Answer {
    Completed { value: Box<RawValue>, output: Vec<OutputItem> },
    Waiting { reason: WaitingReason, pending: Vec<PendingToolCall>, output: Vec<OutputItem> },
    Failed { failure: Failure, output: Vec<OutputItem> },
}

#[derive(Debug)]
pub struct Cell {
    limits: Limits,
    turns: Turns,
    phase: Phase,
    turn: Option<Turn>,
    open: BTreeMap<CallId, Open>,
    queue: VecDeque<Queued>,
    running: u64,
    settled: Vec<Reply>,
    output: Vec<OutputItem>,
    guest_us: u64,
    snapshots: contract::cell::Snapshots,
}

/// How often the model may come back for a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turns {
    Many,
    /// What is not finished when the turn's time is over has failed; until then it holds on, for people too.
    One,
}

#[derive(Debug)]
enum Phase {
    /// A leg runs in a worker.
    Running,
    /// Between legs; in a worker since then, or frozen.
    Resting {
        live_since: Option<u64>,
    },
    Freezing,
    Ended,
}

#[derive(Debug)]
struct Turn {
    kind: TurnKind,
    began: u64,
    guest_us: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TurnKind {
    Exec,
    Wait,
}

#[derive(Debug)]
struct Open {
    method: Method,
    target: String,
    state: PendingState,
    since: u64,
    /// Whether it counts among the calls that run at once. What waits for a person does not.
    holds_slot: bool,
}

#[derive(Debug)]
enum Queued {
    New(HostCall),
    Decided(CallId),
}

/// A call that was open when a run was put away.
#[derive(Debug)]
pub struct Reopened {
    pub call: HostCall,
    /// Queued: it has not been dispatched, and will be.
    pub state: PendingState,
    /// Whoever resumes the run works on it.
    pub worked_on: bool,
    /// Whoever it waited for has said yes or no meanwhile.
    pub decided: bool,
    pub since: u64,
}

/// What a run had used up when it was put away.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    pub guest_us: u64,
    pub snapshots: contract::cell::Snapshots,
}

impl Cell {
    /// A cell whose first leg has been started, in the turn of its `exec`.
    pub fn started(limits: Limits, now: u64) -> Self {
        Self {
            limits,
            turns: Turns::Many,
            phase: Phase::Running,
            turn: Some(Turn { kind: TurnKind::Exec, began: now, guest_us: 0 }),
            open: BTreeMap::new(),
            queue: VecDeque::new(),
            running: 0,
            settled: Vec::new(),
            output: Vec::new(),
            guest_us: 0,
            snapshots: contract::cell::Snapshots::default(),
        }
    }

    /// The same for a cell that nobody can `wait` for: it ends within its first turn, one way or the other.
    pub fn started_for_one_turn(limits: Limits, now: u64) -> Self {
        Self { turns: Turns::One, ..Self::started(limits, now) }
    }

    /// A cell that comes back from the store: frozen, or, where it was run again, in a worker with a last leg
    /// whose end is still to be told.
    pub fn resumed(limits: Limits, open: Vec<Reopened>, spent: Spent, frozen: bool) -> Self {
        let phase = if frozen { Phase::Resting { live_since: None } } else { Phase::Running };
        let mut cell = Self {
            phase,
            turn: None,
            guest_us: spent.guest_us,
            snapshots: spent.snapshots,
            ..Self::started(limits, 0)
        };
        for Reopened { call, state, worked_on: holds_slot, decided, since } in open {
            cell.running += u64::from(holds_slot);
            let open = Open { method: call.method, target: call.target.clone(), state, since, holds_slot };
            let id = call.id;
            cell.open.insert(id, open);
            if decided {
                cell.requeue(id);
            } else if state == PendingState::Queued {
                cell.queue.push_back(Queued::New(call));
            }
        }
        cell
    }

    /// `now` is in milliseconds since any fixed moment.
    pub fn on(&mut self, event: Event, now: u64) -> Vec<Action> {
        let mut actions = Vec::new();
        // What comes after the end changes nothing.
        if self.is_over() {
            return actions;
        }
        match event {
            Event::Wait => self.begin_turn(now),
            Event::LegEnded(leg) => return self.leg_ended(leg, now),
            Event::Settled(call, value) => self.settle(call, value),
            Event::Parked(call, state) => self.park(call, state),
            Event::Decided(call) => self.requeue(call),
            Event::Froze { bytes } => {
                self.snapshots.taken += 1;
                self.snapshots.bytes = bytes;
                self.phase = Phase::Resting { live_since: None };
            }
            Event::Lost(failure) => return self.fail(failure),
            Event::Woke => {}
            Event::Abort => {
                return self.fail(Failure {
                    code: Some(ErrorCode::Aborted),
                    message: "the run was aborted".to_owned(),
                    place: None,
                });
            }
        }
        self.advance(now, &mut actions);
        actions
    }

    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Ended)
    }

    /// Whether an `exec` or `wait` of the model's is under way.
    pub fn in_turn(&self) -> bool {
        self.turn.is_some()
    }

    /// Whether nothing is left to do until somebody comes: put away, nobody asks, no tool works.
    pub fn is_dormant(&self) -> bool {
        matches!(self.phase, Phase::Resting { live_since: None })
            && self.turn.is_none()
            && self.queue.is_empty()
            && self.open.values().all(|open| !open.holds_slot)
    }

    pub fn guest_us(&self) -> u64 {
        self.guest_us
    }

    pub fn guest_ms(&self) -> u64 {
        self.guest_us / 1000
    }

    pub fn snapshots(&self) -> contract::cell::Snapshots {
        self.snapshots
    }

    fn begin_turn(&mut self, now: u64) {
        if self.turn.is_some() {
            return;
        }
        self.turn = Some(Turn { kind: TurnKind::Wait, began: now, guest_us: 0 });
        // What yielded goes on now, before anything that has settled meanwhile.
        let yields: Vec<CallId> =
            self.open.iter().filter(|(_, open)| open.method == Method::Yield).map(|(call, _)| *call).collect();
        for call in yields.into_iter().rev() {
            self.open.remove(&call);
            self.settled.insert(0, Reply { call, value: ReplyValue::Resolved(b"null".to_vec()) });
        }
    }

    fn leg_ended(&mut self, leg: Leg, now: u64) -> Vec<Action> {
        self.guest_us += leg.run_us;
        if let Some(turn) = &mut self.turn {
            turn.guest_us += leg.run_us;
        }
        self.output.extend(leg.output);
        match leg.end {
            LegEnd::Completed { value } => {
                let output = std::mem::take(&mut self.output);
                self.end(Answer::Completed { value, output })
            }
            LegEnd::Failed(failure) => self.fail(failure),
            LegEnd::Suspended { calls, cleared } => {
                let mut actions = Vec::new();
                for call in cleared {
                    self.open.remove(&call);
                    actions.push(Action::CancelTimer(call));
                }
                calls.into_iter().for_each(|call| self.open_call(call, now, &mut actions));
                self.phase = Phase::Resting { live_since: Some(now) };
                self.advance(now, &mut actions);
                actions
            }
        }
    }

    fn open_call(&mut self, call: HostCall, now: u64, actions: &mut Vec<Action>) {
        let state = match call.method {
            Method::Yield | Method::Timer => PendingState::Running,
            Method::Search | Method::Describe | Method::Call | Method::Namespace => PendingState::Queued,
        };
        let open = Open { method: call.method, target: call.target.clone(), state, since: now, holds_slot: false };
        self.open.insert(call.id, open);
        match call.method {
            Method::Yield if self.turns == Turns::One => {
                // There is nobody to yield to.
                self.settle(call.id, ReplyValue::Resolved(b"null".to_vec()));
            }
            Method::Yield => {}
            Method::Timer => {
                let after_ms = std::str::from_utf8(&call.payload).ok().and_then(|text| text.parse::<f64>().ok());
                // What is no number fires at once; a cast saturates.
                actions.push(Action::SetTimer { call: call.id, after_ms: after_ms.unwrap_or(0.0) as u64 });
            }
            Method::Search | Method::Describe | Method::Call | Method::Namespace => {
                self.queue.push_back(Queued::New(call));
            }
        }
    }

    fn settle(&mut self, call: CallId, value: ReplyValue) {
        let Some(open) = self.open.remove(&call) else { return };
        self.running -= u64::from(open.holds_slot);
        self.settled.push(Reply { call, value });
    }

    /// A call that somebody else works on makes room for its siblings.
    fn park(&mut self, call: CallId, state: PendingState) {
        let Some(open) = self.open.get_mut(&call) else { return };
        open.state = state;
        self.running -= u64::from(std::mem::take(&mut open.holds_slot));
    }

    fn requeue(&mut self, call: CallId) {
        let Some(open) = self.open.get_mut(&call) else { return };
        if open.state == PendingState::Approval {
            open.state = PendingState::Queued;
            self.queue.push_back(Queued::Decided(call));
        }
    }

    fn begin(&mut self, call: CallId) {
        if let Some(open) = self.open.get_mut(&call) {
            open.state = PendingState::Running;
            open.holds_slot = true;
            self.running += 1;
        }
    }

    /// Does whatever can be done now.
    fn advance(&mut self, now: u64, actions: &mut Vec<Action>) {
        while self.running < self.limits.pending_calls {
            match self.queue.pop_front() {
                Some(Queued::New(call)) => {
                    self.begin(call.id);
                    actions.push(Action::Dispatch(call));
                }
                Some(Queued::Decided(call)) => {
                    self.begin(call);
                    actions.push(Action::GoOn(call));
                }
                None => break,
            }
        }
        let Phase::Resting { live_since } = self.phase else { return };
        let Some(turn) = &self.turn else {
            if live_since.is_some() {
                self.freeze(actions);
            }
            return;
        };
        let hold_until = turn.hold_until(&self.limits);
        let run_ms = turn.run_ms(&self.limits, now);
        if self.must_answer(now >= hold_until) {
            if self.turns == Turns::One {
                let failure = self.unfinished();
                actions.extend(self.fail(failure));
                return;
            }
            // Put away first: what the model is told of must be there when it comes back.
            if live_since.is_some() {
                self.freeze(actions);
            } else {
                actions.push(self.answer_waiting(now));
            }
        } else if !self.settled.is_empty() {
            self.resume(run_ms, actions);
        } else if live_since.is_some_and(|since| now >= since + KEEP_LIVE_MS) {
            self.freeze(actions);
        } else {
            let keep_until = live_since.map_or(u64::MAX, |since| since + KEEP_LIVE_MS);
            actions.push(Action::WakeAt(hold_until.min(keep_until)));
        }
    }

    /// Whether the model must hear of the cell now, finished or not.
    fn must_answer(&self, held_long_enough: bool) -> bool {
        if self.turns == Turns::One {
            return held_long_enough;
        }
        let yielded = self.open.values().any(|open| open.method == Method::Yield);
        let only_people = self.settled.is_empty()
            && !self.open.is_empty()
            && self.open.values().all(|open| matches!(open.state, PendingState::Approval | PendingState::Client));
        yielded || only_people || held_long_enough
    }

    fn resume(&mut self, run_ms: u64, actions: &mut Vec<Action>) {
        if run_ms < LEAST_RUN_MS {
            actions.extend(self.fail(Failure {
                code: Some(ErrorCode::Timeout),
                message: format!(
                    "the cell ran for its whole budget of {} ms without finishing; do less work in one cell",
                    self.limits.timeout_ms
                ),
                place: None,
            }));
            return;
        }
        if matches!(self.phase, Phase::Resting { live_since: None }) {
            self.snapshots.restored += 1;
        }
        self.phase = Phase::Running;
        let shown: u64 = self.output.iter().map(|item| item.bytes() as u64).sum();
        actions.push(Action::Deliver {
            replies: std::mem::take(&mut self.settled),
            run_ms,
            output_bytes: self.limits.output_bytes.saturating_sub(shown),
        });
    }

    fn freeze(&mut self, actions: &mut Vec<Action>) {
        self.phase = Phase::Freezing;
        actions.push(Action::Freeze);
    }

    fn answer_waiting(&mut self, now: u64) -> Action {
        self.turn = None;
        let pending: Vec<PendingToolCall> = self
            .open
            .iter()
            .map(|(call, open)| pending(*call, open.method, &open.target, open.state, now.saturating_sub(open.since)))
            .collect();
        let only_yields = self.open.values().all(|open| open.method == Method::Yield);
        let reason =
            if only_yields && !pending.is_empty() { WaitingReason::Yield } else { WaitingReason::PendingTools };
        Action::Answer(Answer::Waiting { reason, pending, output: std::mem::take(&mut self.output) })
    }

    fn unfinished(&self) -> Failure {
        let open = self.open.values().map(|open| (open.state, open.method, open.target.as_str()));
        out_of_time(self.limits.timeout_ms, open)
    }

    fn fail(&mut self, failure: Failure) -> Vec<Action> {
        let output = std::mem::take(&mut self.output);
        self.end(Answer::Failed { failure, output })
    }

    fn end(&mut self, answer: Answer) -> Vec<Action> {
        self.phase = Phase::Ended;
        self.turn = None;
        self.open.clear();
        self.queue.clear();
        self.settled.clear();
        vec![Action::Answer(answer), Action::Close]
    }
}

impl Reopened {
    pub fn pending(&self, now: u64) -> PendingToolCall {
        let HostCall { id, method, target, .. } = &self.call;
        pending(*id, *method, target, self.state, now.saturating_sub(self.since))
    }
}

fn pending(call: CallId, method: Method, target: &str, state: PendingState, since_ms: u64) -> PendingToolCall {
    PendingToolCall {
        id: format!("bridge:{}:{}", method.as_str(), call.0),
        method: method.as_str().to_owned(),
        tool_id: matches!(method, Method::Call | Method::Describe).then(|| target.to_owned()),
        state,
        since_ms,
    }
}

impl Turn {
    fn hold_until(&self, limits: &Limits) -> u64 {
        self.began
            + match self.kind {
                TurnKind::Exec => limits.timeout_ms,
                TurnKind::Wait => limits.max_wait_ms,
            }
    }

    /// What guest code may still run for in this turn.
    fn run_ms(&self, limits: &Limits, now: u64) -> u64 {
        let unspent = limits.timeout_ms.saturating_sub(self.guest_us / 1000);
        match self.kind {
            TurnKind::Exec => unspent.min(self.hold_until(limits).saturating_sub(now)),
            TurnKind::Wait => unspent,
        }
    }
}

#[cfg(test)]
mod tests;
