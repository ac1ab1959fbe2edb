//! Fake tools with a configured behavior that record their calls.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use contract::scope::Scope;
use contract::tool::{ToolId, ToolSpec};
use executor::{AuthorizedCall, CallFuture, CallToken, Dispatch, Outcome, ParkedOn, ToolResult, ToolSource};
use serde_json::{Value, json};
use tokio::sync::Notify;

/// The behavior of a fake tool when it is called.
#[derive(Clone, Debug)]
pub(crate) enum Behavior {
    Echo,
    Fail(&'static str),
    /// Echoes after this many milliseconds.
    After(u64),
    Never,
    Panic,
    /// Echoes after the test notifies [`FakeTools::gate`].
    WaitForGate,
    Park(ParkedOn),
}

#[derive(Debug, Default)]
pub(crate) struct FakeTools {
    tools: Mutex<Vec<(ToolSpec, Behavior)>>,
    calls: Mutex<Vec<Call>>,
    cancelled: AtomicUsize,
    pub gate: Notify,
}

#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub id: String,
    pub input: Value,
    pub token: CallToken,
    pub scope: Scope,
}

pub(crate) fn spec(id: &str) -> ToolSpec {
    ToolSpec::new(ToolId::parse(id).unwrap(), format!("Does {id}."), json!({"type": "object"}))
}

impl FakeTools {
    pub(crate) fn new<const N: usize>(tools: [(&str, Behavior); N]) -> Arc<Self> {
        let fakes = Self::default();
        tools.into_iter().for_each(|(id, behavior)| fakes.put(spec(id), behavior));
        Arc::new(fakes)
    }

    /// Adds a tool, or replaces its definition.
    pub(crate) fn put(&self, spec: ToolSpec, behavior: Behavior) {
        let mut tools = self.tools.lock().unwrap();
        tools.retain(|(known, _)| known.id != spec.id);
        tools.push((spec, behavior));
    }

    pub(crate) fn remove(&self, id: &str) {
        self.tools.lock().unwrap().retain(|(known, _)| known.id.as_str() != id);
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    /// Returns the ids of the called tools, in order.
    pub(crate) fn called(&self) -> Vec<String> {
        self.calls().into_iter().map(|call| call.id).collect()
    }

    /// Returns the number of calls that were dropped before they answered.
    pub(crate) fn cancelled(&self) -> usize {
        self.cancelled.load(Ordering::SeqCst)
    }

    /// Waits until at least this many calls were made.
    pub(crate) async fn until(&self, calls: usize) {
        eventually("the calls are made", async || self.calls().len() >= calls).await;
    }
}

/// Polls until the condition is true. Fails after 10 seconds with its description.
pub(crate) async fn eventually(description: &str, mut condition: impl AsyncFnMut() -> bool) {
    for _ in 0..1000 {
        if condition().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("timed out waiting until {description}");
}

/// Counts a call as cancelled if it is dropped before it completes.
struct CancelGuard<'a>(&'a AtomicUsize, bool);

impl Drop for CancelGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(usize::from(!self.1), Ordering::SeqCst);
    }
}

impl ToolSource for FakeTools {
    fn tools(&self) -> Vec<ToolSpec> {
        self.tools.lock().unwrap().iter().map(|(spec, _)| spec.clone()).collect()
    }

    fn call(&self, call: AuthorizedCall) -> CallFuture<'_> {
        let behavior = self
            .tools
            .lock()
            .unwrap()
            .iter()
            .find(|(spec, _)| spec.id == *call.id())
            .map(|(_, behavior)| behavior.clone());
        self.calls.lock().unwrap().push(Call {
            id: call.id().as_str().to_owned(),
            input: call.input().clone(),
            token: call.token().clone(),
            scope: call.scope().clone(),
        });
        Box::pin(async move {
            let mut guard = CancelGuard(&self.cancelled, false);
            let echo = Dispatch::Settled(Outcome::Returned(ToolResult::json(call.input().clone())));
            let dispatch = match behavior {
                None => Dispatch::Settled(Outcome::Failed("gone".to_owned())),
                Some(Behavior::Echo) => echo,
                Some(Behavior::Fail(message)) => Dispatch::Settled(Outcome::Failed(message.to_owned())),
                Some(Behavior::After(ms)) => {
                    tokio::time::sleep(Duration::from_millis(ms)).await;
                    echo
                }
                Some(Behavior::Never) => std::future::pending().await,
                Some(Behavior::Panic) => panic!("the fake tool panics"),
                Some(Behavior::WaitForGate) => {
                    self.gate.notified().await;
                    echo
                }
                Some(Behavior::Park(parked)) => Dispatch::Parked(parked),
            };
            guard.1 = true;
            dispatch
        })
    }
}
