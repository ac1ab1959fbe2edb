//! Tools that do as they are told and remember what was asked of them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use contract::scope::Scope;
use contract::tool::{ToolId, ToolSpec};
use executor::{AuthorizedCall, CallFuture, CallToken, Dispatch, Outcome, Parked, Returned, ToolSource};
use serde_json::{Value, json};
use tokio::sync::Notify;

/// What a tool does when it is called.
#[derive(Clone, Debug)]
pub enum Does {
    Echo,
    Fails(&'static str),
    After(u64),
    Never,
    Panics,
    /// Answers once somebody opens the desk's gate.
    AtTheGate,
    Parks(Parked),
}

#[derive(Debug, Default)]
pub struct Desk {
    tools: Mutex<Vec<(ToolSpec, Does)>>,
    seen: Mutex<Vec<Call>>,
    cancelled: AtomicUsize,
    pub gate: Notify,
}

#[derive(Clone, Debug)]
pub struct Call {
    pub id: String,
    pub input: Value,
    pub token: CallToken,
    pub scope: Scope,
}

pub fn spec(id: &str) -> ToolSpec {
    ToolSpec::new(ToolId::parse(id).unwrap(), format!("Does {id}."), json!({"type": "object"}))
}

impl Desk {
    pub fn new<const N: usize>(tools: [(&str, Does); N]) -> Arc<Self> {
        let desk = Self::default();
        tools.into_iter().for_each(|(id, does)| desk.put(spec(id), does));
        Arc::new(desk)
    }

    /// Adds a tool, or puts another definition in its place.
    pub fn put(&self, spec: ToolSpec, does: Does) {
        let mut tools = self.tools.lock().unwrap();
        tools.retain(|(known, _)| known.id != spec.id);
        tools.push((spec, does));
    }

    pub fn remove(&self, id: &str) {
        self.tools.lock().unwrap().retain(|(known, _)| known.id.as_str() != id);
    }

    pub fn calls(&self) -> Vec<Call> {
        self.seen.lock().unwrap().clone()
    }

    pub fn called(&self) -> Vec<String> {
        self.calls().into_iter().map(|call| call.id).collect()
    }

    /// Calls that were dropped before they had answered.
    pub fn cancelled(&self) -> usize {
        self.cancelled.load(Ordering::SeqCst)
    }

    /// Waits until so many calls have come in.
    pub async fn until(&self, calls: usize) {
        eventually("the calls come", async || self.calls().len() >= calls).await;
    }
}

/// Polls until it is so; a test that waits in vain says for what.
pub async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    for _ in 0..1000 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it never came to be that {what}");
}

/// Counts a call as cancelled unless it got to its end.
struct Watched<'a>(&'a AtomicUsize, bool);

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(usize::from(!self.1), Ordering::SeqCst);
    }
}

impl ToolSource for Desk {
    fn tools(&self) -> Vec<ToolSpec> {
        self.tools.lock().unwrap().iter().map(|(spec, _)| spec.clone()).collect()
    }

    fn call(&self, call: AuthorizedCall) -> CallFuture<'_> {
        let does =
            self.tools.lock().unwrap().iter().find(|(spec, _)| spec.id == *call.id()).map(|(_, does)| does.clone());
        self.seen.lock().unwrap().push(Call {
            id: call.id().as_str().to_owned(),
            input: call.input().clone(),
            token: call.token().clone(),
            scope: call.scope().clone(),
        });
        Box::pin(async move {
            let mut watched = Watched(&self.cancelled, false);
            let echo = Dispatch::Settled(Outcome::Returned(Returned::json(call.input().clone())));
            let dispatch = match does {
                None => Dispatch::Settled(Outcome::Failed("gone".to_owned())),
                Some(Does::Echo) => echo,
                Some(Does::Fails(message)) => Dispatch::Settled(Outcome::Failed(message.to_owned())),
                Some(Does::After(ms)) => {
                    tokio::time::sleep(Duration::from_millis(ms)).await;
                    echo
                }
                Some(Does::Never) => std::future::pending().await,
                Some(Does::Panics) => panic!("a tool's own mistake"),
                Some(Does::AtTheGate) => {
                    self.gate.notified().await;
                    echo
                }
                Some(Does::Parks(parked)) => Dispatch::Parked(parked),
            };
            watched.1 = true;
            dispatch
        })
    }
}
