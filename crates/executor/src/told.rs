//! Reports a call to hooks, to the transcript and to the progress sink.

use std::sync::Arc;

use serde_json::Value;

use crate::door::Executor;
use crate::hooks::{ToolEvent, notify};
use crate::journal::Journal;
use crate::listener::ProgressSink;
use crate::record::recorded;
use crate::request::{CallEnd, CallRequest};
use crate::source::{Outcome, ToolUpdate};

impl Executor {
    /// Returns the sink for the tool's progress updates: the request's own, or else the run's.
    pub(crate) fn updates(&self, journal: &Journal, request: &CallRequest) -> ProgressSink {
        let Some(listener) = self.listener.0.clone().filter(|_| request.updates.0.is_none()) else {
            return request.updates.clone();
        };
        let (run_id, tool_call_id) = (journal.run_id().to_owned(), request.tool_call_id());
        let tool_id = request.id.clone();
        ProgressSink::to(move |update| {
            let (run_id, tool_call_id, tool_id) = (run_id.clone(), tool_call_id.clone(), tool_id.clone());
            listener(ToolUpdate { run_id, tool_call_id, tool_id, update });
        })
    }

    /// Passes the outcome of a call to hooks and transcript, and adds the tool to its labels.
    pub(crate) async fn record(
        &self,
        journal: &Journal,
        request: &CallRequest,
        event: &ToolEvent,
        mut outcome: Outcome,
    ) -> Outcome {
        if let Outcome::Returned(returned) = &mut outcome {
            returned.labels.push(request.id.clone());
        }
        notify(&self.hooks, self.hook_deadline, event, &outcome).await;
        if let Some(tool) = self.catalog.get(&request.id) {
            journal.entry(recorded(request, tool).result(&outcome));
        }
        outcome
    }

    /// Settles a call as failed without making it. The transcript shows it like any failed call.
    pub(crate) fn refuse(&self, journal: &Journal, request: &CallRequest, message: String) -> CallEnd {
        let outcome = Outcome::Failed(message);
        if let Some(tool) = self.catalog.get(&request.id) {
            let recorded = recorded(request, tool);
            journal.entry(recorded.made(&request.input));
            journal.entry(recorded.result(&outcome));
        }
        CallEnd::Settled(outcome)
    }

    pub(crate) fn event(&self, journal: &Journal, request: &CallRequest, input: &Value) -> ToolEvent {
        let tool = self.catalog.get(&request.id);
        ToolEvent {
            tool_name: tool.map_or_else(String::new, |tool| tool.id.name().to_owned()),
            tool_id: tool.map(|tool| tool.id.as_str().to_owned()),
            // Only hooks read it, and it may be large.
            params: if self.hooks.is_empty() { Value::Null } else { input.clone() },
            tool_kind: None,
            tool_input_kind: None,
            run_id: journal.run_id().to_owned(),
            tool_call_id: request.tool_call_id(),
            scope: Arc::clone(&self.scope),
        }
    }
}
