//! The state machine of a run: events go in, actions come out. Nothing here waits, reads a clock or does IO.
//!
//! A *turn* is one `exec` or `wait` of the model. Within a turn, every settled call resumes the guest at once. The turn
//! ends when the cell ends or yields, when it waits only for people or clients, or when the turn's time is over. Calls
//! continue between turns.

mod calls;
mod event;
mod turn;

use std::collections::{BTreeMap, VecDeque};

use contract::cell::{OutputItem, PendingState, WaitingReason};
use contract::error::ErrorCode;
use contract::frame::{Failure, Leg, LegEnd, Method, Reply, ReplyValue};
use contract::ids::CallId;
use contract::limits::Limits;

use calls::{OpenCall, QueuedCall, SettledCall};
use turn::{Turn, TurnKind, Turns};

pub use calls::ReopenedCall;
pub use event::{Action, Answer, Event};
pub(crate) use turn::out_of_time;

/// How long a waiting cell stays in its worker. Most tools return sooner; for slower ones a snapshot costs less than
/// the worker's slot.
pub const KEEP_LIVE_MS: u64 = 25;

/// A leg is not started with less time than this.
const LEAST_RUN_MS: u64 = 1;

/// The state of a run.
#[derive(Debug)]
pub struct Cell {
    limits: Limits,
    turns: Turns,
    phase: Phase,
    turn: Option<Turn>,
    open: BTreeMap<CallId, OpenCall>,
    queue: VecDeque<QueuedCall>,
    running: u64,
    settled: Vec<SettledCall>,
    /// The highest id of a call so far: the guest counts upwards.
    last_call: CallId,
    output: Vec<OutputItem>,
    guest_us: u64,
    snapshots: contract::cell::Snapshots,
    /// Bytes of output that earlier turns have stored.
    stored_output_bytes: u64,
    /// How long calls of client tools wait for other calls before the turn ends.
    client_wait_ms: Option<u64>,
    /// When the last call of a client tool was parked.
    last_client_at: u64,
}

/// What a suspended cell is resumed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResumedFrom {
    /// A snapshot: the cell is frozen.
    Snapshot,
    /// A replay of its legs: the cell is in a worker, and the end of its last leg is still to come as an event.
    Replay,
}

/// The resources that a run had used when it was suspended.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpentResources {
    pub guest_us: u64,
    pub snapshots: contract::cell::Snapshots,
    /// The highest id among all calls of the run, open or not.
    pub last_call: CallId,
    pub stored_output_bytes: u64,
}

#[derive(Debug)]
enum Phase {
    /// A leg runs in a worker.
    Running,
    /// Between legs; in a worker since `live_since`, or frozen.
    Resting {
        live_since: Option<u64>,
    },
    Freezing,
    Ended,
}

impl Cell {
    /// Creates a cell whose first leg was started in the turn of its `exec`.
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
            last_call: CallId(0),
            output: Vec::new(),
            guest_us: 0,
            snapshots: contract::cell::Snapshots::default(),
            stored_output_bytes: 0,
            client_wait_ms: None,
            last_client_at: 0,
        }
    }

    /// Sets how long calls of client tools wait for other calls, from the last of them on. Then the turn ends, so that
    /// the client receives them. `None`: they wait as long as the turn does.
    pub fn set_client_wait(&mut self, wait_ms: Option<u64>) {
        self.client_wait_ms = wait_ms;
    }

    /// Makes the first turn wait this long for pending calls. `timeoutMs` then limits guest code alone, as in `wait`.
    #[must_use]
    pub fn holding_first_turn(mut self, hold_ms: u64) -> Self {
        if let Some(turn) = &mut self.turn {
            turn.kind = TurnKind::LongExec { hold_ms };
        }
        self
    }

    /// Creates a started cell that cannot be resumed with `wait`: it completes or fails within its first turn.
    pub fn started_for_one_turn(limits: Limits, now: u64) -> Self {
        Self { turns: Turns::One, ..Self::started(limits, now) }
    }

    /// Rebuilds a suspended cell.
    pub fn resumed(limits: Limits, open: Vec<ReopenedCall>, spent: SpentResources, from: ResumedFrom) -> Self {
        let phase = match from {
            ResumedFrom::Snapshot => Phase::Resting { live_since: None },
            ResumedFrom::Replay => Phase::Running,
        };
        let mut cell = Self {
            phase,
            turn: None,
            guest_us: spent.guest_us,
            snapshots: spent.snapshots,
            last_call: spent.last_call,
            stored_output_bytes: spent.stored_output_bytes,
            ..Self::started(limits, 0)
        };
        for ReopenedCall { call, state, worked_on: holds_slot, decided, since } in open {
            cell.running += u64::from(holds_slot);
            let id = call.id;
            cell.last_call = cell.last_call.max(id);
            cell.open.insert(id, OpenCall { holds_slot, ..OpenCall::new(&call, state, since) });
            if decided {
                cell.requeue(id);
            } else if state == PendingState::Queued {
                cell.queue.push_back(QueuedCall::New(call));
            }
        }
        cell
    }

    /// Handles an event and returns the actions to take. `now` is in milliseconds since any fixed moment.
    pub fn on(&mut self, event: Event, now: u64) -> Vec<Action> {
        let mut actions = Vec::new();
        // Events after the end change nothing.
        if self.is_over() {
            return actions;
        }
        match event {
            Event::Wait => self.begin_turn(now),
            Event::LegEnded(leg) => return self.leg_ended(leg, now),
            Event::Settled(call, value) => self.settle(call, value),
            Event::Parked(call, state) => {
                if state == PendingState::Client {
                    self.last_client_at = now;
                }
                self.park(call, state);
            }
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
                    position: None,
                });
            }
        }
        self.advance(now, &mut actions);
        actions
    }

    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Ended)
    }

    /// Returns whether an `exec` or `wait` is in progress.
    pub fn in_turn(&self) -> bool {
        self.turn.is_some()
    }

    /// Returns whether there is nothing to do: the cell is frozen, no turn is in progress, and no call is running or
    /// queued.
    pub fn is_dormant(&self) -> bool {
        matches!(self.phase, Phase::Resting { live_since: None })
            && self.turn.is_none()
            && self.queue.is_empty()
            && self.open.values().all(|open| !open.holds_slot)
    }

    pub fn guest_ms(&self) -> u64 {
        self.guest_us / 1000
    }

    pub fn snapshots(&self) -> contract::cell::Snapshots {
        self.snapshots
    }

    /// Counts output that was stored in addition to what a result shows.
    pub fn add_stored_output(&mut self, bytes: u64) {
        self.stored_output_bytes = self.stored_output_bytes.saturating_add(bytes);
    }

    fn begin_turn(&mut self, now: u64) {
        if self.turn.is_some() {
            return;
        }
        self.turn = Some(Turn { kind: TurnKind::Wait, began: now, guest_us: 0 });
        // Yields are resolved first, before calls that have settled since.
        let yields: Vec<CallId> =
            self.open.iter().filter(|(_, open)| open.method == Method::Yield).map(|(call, _)| *call).collect();
        for call in yields.into_iter().rev() {
            self.open.remove(&call);
            let reply = Reply { call, value: ReplyValue::Resolved(b"null".to_vec()) };
            self.settled.insert(0, SettledCall { method: Method::Yield, reply });
        }
    }

    fn leg_ended(&mut self, leg: Leg, now: u64) -> Vec<Action> {
        if let Err(what) = self.vet(&leg) {
            return self.fail(broke_protocol(what));
        }
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
            // The worker knows only what was left of the budget.
            LegEnd::Failed(failure) if failure.code == Some(ErrorCode::Timeout) => self.fail(self.budget_spent()),
            LegEnd::Failed(failure) => self.fail(failure),
            LegEnd::Suspended { calls, cleared } => {
                let mut actions = Vec::new();
                for call in cleared {
                    self.open.remove(&call);
                    // The timer may have fired while the leg ran.
                    self.settled.retain(|settled| settled.reply.call != call);
                    actions.push(Action::CancelTimer(call));
                }
                calls.into_iter().for_each(|call| self.open_call(call, now, &mut actions));
                self.phase = Phase::Resting { live_since: Some(now) };
                self.advance(now, &mut actions);
                actions
            }
        }
    }

    /// Adds all actions that are possible now.
    fn advance(&mut self, now: u64, actions: &mut Vec<Action>) {
        while self.running < self.limits.pending_calls {
            match self.queue.pop_front() {
                Some(QueuedCall::New(call)) => {
                    if self.begin(call.id) {
                        actions.push(Action::Dispatch(call));
                    }
                }
                Some(QueuedCall::Decided(call)) => {
                    if self.begin(call) {
                        actions.push(Action::ResumeDecided(call));
                    }
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
        if self.open.is_empty() && self.settled.is_empty() {
            actions.extend(self.fail(nothing_pending()));
            return;
        }
        let hold_until = turn.hold_until(&self.limits);
        let run_ms = turn.run_ms(&self.limits, now);
        let clients_until = self.clients_until(turn);
        let clients_due = self.settled.is_empty() && now >= clients_until;
        if clients_due || self.must_answer(now, hold_until) {
            if self.turns == Turns::One {
                let failure = self.unfinished();
                actions.extend(self.fail(failure));
                return;
            }
            // Freeze before answering: the cell must be in the store when the model calls `wait`.
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
            actions.push(Action::WakeAt(hold_until.min(keep_until).min(clients_until)));
        }
    }

    /// Returns when the client must receive the calls of its tools, even if other calls are in progress.
    fn clients_until(&self, turn: &Turn) -> u64 {
        let is_client = |open: &OpenCall| open.state == PendingState::Client;
        match self.client_wait_ms.filter(|_| self.turns == Turns::Many && self.open.values().any(is_client)) {
            Some(wait_ms) => self.last_client_at.max(turn.began).saturating_add(wait_ms),
            None => u64::MAX,
        }
    }

    /// Returns whether the turn must end now, whether or not the cell is finished. It never goes beyond `hold_until`.
    fn must_answer(&self, now: u64, hold_until: u64) -> bool {
        let held_long_enough = now >= hold_until;
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
            actions.extend(self.fail(self.budget_spent()));
            return;
        }
        if matches!(self.phase, Phase::Resting { live_since: None }) {
            self.snapshots.restored += 1;
        }
        self.phase = Phase::Running;
        let shown: u64 = self.output.iter().map(|item| item.bytes() as u64).sum();
        actions.push(Action::Deliver {
            replies: std::mem::take(&mut self.settled).into_iter().map(|settled| settled.reply).collect(),
            run_ms,
            output_bytes: self.limits.output_budget(self.stored_output_bytes).saturating_sub(shown),
        });
    }

    fn freeze(&mut self, actions: &mut Vec<Action>) {
        self.phase = Phase::Freezing;
        actions.push(Action::Freeze);
    }

    fn answer_waiting(&mut self, now: u64) -> Action {
        self.turn = None;
        let pending: Vec<_> = self.open.iter().map(|(call, open)| (*call, open.pending(*call, now))).collect();
        let only_yields = self.open.values().all(|open| open.method == Method::Yield);
        let reason =
            if only_yields && !pending.is_empty() { WaitingReason::Yield } else { WaitingReason::PendingTools };
        Action::Answer(Answer::Waiting { reason, pending, output: std::mem::take(&mut self.output) })
    }

    fn budget_spent(&self) -> Failure {
        Failure {
            code: Some(ErrorCode::Timeout),
            message: format!(
                "the cell ran for its whole budget of {} ms without finishing; do less work in one cell",
                self.limits.timeout_ms
            ),
            position: None,
        }
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

fn broke_protocol(what: &str) -> Failure {
    Failure {
        code: Some(ErrorCode::InternalError),
        message: format!("the sandbox worker that held the cell broke the protocol: {what}"),
        position: None,
    }
}

/// The failure of a cell that waits although nothing is pending that could resume it.
fn nothing_pending() -> Failure {
    Failure {
        code: None,
        message: "the cell waits, but it has no tool call and no timer pending that could resume it".to_owned(),
        position: None,
    }
}

#[cfg(test)]
mod tests;
