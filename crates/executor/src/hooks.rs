//! Whoever wants to have a say in a call: before it is made, and after.

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use contract::cell::Language;
use contract::scope::Scope;
use futures_util::FutureExt;
use serde_json::Value;

use crate::source::Outcome;

/// A hook that takes longer has denied the call, where nobody says otherwise.
pub const HOOK_DEADLINE: Duration = Duration::from_secs(5);

/// What a hook is told of a call.
#[derive(Clone, Debug)]
pub struct ToolEvent {
    pub tool_name: String,
    /// The catalog's id; a control call has none.
    pub tool_id: Option<String>,
    pub params: Value,
    pub tool_kind: Option<ToolKind>,
    /// Only where the language is known.
    pub tool_input_kind: Option<Language>,
    pub run_id: String,
    pub tool_call_id: String,
    pub scope: Arc<Scope>,
}

/// Tells a cell from a shell command that goes by the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolKind {
    CodeModeExec,
}

impl ToolKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CodeModeExec => "code_mode_exec",
        }
    }
}

/// What a hook wants. Nothing: the call goes on as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HookAnswer {
    pub block: Option<String>,
    pub params: Option<Value>,
    pub require_approval: Option<String>,
}

pub type HookFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

pub trait Hook: fmt::Debug + Send + Sync {
    /// `before_tool_call`. An error denies the call; its text stays here.
    fn before<'a>(&'a self, event: &'a ToolEvent) -> HookFuture<'a, Result<HookAnswer, String>> {
        let _ = event;
        Box::pin(async { Ok(HookAnswer::default()) })
    }

    /// `after_tool_call`.
    fn after<'a>(&'a self, event: &'a ToolEvent, outcome: &'a Outcome) -> HookFuture<'a, ()> {
        let _ = (event, outcome);
        Box::pin(async {})
    }
}

/// What all hooks together made of a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum HookVerdict {
    Blocked(String),
    Proceed { params: Value, ask: Option<String> },
}

/// One after the other: each sees what the one before made of the input. The first to block ends it.
pub(crate) async fn judge(hooks: &[Arc<dyn Hook>], deadline: Duration, event: &mut ToolEvent) -> HookVerdict {
    let mut ask = None;
    for hook in hooks {
        // One that panics, in a program where panics unwind, has failed and takes nobody along.
        let asked = AssertUnwindSafe(async { hook.before(event).await }).catch_unwind();
        let answer = match tokio::time::timeout(deadline, asked).await {
            Ok(Ok(Ok(answer))) => answer,
            Ok(Ok(Err(_)) | Err(_)) => {
                return HookVerdict::Blocked("blocked: a before_tool_call hook failed".to_owned());
            }
            Err(_) => {
                return HookVerdict::Blocked("blocked: a before_tool_call hook did not answer in time".to_owned());
            }
        };
        if let Some(reason) = answer.block {
            return HookVerdict::Blocked(format!("blocked by a before_tool_call hook: {reason}"));
        }
        if let Some(params) = answer.params {
            event.params = params;
        }
        ask = ask.or(answer.require_approval);
    }
    HookVerdict::Proceed { params: event.params.clone(), ask }
}

/// What a hook does afterwards changes nothing, and is not waited for beyond its deadline.
pub(crate) async fn tell(hooks: &[Arc<dyn Hook>], deadline: Duration, event: &ToolEvent, outcome: &Outcome) {
    for hook in hooks {
        let told = AssertUnwindSafe(async { hook.after(event, outcome).await }).catch_unwind();
        let _late = tokio::time::timeout(deadline, told).await;
    }
}
