//! Does what `cell` decides: one task a run, which owns the cell, its place in a worker, its calls
//! and its timers. The last of them goes with it.
//!
//! Nothing is told that is not written: the journal has a run's state before anybody hears of it.

mod calls;
mod look;
mod places;
mod rest;
mod resume;
mod tell;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use contract::cell::{CellResult, PendingState, Telemetry};
use contract::config::SearchLimits;
use contract::error::ErrorCode;
use contract::frame::{Budget, Failure, HostCall, LegEnd, Method, ReplyValue, Start};
use contract::ids::CallId;
use contract::json;
use contract::limits::MAX_JSON_VALUES;
use contract::tables::CatalogTables;
use executor::clock::now_us;
use executor::{Executor, Journal, NotOpened, Reserved, RunData};
use store::LegRow;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::bridge;
use crate::cell::{Action, Cell, Event};
use crate::definition::Definition;
use crate::face::RunMode;
use crate::pool::Pool;
use crate::replay::ended_of;
use calls::TaskDone;
use places::{CellLocation, Work};

pub(crate) use resume::{reopened, resumed};
pub(crate) use tell::{failed, failed_with, failure_text};

#[derive(Debug)]
pub(crate) enum Command {
    /// `wait`: tell me how it stands when there is something to tell.
    Wait {
        tool_call_id: String,
        /// What the run may do from now on: policy may have changed since it began.
        executor: Executor,
        listener: oneshot::Sender<CellResult>,
    },
    /// The store has an outcome for this call.
    Arrived(CallId),
    /// The store has a person's word on this call.
    Decided(CallId),
    /// Another process may have brought either.
    StoreProbe,
    /// Dropped when the run is over.
    Abort(oneshot::Sender<()>),
}

/// What a run is made of, apart from its cell.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) id: String,
    pub(crate) face: RunMode,
    pub(crate) definition: Arc<Definition>,
    pub(crate) search: SearchLimits,
    pub(crate) pool: Pool,
    pub(crate) executor: Executor,
    pub(crate) journal: Arc<Journal>,
    /// What its unfinished calls may take of the host's memory.
    pub(crate) data: RunData,
    /// What the cell reads of its catalog: the same to its end, whatever becomes of the tools.
    pub(crate) tables: CatalogTables,
}

pub(crate) struct Driver {
    run: Run,
    cell: Cell,
    whereabouts: CellLocation,
    work: Option<Work>,
    calls: JoinSet<TaskDone>,
    timers: HashMap<CallId, AbortHandle>,
    wake_at: Option<u64>,
    began: Instant,
    /// How old the run was when this driver began.
    age_ms: u64,
    /// The control call that calls are made from now.
    parent: String,
    leg: i64,
    /// The leg under way, as the journal has it.
    begun: Option<LegRow>,
    /// Who waits for a word, by the id of the control call.
    listeners: Vec<(String, oneshot::Sender<CellResult>)>,
    aborters: Vec<oneshot::Sender<()>>,
    /// Until when a run that waits is kept.
    expires: Option<Instant>,
    /// Whether others may take the run: nothing is done for it here any more.
    released: bool,
    /// Another has the run now, and what becomes of it is theirs to tell.
    taken_over: bool,
    /// Whether whoever woke the run has been heard. Before that it is not put away again.
    asked: bool,
    last_word: Option<CellResult>,
    /// Whether a look for what others have brought is under way.
    looking: bool,
    telemetry: Telemetry,
    tool_time: Duration,
    /// Calls under way whose tools have asked people something.
    asking: HashSet<CallId>,
    /// Calls that have no room in the journal or in memory, and how they reject.
    refused: HashMap<CallId, ReplyValue>,
    /// Memory that payloads of unfinished calls and replies to them take.
    reserved: HashMap<CallId, Reserved>,
    /// The same for replies that the leg under way was given.
    delivering: Vec<Reserved>,
    /// Where calls under way tell with whom they are.
    tell: mpsc::Sender<CallStateChange>,
    told: mpsc::Receiver<CallStateChange>,
}

/// A call, and with whom it is.
type CallStateChange = (CallId, PendingState);

/// As many as a cell may have calls.
const MAX_STATES: usize = 1_024;

/// How a driver's life ended.
pub(crate) enum DriverExit {
    Over(Box<CellResult>),
    /// The run is in the store, and nothing is left to do until somebody comes.
    Dormant,
    /// Something could not be written; whoever takes the run next goes on from what was.
    Stopped,
}

impl Driver {
    /// `listener` is who called `exec`.
    pub(crate) fn new(run: Run, tool_call_id: String, listener: oneshot::Sender<CellResult>) -> Self {
        let catalog = run.executor.catalog();
        let telemetry = Telemetry {
            catalog_size: catalog.len(),
            sources: catalog.sources(),
            visible_tools: run.face.tools().iter().map(|name| (*name).to_owned()).collect(),
            exec_count: 1,
            ..Telemetry::default()
        };
        let cell = match run.face {
            RunMode::CodeMode => Cell::started(run.definition.limits, 0),
            RunMode::ToolSearch(_) => Cell::started_for_one_turn(run.definition.limits, 0),
        };
        let mut driver = Self::around(run, cell, CellLocation::Nowhere, telemetry);
        driver.parent.clone_from(&tool_call_id);
        driver.listeners.push((tool_call_id, listener));
        driver.asked = true;
        driver.enter_exec();
        driver.work = Some(driver.start());
        driver
    }

    fn around(run: Run, cell: Cell, whereabouts: CellLocation, telemetry: Telemetry) -> Self {
        let (tell, told) = mpsc::channel(MAX_STATES);
        Self {
            run,
            cell,
            whereabouts,
            work: None,
            calls: JoinSet::new(),
            timers: HashMap::new(),
            wake_at: None,
            began: Instant::now(),
            age_ms: 0,
            parent: String::new(),
            leg: 0,
            begun: None,
            listeners: Vec::new(),
            aborters: Vec::new(),
            expires: None,
            released: false,
            taken_over: false,
            asked: false,
            last_word: None,
            looking: false,
            telemetry,
            tool_time: Duration::ZERO,
            asking: HashSet::new(),
            refused: HashMap::new(),
            reserved: HashMap::new(),
            delivering: Vec::new(),
            tell,
            told,
        }
    }

    /// The run's whole life, or until there is nothing to do for it.
    pub(crate) async fn drive(mut self, commands: &mut mpsc::Receiver<Command>) -> DriverExit {
        let mut heard = true;
        while !self.cell.is_over() {
            if self.released {
                return DriverExit::Dormant;
            }
            let waits = !self.cell.in_turn();
            // In this order, so that the same things happening are the same run.
            let event = tokio::select! {
                biased;
                command = commands.recv(), if heard => match command {
                    Some(command) => self.hear(command),
                    // Nobody can ask for this run any more.
                    None => { heard = false; None }
                },
                (whereabouts, event) = places::work(&mut self.work) => {
                    self.work = None;
                    self.whereabouts = whereabouts;
                    Some(event)
                }
                Some(done) = self.calls.join_next() => match done {
                    Ok(done) => Some(self.took(done)),
                    // A timer that was cleared: perhaps it was the last thing to do.
                    Err(_) => Some(Event::Woke),
                },
                Some((call, state)) = self.told.recv() => Some(self.now_with(call, state)),
                () = sleep_until(self.began, self.wake_at.map(|at| at.saturating_sub(self.age_ms))) => {
                    self.wake_at = None;
                    Some(Event::Woke)
                }
                () = until(self.expires), if waits => return self.expire().await,
            };
            let Some(event) = event else { continue };
            if !self.on(event).await {
                return DriverExit::Stopped;
            }
        }
        match self.last_word.take() {
            Some(last_word) => DriverExit::Over(Box::new(last_word)),
            None => DriverExit::Stopped,
        }
    }

    /// Whether the run can go on here.
    async fn on(&mut self, event: Event) -> bool {
        let mut event = self.vetted(event);
        if let Err(failure) = self.note(&mut event) {
            event = Event::Lost(failure);
        }
        let moved = matches!(event, Event::Settled(..) | Event::Decided(_));
        if !self.step(event).await {
            return false;
        }
        if !self.cell.is_over()
            && self.run.journal.is_due()
            && let Err(error) = self.run.journal.flush().await
        {
            let event = self.stopped(error);
            return self.step(event).await;
        }
        if self.cell.is_over() || self.cell.in_turn() {
            return true;
        }
        self.rest(moved).await
    }

    async fn step(&mut self, event: Event) -> bool {
        let now = self.now();
        for action in self.cell.on(event, now) {
            if !self.act(action).await {
                return false;
            }
        }
        true
    }

    /// Before the journal has a leg: where it breaks the protocol, its worker is terminated and the cell is lost.
    fn vetted(&mut self, event: Event) -> Event {
        let Event::LegEnded(leg) = &event else { return event };
        match (self.cell.vet(leg), &mut self.whereabouts) {
            (Err(what), CellLocation::Live(lease)) => Event::Lost(places::pool_failure(&lease.broke_protocol(what))),
            // Without a worker there is only the cell to judge by, which fails of the same.
            _ => event,
        }
    }

    pub(crate) fn journal(&self) -> Arc<Journal> {
        Arc::clone(&self.run.journal)
    }

    pub(crate) fn session_id(&self) -> &str {
        &self.run.executor.scope().session_id
    }

    fn hear(&mut self, command: Command) -> Option<Event> {
        self.asked |= !matches!(command, Command::StoreProbe);
        match command {
            Command::Wait { tool_call_id, executor, listener } => {
                self.enter_wait(&tool_call_id);
                self.listeners.push((tool_call_id.clone(), listener));
                self.telemetry.wait_count += 1;
                self.run.executor = executor;
                // A second one joins the turn under way.
                if self.cell.in_turn() {
                    return None;
                }
                self.parent = tool_call_id;
                self.poll_store();
                if self.asking.is_empty() {
                    return Some(Event::Wait);
                }
                self.wait_in_a_moment();
                None
            }
            Command::Arrived(call) => {
                self.fetch_outcome(call);
                None
            }
            Command::Decided(call) => Some(Event::Decided(call)),
            Command::StoreProbe => {
                self.poll_store();
                None
            }
            Command::Abort(done) => {
                self.aborters.push(done);
                Some(Event::Abort)
            }
        }
    }

    /// What the journal must know of an event. A failure ends the run.
    fn note(&mut self, event: &mut Event) -> Result<(), Failure> {
        let Event::LegEnded(leg) = event else { return Ok(()) };
        self.delivering.clear();
        if let LegEnd::Suspended { calls, cleared } = &mut leg.end {
            for call in cleared {
                self.run.journal.cleared(call.0);
            }
            for call in calls {
                self.open(call)?;
            }
        }
        // After its calls: a leg whose end is written has all of them.
        if let Some(begun) = self.begun.take() {
            let ended = begun.ended.clone().unwrap_or_else(|| ended_of(leg));
            self.run.journal.leg_ended(LegRow { ended: Some(ended), ..begun });
        }
        Ok(())
    }

    /// Takes a new call into the journal. One that there is no room for keeps no payload, and rejects when it is its turn.
    fn open(&mut self, call: &mut HostCall) -> Result<(), Failure> {
        let failure = |code, message| Failure { code: Some(code), message, place: None };
        let row = calls::row(call, self.leg, &self.parent);
        let refused = match self.run.journal.opened(row) {
            Ok(()) => match call.method {
                Method::Timer | Method::Yield => return Ok(()),
                _ => self.reserve(call),
            },
            Err(NotOpened::Refused(full)) => Some((full.code(), full.to_string())),
            Err(spent @ NotOpened::Spent(_)) => {
                return Err(failure(ErrorCode::TooManyPendingToolCalls, spent.to_string()));
            }
            Err(reused @ NotOpened::Reused { .. }) => {
                return Err(failure(ErrorCode::InternalError, reused.to_string()));
            }
        };
        if let Some((code, message)) = refused {
            call.payload = Vec::new();
            self.refused.insert(call.id, bridge::reject_as(code, &message, &call.target));
        }
        Ok(())
    }

    /// Counts what a call takes of the host's memory until the cell has its reply.
    fn reserve(&mut self, call: &HostCall) -> Option<(&'static str, String)> {
        let values = json::measure(&call.payload).values.min(MAX_JSON_VALUES);
        match self.run.data.reserve(call.target.len() + call.payload.len(), values) {
            Ok(reserved) => {
                self.reserved.insert(call.id, reserved);
                None
            }
            Err(refused) => Some((refused.code(), refused.to_string())),
        }
    }

    /// A leg is about to run with these replies.
    fn begin_leg(&mut self, clock_us: u64, replies: Vec<u32>) {
        let begun = LegRow::begun(self.leg, clock_us, replies);
        self.run.journal.leg(begun.clone());
        self.begun = Some(begun);
    }

    async fn act(&mut self, action: Action) -> bool {
        match action {
            Action::Dispatch(call) => self.dispatch(&call),
            Action::GoOn(call) => self.go_on(call),
            Action::SetTimer { call, after_ms } => self.set_timer(call, after_ms),
            Action::CancelTimer(call) => {
                if let Some(timer) = self.timers.remove(&call) {
                    timer.abort();
                }
            }
            Action::Deliver { replies, run_ms, output_bytes } => {
                let budget = self.budget(run_ms, output_bytes);
                self.leg += 1;
                let order = replies.iter().map(|reply| reply.call.0).collect();
                self.delivering = replies.iter().filter_map(|reply| self.reserved.remove(&reply.call)).collect();
                self.begin_leg(budget.clock_us, order);
                self.work = Some(self.deliver(budget, replies));
            }
            Action::Freeze => self.work = Some(self.freeze()),
            Action::WakeAt(at) => self.wake_at = Some(at),
            Action::Answer(answer) => return self.answer(answer).await,
            Action::Close => {
                self.calls.abort_all();
                self.cancel();
                self.whereabouts = CellLocation::Nowhere;
            }
        }
        true
    }

    fn start(&mut self) -> Work {
        let definition = &self.run.definition;
        let budget = self.budget(definition.limits.timeout_ms, definition.limits.output_bytes);
        self.begin_leg(budget.clock_us, Vec::new());
        let definition = &self.run.definition;
        let start = Start {
            budget,
            catalog: self.run.tables.hash(),
            seed: definition.seed,
            language: definition.language,
            source: definition.source.clone(),
        };
        places::start(self.run.pool.clone(), self.run.tables.clone(), start)
    }

    fn budget(&self, run_ms: u64, output_bytes: u64) -> Budget {
        let memory_bytes = self.run.definition.limits.memory_bytes;
        Budget { run_ms, memory_bytes, output_bytes, clock_us: now_us() }
    }

    fn now(&self) -> u64 {
        self.age_ms + u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(began: Instant, at: Option<u64>) {
    match at {
        Some(at) => tokio::time::sleep_until(began + Duration::from_millis(at)).await,
        None => std::future::pending().await,
    }
}
