//! Who reads next: the thread that came back last, whose caches and stack are still warm.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{Thread, ThreadId};

#[derive(Debug, Default)]
pub(super) struct Turns {
    desk: Mutex<Desk>,
}

#[derive(Debug, Default)]
struct Desk {
    reader: Option<ThreadId>,
    /// Who waits, the last to come at the end.
    idle: Vec<Thread>,
}

/// The turn to read; dropped, it goes to the next thread.
#[derive(Debug)]
pub(super) struct Turn<'a>(&'a Turns);

impl Turns {
    /// Returns when it is this thread's turn.
    pub(super) fn wait(&self) -> Turn<'_> {
        let me = std::thread::current();
        let mut desk = self.desk();
        if desk.reader.is_none() {
            desk.reader = Some(me.id());
        } else {
            desk.idle.push(me.clone());
        }
        while desk.reader != Some(me.id()) {
            drop(desk);
            std::thread::park();
            desk = self.desk();
        }
        Turn(self)
    }

    /// Held for a look, never while anybody reads or waits.
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let next = {
            let mut desk = self.0.desk();
            let next = desk.idle.pop();
            desk.reader = next.as_ref().map(Thread::id);
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
