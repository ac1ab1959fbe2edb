//! Tool calls that clients make without a cell: of tools that are shown directly, and of `tool_call`.
//!
//! A call is made at once and held open until its tool answers. A call that waits for a person is parked in the store;
//! if the client's request ends first, the same call, repeated by the same principal, continues the parked one. So a
//! tool is called once for each approval, and a decision that comes late is not lost.

use std::collections::HashSet;
use std::sync::Arc;

use contract::ids::RunId;
use executor::{DirectCall, DirectRequest, Executor, ProgressSink, StateSink, internal_message};
use parking_lot::Mutex;
use serde_json::Value;
use sha2::{Digest, Sha256};
use store::Store;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use contract::cell::PendingState;

/// The runs of direct calls that a request of this process is working on. A repeated call leaves them alone: two equal
/// calls at the same time are two calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct DirectCalls(Arc<Mutex<HashSet<RunId>>>);

/// Keeps a run among those that a request is working on, until it is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    calls: DirectCalls,
    run_id: RunId,
}

impl Claim {
    pub(crate) fn run_id(&self) -> &RunId {
        &self.run_id
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.calls.0.lock().remove(&self.run_id);
    }
}

/// A step of a direct call that this process is working on: making it, or resuming it.
#[derive(Debug)]
pub(crate) struct RunningCall {
    pub(crate) claim: Claim,
    /// The step continues if the request ends first.
    pub(crate) step: JoinHandle<DirectCall>,
    /// `Approval` while the tool asks a person a question.
    pub(crate) states: watch::Receiver<PendingState>,
    /// Cancels the call at its tool.
    pub(crate) stop: CancellationToken,
}

/// Whether a tool may ask its questions while its call is in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MidCallQuestions {
    /// The client can show a form while the call is open.
    Asked,
    Declined,
}

impl MidCallQuestions {
    fn sink(self) -> (StateSink, watch::Receiver<PendingState>) {
        let (sender, states) = watch::channel(PendingState::Running);
        let sink = match self {
            Self::Asked => StateSink::to(move |state| {
                sender.send_replace(state);
            }),
            Self::Declined => StateSink::default(),
        };
        (sink, states)
    }
}

impl DirectCalls {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Claims a run, or returns `None` if another request is working on it.
    pub(crate) fn claim(&self, run_id: &RunId) -> Option<Claim> {
        let is_new = self.0.lock().insert(run_id.clone());
        is_new.then(|| Claim { calls: self.clone(), run_id: run_id.clone() })
    }

    /// Continues a parked call of the same tool with the same arguments, or makes a new call. `Err` is a message.
    pub(crate) async fn start(
        &self,
        executor: Executor,
        store: &Store,
        tool_call_id: &str,
        (id, arguments): (&str, Value),
        questions: MidCallQuestions,
    ) -> Result<RunningCall, String> {
        let name = call_name(id, &arguments);
        let parked = executor.parked_direct_calls(store, &name).await.map_err(|error| {
            let advice = "the store cannot be read, so the tool was not called; try again";
            internal_message("find parked tool calls", &error, advice)
        })?;
        for run_id in &parked {
            if let Some(claim) = self.claim(run_id) {
                return Ok(self.resume(executor, store, claim, questions));
            }
        }
        let (states, watched) = questions.sink();
        let request = DirectRequest {
            states,
            name: Some(name),
            ..DirectRequest::new(tool_call_id, id, arguments, ProgressSink::default())
        };
        let run = executor.open_direct_call(store, request).map_err(no_randomness)?;
        let claim = self.claim(run.run_id()).ok_or("two calls have the same run; try again")?;
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let step = tokio::spawn(async move { executor.make_direct_call(run, stopped).await });
        Ok(RunningCall { claim, step, states: watched, stop })
    }

    /// Continues a parked call with what was decided since.
    pub(crate) fn resume(
        &self,
        executor: Executor,
        store: &Store,
        claim: Claim,
        questions: MidCallQuestions,
    ) -> RunningCall {
        let (states, watched) = questions.sink();
        let stop = CancellationToken::new();
        let (store, run_id, stopped) = (store.clone(), claim.run_id.clone(), stop.clone().cancelled_owned());
        let step = tokio::spawn(async move {
            executor.resume_direct_call_until(&store, &run_id, (ProgressSink::default(), states), stopped).await
        });
        RunningCall { claim, step, states: watched, stop }
    }
}

fn no_randomness(error: impl std::fmt::Display) -> String {
    format!("cannot read system randomness, so the tool was not called: {error}")
}

/// Returns the name that a call of this tool with these arguments has while it is parked. Equal arguments give equal
/// names, in whatever order their keys are.
fn call_name(id: &str, arguments: &Value) -> String {
    let mut hash = Sha256::new();
    hash.update((id.len() as u64).to_le_bytes());
    hash.update(id.as_bytes());
    write_sorted(arguments, &mut hash);
    hex::encode(hash.finalize())
}

/// Hashes a value with the keys of its objects in order. Its depth is bounded by the parser of messages.
fn write_sorted(value: &Value, hash: &mut Sha256) {
    match value {
        Value::Object(fields) => {
            let mut keys: Vec<&String> = fields.keys().collect();
            keys.sort_unstable();
            hash.update(b"{");
            for key in keys {
                hash.update(Value::from(key.as_str()).to_string().as_bytes());
                hash.update(b":");
                write_sorted(fields.get(key).unwrap_or(&Value::Null), hash);
                hash.update(b",");
            }
            hash.update(b"}");
        }
        Value::Array(items) => {
            hash.update(b"[");
            for item in items {
                write_sorted(item, hash);
                hash.update(b",");
            }
            hash.update(b"]");
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => hash.update(value.to_string().as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use contract::ids::RunId;
    use serde_json::json;

    use super::{DirectCalls, call_name};

    #[test]
    fn a_call_is_found_by_its_tool_and_arguments_in_any_order() {
        let name = call_name("mcp:s:t", &json!({"a": 1, "b": {"c": [1, 2], "d": null}}));
        assert_eq!(name, call_name("mcp:s:t", &json!({"b": {"d": null, "c": [1, 2]}, "a": 1})));
        for (id, arguments) in [
            ("mcp:s:u", json!({"a": 1, "b": {"c": [1, 2], "d": null}})),
            ("mcp:s:t", json!({"a": 1, "b": {"c": [2, 1], "d": null}})),
            ("mcp:s:t", json!({"a": "1", "b": {"c": [1, 2], "d": null}})),
            ("mcp:s:t", json!({"a": 1, "b": {"c": [1, 2]}})),
            ("mcp:s:t", json!({})),
        ] {
            assert_ne!(name, call_name(id, &arguments), "{id} {arguments}");
        }
        assert_ne!(call_name("a", &json!(["b", "c"])), call_name("a", &json!([["b"], "c"])));
    }

    #[test]
    fn only_one_request_works_on_a_call() {
        let calls = DirectCalls::default();
        let run_id: RunId = "tc_1".into();
        let claim = calls.claim(&run_id).unwrap();
        assert!(calls.claim(&run_id).is_none() && !calls.is_empty());
        drop(claim);
        assert!(calls.is_empty() && calls.claim(&run_id).is_some());
    }
}
