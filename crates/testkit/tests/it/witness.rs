//! A hook that remembers what it saw and says what it is told to say.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use executor::{Hook, HookAnswer, HookFuture, Outcome, ToolEvent};
use serde_json::Value;

/// What it says to the tool of this name; to any other, nothing.
#[derive(Clone, Debug)]
pub enum Says {
    Nothing,
    Block(&'static str),
    Rewrite(Value),
    Ask(&'static str),
    Error(&'static str),
    Hang,
    Panic,
}

#[derive(Debug)]
pub struct Witness {
    about: &'static str,
    says: Says,
    before: Mutex<Vec<ToolEvent>>,
    after: Mutex<Vec<(ToolEvent, Outcome)>>,
}

impl Witness {
    pub fn new(about: &'static str, says: Says) -> Arc<Self> {
        Arc::new(Self { about, says, before: Mutex::default(), after: Mutex::default() })
    }

    pub fn before(&self) -> Vec<ToolEvent> {
        self.before.lock().unwrap().clone()
    }

    pub fn after(&self) -> Vec<(String, Outcome)> {
        let after = self.after.lock().unwrap();
        after.iter().map(|(event, outcome)| (event.tool_call_id.clone(), outcome.clone())).collect()
    }

    /// The call that ended last, as it was made.
    pub fn last(&self) -> ToolEvent {
        self.after.lock().unwrap().last().unwrap().0.clone()
    }

    async fn answer(&self) -> Result<HookAnswer, String> {
        let answer = HookAnswer::default();
        match self.says.clone() {
            Says::Nothing => Ok(answer),
            Says::Block(reason) => Ok(HookAnswer { block: Some(reason.to_owned()), ..answer }),
            Says::Rewrite(params) => Ok(HookAnswer { params: Some(params), ..answer }),
            Says::Ask(reason) => Ok(HookAnswer { require_approval: Some(reason.to_owned()), ..answer }),
            Says::Error(text) => Err(text.to_owned()),
            Says::Panic => panic!("a hook's own mistake"),
            Says::Hang => {
                tokio::time::sleep(Duration::from_secs(3600)).await;
                Ok(answer)
            }
        }
    }
}

impl Hook for Witness {
    fn before<'a>(&'a self, event: &'a ToolEvent) -> HookFuture<'a, Result<HookAnswer, String>> {
        self.before.lock().unwrap().push(event.clone());
        let concerned = event.tool_name == self.about;
        Box::pin(async move { if concerned { self.answer().await } else { Ok(HookAnswer::default()) } })
    }

    fn after<'a>(&'a self, event: &'a ToolEvent, outcome: &'a Outcome) -> HookFuture<'a, ()> {
        self.after.lock().unwrap().push((event.clone(), outcome.clone()));
        Box::pin(async {})
    }
}
