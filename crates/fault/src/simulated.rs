//! The simulation of a thread: it decides the faults, the clock, the randomness and the order of tasks.
//!
//! A simulation is deterministic only if nothing depends on the speed of other threads. So a task that is about to wait
//! for another thread (a connection, a worker) first waits for its turn. The simulation gives a turn when no task on
//! this thread can proceed, and no other task proceeds until the answer has arrived.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::task::Id;

/// Controls a simulated thread.
pub trait Simulation {
    /// Decides what happens at a fault point. May block the thread for as long as it likes.
    fn at(&self, point: &'static str) -> Verdict;

    /// Returns the simulated time since 1970.
    fn time(&self) -> Duration;

    /// Fills the bytes with simulated randomness.
    fn fill_random(&self, bytes: &mut [u8]);
}

/// What happens at a fault point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing: the thread continues.
    Continue,
    /// The point returns an error.
    Fail,
    /// The thread continues, and the answer to its next commit is lost.
    LoseAnswer,
}

#[derive(Default)]
struct Thread {
    simulation: Option<Rc<dyn Simulation>>,
    takes_turns: bool,
    /// Ordered by task, in the order in which tasks were spawned: the order of arrival may be random.
    waiting: BTreeMap<(Option<Id>, u64), Waiter>,
    tickets: u64,
    under_way: usize,
    loses_answer: bool,
}

enum Waiter {
    Waits { waker: Waker, connected: bool },
    HasTurn,
}

thread_local! {
    static THREAD: RefCell<Thread> = RefCell::default();
}

fn with_thread<T>(access: impl FnOnce(&mut Thread) -> T) -> T {
    THREAD.with(|thread| access(&mut thread.borrow_mut()))
}

/// Adds this thread to a simulation. Tasks do not wait for turns until [`take_turns`] is called.
pub fn simulate(simulation: Rc<dyn Simulation>) {
    with_thread(|thread| *thread = Thread { simulation: Some(simulation), ..Thread::default() });
}

/// Removes this thread from its simulation.
pub fn leave_simulation() {
    drop(with_thread(std::mem::take));
}

/// From now on, tasks of this thread wait for their turn before they wait for another thread.
pub fn take_turns() {
    with_thread(|thread| thread.takes_turns = true);
}

/// Returns how many tasks wait for their turn.
pub fn waiting() -> usize {
    with_thread(|thread| thread.waiting.values().filter(|waiter| matches!(waiter, Waiter::Waits { .. })).count())
}

/// Gives the turn to the waiting task at this index.
pub fn give_turn(which: usize) {
    let woken = with_thread(|thread| {
        let mut waiting = thread.waiting.values_mut().filter(|waiter| matches!(waiter, Waiter::Waits { .. }));
        waiting.nth(which).map(|waiter| std::mem::replace(waiter, Waiter::HasTurn))
    });
    if let Some(Waiter::Waits { waker, .. }) = woken {
        waker.wake();
    }
}

/// Returns how many of the waiting tasks have a connection.
pub fn waiting_connected() -> usize {
    with_thread(|thread| {
        thread.waiting.values().filter(|waiter| matches!(waiter, Waiter::Waits { connected: true, .. })).count()
    })
}

/// Returns how many tasks wait for another thread without a pooled connection.
pub fn under_way() -> usize {
    with_thread(|thread| thread.under_way)
}

pub(super) fn at(name: &'static str) -> Option<Verdict> {
    // `at` may block, so `THREAD` must not be borrowed during the call.
    let verdict = with_thread(|thread| thread.simulation.clone())?.at(name);
    if verdict == Verdict::LoseAnswer {
        with_thread(|thread| thread.loses_answer = true);
    }
    Some(verdict)
}

/// Returns the answer of a commit, or an error if the simulation loses the answer.
pub fn commit_answer<E: From<io::Error>>(answer: Result<(), E>) -> Result<(), E> {
    if with_thread(|thread| std::mem::take(&mut thread.loses_answer)) {
        return Err(io::Error::other("a test dropped the answer").into());
    }
    answer
}

/// Returns the simulated time since 1970; `None` outside a simulation.
pub fn time() -> Option<Duration> {
    with_thread(|thread| thread.simulation.clone()).map(|simulation| simulation.time())
}

/// Fills the bytes with simulated randomness. Returns `false` outside a simulation.
pub fn fill_random(bytes: &mut [u8]) -> bool {
    let simulation = with_thread(|thread| thread.simulation.clone());
    simulation.map(|simulation| simulation.fill_random(bytes)).is_some()
}

/// Waits for the turn of a task that is about to wait for another thread. Returns at once if turns are not taken.
pub fn wait_for_turn() -> Turn {
    Turn { key: None, connected: false }
}

/// Waits for the turn of a task that already has a connection.
pub fn wait_for_connection_turn() -> Turn {
    Turn { key: None, connected: true }
}

/// Waits for a turn, then runs the future and counts it in [`under_way`] until it is done.
pub async fn run_in_turn<T>(future: impl Future<Output = T>) -> T {
    wait_for_turn().await;
    let _away = Away::begin();
    future.await
}

/// A future that is ready when the simulation gives its task a turn.
#[derive(Debug)]
pub struct Turn {
    key: Option<(Option<Id>, u64)>,
    connected: bool,
}

impl Future for Turn {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let connected = self.connected;
        let (poll, _old) = with_thread(|thread| {
            if !thread.takes_turns {
                return (Poll::Ready(()), None);
            }
            let key = *self.key.get_or_insert_with(|| {
                thread.tickets += 1;
                (tokio::task::try_id(), thread.tickets)
            });
            if let Some(Waiter::HasTurn) = thread.waiting.get(&key) {
                return (Poll::Ready(()), None);
            }
            let waits = Waiter::Waits { waker: context.waker().clone(), connected };
            (Poll::Pending, thread.waiting.insert(key, waits))
        });
        poll
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            // Dropped outside the borrow: dropping the waker may drop a task, which may drop another `Turn`.
            drop(with_thread(|thread| thread.waiting.remove(&key)));
        }
    }
}

struct Away;

impl Away {
    fn begin() -> Self {
        with_thread(|thread| thread.under_way += 1);
        Self
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        with_thread(|thread| thread.under_way = thread.under_way.saturating_sub(1));
    }
}
