//! The executor of a run: the public interface of its tool calls. Each method delegates to the module of its topic.

use std::sync::Arc;
use std::time::Duration;

use catalog::Catalog;
use contract::cell::Language;
use contract::config::pattern::Pattern;
use contract::ids::{CallId, RunId};
use contract::scope::Scope;
use serde_json::Value;
use store::{Approval, CallRow, Store, StoreError};
use tracing::Instrument;

use crate::call::context::{Call, CallContext};
use crate::call::direct::{self, DirectCall, DirectRequest, DirectRun};
use crate::call::hooks::{Hook, JudgedCell, ToolEvent, judge_cell, notify};
use crate::call::{CallEnd, CallRequest, approval, dispatch, parked, resume};
use crate::journal::Journal;
use crate::outcome::{Outcome, ToolResult};
use crate::sink::{ProgressSink, Sink, StateSink};
use crate::source::{Routes, ToolUpdate};

/// Makes the tool calls of one run, and direct calls, which have a run of their own.
#[derive(Clone, Debug)]
pub struct Executor {
    context: CallContext,
}

/// Construction.
impl Executor {
    /// Creates an executor that calls the tools of a catalog through these routes, without hooks or approvals.
    pub fn new(catalog: Arc<Catalog>, routes: Routes, scope: Scope) -> Self {
        Self { context: CallContext::new(catalog, routes, scope) }
    }

    /// Sets the hooks that see every call.
    #[must_use]
    pub fn with_hooks(mut self, hooks: Vec<Arc<dyn Hook>>) -> Self {
        self.context.hooks = hooks.into();
        self
    }

    /// Sets the function that receives progress updates of tools. It is called on the task or thread of the tool, so it
    /// must return quickly.
    #[must_use]
    pub fn with_progress_sink(mut self, listener: impl Fn(ToolUpdate) + Send + Sync + 'static) -> Self {
        self.context.progress = Sink::to(listener);
        self
    }

    /// Sets the patterns of the tools that require a person's approval.
    #[must_use]
    pub fn with_approval_patterns(mut self, patterns: Vec<Pattern>) -> Self {
        self.context.ask = patterns.into();
        self
    }

    /// Sets the client that new runs belong to; see [`Scope::client`].
    #[must_use]
    pub fn with_client(mut self, client: &str) -> Self {
        let scope = Scope { client: client.to_owned(), ..self.context.scope.as_ref().clone() };
        self.context.scope = Arc::new(scope);
        self
    }

    /// Sets the agent run that new runs belong to, and whose runs can be resumed; see [`Scope::agent_run_id`].
    #[must_use]
    pub fn with_agent_run(mut self, agent_run_id: &str) -> Self {
        let scope = Scope { agent_run_id: agent_run_id.to_owned(), ..self.context.scope.as_ref().clone() };
        self.context.scope = Arc::new(scope);
        self
    }

    /// Sets how long calls of client tools wait for other calls of their cell before the client receives them. Without
    /// it, they wait until the cell can do nothing else, or its turn ends.
    #[must_use]
    pub fn with_client_wait(mut self, wait: Duration) -> Self {
        self.context.client_wait = Some(wait);
        self
    }

    /// Returns how long calls of client tools wait for other calls of their cell.
    pub fn client_wait(&self) -> Option<Duration> {
        self.context.client_wait
    }

    /// Sets the names of the tools that the model sees, which telemetry reports.
    #[must_use]
    pub fn with_visible_tools(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.context.visible_tools = names.into_iter().collect();
        self
    }

    /// Sets how long a hook may take. A hook that takes longer denies the call.
    #[must_use]
    pub fn with_hook_deadline(mut self, deadline: Duration) -> Self {
        self.context.hook_deadline = deadline;
        self
    }

    /// Sets how long a person has to answer an approval request or a question.
    #[must_use]
    pub fn with_approval_ms(mut self, approval_ms: i64) -> Self {
        self.context.approval_ms = approval_ms;
        self
    }

    /// Returns the tools that the run may see.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.context.catalog
    }

    /// Returns the names of the tools that the model sees. Empty if the host did not set them.
    pub fn visible_tools(&self) -> &[String] {
        &self.context.visible_tools
    }

    /// Returns the scope that calls are made for.
    pub fn scope(&self) -> &Arc<Scope> {
        &self.context.scope
    }
}

/// Calls of cells.
impl Executor {
    /// Makes a call, or parks it until it is approved.
    pub async fn call(&self, journal: &Journal, request: &CallRequest) -> CallEnd {
        let call = self.call_of(journal, request);
        // On the heap, because this future is moved several times before it runs.
        Box::pin(dispatch::start(call)).instrument(call.span()).await
    }

    /// Retries a call that was dispatched before a crash, if its tool may be called twice. Otherwise settles the call
    /// as [`Outcome::Unknown`].
    pub async fn retry(&self, journal: &Journal, request: &CallRequest) -> CallEnd {
        let call = self.call_of(journal, request);
        resume::retry(call).instrument(call.span()).await
    }

    /// Settles a call with an outcome that was stored, for example by another process, and passes it to hooks and
    /// transcript like any other outcome.
    pub async fn record_outcome(&self, journal: &Journal, request: &CallRequest, outcome: Outcome) -> CallEnd {
        let call = self.call_of(journal, request);
        call.record_outcome(outcome).instrument(call.span()).await
    }

    /// Returns the decisions on the latest approval request or questions of a call, expired ones included. `None` while
    /// any of them is open.
    pub async fn decisions_for(&self, journal: &Journal, call: CallId) -> Result<Option<Vec<Approval>>, StoreError> {
        approval::decisions_for(journal, call).await
    }

    /// Resumes a call after people have decided: about the call itself, or by answering its tool's questions.
    pub async fn resume_decided(&self, journal: &Journal, request: &CallRequest, decisions: &[Approval]) -> CallEnd {
        let call = self.call_of(journal, request);
        resume::resume_decided(call, decisions).instrument(call.span()).await
    }

    /// Follows a call that was parked with a ticket until its source settles it, or parks it for another reason.
    ///
    /// Returns `None` if the call stays parked as it is: it has no ticket, its source cannot be asked now, or the source
    /// returns the same ticket. If this future is dropped, the call also stays parked, and the next holder of the run
    /// can follow it.
    pub async fn follow(&self, journal: &Journal, request: &CallRequest) -> Option<CallEnd> {
        let call = self.call_of(journal, request);
        resume::follow(call).instrument(call.span()).await
    }

    /// Asks the sources of these calls to cancel them, in the background. Calls without a ticket are skipped.
    pub fn cancel(&self, run_id: &RunId, calls: &[CallRow]) {
        parked::cancel(&self.context, run_id, calls);
    }

    /// Asks the sources of these calls to cancel them, and waits until they have answered: for a process that is about
    /// to end.
    pub async fn cancel_and_wait(&self, run_id: &RunId, calls: &[CallRow]) {
        parked::cancel_and_wait(&self.context, run_id, calls).await;
    }

    fn call_of<'a>(&'a self, journal: &'a Journal, request: &'a CallRequest) -> Call<'a> {
        Call { context: &self.context, journal, request }
    }
}

/// Direct calls, without a cell.
impl Executor {
    /// Makes one call of the tool with this id. If the call is parked, its end is `Parked`, and
    /// [`resume_direct_call`](Self::resume_direct_call) returns its outcome once that is stored.
    pub async fn call_directly(
        &self,
        store: &Store,
        tool_call_id: &str,
        tool_id: &str,
        input: Value,
        updates: ProgressSink,
    ) -> Result<DirectCall, getrandom::Error> {
        let run = self.open_direct_call(store, DirectRequest::new(tool_call_id, tool_id, input, updates))?;
        Ok(self.make_direct_call(run, std::future::pending()).await)
    }

    /// Prepares one call, so that its run is known before it is made. Nothing is written yet.
    pub fn open_direct_call(&self, store: &Store, request: DirectRequest) -> Result<DirectRun, getrandom::Error> {
        DirectRun::open(&self.context, store, request)
    }

    /// Makes a call that was prepared. If `cancelled` completes first, the call is cancelled and its run aborted.
    pub async fn make_direct_call(&self, run: DirectRun, cancelled: impl Future<Output = ()>) -> DirectCall {
        run.make(&self.context, cancelled).await
    }

    /// Makes one call of a tool, for a caller that cannot ask for its outcome later: waits up to `hold`
    /// while the call is parked, then cancels it.
    pub async fn call_directly_within(
        &self,
        store: &Store,
        request: DirectRequest,
        hold: Duration,
    ) -> Result<DirectCall, getrandom::Error> {
        let run = self.open_direct_call(store, request)?;
        Ok(run.make_within(&self.context, hold).await)
    }

    /// Returns the runs of parked direct calls of this scope that have this name (`DirectRequest::name`), oldest first.
    pub async fn parked_direct_calls(&self, store: &Store, name: &str) -> Result<Vec<RunId>, StoreError> {
        direct::parked_calls(&self.context, store, name).await
    }

    /// Resumes a parked direct call, possibly in another process, with a decision or an outcome that was stored since.
    /// If there is neither, the call stays parked.
    pub async fn resume_direct_call(&self, store: &Store, run_id: &RunId, updates: ProgressSink) -> DirectCall {
        self.resume_direct_call_until(store, run_id, (updates, StateSink::default()), std::future::pending()).await
    }

    /// Resumes a parked direct call. If `cancelled` completes first, the call is cancelled and its run aborted.
    pub async fn resume_direct_call_until(
        &self,
        store: &Store,
        run_id: &RunId,
        sinks: (ProgressSink, StateSink),
        cancelled: impl Future<Output = ()>,
    ) -> DirectCall {
        direct::resume(&self.context, store, run_id, sinks, cancelled).await
    }
}

/// Hooks around a control call: `exec` itself.
impl Executor {
    /// Runs the hooks before a cell. The error is the reason why a hook blocked the cell.
    pub async fn before_cell(
        &self,
        tool_call_id: &str,
        params: Value,
        language: Option<Language>,
    ) -> Result<JudgedCell, String> {
        let event = ToolEvent::of_cell(&self.context.scope, tool_call_id, params, language);
        judge_cell(&self.context.hooks, self.context.hook_deadline, event).await
    }

    /// Runs the hooks after a cell.
    pub async fn after_cell(&self, event: &ToolEvent, result: Value) {
        let outcome = Outcome::Returned(ToolResult::json(result));
        notify(&self.context.hooks, self.context.hook_deadline, event, &outcome).await;
    }

    /// Whether any hook is set.
    pub fn has_hooks(&self) -> bool {
        !self.context.hooks.is_empty()
    }
}
