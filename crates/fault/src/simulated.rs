//! Hooks for a deterministic simulation of a process in one thread: the simulation controls the faults, the clock, the
//! random numbers and the order in which tasks run.
//!
//! A simulation is deterministic only if nothing depends on the speed of other threads. So a task that is about to wait
//! for another thread (a database connection, a worker) first waits for its turn. The test that drives the simulation
//! calls [`give_turn`] only when all tasks of this thread are blocked and no other thread works for them; it finds out
//! with [`in_flight`] and [`waiting_with_connection`]. So at most one task at a time waits for another thread.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::task::Id;

/// What a test implements to control a simulated thread.
pub trait Simulation {
    /// Decides what happens at a fault point. It may block the thread.
    fn at(&self, point: &'static str) -> PointVerdict;

    /// Returns the simulated time since 1970.
    fn time(&self) -> Duration;

    /// Returns how far the simulated clock is ahead of Tokio's timers, which fire only when the thread is idle.
    fn clock_lead(&self) -> Duration;

    /// Fills the bytes with simulated randomness.
    fn fill_random(&self, bytes: &mut [u8]);
}

/// What happens at a fault point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointVerdict {
    /// The fault point succeeds.
    Continue,
    /// The fault point returns an error.
    Fail,
    /// The fault point succeeds. The next commit takes effect but returns an error, as if the connection broke before
    /// the database's answer arrived.
    LoseAnswer,
}

/// The simulation of this thread, if there is one, and its tasks' turns.
#[derive(Default)]
struct ThreadState {
    simulation: Option<Rc<dyn Simulation>>,
    turns_enabled: bool,
    /// The tasks that wait for their turn, by task id and ticket. Task ids have the order in which tasks were spawned;
    /// the order in which they are polled may be random.
    waiting: BTreeMap<(Option<Id>, u64), Waiter>,
    /// The number of the last future that asked for a turn. It distinguishes the futures of one task.
    last_ticket: u64,
    in_flight: usize,
    next_answer_is_lost: bool,
}

enum Waiter {
    Waits { waker: Waker, holds_connection: bool },
    HasTurn,
}

thread_local! {
    static THREAD: RefCell<ThreadState> = RefCell::default();
}

fn with_thread<T>(access: impl FnOnce(&mut ThreadState) -> T) -> T {
    THREAD.with(|thread| access(&mut thread.borrow_mut()))
}

/// Adds this thread to a simulation. Tasks do not wait for turns until [`enable_turns`] is called.
pub fn simulate(simulation: Rc<dyn Simulation>) {
    with_thread(|thread| *thread = ThreadState { simulation: Some(simulation), ..ThreadState::default() });
}

/// Removes this thread from its simulation.
pub fn leave_simulation() {
    drop(with_thread(std::mem::take));
}

/// Makes tasks of this thread wait for their turn before they wait for another thread. Until then, turns are not
/// needed.
pub fn enable_turns() {
    with_thread(|thread| thread.turns_enabled = true);
}

/// Returns how many tasks wait for their turn.
pub fn waiting() -> usize {
    with_thread(|thread| thread.waiting.values().filter(|waiter| matches!(waiter, Waiter::Waits { .. })).count())
}

/// Gives a turn to one of the [`waiting`] tasks, by its index.
pub fn give_turn(index: usize) {
    let woken = with_thread(|thread| {
        let mut waiting = thread.waiting.values_mut().filter(|waiter| matches!(waiter, Waiter::Waits { .. }));
        waiting.nth(index).map(|waiter| std::mem::replace(waiter, Waiter::HasTurn))
    });
    if let Some(Waiter::Waits { waker, .. }) = woken {
        waker.wake();
    }
}

/// Returns how many of the [`waiting`] tasks hold a connection of the store's pool. The pool counts these connections
/// as in use, although no other thread works for them.
pub fn waiting_with_connection() -> usize {
    with_thread(|thread| {
        thread.waiting.values().filter(|waiter| matches!(waiter, Waiter::Waits { holds_connection: true, .. })).count()
    })
}

/// Returns how many futures of [`run_in_turn`] have had their turn and are not done. They wait for another thread
/// without a connection of the pool, so the pool does not count them.
pub fn in_flight() -> usize {
    with_thread(|thread| thread.in_flight)
}

/// Returns what the simulation decides at a fault point; `None` outside a simulation.
pub(super) fn verdict_at(name: &'static str) -> Option<PointVerdict> {
    // `Simulation::at` may block, so `THREAD` must not be borrowed during the call.
    let verdict = with_thread(|thread| thread.simulation.clone())?.at(name);
    if verdict == PointVerdict::LoseAnswer {
        with_thread(|thread| thread.next_answer_is_lost = true);
    }
    Some(verdict)
}

/// Returns the result of a commit, or an error instead of it after [`PointVerdict::LoseAnswer`].
pub fn commit_result<E: From<io::Error>>(answer: Result<(), E>) -> Result<(), E> {
    if with_thread(|thread| std::mem::take(&mut thread.next_answer_is_lost)) {
        return Err(io::Error::other("a test dropped the answer to a commit").into());
    }
    answer
}

/// Returns the simulated time since 1970; `None` outside a simulation.
pub fn time() -> Option<Duration> {
    with_thread(|thread| thread.simulation.clone()).map(|simulation| simulation.time())
}

/// Returns how far the simulated clock is ahead of Tokio's timers and [`tokio::time::Instant`]; zero outside a
/// simulation. A process that was paused at a fault point continues there before its timers fire.
pub fn clock_lead() -> Duration {
    let simulation = with_thread(|thread| thread.simulation.clone());
    simulation.map(|simulation| simulation.clock_lead()).unwrap_or_default()
}

/// Fills the bytes with simulated randomness. Returns `false` outside a simulation.
pub fn fill_random(bytes: &mut [u8]) -> bool {
    let simulation = with_thread(|thread| thread.simulation.clone());
    simulation.map(|simulation| simulation.fill_random(bytes)).is_some()
}

/// Waits for the turn of a task that is about to wait for another thread. Ready at once unless [`enable_turns`] was
/// called.
pub fn wait_for_turn() -> Turn {
    Turn { key: None, holds_connection: false }
}

/// Waits for a turn as [`wait_for_turn`] does, in a task that already holds a connection of the store's pool.
pub fn wait_for_turn_holding_connection() -> Turn {
    Turn { key: None, holds_connection: true }
}

/// Waits for a turn, then runs the future and counts it in [`in_flight`] until it is done.
pub async fn run_in_turn<T>(future: impl Future<Output = T>) -> T {
    wait_for_turn().await;
    let _in_flight = InFlightGuard::begin();
    future.await
}

/// A future that is ready when the simulation gives its task a turn.
#[derive(Debug)]
pub struct Turn {
    key: Option<(Option<Id>, u64)>,
    holds_connection: bool,
}

impl Future for Turn {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let holds_connection = self.holds_connection;
        // The replaced waiter is dropped outside the borrow, as in `drop` below.
        let (poll, _replaced) = with_thread(|thread| {
            if !thread.turns_enabled {
                return (Poll::Ready(()), None);
            }
            let key = *self.key.get_or_insert_with(|| {
                thread.last_ticket += 1;
                (tokio::task::try_id(), thread.last_ticket)
            });
            if let Some(Waiter::HasTurn) = thread.waiting.get(&key) {
                return (Poll::Ready(()), None);
            }
            let waits = Waiter::Waits { waker: context.waker().clone(), holds_connection };
            (Poll::Pending, thread.waiting.insert(key, waits))
        });
        poll
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            // Dropped outside the borrow of `THREAD`: dropping the waker may drop a task, and with it another `Turn`.
            drop(with_thread(|thread| thread.waiting.remove(&key)));
        }
    }
}

/// Counts a future in [`in_flight`] until it is dropped.
struct InFlightGuard;

impl InFlightGuard {
    fn begin() -> Self {
        with_thread(|thread| thread.in_flight += 1);
        Self
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        with_thread(|thread| thread.in_flight = thread.in_flight.saturating_sub(1));
    }
}
