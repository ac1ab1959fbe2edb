//! Stops cells from another thread: those that have run out of time, and those that were dropped.
//!
//! The guest's code checks a flag in its memory in every loop (`build/stop_checks.rs`) and traps if it is set.

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::host_calls::Stop;
use crate::raw::StopFlag;

/// The legs that run now.
#[derive(Debug, Default)]
pub(crate) struct Watchdog {
    legs: Mutex<Legs>,
}

#[derive(Debug, Default)]
struct Legs {
    running: Vec<RunningLeg>,
    last_id: u64,
}

#[derive(Debug)]
struct RunningLeg {
    id: u64,
    deadline: Instant,
    dropped: Arc<AtomicBool>,
    flag: StopFlag,
    stopped: Option<Stop>,
}

/// A leg that is watched until this value is dropped.
#[derive(Debug)]
pub(crate) struct Watch<'a> {
    watchdog: &'a Watchdog,
    id: u64,
}

impl Watchdog {
    /// Watches a leg. The memory of `flag` must stay valid until the returned value is dropped.
    pub(crate) fn watch(&self, deadline: Instant, dropped: Arc<AtomicBool>, flag: StopFlag) -> Watch<'_> {
        let mut legs = self.lock();
        legs.last_id += 1;
        let id = legs.last_id;
        legs.running.push(RunningLeg { id, deadline, dropped, flag, stopped: None });
        Watch { watchdog: self, id }
    }

    /// Stops the legs whose time is over or whose cell was dropped.
    pub(crate) fn tick(&self) {
        let mut legs = self.lock();
        if legs.running.is_empty() {
            return;
        }
        // Ticks are delayed on a loaded machine, the clock is not.
        let now = Instant::now();
        for leg in legs.running.iter_mut().filter(|leg| leg.stopped.is_none()) {
            leg.stopped = if leg.dropped.load(Ordering::Relaxed) {
                Some(Stop::Dropped)
            } else {
                (now >= leg.deadline).then_some(Stop::Deadline)
            };
            if leg.stopped.is_some() {
                leg.flag.set();
            }
        }
    }

    /// Locks the legs. A flag is only set under the lock, so not after its leg was removed.
    fn lock(&self) -> MutexGuard<'_, Legs> {
        self.legs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch<'_> {
    /// Ends the watch and returns why the leg was stopped, if it was.
    pub(crate) fn end(self) -> Option<Stop> {
        // Not dropped, which would look for the leg a second time.
        ManuallyDrop::new(self).remove()
    }

    fn remove(&self) -> Option<Stop> {
        let mut legs = self.watchdog.lock();
        let place = legs.running.iter().position(|leg| leg.id == self.id)?;
        legs.running.swap_remove(place).stopped
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.remove();
    }
}
