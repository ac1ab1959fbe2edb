//! A node of the simulation: a thread with a runtime of its own that moves only when the history says so.
//!
//! When nobody on it can move and nothing is under way outside, it reports, and stands still until it is told what
//! comes next: some time, somebody's turn, a request, its end. At a named place it may be held up, or die.

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
use futures_util::FutureExt;
use store::fault::{self, Simulation, Verdict};
use store::{Keys, Location, Store};

use super::super::faults::program::Chance;
use super::misfortunes::{Armed, Fault, IN_TRANSACTION};
use super::requests::{Answer, Request, Server};
use super::tools::{Tools, World};
use super::worker;

/// As long as nodes have by default.
pub const LEASE: Duration = Duration::from_secs(3);

/// A node that says nothing for so long, in real time, hangs: that is a failure, too.
const STUCK: Duration = Duration::from_secs(60);

/// 2026-11-15: any day will do, as long as it is always the same.
const DAY: Duration = Duration::from_secs(1_794_700_800);

pub enum Order {
    Pass(Duration),
    /// To one of those who wait for it.
    Turn(usize),
    Ask(u64, Request),
    Arm(Armed),
    Disarm,
    Stop,
}

pub enum Report {
    Quiet {
        waiting: usize,
        answers: Vec<(u64, Answer)>,
    },
    /// At a named place, for so long.
    HeldUp(Duration),
    Gone,
}

pub struct Start {
    pub name: String,
    pub store: PathBuf,
    pub world: Arc<World>,
    pub seed: u64,
    pub now: Duration,
    /// How far its clock is off, in milliseconds.
    pub skew: Arc<AtomicI64>,
}

/// A node as the history has it.
pub struct Node {
    orders: Sender<Order>,
    reports: Receiver<Report>,
    thread: Option<JoinHandle<()>>,
}

impl Node {
    pub fn start(start: Start) -> Self {
        let ((orders, ordered), (tell, reports)) = (channel(), channel());
        let thread = std::thread::Builder::new().name(start.name.clone()).spawn(move || live(start, ordered, tell));
        Self { orders, reports, thread: Some(thread.unwrap()) }
    }

    pub fn order(&self, order: Order) -> Result<Report, String> {
        // One that is gone says so below.
        drop(self.orders.send(order));
        self.report()
    }

    pub fn report(&self) -> Result<Report, String> {
        match self.reports.recv_timeout(STUCK) {
            Ok(report) => Ok(report),
            Err(RecvTimeoutError::Disconnected) => Ok(Report::Gone),
            Err(RecvTimeoutError::Timeout) => Err(format!("a node says nothing for {STUCK:?}")),
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

/// What its thread has.
struct Here {
    name: String,
    world: Arc<World>,
    orders: Receiver<Order>,
    reports: Sender<Report>,
    order: Cell<Option<Order>>,
    root: RefCell<Option<Waker>>,
    outside: RefCell<Option<(Store, Pool)>>,
    answers: RefCell<Vec<(u64, Answer)>>,
    dead: Arc<AtomicBool>,
    armed: RefCell<Vec<Armed>>,
    time: Cell<Duration>,
    /// Time that passes when everybody rests: those whose time has come wake then, and not before.
    owed: Cell<Option<Duration>>,
    skew: Arc<AtomicI64>,
    chance: RefCell<Chance>,
}

thread_local! {
    static HERE: RefCell<Option<Rc<Here>>> = const { RefCell::new(None) };
}

fn live(start: Start, orders: Receiver<Order>, reports: Sender<Report>) {
    let here = Rc::new(Here {
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
        owed: Cell::new(None),
        skew: start.skew,
        chance: RefCell::new(Chance::new(start.seed)),
    });
    HERE.with(|place| *place.borrow_mut() = Some(Rc::clone(&here)));
    fault::simulate(Rc::<Here>::clone(&here));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        // What other threads wake comes after all that can move here, and never in between.
        .global_queue_interval(u32::MAX)
        .event_interval(u32::MAX)
        .on_thread_park(|| HERE.with(|here| here.borrow().as_ref().map(|here| here.rest()).unwrap_or_default()))
        .build()
        .unwrap();
    let (over, is_over) = channel::<()>();
    // While a blocking task runs the clock does not move by itself.
    runtime.spawn_blocking(move || is_over.recv().unwrap_or_default());
    let lived = runtime.block_on(here.live(&start.store));
    if let Err(error) = lived
        && !here.dead.load(Ordering::Relaxed)
    {
        here.world.tell(format!("{}: does not start: {error}", here.name));
    }
    here.dead.store(true, Ordering::Relaxed);
    here.outside.take();
    drop(over);
    drop(runtime);
    HERE.with(|here| here.borrow_mut().take());
    fault::leave_simulation();
    drop(reports.send(Report::Gone));
}

impl Here {
    async fn live(self: &Rc<Self>, store: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
        let store = Store::open(&Location::File(store.to_owned()), Keys::new(1, [7; 32])).await?;
        let launch = Launch::Attached(worker::serve);
        let pool = PoolOptions { jail: JailPolicy::Off, workers: 1, slots: 16, threads: 1, ..PoolOptions::new(launch) };
        let pool = Pool::start(pool).await?;
        let code_mode = CodeMode::with_lease(pool.clone(), store.clone(), LEASE)?;
        let tools = Tools { node: self.name.clone(), world: Arc::clone(&self.world), dead: Arc::clone(&self.dead) };
        let server = Arc::new(Server::new(code_mode, tools));
        self.outside.replace(Some((store, pool)));
        fault::take_turns();
        loop {
            match self.next_order().await {
                Order::Pass(time) => {
                    self.time.set(self.time.get() + time);
                    tokio::time::advance(time).await;
                }
                Order::Turn(which) => fault::give_turn(which),
                Order::Ask(id, request) => {
                    let server = Arc::clone(&server);
                    tokio::spawn(async move {
                        let answer = server.answer(request).await;
                        HERE.with(|here| {
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

    /// Nobody here can move.
    fn rest(&self) {
        let dead = self.dead.load(Ordering::Relaxed);
        if !dead && self.is_busy() {
            return;
        }
        let order = if dead {
            Order::Stop
        } else if let Some(time) = self.owed.take() {
            Order::Pass(time)
        } else {
            let quiet = Report::Quiet { waiting: fault::waiting(), answers: self.answers.take() };
            drop(self.reports.send(quiet));
            self.orders.recv().unwrap_or(Order::Stop)
        };
        self.order.set(Some(order));
        if let Some(root) = self.root.take() {
            root.wake();
        }
    }

    /// Whether another thread works for this one: then it comes back by itself.
    fn is_busy(&self) -> bool {
        match &*self.outside.borrow() {
            Some((store, pool)) => {
                store.connections_in_use() > fault::waiting_connected() || fault::under_way() > 0 || pool.at_work() > 0
            }
            None => true,
        }
    }

    fn pass(&self, time: Duration) {
        self.time.set(self.time.get() + time);
        // The clock moves when this is first looked at.
        let _moved = tokio::time::advance(time).now_or_never();
        self.owed.set(Some(Duration::ZERO));
    }

    fn held_up(&self, point: &str, time: Duration) {
        if self.outside.borrow().is_none() || IN_TRANSACTION.contains(&point) {
            // Others could not write meanwhile: it is as if it were held up in its next rest.
            self.owed.set(Some(time));
            return;
        }
        drop(self.reports.send(Report::HeldUp(time)));
        match self.orders.recv() {
            Ok(Order::Pass(time)) => self.pass(time),
            _ => self.dead.store(true, Ordering::Relaxed),
        }
    }
}

impl Simulation for Here {
    fn at(&self, point: &'static str) -> Verdict {
        if self.dead.load(Ordering::Relaxed) {
            return Verdict::Fail;
        }
        self.world.tell(format!("{}: {point}", self.name));
        let mut armed = self.armed.take();
        let hit = armed.iter_mut().enumerate().find_map(|(place, one)| Some((place, one.at(point)?)));
        if let Some((place, _)) = hit {
            armed.remove(place);
        }
        self.armed.replace(armed);
        let Some((_, fault)) = hit else { return Verdict::GoOn };
        self.world.tell(format!("{}: {fault:?} at {point}", self.name));
        match fault {
            Fault::Dies => self.dead.store(true, Ordering::Relaxed),
            Fault::IsHeldUp(time) => self.held_up(point, time),
            Fault::Fails => return Verdict::Fail,
            Fault::LosesAnswer => return Verdict::LoseAnswer,
        }
        if self.dead.load(Ordering::Relaxed) { Verdict::Fail } else { Verdict::GoOn }
    }

    fn time(&self) -> Duration {
        let skew = self.skew.load(Ordering::Relaxed);
        let (off, time) = (Duration::from_millis(skew.unsigned_abs()), DAY + self.time.get());
        if skew < 0 { time - off } else { time + off }
    }

    fn chance(&self, bytes: &mut [u8]) {
        let mut chance = self.chance.borrow_mut();
        bytes.fill_with(|| chance.below(256) as u8);
    }
}
