//! A seat for one worker: whoever dies in it is replaced.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::process::Child;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::PoolOptions;
use super::gate::Gate;
use super::worker::{Incoming, Worker};

/// The pause before a seat is filled again grows with each worker that dies young.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
const YOUNG: Duration = Duration::from_secs(2);
const HELLO_WAIT: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub(super) enum State {
    Starting,
    Up(Arc<Worker>),
    Failed(String),
}

#[derive(Debug)]
pub(super) struct Seat {
    state: watch::Receiver<State>,
    supervisor: JoinHandle<()>,
}

impl Seat {
    pub(super) fn fill(options: Arc<PoolOptions>, gate: Arc<Gate>) -> Self {
        let (tell, state) = watch::channel(State::Starting);
        let supervisor = tokio::spawn(supervise(options, gate, tell));
        Self { state, supervisor }
    }

    pub(super) fn worker(&self) -> Option<Arc<Worker>> {
        match &*self.state.borrow() {
            State::Up(worker) => Some(Arc::clone(worker)),
            State::Starting | State::Failed(_) => None,
        }
    }

    /// Why nobody sits here, if that is known.
    pub(super) fn reason(&self) -> Option<String> {
        match &*self.state.borrow() {
            State::Failed(reason) => Some(reason.clone()),
            State::Starting | State::Up(_) => None,
        }
    }

    pub(super) fn watch(&self) -> watch::Receiver<State> {
        self.state.clone()
    }
}

impl Drop for Seat {
    /// The supervisor owns the child, and the child is killed when it is dropped.
    fn drop(&mut self) {
        self.supervisor.abort();
    }
}

async fn supervise(options: Arc<PoolOptions>, gate: Arc<Gate>, tell: watch::Sender<State>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let born = Instant::now();
        match start(&options).await {
            Ok((worker, incoming, child)) => {
                tell.send_replace(State::Up(Arc::clone(&worker)));
                gate.worker_up(&worker);
                worker.listen(&gate, incoming).await;
                tell.send_replace(State::Starting);
                bury(child).await;
            }
            Err(reason) => {
                tell.send_replace(State::Failed(reason));
            }
        }
        pause = if born.elapsed() < YOUNG { (pause * 2).min(LONGEST_PAUSE) } else { FIRST_PAUSE };
        tokio::time::sleep(pause).await;
    }
}

async fn start(options: &PoolOptions) -> Result<(Arc<Worker>, Incoming, Option<Child>), String> {
    let (socket, child) = options.launch.launch(options).map_err(|error| error.to_string())?;
    let pid = child.as_ref().and_then(Child::id);
    let greeted = tokio::time::timeout(HELLO_WAIT, Worker::greet(socket, pid)).await;
    match greeted {
        Ok(Ok((worker, incoming))) => Ok((worker, incoming, child)),
        Ok(Err(fault)) => Err(fault.to_string()),
        Err(_) => Err("it did not say hello in time".to_owned()),
    }
}

/// Kills what is left of a worker and waits until the system has let go of it.
async fn bury(child: Option<Child>) {
    let Some(mut child) = child else { return };
    // It may be dead already; then there is only the waiting.
    drop(child.start_kill());
    drop(child.wait().await);
}
