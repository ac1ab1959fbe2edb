//! The ticker by which running cells measure time. It sleeps while no cell runs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

const BEAT: Duration = Duration::from_millis(2);

/// The number of ticks without a running cell before the ticker sleeps; waking it costs a system call.
const IDLE_BEATS: u32 = 25;

#[derive(Debug, Default)]
pub(super) struct Pulse {
    running: AtomicUsize,
    resting: Mutex<bool>,
    wake: Condvar,
}

/// Keeps the ticker running while a leg runs.
#[derive(Debug)]
pub(super) struct RunningLeg<'a>(&'a Pulse);

impl Pulse {
    pub(super) fn leg(&self) -> RunningLeg<'_> {
        if self.running.fetch_add(1, Ordering::SeqCst) == 0 {
            let mut resting = self.resting.lock().unwrap_or_else(PoisonError::into_inner);
            if *resting {
                *resting = false;
                self.wake.notify_one();
            }
        }
        RunningLeg(self)
    }

    /// Runs the ticker forever.
    pub(super) fn beat(&self, tick: impl Fn()) -> ! {
        let mut idle = 0;
        loop {
            std::thread::sleep(BEAT);
            tick();
            idle = if self.running.load(Ordering::SeqCst) == 0 { idle + 1 } else { 0 };
            if idle > IDLE_BEATS {
                self.rest();
                idle = 0;
            }
        }
    }

    fn rest(&self) {
        let mut resting = self.resting.lock().unwrap_or_else(PoisonError::into_inner);
        // A leg that starts after this sees the flag and wakes the ticker; one that started before is counted in
        // `running`.
        *resting = true;
        while *resting && self.running.load(Ordering::SeqCst) == 0 {
            resting = self.wake.wait(resting).unwrap_or_else(PoisonError::into_inner);
        }
        *resting = false;
    }
}

impl Drop for RunningLeg<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}
