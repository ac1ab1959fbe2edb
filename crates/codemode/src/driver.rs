//! Does what `cell` decides: one task a run, which owns the cell, its place in a worker, its calls
//! and its timers. The last of them goes with it.

use std::collections::HashMap;
use std::pin::Pin;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use contract::cell::{CellResult, Telemetry};
use contract::error::ErrorCode;
use contract::frame::{Budget, Deliver, Failure, HostCall, Method, ReplyValue, Start};
use contract::ids::CallId;
use contract::limits::{Limits, MAX_ERROR_BYTES};
use executor::Executor;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};

use crate::bridge::Request;
use crate::cell::{Action, Answer, Cell, Event};
use crate::input::ExecInput;
use crate::pool::{FreezeError, Lease, Pool, PoolError};

pub(crate) enum Command {
    /// `wait`: tell me how it stands when there is something to tell.
    Wait(oneshot::Sender<CellResult>),
    Abort,
}

/// Where the cell is between legs.
enum Whereabouts {
    Nowhere,
    Live(Lease),
    Frozen(Vec<u8>),
}

/// A leg or a freeze under way, with the cell's place moved into it.
type Work = Pin<Box<dyn Future<Output = (Whereabouts, Event)> + Send>>;

/// What a run is made of, apart from its cell.
pub(crate) struct Run {
    pub(crate) id: String,
    pub(crate) limits: Limits,
    pub(crate) pool: Pool,
    pub(crate) executor: Executor,
}

pub(crate) struct Driver {
    cell: Cell,
    run_id: String,
    limits: Limits,
    pool: Pool,
    executor: Executor,
    whereabouts: Whereabouts,
    work: Option<Work>,
    calls: JoinSet<(Event, Duration)>,
    timers: HashMap<CallId, AbortHandle>,
    wake_at: Option<u64>,
    began: Instant,
    listeners: Vec<oneshot::Sender<CellResult>>,
    last_word: Option<CellResult>,
    telemetry: Telemetry,
    tool_time: Duration,
}

/// How long a finished run can still be asked for its result.
const LAST_WORD_KEPT: Duration = Duration::from_secs(60);

impl Driver {
    /// `listener` is who called `exec`.
    pub(crate) fn new(run: Run, input: ExecInput, seed: u64, listener: oneshot::Sender<CellResult>) -> Self {
        let Run { id: run_id, limits, pool, executor } = run;
        let telemetry = Telemetry {
            catalog_size: executor.catalog().len(),
            sources: executor.catalog().sources(),
            visible_tools: vec!["exec", "wait"],
            exec_count: 1,
            ..Telemetry::default()
        };
        let mut driver = Self {
            cell: Cell::started(limits, 0),
            run_id,
            limits,
            pool,
            executor,
            whereabouts: Whereabouts::Nowhere,
            work: None,
            calls: JoinSet::new(),
            timers: HashMap::new(),
            wake_at: None,
            began: Instant::now(),
            listeners: vec![listener],
            last_word: None,
            telemetry,
            tool_time: Duration::ZERO,
        };
        driver.work = Some(driver.start(input, seed));
        driver
    }

    /// The run's whole life.
    pub(crate) async fn drive(mut self, mut commands: mpsc::Receiver<Command>) {
        let mut heard = true;
        while !self.cell.is_over() {
            let event = tokio::select! {
                command = commands.recv(), if heard => match command {
                    Some(Command::Wait(listener)) => {
                        self.listeners.push(listener);
                        self.telemetry.wait_count += 1;
                        // A second one joins the turn under way.
                        if self.cell.in_turn() { continue } else { Event::Wait }
                    }
                    Some(Command::Abort) => Event::Abort,
                    // Nobody can ask for this run any more.
                    None => { heard = false; Event::Abort }
                },
                (whereabouts, event) = work(&mut self.work) => {
                    self.work = None;
                    self.whereabouts = whereabouts;
                    event
                }
                Some(settled) = self.calls.join_next() => match settled {
                    Ok((event, took)) => { self.tool_time += took; event }
                    // A timer that was cleared.
                    Err(_) => continue,
                },
                () = sleep_until(self.began, self.wake_at) => { self.wake_at = None; Event::Woke }
            };
            let now = self.now();
            for action in self.cell.on(event, now) {
                self.act(action);
            }
        }
        self.linger(commands).await;
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Dispatch(call) => self.dispatch(call),
            Action::SetTimer { call, after_ms } => {
                let timer = self.calls.spawn(async move {
                    tokio::time::sleep(Duration::from_millis(after_ms)).await;
                    (Event::Settled(call, ReplyValue::Resolved(b"null".to_vec())), Duration::ZERO)
                });
                self.timers.insert(call, timer);
            }
            Action::CancelTimer(call) => {
                if let Some(timer) = self.timers.remove(&call) {
                    timer.abort();
                }
            }
            Action::Deliver { replies, run_ms, output_bytes } => {
                let budget = self.budget(run_ms, output_bytes);
                self.work = Some(self.resume(Deliver { budget, replies }));
            }
            Action::Freeze => self.work = Some(self.freeze()),
            Action::WakeAt(at) => self.wake_at = Some(at),
            Action::Answer(answer) => self.tell(answer),
            Action::Close => {
                self.calls.abort_all();
                self.whereabouts = Whereabouts::Nowhere;
            }
        }
    }

    fn start(&self, input: ExecInput, seed: u64) -> Work {
        let start = Start {
            budget: self.budget(self.limits.timeout_ms, self.limits.output_bytes),
            catalog: self.executor.catalog().tables().hash(),
            seed,
            language: input.language,
            source: input.source,
        };
        let (pool, catalog) = (self.pool.clone(), self.executor.catalog().clone());
        Box::pin(async move { ran(pool.start_cell(catalog.tables(), start).await) })
    }

    fn resume(&mut self, deliver: Deliver) -> Work {
        match std::mem::replace(&mut self.whereabouts, Whereabouts::Nowhere) {
            Whereabouts::Live(mut lease) => Box::pin(async move {
                let leg = lease.deliver(deliver.budget, deliver.replies).await;
                ran(leg.map(|leg| (lease, leg)))
            }),
            Whereabouts::Frozen(snapshot) => {
                let (pool, catalog) = (self.pool.clone(), self.executor.catalog().clone());
                Box::pin(async move { ran(pool.thaw_cell(catalog.tables(), snapshot, deliver).await) })
            }
            Whereabouts::Nowhere => Box::pin(async { (Whereabouts::Nowhere, Event::Lost(nowhere())) }),
        }
    }

    fn freeze(&mut self) -> Work {
        let max_bytes = self.limits.snapshot_bytes;
        match std::mem::replace(&mut self.whereabouts, Whereabouts::Nowhere) {
            Whereabouts::Live(lease) => Box::pin(async move {
                match lease.freeze(max_bytes).await {
                    Ok(snapshot) => {
                        let bytes = snapshot.len() as u64;
                        (Whereabouts::Frozen(snapshot), Event::Froze { bytes })
                    }
                    Err(FreezeError::Refused(failure)) => (Whereabouts::Nowhere, Event::Lost(failure)),
                    Err(FreezeError::Pool(error)) => (Whereabouts::Nowhere, Event::Lost(pool_failure(&error))),
                }
            }),
            Whereabouts::Frozen(_) | Whereabouts::Nowhere => {
                Box::pin(async { (Whereabouts::Nowhere, Event::Lost(nowhere())) })
            }
        }
    }

    fn dispatch(&mut self, call: HostCall) {
        let request = Request::read(self.executor.catalog(), &call);
        self.count(call.method, &request);
        let (executor, id) = (self.executor.clone(), call.id);
        self.calls.spawn(async move {
            let began = Instant::now();
            let reply = request.answer(&executor).await;
            (Event::Settled(id, reply), began.elapsed())
        });
    }

    fn count(&mut self, method: Method, request: &Request) {
        match method {
            Method::Search => self.telemetry.search_count += 1,
            Method::Describe => self.telemetry.describe_count += 1,
            Method::Call | Method::Namespace => self.telemetry.call_count += 1,
            Method::Yield | Method::Timer => {}
        }
        let ids = &mut self.telemetry.nested_tool_ids;
        if let Request::Tool { id, .. } = request
            && ids.len() < MAX_NESTED_IDS
            && !ids.contains(id)
        {
            ids.push(id.clone());
        }
    }

    fn budget(&self, run_ms: u64, output_bytes: u64) -> Budget {
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Budget {
            run_ms,
            memory_bytes: self.limits.memory_bytes,
            output_bytes,
            clock_us: u64::try_from(clock.as_micros()).unwrap_or(u64::MAX),
        }
    }

    fn tell(&mut self, answer: Answer) {
        let result = self.result(answer);
        for listener in self.listeners.drain(..) {
            // Whoever asked may have gone; the result is kept for whoever asks next.
            drop(listener.send(result.clone()));
        }
        self.last_word = Some(result);
    }

    fn result(&mut self, answer: Answer) -> CellResult {
        if let Answer::Failed { failure, .. } = &answer {
            let counts = &mut self.telemetry.limit_failures;
            match failure.code {
                Some(ErrorCode::Timeout) => counts.timeout += 1,
                Some(ErrorCode::MemoryLimitExceeded) => counts.memory += 1,
                Some(ErrorCode::SnapshotLimitExceeded) => counts.snapshot += 1,
                Some(ErrorCode::OutputLimitExceeded) => counts.output += 1,
                _ => {}
            }
        }
        self.telemetry.snapshots = self.cell.snapshots();
        self.telemetry.duration_ms.guest = self.cell.guest_ms();
        self.telemetry.duration_ms.tools = u64::try_from(self.tool_time.as_millis()).unwrap_or(u64::MAX);
        self.telemetry.duration_ms.total = self.now();
        let telemetry = self.telemetry.clone();
        match answer {
            Answer::Completed { value, output } => CellResult::Completed { value, output, telemetry },
            Answer::Waiting { reason, pending, output } => CellResult::Waiting {
                run_id: self.run_id.clone(),
                reason,
                pending_tool_calls: pending,
                output,
                telemetry,
            },
            Answer::Failed { failure, output } => {
                CellResult::Failed { error: failure_text(&failure), code: failure.code, output, telemetry }
            }
        }
    }

    /// Answers late callers with how the run ended, for a while.
    async fn linger(self, mut commands: mpsc::Receiver<Command>) {
        let Some(last_word) = self.last_word else { return };
        drop(self.whereabouts);
        drop(self.calls);
        let deadline = tokio::time::Instant::now() + LAST_WORD_KEPT;
        while let Ok(Some(command)) = tokio::time::timeout_at(deadline, commands.recv()).await {
            if let Command::Wait(listener) = command {
                drop(listener.send(last_word.clone()));
            }
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

const MAX_NESTED_IDS: usize = 1024;

/// A failure as the model reads it: `TypeError: x is not a function (at 3:5)`.
pub(crate) fn failure_text(failure: &Failure) -> String {
    let mut text = failure.message.clone();
    if text.len() > MAX_ERROR_BYTES * 2 {
        text.truncate(text.floor_char_boundary(MAX_ERROR_BYTES * 2));
    }
    if let Some(place) = failure.place {
        text += &format!(" (at {}:{})", place.line, place.column);
    }
    text
}

fn ran(leg: Result<(Lease, contract::frame::Leg), PoolError>) -> (Whereabouts, Event) {
    match leg {
        Ok((lease, leg)) => (Whereabouts::Live(lease), Event::LegEnded(leg)),
        Err(error) => (Whereabouts::Nowhere, Event::Lost(pool_failure(&error))),
    }
}

fn pool_failure(error: &PoolError) -> Failure {
    let code = match error {
        PoolError::Unavailable(_) | PoolError::Full => ErrorCode::RuntimeUnavailable,
        PoolError::WorkerDied(_) => ErrorCode::InternalError,
    };
    Failure { code: Some(code), message: error.to_string(), place: None }
}

fn nowhere() -> Failure {
    Failure {
        code: Some(ErrorCode::InternalError),
        message: "the cell was to go on but is nowhere".to_owned(),
        place: None,
    }
}

async fn work(work: &mut Option<Work>) -> (Whereabouts, Event) {
    match work {
        Some(work) => work.await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(began: Instant, at: Option<u64>) {
    match at {
        Some(at) => tokio::time::sleep_until((began + Duration::from_millis(at)).into()).await,
        None => std::future::pending().await,
    }
}
