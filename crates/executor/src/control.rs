//! Hooks around a control call: `exec` itself, before its cell runs.

use std::sync::Arc;

use contract::cell::Language;
use serde_json::Value;

use crate::door::Executor;
use crate::hooks::{HookVerdict, ToolEvent, ToolKind, judge, notify};
use crate::source::{Outcome, Returned};

impl Executor {
    /// Runs the hooks before a cell. Returns the input, possibly rewritten, or the reason why the cell is blocked.
    pub async fn before_cell(
        &self,
        tool_call_id: &str,
        params: Value,
        language: Option<Language>,
    ) -> Result<(Value, ToolEvent), String> {
        let mut event = ToolEvent {
            tool_name: "exec".to_owned(),
            tool_id: None,
            params,
            tool_kind: Some(ToolKind::CodeModeExec),
            tool_input_kind: language,
            run_id: self.scope.agent_run_id.clone(),
            tool_call_id: tool_call_id.to_owned(),
            scope: Arc::clone(&self.scope),
        };
        match judge(&self.hooks, self.hook_deadline, &mut event).await {
            HookVerdict::Proceed { params, ask: None } => Ok((params, event)),
            HookVerdict::Proceed { ask: Some(reason), .. } => Err(format!(
                "a hook requires approval for this cell ({reason}), but a cell as a whole cannot be approved, \
                 only the calls it makes"
            )),
            HookVerdict::Blocked(reason) => Err(reason),
        }
    }

    /// Runs the hooks after a cell.
    pub async fn after_cell(&self, event: &ToolEvent, result: Value) {
        notify(&self.hooks, self.hook_deadline, event, &Outcome::Returned(Returned::json(result))).await;
    }

    pub fn has_hooks(&self) -> bool {
        !self.hooks.is_empty()
    }
}
