//! A thread that takes over a part of a job of another thread, if it is idle. It must exist before the jail, which
//! forbids to start threads.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

type Job = Box<dyn FnOnce() + Send>;

/// Passes jobs to the thread in [`SpareThread::run`]. Without such a thread, no job is accepted.
#[derive(Debug)]
pub(crate) struct SpareThread {
    /// Without a buffer, so that a job is accepted only if the thread waits for one.
    jobs: SyncSender<Job>,
    offered: Mutex<Receiver<Job>>,
}

impl Default for SpareThread {
    fn default() -> Self {
        let (jobs, offered) = sync_channel(0);
        Self { jobs, offered: Mutex::new(offered) }
    }
}

impl SpareThread {
    /// Lets the thread do a job, if it is idle. Returns whether it is.
    pub(crate) fn offer(&self, job: impl FnOnce() + Send + 'static) -> bool {
        self.jobs.try_send(Box::new(job)).is_ok()
    }

    /// Does the jobs that are offered. Never returns.
    pub(crate) fn run(&self) {
        let offered = self.offered.lock().unwrap_or_else(PoisonError::into_inner);
        while let Ok(job) = offered.recv() {
            job();
        }
    }
}
