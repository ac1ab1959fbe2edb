//! What the calls of a run share, and one call while this process works on it.

use std::sync::Arc;
use std::time::Duration;

use catalog::{Catalog, View};
use contract::config::pattern::Pattern;
use contract::ids::{CallId, RunId};
use contract::scope::Scope;
use contract::tool::{Repeat, Source, ToolSpec};
use serde_json::Value;
use store::{CommitError, Store};
use tracing::Span;

use super::hooks::{HOOK_DEADLINE, Hook, ToolEvent, notify};
use super::stored_results::{ResultOf, store_large_texts};
use super::transcript::RecordedCall;
use super::{CallEnd, CallRequest};
use crate::clock::now_ms;
use crate::journal::Journal;
use crate::outcome::Outcome;
use crate::sink::{ProgressSink, Sink};
use crate::source::{CallToken, Routes, ToolUpdate};

/// The default time a person has to answer an approval request or a question.
const APPROVAL_MS: i64 = 15 * 60 * 1000;

/// The identity of sources that are part of the program itself.
const EMBEDDED: &str = "embedded";

/// What all calls of one run share.
#[derive(Clone, Debug)]
pub(crate) struct CallContext {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) routes: Arc<Routes>,
    pub(crate) hooks: Arc<[Arc<dyn Hook>]>,
    /// Patterns of the tools that require a person's approval, unless a standing rule allows them.
    pub(crate) ask: Arc<[Pattern]>,
    /// Receives progress updates of the run's tools.
    pub(crate) progress: Sink<ToolUpdate>,
    pub(crate) scope: Arc<Scope>,
    /// The names of the tools that the model sees, for telemetry. Empty if the host did not say.
    pub(crate) visible_tools: Arc<[String]>,
    pub(crate) approval_ms: i64,
    pub(crate) hook_deadline: Duration,
    /// How long calls of client tools wait for other calls of their cell.
    pub(crate) client_wait: Option<Duration>,
}

impl CallContext {
    pub(crate) fn new(catalog: Arc<Catalog>, routes: Routes, scope: Scope) -> Self {
        Self {
            catalog,
            routes: Arc::new(routes),
            hooks: Arc::default(),
            ask: Arc::default(),
            progress: Sink::default(),
            scope: Arc::new(scope),
            visible_tools: Arc::default(),
            approval_ms: APPROVAL_MS,
            hook_deadline: HOOK_DEADLINE,
            client_wait: None,
        }
    }

    pub(crate) fn needs_approval(&self, tool: &ToolSpec) -> bool {
        self.ask.iter().any(|pattern| catalog::policy::restricts(pattern, &tool.id))
    }

    pub(crate) fn may_repeat(&self, id: &str) -> bool {
        self.catalog.get(id).is_some_and(|tool| tool.repeat != Repeat::Never)
    }

    /// Returns the error message for an unknown tool id. It suggests only ids that a cell may use.
    pub(crate) fn unknown(&self, id: &str) -> String {
        self.catalog.unknown_tool_message(View::CodeMode, id, "tools.search(query)")
    }

    /// Returns the source identity that standing approvals of this tool are bound to, beside its definition. Tools of
    /// the embedding program share one identity. `None` for the tool of an MCP server whose source has no identity.
    pub(crate) fn source_identity(&self, tool: &ToolSpec) -> Option<String> {
        let identity = self.routes.source_of(&tool.id)?.identity();
        identity.or_else(|| (tool.id.source() != Source::Mcp).then(|| EMBEDDED.to_owned()))
    }
}

/// Returns the span that the log lines of a run belong to. It has the level of errors, like all spans that carry ids: a
/// filter that shows only warnings would otherwise drop the ids of those warnings.
pub fn run_span(run_id: &RunId) -> Span {
    tracing::error_span!("run", run = %run_id)
}

/// A call of a run, while this process makes or resumes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) context: &'a CallContext,
    pub(crate) journal: &'a Journal,
    pub(crate) request: &'a CallRequest,
}

impl<'a> Call<'a> {
    /// Returns the span that the log lines of this call belong to.
    pub(crate) fn span(self) -> Span {
        tracing::error_span!("call", call = self.number().0, tool = %self.request.id)
    }

    /// Returns the span of a call whose run has no driver, inside the span of that run.
    pub(crate) fn span_in_run(self) -> Span {
        run_span(self.run_id()).in_scope(|| self.span())
    }

    pub(crate) fn number(self) -> CallId {
        self.request.call
    }

    pub(crate) fn run_id(self) -> &'a RunId {
        self.journal.run_id()
    }

    pub(crate) fn store(self) -> &'a Store {
        self.journal.store()
    }

    /// Returns the tool, if the catalog has it.
    pub(crate) fn tool(self) -> Option<&'a ToolSpec> {
        self.context.catalog.get(&self.request.id)
    }

    pub(crate) fn token(self) -> CallToken {
        CallToken { run: self.run_id().clone(), call: self.number() }
    }

    /// Returns the sink for the tool's progress updates: the request's own, or else the run's.
    pub(crate) fn updates(self) -> ProgressSink {
        if self.request.updates.is_set() || !self.context.progress.is_set() {
            return self.request.updates.clone();
        }
        let progress = self.context.progress.clone();
        let (run_id, tool_call_id) = (self.run_id().clone(), self.request.tool_call_id());
        let tool_id = self.request.id.clone();
        ProgressSink::to(move |update| {
            let (run_id, tool_call_id, tool_id) = (run_id.clone(), tool_call_id.clone(), tool_id.clone());
            progress.send(ToolUpdate { run_id, tool_call_id, tool_id, update });
        })
    }

    /// Returns the description of the call that hooks receive.
    pub(crate) fn event(self, input: &Value) -> ToolEvent {
        let tool = self.tool();
        ToolEvent {
            tool_name: tool.map_or_else(String::new, |tool| tool.id.name().to_owned()),
            tool_id: tool.map(|tool| tool.id.as_str().to_owned()),
            // Only hooks read it, and it may be large.
            params: if self.context.hooks.is_empty() { Value::Null } else { input.clone() },
            tool_kind: None,
            tool_input_kind: None,
            run_id: self.run_id().to_string(),
            tool_call_id: self.request.tool_call_id(),
            scope: Arc::clone(&self.context.scope),
        }
    }

    /// Stores the large texts of an outcome, and puts handles in their places.
    pub(crate) async fn store_large_texts(self, outcome: Outcome) -> Outcome {
        let of = ResultOf { journal: self.journal, call: self.number(), tool: &self.request.id };
        store_large_texts(of, outcome).await
    }

    /// Stores the large texts of an outcome, passes it to hooks and transcript, and adds the tool to its labels.
    pub(crate) async fn record(self, event: &ToolEvent, outcome: Outcome) -> Outcome {
        let mut outcome = self.store_large_texts(outcome).await;
        if let Outcome::Returned(returned) = &mut outcome {
            returned.labels.push(self.request.id.clone());
        }
        notify(&self.context.hooks, self.context.hook_deadline, event, &outcome).await;
        if let Some(tool) = self.tool() {
            self.journal.entry(RecordedCall::new(self.request, tool).result_entry(&outcome));
        }
        // Counted from when the cell made the call, so it includes the time in which the call was parked.
        let duration_ms = self.journal.since(self.number()).map(|since| now_ms().saturating_sub(since));
        tracing::info!(outcome = outcome.kind(), duration_ms, "call settled");
        outcome
    }

    /// Settles the call with an outcome, and passes it to hooks and transcript.
    pub(crate) async fn record_outcome(self, outcome: Outcome) -> CallEnd {
        let event = self.event(&self.request.input);
        CallEnd::Settled(self.record(&event, outcome).await)
    }

    /// Settles the call as failed without making it. The transcript shows it like any failed call.
    pub(crate) fn refuse(self, message: String) -> CallEnd {
        tracing::info!(outcome = "refused", "call settled");
        tracing::debug!(message, "the call was refused");
        let outcome = Outcome::Failed(message);
        if let Some(tool) = self.tool() {
            let recorded = RecordedCall::new(self.request, tool);
            self.journal.entry(recorded.call_entry(&self.request.input));
            self.journal.entry(recorded.result_entry(&outcome));
        }
        CallEnd::Settled(outcome)
    }

    /// Returns the outcome that the store has for the call.
    pub(crate) async fn stored_outcome(self) -> Result<Outcome, CommitError> {
        let row = self.store().call(self.run_id(), self.number()).await?;
        Ok(row.and_then(|row| row.outcome).map_or(Outcome::Unknown, |outcome| Outcome::from_json(&outcome)))
    }
}
