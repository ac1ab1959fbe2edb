//! The driver of a run: a task that does what the state machine in `cell` decides.
//!
//! The driver owns the cell, its slot in a worker, its calls and its timers; all of them end with it. It writes a
//! run's state to the journal before it reports it to a client.

mod calls;
mod location;
mod report;
mod resume;
mod task;

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use contract::cell::{CellResult, PendingState, StoredOutputs, Telemetry};
use contract::config::SearchLimits;
use contract::error::ErrorCode;
use contract::frame::{Budget, Deliver, Failure, HostCall, LegEnd, Method, ReplyValue, Start};
use contract::ids::{CallId, RunId};
use contract::json;
use contract::limits::MAX_JSON_VALUES;
use contract::tables::CatalogTables;
use executor::clock::now_us;
use executor::{Executor, Journal, OpenError, Reservation, RunDataBudget};
use store::LegRow;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tracing::{Instrument, Span};

use crate::bridge;
use crate::cell::{Action, Cell, Event};
use crate::definition::Definition;
use crate::failure::failure;
use crate::mode::RunMode;
use crate::output_reader::ReadCache;
use crate::pool::Pool;
use crate::replay::to_journal_end;
use crate::run_telemetry;
use calls::SessionCalls;
use location::{CellLocation, CellOperation};
use task::TaskCompletion;

pub(crate) use resume::{reopened, resumed};

#[derive(Debug)]
pub(crate) enum Command {
    /// `wait`: sends the result of the turn to `listener`.
    Wait {
        tool_call_id: String,
        /// The executor to use from now on: policy may have changed since the run started.
        executor: Executor,
        listener: oneshot::Sender<CellResult>,
    },
    /// The store has an outcome for this call.
    Arrived(CallId),
    /// The store has a person's decision about this call.
    Decided(CallId),
    /// The store may have outcomes or decisions that another process wrote.
    PollStore,
    /// Ends the run. The sender is dropped when the run is over.
    Abort(oneshot::Sender<()>),
}

/// Everything that a run consists of, except its cell.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) id: RunId,
    pub(crate) mode: RunMode,
    pub(crate) definition: Arc<Definition>,
    pub(crate) search: SearchLimits,
    pub(crate) pool: Pool,
    pub(crate) executor: Executor,
    pub(crate) journal: Arc<Journal>,
    /// The run's share of the host's memory for unfinished calls.
    pub(crate) data: RunDataBudget,
    /// The heap that the current configuration allows. It may be less than the run was started with.
    pub(crate) max_heap_bytes: u64,
    /// The catalog tables that the cell reads. They stay the same until the run ends, even if the tools change.
    pub(crate) tables: CatalogTables,
}

/// Whether an event brought the run forward, so that its time to live begins again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunProgress {
    Made,
    None,
}

/// Whether this process may write the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ownership {
    Held,
    /// The run was taken over by another process, which will report its result.
    TakenOver,
}

pub(crate) struct Driver {
    run: Run,
    /// The span of the run, in which its driver and its calls are logged.
    span: Span,
    /// The span of the turn in progress. None between turns.
    turn: Span,
    ownership: Ownership,
    cell: Cell,
    location: CellLocation,
    work: Option<CellOperation>,
    calls: JoinSet<TaskCompletion>,
    timers: HashMap<CallId, AbortHandle>,
    wake_at: Option<u64>,
    began: Instant,
    /// How old the run was when this driver started.
    age_ms: u64,
    /// The control call that new calls belong to.
    parent: String,
    leg: i64,
    /// The current leg's row in the journal.
    begun: Option<LegRow>,
    /// The callers that wait for a result, with the ids of their control calls.
    listeners: Vec<(String, oneshot::Sender<CellResult>)>,
    aborters: Vec<oneshot::Sender<()>>,
    /// When a waiting run expires.
    expires: Option<Instant>,
    /// When a new run is written even if no call requires it. None once that was done.
    record_at: Option<Instant>,
    /// False until the caller that woke the run is registered. Before that, the run must not be suspended again.
    has_caller: bool,
    last_result: Option<CellResult>,
    /// Whether the store is being polled for outcomes and decisions.
    polling: bool,
    telemetry: Telemetry,
    /// Memory that output takes which is in no result yet.
    held_output: Vec<Reservation>,
    read_cache: ReadCache,
    /// What the run had stored before the last answer.
    stored_before: StoredOutputs,
    /// The time of tool calls that have ended since the last result.
    tool_time: Duration,
    /// Tool calls in progress, and when they began.
    under_way: HashMap<CallId, Instant>,
    /// Calls in progress whose tools wait for a person's answer.
    asking: HashSet<CallId>,
    /// Calls that do not fit in the journal or in memory, with their rejections.
    refused: HashMap<CallId, ReplyValue>,
    /// Memory that payloads of unfinished calls and replies to them take.
    reserved: HashMap<CallId, Reservation>,
    /// Memory that the replies to the current leg take.
    delivering: Vec<Reservation>,
    session_calls: SessionCalls,
    /// Events of calls that were answered at once, for the cell.
    answered: VecDeque<Event>,
    /// Sends state changes of calls in progress to this driver.
    states: mpsc::Sender<CallStateChange>,
    received_states: mpsc::Receiver<CallStateChange>,
}

/// A call, and its new state.
type CallStateChange = (CallId, PendingState);

/// The capacity of the channel for state changes: the number of calls that a cell may have.
const MAX_STATES: usize = 1_024;

/// How long a run may take before it is written. One that has ended by then is written once, with its result.
const RECORD_AFTER: Duration = Duration::from_secs(1);

/// Why a driver ended.
pub(crate) enum DriverExit {
    /// The run is over, with this result.
    Over(Box<CellResult>),
    /// The run is in the store, and any process may take it over. There is nothing to do until a client, a person or a
    /// tool resumes it.
    Released,
    /// The run was taken over by another process, which will report its result.
    TakenOver,
    /// A write failed. The next process that takes over the run continues from what was written.
    Stopped,
}

/// Whether the driver continues, or why it ends.
type Flow = ControlFlow<DriverExit>;

impl Driver {
    /// Creates the driver of a new run and starts its first leg. `listener` is the caller of `exec`.
    pub(crate) fn new(run: Run, tool_call_id: String, listener: oneshot::Sender<CellResult>) -> Self {
        let telemetry = Telemetry { exec_count: 1, ..run_telemetry::of_catalog(&run.executor, &run.mode) };
        let cell = match run.mode {
            RunMode::CodeMode => Cell::started(run.definition.limits, 0),
            RunMode::ToolSearch(_) => Cell::started_for_one_turn(run.definition.limits, 0),
        };
        let mut driver = Self::around(run, cell, CellLocation::None, telemetry);
        driver.set_client_wait();
        driver.begin_turn(&tool_call_id);
        driver.turn.in_scope(|| driver.log_start());
        driver.parent.clone_from(&tool_call_id);
        driver.listeners.push((tool_call_id, listener));
        driver.has_caller = true;
        driver.enter_exec();
        // A cell of Tool Search cannot be resumed.
        driver.record_at = matches!(driver.run.mode, RunMode::CodeMode).then(|| driver.began + RECORD_AFTER);
        driver.work = Some(driver.start());
        driver
    }

    /// Makes the first turn wait this long for pending calls; see [`Cell::holding_first_turn`].
    pub(crate) fn holding_first_turn(self, hold: Duration) -> Self {
        let hold_ms = u64::try_from(hold.as_millis()).unwrap_or(u64::MAX);
        Self { cell: self.cell.holding_first_turn(hold_ms), ..self }
    }

    /// Takes over how long calls of client tools wait for other calls in the turns from now on.
    fn set_client_wait(&mut self) {
        let wait = self.run.executor.client_wait();
        self.cell.set_client_wait(wait.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)));
    }

    fn around(run: Run, cell: Cell, location: CellLocation, telemetry: Telemetry) -> Self {
        let (states, received_states) = mpsc::channel(MAX_STATES);
        Self {
            span: executor::run_span(&run.id),
            turn: Span::none(),
            ownership: Ownership::Held,
            run,
            cell,
            location,
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
            record_at: None,
            has_caller: false,
            last_result: None,
            polling: false,
            telemetry,
            held_output: Vec::new(),
            read_cache: ReadCache::default(),
            stored_before: StoredOutputs::default(),
            tool_time: Duration::ZERO,
            under_way: HashMap::new(),
            asking: HashSet::new(),
            refused: HashMap::new(),
            reserved: HashMap::new(),
            delivering: Vec::new(),
            session_calls: SessionCalls::default(),
            answered: VecDeque::new(),
            states,
            received_states,
        }
    }

    /// Drives the run until it ends, or until there is nothing to do for it. Must run in [`Driver::span`].
    pub(crate) async fn drive(mut self, commands: &mut mpsc::Receiver<Command>) -> DriverExit {
        let exit = self.run_until_exit(commands).await;
        match exit {
            // Logged with its result.
            DriverExit::Over(_) => {}
            DriverExit::Released => tracing::debug!("run released"),
            DriverExit::TakenOver => tracing::info!("run taken over by another process"),
            DriverExit::Stopped => tracing::warn!("run stopped in this process: its state could not be written"),
        }
        exit
    }

    async fn run_until_exit(&mut self, commands: &mut mpsc::Receiver<Command>) -> DriverExit {
        let mut accepts_commands = true;
        while !self.cell.is_over() {
            let waits = !self.cell.in_turn();
            // Polled in a fixed order, so that the same events always produce the same run.
            let event = if let Some(event) = self.answered.pop_front() {
                Some(event)
            } else {
                tokio::select! {
                    biased;
                    command = commands.recv(), if accepts_commands => match command {
                        Some(command) => self.on_command(command),
                        // All senders are gone.
                        None => { accepts_commands = false; None }
                    },
                    (location, event) = location::wait_for(&mut self.work) => {
                        self.work = None;
                        self.location = location;
                        Some(event)
                    }
                    Some(done) = self.calls.join_next() => match done {
                        Ok(done) => Some(self.on_task_done(done)),
                        // A timer was cancelled. It may have been the last task, so check whether the run is idle.
                        Err(_) => Some(Event::Woke),
                    },
                    Some((call, state)) = self.received_states.recv() => Some(self.on_call_state(call, state)),
                    () = sleep_until(self.began, self.wake_at.map(|at| at.saturating_sub(self.age_ms))) => {
                        self.wake_at = None;
                        Some(Event::Woke)
                    }
                    () = until(self.record_at), if self.work.is_none() => self.record().await,
                    () = until(self.expires), if waits => return self.expire().await,
                }
            };
            let Some(event) = event else { continue };
            let turn = self.turn.clone();
            if let ControlFlow::Break(exit) = self.on(event).instrument(turn).await {
                return exit;
            }
        }
        match self.last_result.take() {
            Some(last_result) => DriverExit::Over(Box::new(last_result)),
            None => DriverExit::Stopped,
        }
    }

    /// Writes a run that takes long, so that it is listed, and the next process resumes it if this one is killed.
    async fn record(&mut self) -> Option<Event> {
        self.record_at = None;
        let written = self.run.journal.flush().await;
        written.err().map(|error| self.stopped(error))
    }

    /// Handles an event.
    async fn on(&mut self, event: Event) -> Flow {
        let mut event = self.vetted(event);
        if let Err(failure) = self.note(&mut event) {
            event = Event::Lost(failure);
        }
        let made_progress = matches!(event, Event::Settled(..) | Event::Decided(_));
        let progress = if made_progress { RunProgress::Made } else { RunProgress::None };
        self.step(event).await?;
        if !self.cell.is_over()
            && self.run.journal.is_due()
            && let Err(error) = self.run.journal.flush().await
        {
            let event = self.stopped(error);
            return self.step(event).await;
        }
        if self.cell.is_over() || self.cell.in_turn() {
            return Flow::Continue(());
        }
        self.rest(progress).await
    }

    async fn step(&mut self, event: Event) -> Flow {
        let mut next = Some(event);
        while let Some(event) = next {
            let now = self.now();
            for action in self.cell.on(event, now) {
                self.act(action).await?;
            }
            next = self.answered.pop_front();
        }
        Flow::Continue(())
    }

    /// Checks a leg before it is journaled. If it breaks the protocol, its worker is terminated and the cell is lost.
    fn vetted(&mut self, event: Event) -> Event {
        let Event::LegEnded(leg) = &event else { return event };
        match (self.cell.vet(leg), &mut self.location) {
            (Err(what), CellLocation::Live(lease)) => Event::Lost(lease.broke_protocol(what).failure()),
            // Without a worker there is nothing to terminate; the cell itself fails for the same reason.
            _ => event,
        }
    }

    /// Returns the span to drive the run in.
    pub(crate) fn span(&self) -> Span {
        self.span.clone()
    }

    pub(crate) fn journal(&self) -> Arc<Journal> {
        Arc::clone(&self.run.journal)
    }

    pub(crate) fn session_id(&self) -> &str {
        &self.run.executor.scope().session_id
    }

    fn on_command(&mut self, command: Command) -> Option<Event> {
        self.has_caller |= !matches!(command, Command::PollStore);
        match command {
            Command::Wait { tool_call_id, executor, listener } => {
                self.enter_wait(&tool_call_id);
                self.listeners.push((tool_call_id.clone(), listener));
                self.telemetry.wait_count += 1;
                self.run.executor = executor;
                self.set_client_wait();
                // A second `wait` joins the current turn.
                if self.cell.in_turn() {
                    return None;
                }
                self.begin_turn(&tool_call_id);
                self.parent = tool_call_id;
                self.poll_store();
                if self.asking.is_empty() {
                    return Some(Event::Wait);
                }
                self.wait_after_answers();
                None
            }
            Command::Arrived(call) => {
                self.fetch_outcome(call);
                None
            }
            Command::Decided(call) => Some(Event::Decided(call)),
            Command::PollStore => {
                self.poll_store();
                None
            }
            Command::Abort(done) => {
                self.aborters.push(done);
                Some(Event::Abort)
            }
        }
    }

    fn begin_turn(&mut self, tool_call_id: &str) {
        self.turn = tracing::error_span!(parent: &self.span, "turn", tool_call = tool_call_id);
    }

    /// Records an event in the journal. A failure ends the run.
    fn note(&mut self, event: &mut Event) -> Result<(), Failure> {
        let Event::LegEnded(leg) = event else { return Ok(()) };
        self.delivering.clear();
        if matches!(leg.end, LegEnd::Suspended { .. }) {
            self.hold_output(&leg.output)?;
        }
        if let LegEnd::Suspended { calls, cleared } = &mut leg.end {
            for call in cleared {
                self.run.journal.cleared(*call);
            }
            for call in calls {
                self.open(call)?;
            }
        }
        // Recorded after its calls, so that a leg whose end is written has all of them.
        if let Some(begun) = self.begun.take() {
            let ended = begun.ended.clone().unwrap_or_else(|| to_journal_end(leg));
            self.run.journal.leg_ended(LegRow { ended: Some(ended), ..begun });
        }
        Ok(())
    }

    /// Records a new call in the journal. A call that does not fit keeps no payload, and rejects when it is dispatched.
    fn open(&mut self, call: &mut HostCall) -> Result<(), Failure> {
        let row = calls::row(call, self.leg, &self.parent);
        let refused = match self.run.journal.opened(row) {
            Ok(()) => match call.method {
                Method::Timer | Method::Yield => return Ok(()),
                _ => self.reserve(call),
            },
            Err(OpenError::Refused(full)) => Some((full.code(), full.to_string())),
            Err(spent @ (OpenError::TooManyRefused(_) | OpenError::CannotReject(_))) => {
                return Err(failure(ErrorCode::TooManyPendingToolCalls, spent.to_string()));
            }
            Err(violation @ OpenError::IdNotIncreasing { .. }) => {
                return Err(failure(ErrorCode::InternalError, violation.to_string()));
            }
        };
        if let Some((code, message)) = refused {
            call.payload = Vec::new();
            self.refused.insert(call.id, bridge::reject_with_code(code, &message, &call.target));
        }
        Ok(())
    }

    /// Reserves host memory for a call until the cell has its reply. Returns code and message if it does not fit.
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

    /// Records that a leg is about to run with these replies.
    fn begin_leg(&mut self, clock_us: u64, replies: Vec<CallId>) {
        let begun = LegRow::begun(self.leg, clock_us, replies);
        self.run.journal.leg(begun.clone());
        self.begun = Some(begun);
    }

    async fn act(&mut self, action: Action) -> Flow {
        match action {
            Action::Dispatch(call) => self.dispatch(&call),
            Action::ResumeDecided(call) => self.resume_decided(call),
            Action::SetTimer { call, after_ms } => self.set_timer(call, after_ms),
            Action::CancelTimer(call) => {
                if let Some(timer) = self.timers.remove(&call) {
                    timer.abort();
                }
            }
            Action::Deliver { replies, run_ms, output_bytes } => {
                let budget = self.budget(run_ms, output_bytes);
                self.leg += 1;
                let order = replies.iter().map(|reply| reply.call).collect();
                self.delivering = replies.iter().filter_map(|reply| self.reserved.remove(&reply.call)).collect();
                self.begin_leg(budget.clock_us, order);
                let location = std::mem::replace(&mut self.location, CellLocation::None);
                let (pool, tables) = (self.run.pool.clone(), self.run.tables.clone());
                self.work = Some(location::deliver(location, pool, tables, Deliver { budget, replies }));
            }
            Action::Freeze => {
                let location = std::mem::replace(&mut self.location, CellLocation::None);
                self.work = Some(location::freeze(location, self.run.definition.limits.snapshot_bytes));
            }
            Action::WakeAt(at) => self.wake_at = Some(at),
            Action::Answer(answer) => return self.answer(answer).await,
            Action::Close => {
                self.calls.abort_all();
                self.cancel();
                self.location = CellLocation::None;
            }
        }
        Flow::Continue(())
    }

    fn start(&mut self) -> CellOperation {
        let definition = &self.run.definition;
        let budget = self.budget(definition.limits.timeout_ms, definition.limits.output_budget(0));
        self.begin_leg(budget.clock_us, Vec::new());
        let definition = &self.run.definition;
        let start = Start {
            budget,
            catalog: self.run.tables.hash(),
            seed: definition.seed,
            language: definition.language,
            languages: definition.languages,
            source: definition.source.clone(),
        };
        location::start(self.run.pool.clone(), self.run.tables.clone(), start)
    }

    fn budget(&self, run_ms: u64, output_bytes: u64) -> Budget {
        let memory_bytes = self.run.definition.limits.memory_bytes.min(self.run.max_heap_bytes);
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
