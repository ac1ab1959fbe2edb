//! A node of the simulation: a thread with its own runtime that runs only when the history orders it.
//!
//! When all its tasks are blocked and no other thread works for it, the node reports that it is idle and waits for the
//! next order: let time pass, give a task its turn, handle a request, stop. At a fault point it may pause or crash.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::task::{Poll, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

use codemode::CodeMode;
use codemode::pool::{JailPolicy, Launch, Pool, PoolOptions};
use fault::{self, PointVerdict, Simulation};
use store::{Keys, Location, Store};

use super::super::faults::program::Chance;
use super::fault_plan::{ArmedFault, Fault, IN_TRANSACTION};
use super::requests::{Answer, Request, Server};
use super::tools::{Tools, World};
use super::worker;

/// The default lease of a node.
pub(super) const LEASE: Duration = Duration::from_secs(3);

/// A node that does not report within this real time hangs, which is a failure, too.
const STUCK: Duration = Duration::from_secs(60);

/// The simulated date, 2026-11-15: arbitrary but fixed.
pub(super) const DAY: Duration = Duration::from_secs(1_794_700_800);

/// An order of the history to a node.
pub(super) enum Order {
    Advance(Duration),
    /// Lets timers fire for time that has passed already.
    FireTimers(Duration),
    /// Gives a turn to one of the tasks that wait for it, by index.
    Turn(usize),
    Ask(u64, Request),
    Arm(ArmedFault),
    Disarm,
    Stop,
}

/// A report of a node to the history.
pub(super) enum Report {
    Idle {
        /// The number of tasks that wait for a turn.
        waiting: usize,
        answers: Vec<(u64, Answer)>,
    },
    /// Paused at a fault point for this time.
    Paused(Duration),
    Exited,
}

pub(super) struct Start {
    pub name: String,
    pub store: PathBuf,
    pub world: Arc<World>,
    pub seed: u64,
    pub now: Duration,
    /// Error of its clock in milliseconds.
    pub skew: Arc<AtomicI64>,
    /// The address of the model, if the node has a gateway.
    pub model: Option<String>,
}

/// The history's handle of a node.
pub(super) struct Node {
    orders: Sender<Order>,
    reports: Receiver<Report>,
    thread: Option<JoinHandle<()>>,
}

impl Node {
    pub(super) fn start(start: Start) -> Self {
        let ((orders, receiver), (sender, reports)) = (channel(), channel());
        let thread = std::thread::Builder::new().name(start.name.clone()).spawn(move || run(start, receiver, sender));
        Self { orders, reports, thread: Some(thread.unwrap()) }
    }

    pub(super) fn order(&self, order: Order) -> Result<Report, String> {
        // If the node has exited, the report below says so.
        drop(self.orders.send(order));
        self.report()
    }

    pub(super) fn report(&self) -> Result<Report, String> {
        match self.reports.recv_timeout(STUCK) {
            Ok(report) => Ok(report),
            Err(RecvTimeoutError::Disconnected) => Ok(Report::Exited),
            Err(RecvTimeoutError::Timeout) => Err(format!("a node did not report for {STUCK:?}")),
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.orders.send(Order::Stop));
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// The state of a node on its thread.
struct NodeThread {
    name: String,
    world: Arc<World>,
    orders: Receiver<Order>,
    reports: Sender<Report>,
    order: Cell<Option<Order>>,
    root: RefCell<Option<Waker>>,
    outside: RefCell<Option<(Store, Pool)>>,
    answers: RefCell<Vec<(u64, Answer)>>,
    dead: Arc<AtomicBool>,
    armed: RefCell<Vec<ArmedFault>>,
    time: Cell<Duration>,
    /// Time of pauses for which timers fire when the node is next idle. If they fired while another thread works for the
    /// node, it would depend on that thread's speed which of the two wakes a task first.
    paused: Cell<Option<Duration>>,
    skew: Arc<AtomicI64>,
    chance: RefCell<Chance>,
}

thread_local! {
    static CURRENT: RefCell<Option<Rc<NodeThread>>> = const { RefCell::new(None) };
}

fn run(start: Start, orders: Receiver<Order>, reports: Sender<Report>) {
    let here = Rc::new(NodeThread {
        name: start.name,
        world: start.world,
        orders,
        reports: reports.clone(),
        order: Cell::new(None),
        root: RefCell::default(),
        outside: RefCell::default(),
        answers: RefCell::default(),
        dead: Arc::default(),
        armed: RefCell::default(),
        time: Cell::new(start.now),
        paused: Cell::new(None),
        skew: start.skew,
        chance: RefCell::new(Chance::new(start.seed)),
    });
    CURRENT.with(|place| *place.borrow_mut() = Some(Rc::clone(&here)));
    fault::simulate(Rc::<NodeThread>::clone(&here));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        // Tasks woken by other threads run after all tasks that are ready here, never in between.
        .global_queue_interval(u32::MAX)
        .event_interval(u32::MAX)
        .on_thread_park(|| CURRENT.with(|here| here.borrow().as_ref().map(|here| here.on_idle()).unwrap_or_default()))
        .build()
        .unwrap();
    let (stop, stopped) = channel::<()>();
    // The paused clock does not advance automatically while a blocking task runs.
    runtime.spawn_blocking(move || stopped.recv().unwrap_or_default());
    let result = runtime.block_on(here.run(&start.store, start.model.as_deref()));
    if let Err(error) = result
        && !here.dead.load(Ordering::Relaxed)
    {
        here.world.log(format!("{}: failed to start: {error}", here.name));
    }
    here.dead.store(true, Ordering::Relaxed);
    here.outside.take();
    drop(stop);
    drop(runtime);
    CURRENT.with(|here| here.borrow_mut().take());
    fault::leave_simulation();
    drop(reports.send(Report::Exited));
}

impl NodeThread {
    async fn run(
        self: &Rc<Self>,
        store: &std::path::Path,
        model: Option<&str>,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let store = Store::open(&Location::File(store.to_owned()), Keys::new(1, [7; 32])).await?;
        let launch = Launch::InProcess(worker::serve);
        let pool = PoolOptions { jail: JailPolicy::Off, workers: 1, slots: 16, threads: 1, ..PoolOptions::new(launch) };
        let pool = Pool::start(pool).await?;
        let code_mode = CodeMode::with_lease(pool.clone(), store.clone(), LEASE)?;
        let tools = Tools { node: self.name.clone(), world: Arc::clone(&self.world), dead: Arc::clone(&self.dead) };
        let server = Arc::new(Server::new(code_mode, tools, model));
        self.outside.replace(Some((store, pool)));
        fault::enable_turns();
        loop {
            match self.next_order().await {
                Order::Advance(time) => {
                    self.time.set(self.time.get() + time);
                    tokio::time::advance(time).await;
                }
                Order::FireTimers(time) => tokio::time::advance(time).await,
                Order::Turn(which) => fault::give_turn(which),
                Order::Ask(id, request) => {
                    let server = Arc::clone(&server);
                    tokio::spawn(async move {
                        let answer = server.answer(request).await;
                        CURRENT.with(|here| {
                            if let Some(here) = here.borrow().as_ref() {
                                here.answers.borrow_mut().push((id, answer));
                            }
                        });
                    });
                }
                Order::Arm(armed) => self.armed.borrow_mut().push(armed),
                Order::Disarm => self.armed.borrow_mut().clear(),
                Order::Stop => return Ok(()),
            }
        }
    }

    fn next_order(self: &Rc<Self>) -> impl Future<Output = Order> + use<> {
        let here = Rc::clone(self);
        std::future::poll_fn(move |context| match here.order.take() {
            Some(order) => Poll::Ready(order),
            None => {
                here.root.replace(Some(context.waker().clone()));
                Poll::Pending
            }
        })
    }

    /// Called when all tasks are blocked. Reports that and receives the next order, unless another thread works for
    /// this node.
    fn on_idle(&self) {
        let dead = self.dead.load(Ordering::Relaxed);
        if !dead && self.is_busy() {
            return;
        }
        let order = if dead {
            Order::Stop
        } else if let Some(time) = self.paused.take() {
            Order::FireTimers(time)
        } else {
            let idle = Report::Idle { waiting: fault::waiting(), answers: self.answers.take() };
            drop(self.reports.send(idle));
            self.orders.recv().unwrap_or(Order::Stop)
        };
        self.order.set(Some(order));
        if let Some(root) = self.root.take() {
            root.wake();
        }
    }

    /// Whether another thread works for this node and will wake it.
    fn is_busy(&self) -> bool {
        match &*self.outside.borrow() {
            Some((store, pool)) => {
                store.connections_in_use() > fault::waiting_with_connection()
                    || fault::in_flight() > 0
                    || pool.running_legs() > 0
            }
            None => true,
        }
    }

    /// Lets time pass while a task runs.
    fn pass(&self, time: Duration) {
        self.time.set(self.time.get() + time);
        self.paused.set(Some(self.paused.get().unwrap_or_default() + time));
    }

    fn pause(&self, point: &str, time: Duration) {
        if self.outside.borrow().is_none() || IN_TRANSACTION.contains(&point) {
            // If this node waited for the others here, they could not write.
            self.pass(time);
            return;
        }
        drop(self.reports.send(Report::Paused(time)));
        match self.orders.recv() {
            Ok(Order::Advance(time)) => self.pass(time),
            _ => self.dead.store(true, Ordering::Relaxed),
        }
    }
}

impl Simulation for NodeThread {
    fn at(&self, point: &'static str) -> PointVerdict {
        if self.dead.load(Ordering::Relaxed) {
            return PointVerdict::Fail;
        }
        self.world.log(format!("{}: {point}", self.name));
        let mut armed = self.armed.take();
        let hit = armed.iter_mut().enumerate().find_map(|(place, one)| Some((place, one.at(point)?)));
        if let Some((place, _)) = hit {
            armed.remove(place);
        }
        self.armed.replace(armed);
        let Some((_, fault)) = hit else { return PointVerdict::Continue };
        self.world.log(format!("{}: {fault:?} at {point}", self.name));
        match fault {
            Fault::Crash => self.dead.store(true, Ordering::Relaxed),
            Fault::Pause(time) => self.pause(point, time),
            Fault::Error => return PointVerdict::Fail,
            Fault::LoseAnswer => return PointVerdict::LoseAnswer,
        }
        if self.dead.load(Ordering::Relaxed) { PointVerdict::Fail } else { PointVerdict::Continue }
    }

    fn time(&self) -> Duration {
        let skew = self.skew.load(Ordering::Relaxed);
        let (off, time) = (Duration::from_millis(skew.unsigned_abs()), DAY + self.time.get());
        if skew < 0 { time - off } else { time + off }
    }

    fn clock_lead(&self) -> Duration {
        self.paused.get().unwrap_or_default()
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        let mut chance = self.chance.borrow_mut();
        bytes.fill_with(|| chance.below(256) as u8);
    }
}
