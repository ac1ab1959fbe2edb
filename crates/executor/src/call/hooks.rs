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

use crate::outcome::Outcome;

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
    /// The run of the call; for a control call, the run of its agent.
    pub run_id: String,
    pub tool_call_id: String,
    pub scope: Arc<Scope>,
}

impl ToolEvent {
    /// Describes the control call `exec`, before its cell runs.
    pub(crate) fn of_cell(scope: &Arc<Scope>, tool_call_id: &str, params: Value, language: Option<Language>) -> Self {
        Self {
            tool_name: "exec".to_owned(),
            tool_id: None,
            params,
            tool_kind: Some(ToolKind::CodeModeExec),
            tool_input_kind: language,
            run_id: scope.agent_run_id.clone(),
            tool_call_id: tool_call_id.to_owned(),
            scope: Arc::clone(scope),
        }
    }
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

/// Inspects calls before they are made and their outcomes afterwards.
pub trait Hook: fmt::Debug + Send + Sync {
    /// Returns how errors and the log name the hook.
    fn label(&self) -> String {
        "a before_tool_call hook".to_owned()
    }

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
    Proceed { params: Value, ask: Option<String>, rewriters: Rewriters },
}

/// The hooks that rewrote the input of a call, by their labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewriters(Vec<String>);

impl Rewriters {
    /// Returns why an input cannot be used. If hooks rewrote the input, the message and the log name them, because neither
    /// the model nor the cell can correct it.
    pub fn explain(&self, what: &str, why: String) -> String {
        if self.0.is_empty() {
            return why;
        }
        let hooks = self.0.join(" and ");
        tracing::warn!(hooks, what, "hooks rewrote an input to one that cannot be used");
        format!(
            "{hooks} rewrote the input of {what} to one that cannot be used, so nothing was called; a person must correct \
             the hook: {why}"
        )
    }
}

/// A cell that its hooks let run.
#[derive(Clone, Debug)]
pub struct JudgedCell {
    /// The input, possibly rewritten.
    pub params: Value,
    pub event: ToolEvent,
    pub rewriters: Rewriters,
}

/// Runs the hooks in order. Each sees the input as the previous one rewrote it. The first hook that blocks ends the
/// chain.
pub(crate) async fn judge(hooks: &[Arc<dyn Hook>], deadline: Duration, event: &mut ToolEvent) -> HookVerdict {
    let (mut ask, mut rewriters) = (None, Rewriters::default());
    for hook in hooks {
        // If panics unwind, a panicking hook only fails this call.
        let asked = AssertUnwindSafe(async { hook.before(event).await }).catch_unwind();
        let answer = match tokio::time::timeout(deadline, asked).await {
            Ok(Ok(Ok(answer))) => answer,
            Ok(Ok(Err(error))) => {
                tracing::warn!(error, "a before_tool_call hook failed, so the call is denied");
                return HookVerdict::Blocked("blocked: a before_tool_call hook failed".to_owned());
            }
            Ok(Err(_)) => {
                tracing::warn!("a before_tool_call hook panicked, so the call is denied");
                return HookVerdict::Blocked("blocked: a before_tool_call hook failed".to_owned());
            }
            Err(_) => {
                tracing::warn!("a before_tool_call hook did not answer in time, so the call is denied");
                return HookVerdict::Blocked("blocked: a before_tool_call hook did not answer in time".to_owned());
            }
        };
        if let Some(reason) = answer.block {
            return HookVerdict::Blocked(format!("blocked by a before_tool_call hook: {reason}"));
        }
        if let Some(params) = answer.params.filter(|params| *params != event.params) {
            event.params = params;
            rewriters.0.push(hook.label());
        }
        ask = ask.or(answer.require_approval);
    }
    HookVerdict::Proceed { params: event.params.clone(), ask, rewriters }
}

/// Runs the hooks before a cell. The error is the reason why the cell is blocked.
pub(crate) async fn judge_cell(
    hooks: &[Arc<dyn Hook>],
    deadline: Duration,
    mut event: ToolEvent,
) -> Result<JudgedCell, String> {
    match judge(hooks, deadline, &mut event).await {
        HookVerdict::Proceed { params, ask: None, rewriters } => Ok(JudgedCell { params, event, rewriters }),
        HookVerdict::Proceed { ask: Some(reason), .. } => Err(format!(
            "a hook requires approval for this cell ({reason}), but a cell as a whole cannot be approved, \
             only the calls it makes"
        )),
        HookVerdict::Blocked(reason) => Err(reason),
    }
}

/// Runs the hooks after a call, each up to the deadline. They cannot change the outcome.
pub(crate) async fn notify(hooks: &[Arc<dyn Hook>], deadline: Duration, event: &ToolEvent, outcome: &Outcome) {
    for hook in hooks {
        let notified = AssertUnwindSafe(async { hook.after(event, outcome).await }).catch_unwind();
        match tokio::time::timeout(deadline, notified).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => tracing::warn!("an after_tool_call hook panicked"),
            Err(_) => tracing::warn!("an after_tool_call hook did not return in time"),
        }
    }
}
