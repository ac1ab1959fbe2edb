//! A hook that records its events and answers as configured.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use executor::{Hook, HookAnswer, HookFuture, Outcome, ToolEvent};
use serde_json::Value;

/// The answer of a [`RecordingHook`] before a call of its tool. It allows calls of all other tools.
#[derive(Clone, Debug)]
pub(crate) enum HookBehavior {
    Allow,
    Block(&'static str),
    Rewrite(Value),
    Ask(&'static str),
    Error(&'static str),
    Hang,
    /// Panics with this text.
    Panic(&'static str),
}

#[derive(Debug)]
pub(crate) struct RecordingHook {
    tool_name: &'static str,
    behavior: HookBehavior,
    before: Mutex<Vec<ToolEvent>>,
    after: Mutex<Vec<(ToolEvent, Outcome)>>,
}

impl RecordingHook {
    pub(crate) fn new(tool_name: &'static str, behavior: HookBehavior) -> Arc<Self> {
        Arc::new(Self { tool_name, behavior, before: Mutex::default(), after: Mutex::default() })
    }

    pub(crate) fn before(&self) -> Vec<ToolEvent> {
        self.before.lock().unwrap().clone()
    }

    pub(crate) fn after(&self) -> Vec<(String, Outcome)> {
        let after = self.after.lock().unwrap();
        after.iter().map(|(event, outcome)| (event.tool_call_id.clone(), outcome.clone())).collect()
    }

    /// Returns the event of the call that ended last.
    pub(crate) fn last(&self) -> ToolEvent {
        self.after.lock().unwrap().last().unwrap().0.clone()
    }

    async fn answer(&self) -> Result<HookAnswer, String> {
        let answer = HookAnswer::default();
        match self.behavior.clone() {
            HookBehavior::Allow => Ok(answer),
            HookBehavior::Block(reason) => Ok(HookAnswer { block: Some(reason.to_owned()), ..answer }),
            HookBehavior::Rewrite(params) => Ok(HookAnswer { params: Some(params), ..answer }),
            HookBehavior::Ask(reason) => Ok(HookAnswer { require_approval: Some(reason.to_owned()), ..answer }),
            HookBehavior::Error(text) => Err(text.to_owned()),
            HookBehavior::Panic(text) => panic!("{text}"),
            HookBehavior::Hang => {
                tokio::time::sleep(Duration::from_secs(3600)).await;
                Ok(answer)
            }
        }
    }
}

impl Hook for RecordingHook {
    fn before<'a>(&'a self, event: &'a ToolEvent) -> HookFuture<'a, Result<HookAnswer, String>> {
        self.before.lock().unwrap().push(event.clone());
        let matches = event.tool_name == self.tool_name;
        Box::pin(async move { if matches { self.answer().await } else { Ok(HookAnswer::default()) } })
    }

    fn after<'a>(&'a self, event: &'a ToolEvent, outcome: &'a Outcome) -> HookFuture<'a, ()> {
        self.after.lock().unwrap().push((event.clone(), outcome.clone()));
        Box::pin(async {})
    }
}
