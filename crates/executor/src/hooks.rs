//! Hooks that inspect, rewrite or block a call and observe its result.

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

/// The default time limit of a hook. A hook that takes longer denies the call.
pub const HOOK_DEADLINE: Duration = Duration::from_secs(5);

/// The description of a call that a hook receives.
#[derive(Clone, Debug)]
pub struct ToolEvent {
    pub tool_name: String,
    /// The catalog's id; `None` for a control call.
    pub tool_id: Option<String>,
    pub params: Value,
    pub tool_kind: Option<ToolKind>,
    /// The language of a cell, if it is known.
    pub tool_input_kind: Option<Language>,
    pub run_id: String,
    pub tool_call_id: String,
    pub scope: Arc<Scope>,
}

/// Distinguishes a cell from a shell command, since both are called `exec`.
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

/// A hook's decision about a call. By default, the call proceeds unchanged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HookAnswer {
    pub block: Option<String>,
    pub params: Option<Value>,
    pub require_approval: Option<String>,
}

pub type HookFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

pub trait Hook: fmt::Debug + Send + Sync {
    /// Runs before a call (`before_tool_call`). An error denies the call; its text is not shown to the model.
    fn before<'a>(&'a self, event: &'a ToolEvent) -> HookFuture<'a, Result<HookAnswer, String>> {
        let _ = event;
        Box::pin(async { Ok(HookAnswer::default()) })
    }

    /// Runs after a call (`after_tool_call`).
    fn after<'a>(&'a self, event: &'a ToolEvent, outcome: &'a Outcome) -> HookFuture<'a, ()> {
        let _ = (event, outcome);
        Box::pin(async {})
    }
}

/// The combined decision of all hooks about a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum HookVerdict {
    Blocked(String),
    Proceed { params: Value, ask: Option<String> },
}

/// Runs the hooks in order. Each sees the input as the previous one rewrote it. The first hook that blocks ends the
/// chain.
pub(crate) async fn judge(hooks: &[Arc<dyn Hook>], deadline: Duration, event: &mut ToolEvent) -> HookVerdict {
    let mut ask = None;
    for hook in hooks {
        // If panics unwind, a panicking hook only fails this call.
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

/// Runs the hooks after a call, each up to the deadline. They cannot change the outcome.
pub(crate) async fn notify(hooks: &[Arc<dyn Hook>], deadline: Duration, event: &ToolEvent, outcome: &Outcome) {
    for hook in hooks {
        let notified = AssertUnwindSafe(async { hook.after(event, outcome).await }).catch_unwind();
        let _late = tokio::time::timeout(deadline, notified).await;
    }
}
