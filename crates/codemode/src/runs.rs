//! All runs of this process, found by their ids.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use contract::cell::{CellResult, Telemetry};
use contract::error::ErrorCode;
use contract::frame::Failure;
use contract::limits::Limits;
use executor::Executor;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::driver::{Command, Driver, Run, failure_text};
use crate::input::ExecInput;
use crate::pool::Pool;

/// Runs that may be under way or waiting at once.
const MAX_LIVE_RUNS: usize = 10_000;

/// The two tools.
#[derive(Clone, Debug)]
pub struct CodeMode {
    pool: Pool,
    runs: Arc<Mutex<HashMap<String, mpsc::Sender<Command>>>>,
}

impl CodeMode {
    pub fn new(pool: Pool) -> Self {
        Self { pool, runs: Arc::default() }
    }

    /// Runs a cell until it ends, yields, or outlasts its budget.
    pub async fn exec(&self, executor: &Executor, limits: Limits, input: ExecInput) -> CellResult {
        let mut random = [0; 24];
        if getrandom::fill(&mut random).is_err() {
            return failed(ErrorCode::RuntimeUnavailable, "the system has no randomness to give");
        }
        let (seed, name) = random.split_at(8);
        let run_id = run_id(name);
        let seed = seed.iter().fold(0, |seed, byte| seed << 8 | u64::from(*byte));
        let (commands, received) = mpsc::channel(16);
        {
            let mut runs = self.lock();
            if runs.len() >= MAX_LIVE_RUNS {
                return failed(
                    ErrorCode::RuntimeUnavailable,
                    "too many cells are waiting; finish some with `wait` before starting more",
                );
            }
            runs.insert(run_id.clone(), commands);
        }
        let run =
            Run { id: run_id.clone(), limits: limits.clamped(), pool: self.pool.clone(), executor: executor.clone() };
        let (tell, told) = oneshot::channel();
        let driver = Driver::new(run, input, seed, tell);
        let runs = Arc::clone(&self.runs);
        tokio::spawn(async move {
            driver.drive(received).await;
            runs.lock().unwrap_or_else(PoisonError::into_inner).remove(&run_id);
        });
        last_word(told.await)
    }

    /// `exec` as the model calls it.
    pub async fn exec_json(&self, executor: &Executor, limits: Limits, input: &Value) -> CellResult {
        match ExecInput::parse(input) {
            Ok(input) => self.exec(executor, limits, input).await,
            Err(failure) => failed_with(&failure),
        }
    }

    /// Goes on with a cell that was waiting.
    pub async fn wait(&self, run_id: &str) -> CellResult {
        let commands = self.lock().get(run_id).cloned();
        match commands {
            Some(commands) => {
                let (tell, told) = oneshot::channel();
                // A run that ended between look-up and question drops both ends, and the answer says so.
                drop(commands.send(Command::Wait(tell)).await);
                last_word(told.await)
            }
            None => failed(
                ErrorCode::InvalidInput,
                "no such run; `wait` takes the `runId` of an `exec` that answered `waiting`",
            ),
        }
    }

    /// Ends a run, whatever it is doing.
    pub async fn abort(&self, run_id: &str) {
        let commands = self.lock().get(run_id).cloned();
        if let Some(commands) = commands {
            // A run that has just ended needs no abort.
            drop(commands.send(Command::Abort).await);
        }
    }

    /// Runs under way, waiting, or just ended.
    pub fn live_runs(&self) -> usize {
        self.lock().len()
    }

    /// Held for one look-up, never across an await.
    fn lock(&self) -> MutexGuard<'_, HashMap<String, mpsc::Sender<Command>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn last_word(told: Result<CellResult, oneshot::error::RecvError>) -> CellResult {
    told.unwrap_or_else(|_| failed(ErrorCode::InternalError, "the run ended without a word"))
}

/// `cm_` and 128 random bits.
fn run_id(random: &[u8]) -> String {
    random.iter().fold("cm_".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

fn failed(code: ErrorCode, message: &str) -> CellResult {
    failed_with(&Failure { code: Some(code), message: message.to_owned(), place: None })
}

fn failed_with(failure: &Failure) -> CellResult {
    CellResult::Failed {
        error: failure_text(failure),
        code: failure.code,
        output: Vec::new(),
        telemetry: Telemetry::default(),
    }
}
