//! A thread that belongs to a simulation: who decides at the places, whose time and chance it has, whose turn it is.
//!
//! A simulation is the same each time only if nothing depends on how fast another thread is. So whoever is about to
//! wait for one (a connection, a worker) takes turns: the simulation gives one when nobody on this thread can move, and
//! nobody else moves until the answer has come.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::task::Id;

/// What decides over a thread.
pub trait Simulation {
    /// May hold the thread up for as long as it likes.
    fn at(&self, point: &'static str) -> Verdict;

    /// Since 1970.
    fn time(&self) -> Duration;

    fn chance(&self, bytes: &mut [u8]);
}

/// What happens at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    GoOn,
    /// The place answers with an error.
    Fail,
    /// It goes on, and the answer to the next commit does not arrive.
    LoseAnswer,
}

#[derive(Default)]
struct Thread {
    simulation: Option<Rc<dyn Simulation>>,
    takes_turns: bool,
    /// By their tasks, in the order those were begun in: who comes first may be chance.
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

fn here<T>(look: impl FnOnce(&mut Thread) -> T) -> T {
    THREAD.with(|thread| look(&mut thread.borrow_mut()))
}

/// Gives this thread to a simulation. Turns are not taken yet.
pub fn simulate(simulation: Rc<dyn Simulation>) {
    here(|thread| *thread = Thread { simulation: Some(simulation), ..Thread::default() });
}

pub fn leave_simulation() {
    drop(here(std::mem::take));
}

/// From now on nobody on this thread waits for another one out of turn.
pub fn take_turns() {
    here(|thread| thread.takes_turns = true);
}

/// How many wait for their turn.
pub fn waiting() -> usize {
    here(|thread| thread.waiting.values().filter(|waiter| matches!(waiter, Waiter::Waits { .. })).count())
}

/// Gives the turn to one of them.
pub fn give_turn(which: usize) {
    let woken = here(|thread| {
        let mut waiting = thread.waiting.values_mut().filter(|waiter| matches!(waiter, Waiter::Waits { .. }));
        waiting.nth(which).map(|waiter| std::mem::replace(waiter, Waiter::HasTurn))
    });
    if let Some(Waiter::Waits { waker, .. }) = woken {
        waker.wake();
    }
}

/// How many of those who wait have a connection.
pub fn waiting_connected() -> usize {
    here(|thread| {
        thread.waiting.values().filter(|waiter| matches!(waiter, Waiter::Waits { connected: true, .. })).count()
    })
}

/// How many are away without a connection of a pool's.
pub fn under_way() -> usize {
    here(|thread| thread.under_way)
}

pub(super) fn at(name: &'static str) -> Option<Verdict> {
    // It may hold the thread up, and others look here meanwhile.
    let verdict = here(|thread| thread.simulation.clone())?.at(name);
    if verdict == Verdict::LoseAnswer {
        here(|thread| thread.loses_answer = true);
    }
    Some(verdict)
}

/// What a commit answered, unless its answer is to be lost.
pub fn answered(answer: Result<(), sqlx::Error>) -> Result<(), sqlx::Error> {
    if here(|thread| std::mem::take(&mut thread.loses_answer)) {
        return Err(sqlx::Error::Io(io::Error::other("a test lost the answer")));
    }
    answer
}

/// The time since 1970 where it is not the system's.
pub fn time() -> Option<Duration> {
    here(|thread| thread.simulation.clone()).map(|simulation| simulation.time())
}

/// Whether the bytes were filled by a chance that is not the system's.
pub fn chance(bytes: &mut [u8]) -> bool {
    let simulation = here(|thread| thread.simulation.clone());
    simulation.map(|simulation| simulation.chance(bytes)).is_some()
}

/// Whoever is about to wait for another thread waits here until it is its turn, where turns are taken.
pub fn turn() -> Turn {
    Turn { key: None, connected: false }
}

/// The same, for whoever has a connection already.
pub fn turn_of_connection() -> Turn {
    Turn { key: None, connected: true }
}

/// The same, for one who is away until the future is done.
pub async fn alone<T>(future: impl Future<Output = T>) -> T {
    turn().await;
    let _away = Away::begin();
    future.await
}

#[derive(Debug)]
pub struct Turn {
    key: Option<(Option<Id>, u64)>,
    connected: bool,
}

impl Future for Turn {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let connected = self.connected;
        let (poll, _old) = here(|thread| {
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
            // With its waker may go a task, and with that another who waits: not while the thread is looked at.
            drop(here(|thread| thread.waiting.remove(&key)));
        }
    }
}

struct Away;

impl Away {
    fn begin() -> Self {
        here(|thread| thread.under_way += 1);
        Self
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        here(|thread| thread.under_way = thread.under_way.saturating_sub(1));
    }
}
