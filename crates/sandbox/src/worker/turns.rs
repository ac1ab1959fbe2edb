//! Decides which thread reads next: the one that finished last, whose caches and stack are still warm.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{Thread, ThreadId};

#[derive(Debug, Default)]
pub(super) struct Turns {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    reader: Option<ThreadId>,
    /// The waiting threads, the most recent one last.
    idle: Vec<Thread>,
}

/// The turn to read. Dropping it passes the turn to the next thread.
#[derive(Debug)]
pub(super) struct Turn<'a>(&'a Turns);

impl Turns {
    /// Waits until it is this thread's turn.
    pub(super) fn wait(&self) -> Turn<'_> {
        let me = std::thread::current();
        let mut state = self.state();
        if state.reader.is_none() {
            state.reader = Some(me.id());
        } else {
            state.idle.push(me.clone());
        }
        while state.reader != Some(me.id()) {
            drop(state);
            std::thread::park();
            state = self.state();
        }
        Turn(self)
    }

    /// Locks the state; never held while a thread reads or waits.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let next = {
            let mut state = self.0.state();
            let next = state.idle.pop();
            state.reader = next.as_ref().map(Thread::id);
            next
        };
        if let Some(next) = next {
            next.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::Turns;

    #[test]
    fn one_thread_reads_at_a_time_and_every_thread_gets_a_turn() {
        let turns = Arc::new(Turns::default());
        let (readers, reads) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let threads = (0..8).map(|_| {
            let (turns, readers, reads) = (Arc::clone(&turns), Arc::clone(&readers), Arc::clone(&reads));
            thread::spawn(move || {
                for _ in 0..1000 {
                    let turn = turns.wait();
                    assert_eq!(readers.fetch_add(1, Ordering::SeqCst), 0);
                    reads.fetch_add(1, Ordering::SeqCst);
                    readers.fetch_sub(1, Ordering::SeqCst);
                    drop(turn);
                }
            })
        });
        threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(reads.load(Ordering::SeqCst), 8000);
    }
}
