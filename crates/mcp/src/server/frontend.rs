//! The server independent of its transport: `exec` and `wait` for principals, runs that outlive their calls, approvals.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use codemode::CodeMode;
use contract::cell::{CellResult, Telemetry, WaitingReason};
use contract::error::ErrorCode;
use executor::clock::now_ms;
use executor::random_name;
use executor::run::PrepareError;
use serde_json::{Map, Value};
use store::{ApprovalScope, Decision, DecisionError};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::flight::{CallHandle, InFlight, InFlightRun};
use super::prepared::{Cache, Prepared};
use super::principal::Principal;
use super::progress::Progress;
use super::settings::{Offered, Settings};
use super::unsaid::UndeliveredOutput;

/// How long after the start calls wait for the upstream servers to be ready.
const MAX_SETTLE_TIME: Duration = Duration::from_secs(10);

/// How often `wait` checks whether a run's first turn is over.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The MCP server that agents call. A handle: clones refer to the same server.
#[derive(Clone, Debug)]
pub struct McpService {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    code_mode: CodeMode,
    settings: Settings,
    offered: watch::Receiver<Offered>,
    /// From this time on calls no longer wait for upstream servers that are not ready.
    settle_by: Instant,
    prepared: Cache,
    flights: InFlight,
    undelivered: UndeliveredOutput,
    leaving: CancellationToken,
}

/// A control call, and the time by which it must be answered.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) principal: Principal,
    pub(crate) arguments: Map<String, Value>,
    pub(crate) progress: Progress,
    pub(crate) handle: Arc<CallHandle>,
    pub(crate) until: Instant,
}

impl McpService {
    pub fn new(code_mode: CodeMode, settings: Settings, offered: watch::Receiver<Offered>) -> Self {
        let prepared = Cache::new(offered.clone());
        let (flights, undelivered, leaving) =
            (InFlight::default(), UndeliveredOutput::default(), CancellationToken::new());
        let settle_by = Instant::now() + MAX_SETTLE_TIME;
        Self {
            inner: Arc::new(Inner { code_mode, settings, offered, settle_by, prepared, flights, undelivered, leaving }),
        }
    }

    /// Starts the shutdown: calls stop waiting and return the current state of their runs.
    pub fn leave(&self) {
        self.inner.leaving.cancel();
    }

    /// Returns true if no run is in progress in this process.
    pub fn is_idle(&self) -> bool {
        self.inner.flights.is_empty() && self.inner.code_mode.live_runs() == 0
    }

    /// Returns true if the server can answer calls.
    pub async fn is_ready(&self) -> bool {
        !self.is_leaving()
            && self.inner.offered.borrow().settled
            && self.inner.code_mode.store().live_runs().await.is_ok()
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.inner.leaving.is_cancelled()
    }

    pub(crate) async fn shutdown_started(&self) {
        self.inner.leaving.cancelled().await;
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    pub(crate) fn code_mode(&self) -> &CodeMode {
        &self.inner.code_mode
    }

    pub(crate) fn flights(&self) -> &InFlight {
        &self.inner.flights
    }

    pub(crate) fn undelivered(&self) -> &UndeliveredOutput {
        &self.inner.undelivered
    }

    /// Returns a receiver that is notified of every change of the offered tools.
    pub(crate) fn changes(&self) -> watch::Receiver<Offered> {
        self.inner.offered.clone()
    }

    pub(crate) async fn prepared(&self, principal: &Principal) -> Result<Arc<Prepared>, PrepareError> {
        let mut offered = self.inner.offered.clone();
        let settled = offered.wait_for(|offered| offered.settled);
        // An upstream server that becomes ready after this time is listed when it does.
        drop(tokio::time::timeout_at(self.inner.settle_by, settled).await);
        self.inner.prepared.get(&self.inner.settings, principal)
    }

    /// Returns the tools that each principal was last shown.
    pub(crate) fn shown(&self) -> HashMap<Principal, Arc<Prepared>> {
        self.inner.prepared.shown()
    }

    /// Runs a cell. The run continues if the client stops waiting for the response.
    pub(crate) async fn exec(&self, call: &Call) -> CellResult {
        let starting = self.inner.flights.starting(&call.principal);
        let prepared = match self.prepared(&call.principal).await {
            Ok(prepared) => prepared,
            Err(error) => return failed(&error.to_string()),
        };
        let Ok(tool_call_id) = random_name() else { return failed("cannot read system randomness") };
        let input = Value::Object(call.arguments.clone());
        let (code_mode, flights) = (self.inner.code_mode.clone(), self.inner.flights.clone());
        let (executor, handle, principal) =
            (prepared.executor(&call.progress), Arc::clone(&call.handle), call.principal.clone());
        let running = async move {
            let mut run = None;
            let source = ["code", "command"].iter().find_map(|name| input.get(name)?.as_str()).unwrap_or_default();
            let on_start = |run_id: &str| {
                run = Some(run_id.to_owned());
                let (run_id, source) = (run_id.to_owned(), source.to_owned());
                let cancelled = handle.attach_run(&run_id);
                flights.add(InFlightRun { run_id: run_id.clone(), principal, source, started_at: now_ms() });
                drop(starting);
                if cancelled {
                    let code_mode = code_mode.clone();
                    tokio::spawn(async move { code_mode.abort(&run_id).await });
                }
            };
            let result = code_mode.exec_json_begun(&executor, &prepared.config, &tool_call_id, &input, on_start).await;
            if let Some(run_id) = run {
                flights.remove(&run_id);
            }
            result
        };
        match self.run_until_deadline(call, running).await {
            Some(result) => result,
            None => match call.handle.run_id() {
                Some(run_id) => still_waiting(&run_id),
                None => failed("no sandbox worker was free in time; try again"),
            },
        }
    }

    /// Resumes a run, or waits for its current turn.
    pub(crate) async fn wait(&self, call: &Call, run_id: &str) -> CellResult {
        let prepared = match self.prepared(&call.principal).await {
            Ok(prepared) => prepared,
            Err(error) => return failed(&error.to_string()),
        };
        let Ok(tool_call_id) = random_name() else { return failed("cannot read system randomness") };
        call.handle.attach_run(run_id);
        let (executor, run, principal) = (prepared.executor(&call.progress), run_id.to_owned(), call.principal.clone());
        let (code_mode, flights) = (self.inner.code_mode.clone(), self.inner.flights.clone());
        let waiting = async move {
            // The run is in the store once its first turn is over.
            while flights.has(&run, &principal) {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            code_mode.wait(&executor, &prepared.config, &tool_call_id, &run).await
        };
        self.run_until_deadline(call, waiting).await.unwrap_or_else(|| still_waiting(run_id))
    }

    /// Cancels a call at its client's request: aborts the run's turn and the tool calls that it has dispatched.
    pub(crate) async fn cancel(&self, call: &Call) {
        let Some(run_id) = call.handle.cancel() else { return };
        let mine = match self.inner.code_mode.store().run(&run_id).await {
            Ok(Some(row)) => row.scope.admits(&call.principal.scope()),
            Ok(None) => self.inner.flights.has(&run_id, &call.principal),
            Err(_) => false,
        };
        if mine {
            match self.prepared(&call.principal).await {
                Ok(prepared) => self.inner.code_mode.abort_with(&prepared.executor(&call.progress), &run_id).await,
                Err(_) => self.inner.code_mode.abort(&run_id).await,
            };
        }
    }

    /// Stores a decision that a person made through the client. Returns true if the approval is now decided, by this
    /// decision or by an earlier one.
    pub(crate) async fn decide(&self, principal: &Principal, approval_id: &str, decision: &Decision) -> bool {
        let by = format!("{} (through the client)", principal.name());
        match self.inner.code_mode.decide(approval_id, decision, &by).await {
            Ok(_) | Err(DecisionError::NotPending) => true,
            Err(DecisionError::TooManyRules) => {
                // No permanent approval can be stored, but the person also approved this one call.
                let once = Decision::Approve { edited_input: None, reach: ApprovalScope::Once };
                self.inner.code_mode.decide(approval_id, &once, &by).await.is_ok()
            }
            Err(DecisionError::Unfit(_) | DecisionError::Store(_)) => false,
        }
    }

    /// Runs a turn. Returns `None` if the call's time is over or the process shuts down first; the turn then continues,
    /// and its output is kept for the run's next answer.
    async fn run_until_deadline(
        &self,
        call: &Call,
        turn: impl Future<Output = CellResult> + Send + 'static,
    ) -> Option<CellResult> {
        let (sender, receiver) = oneshot::channel();
        let (undelivered, principal) = (self.inner.undelivered.clone(), call.principal.clone());
        tokio::spawn(async move {
            if let Err(mut result) = sender.send(turn.await) {
                undelivered.keep(&principal, &mut result);
            }
        });
        tokio::select! {
            done = receiver => done.ok(),
            () = tokio::time::sleep_until(call.until) => None,
            () = self.shutdown_started() => None,
        }
    }
}

/// Returns the result of a call that ends before its run's turn does.
fn still_waiting(run_id: &str) -> CellResult {
    CellResult::Waiting {
        run_id: run_id.to_owned(),
        reason: WaitingReason::PendingTools,
        pending_tool_calls: Vec::new(),
        output: Vec::new(),
        telemetry: Telemetry::default(),
    }
}

pub(crate) fn failed(message: &str) -> CellResult {
    failure(ErrorCode::InternalError, message)
}

pub(crate) fn refused(message: &str) -> CellResult {
    failure(ErrorCode::InvalidInput, message)
}

fn failure(code: ErrorCode, message: &str) -> CellResult {
    CellResult::Failed {
        error: message.to_owned(),
        code: Some(code),
        output: Vec::new(),
        telemetry: Telemetry::default(),
    }
}
