//! The server independent of its transport: tools for principals, runs that outlive their calls, approvals.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use catalog::{ChosenBy, Surface, SurfaceChoice};
use codemode::{CodeMode, ExecRequest, run_telemetry};
use contract::cell::{CellResult, Telemetry};
use contract::ids::{ApprovalId, RunId};
use contract::limits::MAX_RESOURCE_READS;
use executor::clock::now_ms;
use executor::run::PrepareError;
use executor::{Executor, random_name};
use serde_json::{Map, Value};
use store::{Approval, Decision};
use telemetry::LogIgnored;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::CALL_AT_MOST;
use super::answer::{failed, invalid_config, unwritten};
use super::approvals;
use super::calls::{Call, InFlightRun, InFlightRuns, OwnWork};
use super::direct::{Claim, DirectCalls, MidCallQuestions, RunningCall};
use super::prepared::{Cache, OfferedSources, PreparedTools, Settings, exec_at_most};
use super::principal::{Principal, PrincipalScope};
use super::recovery::{self, UndeliveredOutput, WaitTarget};
use super::tools::Tool;

/// How long after the start calls wait for the upstream servers to be ready.
const MAX_SETTLE_TIME: Duration = Duration::from_secs(10);

/// How long `tools/list` waits for upstream servers whose tools are not known yet. Clients send their first request to a
/// model without the tools of a server that takes a second; they are notified when the list changes.
const MAX_LIST_WAIT: Duration = Duration::from_millis(300);

/// How long `tools/list` waits for upstream servers if their tools are shown directly: tools that are missing in the
/// first list are lost for clients that ignore notifications.
const MAX_DIRECT_LIST_WAIT: Duration = Duration::from_secs(5);
/// How long a run waits for plugins to create the scopes of their namespaces.
const MAX_NAMESPACE_WAIT: Duration = Duration::from_secs(5);

/// The MCP server that agents call. A handle: clones refer to the same server.
#[derive(Clone, Debug)]
pub struct McpService {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    code_mode: CodeMode,
    settings: Settings,
    offered: watch::Receiver<OfferedSources>,
    /// From this time on calls no longer wait for upstream servers that are not ready.
    settle_by: Instant,
    prepared: Cache,
    in_flight: InFlightRuns,
    undelivered: UndeliveredOutput,
    direct_calls: DirectCalls,
    resource_reads: Semaphore,
    shutdown: CancellationToken,
}

impl McpService {
    pub fn new(code_mode: CodeMode, settings: Settings, offered: watch::Receiver<OfferedSources>) -> Self {
        let prepared = Cache::new(offered.clone());
        let inner = Inner {
            code_mode,
            settings,
            offered,
            settle_by: Instant::now() + MAX_SETTLE_TIME,
            prepared,
            in_flight: InFlightRuns::default(),
            undelivered: UndeliveredOutput::default(),
            direct_calls: DirectCalls::default(),
            resource_reads: Semaphore::new(MAX_RESOURCE_READS),
            shutdown: CancellationToken::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Starts the shutdown: calls stop waiting and return the current state of their runs.
    pub fn begin_shutdown(&self) {
        self.inner.shutdown.cancel();
    }

    /// Returns true if no run is in progress in this process.
    pub fn is_idle(&self) -> bool {
        self.inner.in_flight.is_empty() && self.inner.direct_calls.is_empty() && self.inner.code_mode.live_runs() == 0
    }

    /// Returns true if the server can answer calls.
    pub async fn is_ready(&self) -> bool {
        !self.is_shutting_down()
            && self.inner.offered.borrow().settled
            && self.inner.code_mode.store().live_runs().await.is_ok()
    }

    /// Returns true if every upstream server has listed its tools or failed.
    pub(crate) fn is_settled(&self) -> bool {
        self.inner.offered.borrow().settled
    }

    pub(crate) fn is_shutting_down(&self) -> bool {
        self.inner.shutdown.is_cancelled()
    }

    pub(crate) async fn shutdown_started(&self) {
        self.inner.shutdown.cancelled().await;
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    pub(crate) fn code_mode(&self) -> &CodeMode {
        &self.inner.code_mode
    }

    /// Waits until the process may read another part of a stored output. The permit is held while it is read.
    pub(crate) async fn resource_read(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.inner.resource_reads.acquire().await.ok()
    }

    pub(crate) fn undelivered(&self) -> &UndeliveredOutput {
        &self.inner.undelivered
    }

    /// Returns a receiver that is notified of every change of the offered tools.
    pub(crate) fn changes(&self) -> watch::Receiver<OfferedSources> {
        self.inner.offered.clone()
    }

    /// Returns the tools for a list of tools, which must not take long.
    pub(crate) async fn prepared_for_list(&self, principal: &Principal) -> Result<Arc<PreparedTools>, PrepareError> {
        let may_be_direct = match self.known(principal) {
            Ok(known) => {
                matches!(known.surface, Surface::Direct(_))
                    || known.report.chosen_by == ChosenBy::NoTools
                    || self.inner.settings.surface == Some(SurfaceChoice::Auto)
            }
            Err(_) => false,
        };
        let wait = if may_be_direct { MAX_DIRECT_LIST_WAIT } else { MAX_LIST_WAIT };
        self.prepared_by(principal, Instant::now() + wait, wait).await
    }

    /// Returns the tools as far as they are known now.
    pub(crate) fn known(&self, principal: &Principal) -> Result<Arc<PreparedTools>, PrepareError> {
        self.inner.prepared.get(&self.inner.settings, principal)
    }

    /// Returns the tool that a client calls by this name. Waits for upstream servers that are starting, except for `exec`
    /// and `wait`.
    pub(crate) async fn called_tool(
        &self,
        principal: &Principal,
        name: &str,
        arguments: Option<&Map<String, Value>>,
    ) -> Result<Option<(Arc<PreparedTools>, Tool)>, PrepareError> {
        // Read first: otherwise the servers could become ready in between, and their tools would be missing.
        let is_settled = self.is_settled();
        let known = self.known(principal)?;
        match known.tool(name) {
            // `exec` and `wait` wait for the servers themselves, if they need them.
            Some(tool @ (Tool::Exec | Tool::Wait)) => return Ok(Some((known, tool))),
            Some(tool) if is_settled => return Ok(Some((known, tool))),
            Some(_) | None => {}
        }
        if self.continues_run(principal, &known, name, arguments).await {
            return Ok(Some((known, Tool::Wait)));
        }
        if is_settled {
            return Ok(None);
        }
        let prepared = self.prepared(principal).await?;
        let tool = prepared.tool(name);
        Ok(tool.map(|tool| (prepared, tool)))
    }

    /// Whether a call is a `wait` for a run of this principal, although `wait` is not listed: a cell that was started
    /// before the surface changed can still be resumed.
    async fn continues_run(
        &self,
        principal: &Principal,
        known: &PreparedTools,
        name: &str,
        arguments: Option<&Map<String, Value>>,
    ) -> bool {
        let run_id = arguments.and_then(|given| given.get("runId")).and_then(Value::as_str);
        match (known.prefix().strip(name), run_id) {
            (Some("wait"), Some(run_id)) => {
                let found = self.inner.code_mode.has_run(&principal.scope(), &run_id.trim().into()).await;
                found.unwrap_or(false)
            }
            _ => false,
        }
    }

    /// Returns the tools for a run. Waits for upstream servers that are starting.
    pub(crate) async fn prepared(&self, principal: &Principal) -> Result<Arc<PreparedTools>, PrepareError> {
        self.prepared_by(principal, self.inner.settle_by, MAX_NAMESPACE_WAIT).await
    }

    async fn prepared_by(
        &self,
        principal: &Principal,
        deadline: Instant,
        namespaces_limit: Duration,
    ) -> Result<Arc<PreparedTools>, PrepareError> {
        let mut offered = self.inner.offered.clone();
        let settled = offered.wait_for(|offered| offered.settled);
        // An upstream server that becomes ready after this time is listed when it does.
        if tokio::time::timeout_at(deadline.min(self.inner.settle_by), settled).await.is_err() {
            tracing::debug!("some upstream servers are not ready; their tools are listed when they are");
        }
        let unprepared = {
            let offered = self.inner.offered.borrow();
            (!offered.local.preparations.is_empty()).then(|| offered.local.clone())
        };
        if let Some(local) = unprepared {
            local.make_ready(&principal.scope(), namespaces_limit).await;
        }
        self.inner.prepared.get(&self.inner.settings, principal)
    }

    /// Returns the tools that each principal was last shown.
    pub(crate) fn shown(&self) -> HashMap<Principal, Arc<PreparedTools>> {
        self.inner.prepared.shown()
    }

    /// Runs a cell. The run continues if the client stops waiting for the response.
    pub(crate) async fn exec(&self, call: &Call) -> CellResult {
        let starting = self.inner.in_flight.starting(&call.principal, &call.client);
        let prepared = match self.prepared(&call.principal).await {
            Ok(prepared) => prepared,
            Err(error) => return failed(&error.to_string()),
        };
        if let Some(why) = self.inner.offered.borrow().invalid.clone() {
            return invalid_config(&why).with_telemetry(prepared.telemetry());
        }
        let Ok(tool_call_id) = random_name() else {
            return failed("cannot read system randomness").with_telemetry(prepared.telemetry());
        };
        let input = Value::Object(call.arguments.clone());
        let (code_mode, in_flight) = (self.inner.code_mode.clone(), self.inner.in_flight.clone());
        let executor = prepared.executor(&call.progress).with_client(call.client.as_str());
        let (handle, until) = (Arc::clone(&call.handle), call.until);
        let (principal, client) = (call.principal.clone(), call.client.clone());
        let (waiting_executor, telemetry) = (executor.clone(), prepared.telemetry());
        let running = async move {
            let mut run = None;
            let source = ["code", "command"].iter().find_map(|name| input.get(name)?.as_str()).unwrap_or_default();
            let on_start = |run_id: &RunId| {
                run = Some(run_id.clone());
                let (run_id, source) = (run_id.clone(), source.to_owned());
                let cancelled = handle.attach_run(&run_id);
                let started_at = now_ms();
                in_flight.add(InFlightRun { run_id: run_id.clone(), principal, client, source, started_at });
                drop(starting);
                if cancelled {
                    let code_mode = code_mode.clone();
                    tokio::spawn(async move { code_mode.abort(&run_id).await });
                }
            };
            let mut request = ExecRequest::from(&input).on_start(on_start);
            if let Some(hold) = prepared.exec_hold(until) {
                request = request.hold_for(hold);
            }
            let result = code_mode.exec(&executor, &prepared.config, &tool_call_id, request).await;
            if let Some(run_id) = run {
                in_flight.remove(&run_id);
            }
            result
        };
        match self.run_until_deadline(call, running).await {
            Some(result) => result,
            None => match call.handle.run_id() {
                Some(run_id) => self.still_waiting(&waiting_executor, &run_id).await,
                None => failed("no sandbox worker was free in time; try again").with_telemetry(telemetry),
            },
        }
    }

    /// Returns the result of a call that ends before its run's turn does.
    async fn still_waiting(&self, executor: &Executor, run_id: &RunId) -> CellResult {
        let stored = self.inner.code_mode.waiting(executor, run_id).await;
        // A run in its first turn may not be written yet.
        stored.unwrap_or_else(|| {
            let telemetry = Telemetry { exec_count: 1, ..run_telemetry::without_run(executor) };
            unwritten(run_id).with_telemetry(telemetry)
        })
    }

    /// Returns how long a call may take.
    pub(crate) fn call_at_most(&self, principal: &Principal, name: &str) -> Duration {
        if self.inner.settings.tool_prefix.strip(name) != Some(Tool::Exec.as_str()) {
            return CALL_AT_MOST;
        }
        let offered = self.inner.offered.borrow();
        let config = offered.policy.as_ref().map_or(&self.inner.settings.config, |policy| &policy.config);
        exec_at_most(&config.tools(principal.name()).code_mode)
    }

    /// Resumes a run, or waits for its current turn.
    pub(crate) async fn wait(&self, call: &Call, run_id: &RunId) -> CellResult {
        let prepared = match self.prepared(&call.principal).await {
            Ok(prepared) => prepared,
            Err(error) => return failed(&error.to_string()),
        };
        let Ok(tool_call_id) = random_name() else {
            return failed("cannot read system randomness").with_telemetry(prepared.telemetry());
        };
        call.handle.attach_run(run_id);
        let (executor, run, principal) = (prepared.executor(&call.progress), run_id.clone(), call.principal.clone());
        let waiting_executor = executor.clone();
        let (code_mode, in_flight) = (self.inner.code_mode.clone(), self.inner.in_flight.clone());
        let waiting = async move {
            // The run is in the store once its first turn is over.
            in_flight.wait_for_first_turn(&run, &principal).await;
            code_mode.wait(&executor, &prepared.config, &tool_call_id, &run).await
        };
        match self.run_until_deadline(call, waiting).await {
            Some(result) => result,
            None => self.still_waiting(&waiting_executor, run_id).await,
        }
    }

    /// Starts a tool call without a cell, or continues the same call that was parked before. `Err` is a message.
    pub(crate) async fn call_directly(
        &self,
        call: &Call,
        tool_call_id: &str,
        target: (&str, Value),
        questions: MidCallQuestions,
    ) -> Result<RunningCall, String> {
        let prepared = self.prepared(&call.principal).await.map_err(|error| error.to_string())?;
        let executor = prepared.executor(&call.progress);
        let store = self.inner.code_mode.store();
        self.inner.direct_calls.start(executor, store, tool_call_id, target, questions).await
    }

    /// Continues a parked tool call. `Err` is a message.
    pub(crate) async fn resume_directly(
        &self,
        call: &Call,
        claim: Claim,
        questions: MidCallQuestions,
    ) -> Result<RunningCall, String> {
        let prepared = self.prepared(&call.principal).await.map_err(|error| error.to_string())?;
        let executor = prepared.executor(&call.progress);
        Ok(self.inner.direct_calls.resume(executor, self.inner.code_mode.store(), claim, questions))
    }

    /// Claims the parked tool call of a run, if no other request is working on it.
    pub(crate) fn claim(&self, run_id: &RunId) -> Option<Claim> {
        self.inner.direct_calls.claim(run_id)
    }

    /// Cancels what only a cancelled call worked on, and voids its approvals.
    async fn cancel_own_work(&self, own: OwnWork) {
        match own {
            OwnWork::Running(stop) => stop.cancel(),
            OwnWork::Run(run_id) => {
                self.inner.code_mode.abort(&run_id).await;
                self.inner
                    .code_mode
                    .store()
                    .expire(now_ms())
                    .await
                    .log_ignored("void the approvals of a cancelled call");
            }
        }
    }

    /// Cancels a call at its client's request: aborts its run and the tool calls that it has dispatched.
    pub(crate) async fn cancel(&self, call: &Call) {
        if let Some(own) = call.handle.take_own_work() {
            self.cancel_own_work(own).await;
            return;
        }
        let Some(run_id) = call.handle.cancel() else { return };
        let mine = match self.inner.code_mode.store().run(&run_id).await {
            Ok(Some(row)) => row.scope.admits(&call.principal.scope()),
            Ok(None) => self.inner.in_flight.has(&run_id, &call.principal),
            Err(error) => {
                tracing::warn!(run_id = run_id.as_str(), %error, "a cancelled run cannot be read, so it continues");
                false
            }
        };
        if mine {
            match self.prepared(&call.principal).await {
                Ok(prepared) => self.inner.code_mode.abort_with(&prepared.executor(&call.progress), &run_id).await,
                Err(_) => self.inner.code_mode.abort(&run_id).await,
            };
        }
    }

    /// Finds the run that a `wait` call refers to.
    pub(crate) async fn wait_target(&self, call: &Call) -> WaitTarget {
        let target = recovery::wait_target(&self.inner.code_mode, &self.inner.in_flight, call).await;
        match (target, self.prepared(&call.principal).await) {
            (WaitTarget::Nothing(answer), Ok(prepared)) => {
                WaitTarget::Nothing(answer.with_telemetry(&prepared.telemetry()))
            }
            (target, _) => target,
        }
    }

    /// Returns the open approvals of a waiting run.
    pub(crate) async fn open_approvals(&self, principal: &Principal, result: &CellResult) -> Vec<Approval> {
        approvals::open_approvals(&self.inner.code_mode, principal, result).await
    }

    /// Returns the open approvals of a run.
    pub(crate) async fn open_approvals_of(&self, principal: &Principal, run_id: &RunId) -> Vec<Approval> {
        approvals::open_approvals_of(&self.inner.code_mode, principal, run_id).await
    }

    /// Waits until one of these approvals is decided or expires. Returns false if that does not happen before `until`.
    pub(crate) async fn wait_for_decision(&self, approvals: &[Approval], until: Instant) -> bool {
        approvals::wait_for_decision(&self.inner.code_mode, approvals, until, &self.inner.shutdown).await
    }

    /// Stores a decision that a person made through the client about these approvals. Returns true if one of them is
    /// now decided, by this decision or by an earlier one.
    pub(crate) async fn decide(&self, principal: &Principal, ids: &[ApprovalId], decision: &Decision) -> bool {
        let mut decided = false;
        for approval_id in ids {
            decided |= approvals::decide(&self.inner.code_mode, principal, approval_id, decision).await;
        }
        decided
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
