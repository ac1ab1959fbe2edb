//! The server without its wire: `exec` and `wait` for principals, runs that outlive their calls, approvals.

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
use store::{ApprovalScope, Decision, DecisionRefused};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::flight::{CallHandle, InFlight, InFlightRun};
use super::prepared::{Cache, Prepared};
use super::principal::Principal;
use super::progress::Progress;
use super::settings::{Offered, Settings};
use super::unsaid::UndeliveredOutput;

/// How long after the start calls wait for the servers behind us to be there.
const SETTLE_AT_MOST: Duration = Duration::from_secs(10);

/// How often a cell in its first turn is looked at by whoever waits for it.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A handle; clones are the same server.
#[derive(Clone, Debug)]
pub struct McpService {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    code_mode: CodeMode,
    settings: Settings,
    offered: watch::Receiver<Offered>,
    /// From here on nobody waits for servers that are not there.
    settle_by: Instant,
    prepared: Cache,
    flights: InFlight,
    unsaid: UndeliveredOutput,
    leaving: CancellationToken,
}

/// A control call, and until when it must have its answer.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) principal: Principal,
    pub(crate) arguments: Map<String, Value>,
    pub(crate) progress: Progress,
    pub(crate) ticket: Arc<CallHandle>,
    pub(crate) until: Instant,
}

impl McpService {
    pub fn new(code_mode: CodeMode, settings: Settings, offered: watch::Receiver<Offered>) -> Self {
        let prepared = Cache::new(offered.clone());
        let (flights, unsaid, leaving) = (InFlight::default(), UndeliveredOutput::default(), CancellationToken::new());
        let settle_by = Instant::now() + SETTLE_AT_MOST;
        Self { inner: Arc::new(Inner { code_mode, settings, offered, settle_by, prepared, flights, unsaid, leaving }) }
    }

    /// Nothing is held on for any more; what is under way is answered as it stands.
    pub fn leave(&self) {
        self.inner.leaving.cancel();
    }

    /// Whether no cell is in its first turn any more.
    pub fn is_idle(&self) -> bool {
        self.inner.flights.is_empty() && self.inner.code_mode.live_runs() == 0
    }

    /// Whether calls can be answered.
    pub async fn is_ready(&self) -> bool {
        !self.is_leaving()
            && self.inner.offered.borrow().settled
            && self.inner.code_mode.store().live_runs().await.is_ok()
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.inner.leaving.is_cancelled()
    }

    pub(crate) async fn left(&self) {
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

    pub(crate) fn unsaid(&self) -> &UndeliveredOutput {
        &self.inner.unsaid
    }

    /// Hears of every change of what is offered.
    pub(crate) fn changes(&self) -> watch::Receiver<Offered> {
        self.inner.offered.clone()
    }

    pub(crate) async fn prepared(&self, principal: &Principal) -> Result<Arc<Prepared>, PrepareError> {
        let mut offered = self.inner.offered.clone();
        let settled = offered.wait_for(|offered| offered.settled);
        // Late or never: whoever comes later is listed when it comes.
        drop(tokio::time::timeout_at(self.inner.settle_by, settled).await);
        self.inner.prepared.get(&self.inner.settings, principal)
    }

    /// What every principal was last shown of what stands behind us.
    pub(crate) fn shown(&self) -> HashMap<Principal, Arc<Prepared>> {
        self.inner.prepared.shown()
    }

    /// Runs a cell. Its run goes on when nobody waits for the answer any more.
    pub(crate) async fn exec(&self, call: &Call) -> CellResult {
        let starting = self.inner.flights.starting(&call.principal);
        let prepared = match self.prepared(&call.principal).await {
            Ok(prepared) => prepared,
            Err(error) => return failed(&error.to_string()),
        };
        let Ok(tool_call_id) = random_name() else { return failed("the system has no randomness to give") };
        let input = Value::Object(call.arguments.clone());
        let (code_mode, flights) = (self.inner.code_mode.clone(), self.inner.flights.clone());
        let (executor, ticket, principal) =
            (prepared.executor(&call.progress), Arc::clone(&call.ticket), call.principal.clone());
        let running = async move {
            let mut run = None;
            let source = ["code", "command"].iter().find_map(|name| input.get(name)?.as_str()).unwrap_or_default();
            let began = |run_id: &str| {
                run = Some(run_id.to_owned());
                let (run_id, source) = (run_id.to_owned(), source.to_owned());
                let called_off = ticket.began(&run_id);
                flights.add(InFlightRun { run_id: run_id.clone(), principal, source, started_at: now_ms() });
                drop(starting);
                if called_off {
                    let code_mode = code_mode.clone();
                    tokio::spawn(async move { code_mode.abort(&run_id).await });
                }
            };
            let result = code_mode.exec_json_begun(&executor, &prepared.config, &tool_call_id, &input, began).await;
            if let Some(run_id) = run {
                flights.remove(&run_id);
            }
            result
        };
        match self.in_time(call, running).await {
            Some(result) => result,
            None => match call.ticket.run_id() {
                Some(run_id) => still_waiting(&run_id),
                None => failed("no sandbox worker was free in time; try again"),
            },
        }
    }

    /// Goes on with a run.
    pub(crate) async fn wait(&self, call: &Call, run_id: &str) -> CellResult {
        let prepared = match self.prepared(&call.principal).await {
            Ok(prepared) => prepared,
            Err(error) => return failed(&error.to_string()),
        };
        let Ok(tool_call_id) = random_name() else { return failed("the system has no randomness to give") };
        call.ticket.began(run_id);
        let (executor, run, principal) = (prepared.executor(&call.progress), run_id.to_owned(), call.principal.clone());
        let (code_mode, flights) = (self.inner.code_mode.clone(), self.inner.flights.clone());
        let waiting = async move {
            // The store has it once its first turn is over.
            while flights.has(&run, &principal) {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            code_mode.wait(&executor, &prepared.config, &tool_call_id, &run).await
        };
        self.in_time(call, waiting).await.unwrap_or_else(|| still_waiting(run_id))
    }

    /// A client called its call off: the turn under way ends, and with it what it has asked of others.
    pub(crate) async fn cancel(&self, call: &Call) {
        let Some(run_id) = call.ticket.cancel() else { return };
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

    /// A person's word that came through a client. Whether it counted: somebody else may have been quicker.
    pub(crate) async fn decide(&self, principal: &Principal, approval_id: &str, decision: &Decision) -> bool {
        let by = format!("{} (asked through the client)", principal.name());
        match self.inner.code_mode.decide(approval_id, decision, &by).await {
            Ok(_) | Err(DecisionRefused::NotPending) => true,
            Err(DecisionRefused::TooManyRules) => {
                // The person agreed to this call as well.
                let once = Decision::Approve { edited_input: None, reach: ApprovalScope::Once };
                self.inner.code_mode.decide(approval_id, &once, &by).await.is_ok()
            }
            Err(DecisionRefused::Unfit(_) | DecisionRefused::Store(_)) => false,
        }
    }

    /// Nothing where the call's time is over, or the process ends. What comes of a turn that nobody waits for any more
    /// is kept.
    async fn in_time(
        &self,
        call: &Call,
        turn: impl Future<Output = CellResult> + Send + 'static,
    ) -> Option<CellResult> {
        let (tell, told) = oneshot::channel();
        let (unsaid, principal) = (self.inner.unsaid.clone(), call.principal.clone());
        tokio::spawn(async move {
            if let Err(mut result) = tell.send(turn.await) {
                unsaid.keep(&principal, &mut result);
            }
        });
        tokio::select! {
            done = told => done.ok(),
            () = tokio::time::sleep_until(call.until) => None,
            () = self.left() => None,
        }
    }
}

/// What a model is told of a run that goes on without it.
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
