//! A seat for one worker: supervises the worker, and replaces it when it dies.

use std::sync::Arc;
use std::time::{Duration, Instant};

use telemetry::LogIgnored;
use tokio::process::Child;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::PoolOptions;
use super::gate::Gate;
use super::worker::{Worker, WorkerReceiver};

/// The pause before a worker is replaced. It doubles with each worker that dies within `SHORT_LIFE`.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
const SHORT_LIFE: Duration = Duration::from_secs(2);
const HELLO_WAIT: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub(super) enum SeatState {
    Starting,
    Up(Arc<Worker>),
    Failed(String),
}

#[derive(Debug)]
pub(super) struct Seat {
    state: watch::Receiver<SeatState>,
    supervisor: JoinHandle<()>,
}

impl Seat {
    pub(super) fn fill(options: Arc<PoolOptions>, gate: Arc<Gate<Worker>>) -> Self {
        let (sender, state) = watch::channel(SeatState::Starting);
        let supervisor = tokio::spawn(supervise(options, gate, sender));
        Self { state, supervisor }
    }

    pub(super) fn worker(&self) -> Option<Arc<Worker>> {
        match &*self.state.borrow() {
            SeatState::Up(worker) => Some(Arc::clone(worker)),
            SeatState::Starting | SeatState::Failed(_) => None,
        }
    }

    /// Returns why the seat has no worker, if the last start failed.
    pub(super) fn reason(&self) -> Option<String> {
        match &*self.state.borrow() {
            SeatState::Failed(reason) => Some(reason.clone()),
            SeatState::Starting | SeatState::Up(_) => None,
        }
    }

    pub(super) fn watch(&self) -> watch::Receiver<SeatState> {
        self.state.clone()
    }
}

impl Drop for Seat {
    /// Ends the worker: the supervisor owns the child process, which is killed when it is dropped.
    fn drop(&mut self) {
        self.supervisor.abort();
    }
}

async fn supervise(options: Arc<PoolOptions>, gate: Arc<Gate<Worker>>, state: watch::Sender<SeatState>) {
    let mut pause = FIRST_PAUSE;
    let mut last_failure = None;
    loop {
        let born = Instant::now();
        match start(&options).await {
            Ok((worker, incoming, child)) => {
                tracing::info!(pid = worker.pid(), "worker started");
                last_failure = None;
                state.send_replace(SeatState::Up(Arc::clone(&worker)));
                gate.worker_up(worker.id(), &worker);
                worker.listen(&gate, incoming).await;
                tracing::info!(pid = worker.pid(), reason = worker.why_it_ended(), "worker exited");
                state.send_replace(SeatState::Starting);
                reap(child).await;
            }
            Err(reason) => {
                // The next attempts fail for the same reason, many times a minute.
                if last_failure.as_ref() != Some(&reason) {
                    tracing::warn!(reason, "worker did not start");
                }
                last_failure = Some(reason.clone());
                state.send_replace(SeatState::Failed(reason));
            }
        }
        pause = if born.elapsed() < SHORT_LIFE { (pause * 2).min(LONGEST_PAUSE) } else { FIRST_PAUSE };
        tokio::time::sleep(pause).await;
    }
}

async fn start(options: &PoolOptions) -> Result<(Arc<Worker>, WorkerReceiver, Option<Child>), String> {
    let (socket, child) = options.launch.launch(options).map_err(|error| error.to_string())?;
    let pid = child.as_ref().and_then(Child::id);
    let greeted = tokio::time::timeout(HELLO_WAIT, Worker::greet(socket, pid)).await;
    match greeted {
        Ok(Ok((worker, incoming))) => Ok((worker, incoming, child)),
        Ok(Err(fault)) => Err(telemetry::error_chain(&fault)),
        Err(_) => Err("the worker was not ready in time".to_owned()),
    }
}

/// Kills a worker's process and waits for its exit.
async fn reap(child: Option<Child>) {
    let Some(mut child) = child else { return };
    // The worker may have ended already; then only its exit status is collected.
    child.start_kill().log_expected("kill a worker");
    child.wait().await.log_ignored("collect a worker's exit status");
}
