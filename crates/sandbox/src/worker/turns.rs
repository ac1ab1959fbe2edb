//! Decides which thread reads next.
//!
//! A thread keeps the turn to read while it runs the leg that it read. Most legs take microseconds: the thread then
//! reads the next frame itself, with warm caches, and no other thread wakes up. If a leg takes longer, the ticker passes
//! the turn to the thread that finished last.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{Thread, ThreadId};

#[derive(Debug, Default)]
pub(super) struct Turns {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    reader: Option<Reader>,
    /// The waiting threads, the most recent one last.
    idle: Vec<Thread>,
}

#[derive(Debug)]
struct Reader {
    thread: ThreadId,
    leg: Leg,
}

/// The leg that the reader runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leg {
    /// The reader reads.
    None,
    /// The reader has run a leg since the last tick.
    New,
    /// The reader has run a leg for at least one whole tick.
    Long,
}

impl Turns {
    /// Waits until it is this thread's turn to read.
    pub(super) fn wait(&self) {
        let me = std::thread::current();
        let mut state = self.state();
        if state.reader.is_none() {
            state.reader = Some(Reader { thread: me.id(), leg: Leg::None });
        } else if !state.is_reader(me.id()) {
            state.idle.push(me.clone());
        }
        while !state.is_reader(me.id()) {
            drop(state);
            std::thread::park();
            state = self.state();
        }
    }

    /// Records that this thread, which has the turn, begins a leg.
    pub(super) fn begin_leg(&self) {
        self.set_leg(Leg::New);
    }

    /// Records that this thread's leg has ended. It still has the turn, unless the leg took long.
    pub(super) fn end_leg(&self) {
        self.set_leg(Leg::None);
    }

    /// Passes the turn on if its thread has run the same leg since the previous tick.
    pub(super) fn tick(&self) {
        let mut state = self.state();
        let State { reader, idle } = &mut *state;
        match reader {
            Some(current) if current.leg == Leg::New => current.leg = Leg::Long,
            Some(current) if current.leg == Leg::Long => {
                let next = idle.pop();
                *reader = next.as_ref().map(|next| Reader { thread: next.id(), leg: Leg::None });
                drop(state);
                if let Some(next) = next {
                    next.unpark();
                }
            }
            _ => {}
        }
    }

    fn set_leg(&self, leg: Leg) {
        let me = std::thread::current().id();
        if let Some(reader) = self.state().reader.as_mut().filter(|reader| reader.thread == me) {
            reader.leg = leg;
        }
    }

    /// Locks the state; never held while a thread reads or waits.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_reader(&self, thread: ThreadId) -> bool {
        self.reader.as_ref().is_some_and(|reader| reader.thread == thread)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, mpsc};
    use std::thread;
    use std::time::Duration;

    use super::Turns;

    #[test]
    fn one_thread_reads_at_a_time_also_while_the_turn_is_passed_on() {
        let turns = Turns::default();
        let (readers, reads) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    while reads.load(Ordering::SeqCst) < 8_000 {
                        turns.wait();
                        assert_eq!(readers.fetch_add(1, Ordering::SeqCst), 0);
                        reads.fetch_add(1, Ordering::SeqCst);
                        readers.fetch_sub(1, Ordering::SeqCst);
                        turns.begin_leg();
                        thread::yield_now();
                        turns.end_leg();
                    }
                    // The thread leaves: its turn must not stay with it.
                    turns.wait();
                    turns.begin_leg();
                });
            }
            let ticker = scope.spawn(|| {
                while reads.load(Ordering::SeqCst) < 8_000 {
                    turns.tick();
                }
                for _ in 0..2_000 {
                    turns.tick();
                    thread::sleep(Duration::from_micros(100));
                }
            });
            ticker.join().unwrap();
        });
        assert!(reads.load(Ordering::SeqCst) >= 8_000);
    }

    #[test]
    fn a_thread_with_a_short_leg_keeps_the_turn_and_one_with_a_long_leg_loses_it() {
        let turns = Arc::new(Turns::default());
        turns.wait();
        let (sender, receiver) = mpsc::channel();
        let other = Arc::clone(&turns);
        let waiting = thread::spawn(move || {
            other.wait();
            sender.send(()).unwrap();
        });
        while turns.state().idle.is_empty() {
            thread::yield_now();
        }
        // Between two ticks a leg ends and another begins: neither is long.
        for _ in 0..3 {
            turns.begin_leg();
            turns.tick();
            turns.end_leg();
            turns.wait();
        }
        assert!(receiver.try_recv().is_err(), "the turn was passed on during a short leg");
        turns.begin_leg();
        turns.tick();
        assert!(receiver.try_recv().is_err(), "the turn was passed on before the leg had run for a whole tick");
        turns.tick();
        receiver.recv_timeout(Duration::from_secs(10)).unwrap();
        turns.end_leg();
        waiting.join().unwrap();
        assert!(!turns.state().is_reader(thread::current().id()));
    }

    #[test]
    fn a_turn_without_a_waiting_thread_goes_to_the_first_that_comes() {
        let turns = Turns::default();
        turns.wait();
        turns.begin_leg();
        turns.tick();
        turns.tick();
        assert!(turns.state().reader.is_none());
        turns.end_leg();
        turns.wait();
        assert!(turns.state().is_reader(thread::current().id()));
    }
}
