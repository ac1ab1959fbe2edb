//! The hooks of a plugin. They fail closed: a hook that cannot be asked, or answers with something else than a decision,
//! denies the call and names its plugin.

use std::sync::Arc;
use std::time::Duration;

use contract::limits::MAX_HOOKED_RESULT_BYTES;
use contract::text::plain;
use contract::tool::ToolId;
use executor::{Hook, HookAnswer, HookFuture, Outcome, ProgressSink, ToolEvent};
use serde_json::{Value, json};

use super::connection::MAX_SHOWN_CHARS;
use super::manifest::{Effects, HookManifest};
use super::messages::{explain, scope_json};
use super::plugin::Plugin;

/// The hooks of one plugin.
#[derive(Debug)]
pub(super) struct PluginHook {
    plugin: Arc<Plugin>,
}

/// Stands in for the hook of a plugin that is enabled and cannot be used: it denies every call.
#[derive(Debug)]
pub(super) struct UnusableHook {
    pub(super) plugin: String,
    pub(super) why: String,
}

impl PluginHook {
    /// Returns the plugin's hooks, if it has any.
    pub(super) fn of(plugin: &Arc<Plugin>) -> Option<Self> {
        plugin.manifest().hooks().next().is_some().then(|| Self { plugin: Arc::clone(plugin) })
    }
}

/// Whether a hook sees this call.
pub(super) fn sees(hook: &HookManifest, event: &ToolEvent) -> bool {
    match event.tool_id.as_deref().map(ToolId::parse) {
        Some(Ok(id)) => hook.tools.iter().any(|pattern| catalog::policy::restricts(pattern, &id)),
        // A control call: the cell itself.
        None => hook.cells,
        // Not possible for a tool of a catalog; a hook that may want to see it does.
        Some(Err(_)) => true,
    }
}

/// Returns the event as the contract names its fields.
pub(super) fn event_json(event: &ToolEvent) -> Value {
    let mut json = json!({
        "toolName": event.tool_name,
        "toolId": event.tool_id,
        "params": event.params,
        "toolKind": event.tool_kind.map(|kind| kind.as_str()),
        "toolInputKind": event.tool_input_kind.map(|language| language.as_str()),
        "runId": event.run_id,
        "toolCallId": event.tool_call_id,
    });
    if let (Value::Object(all), Value::Object(scope)) = (&mut json, scope_json(&event.scope)) {
        all.extend(scope);
    }
    json
}

impl Hook for PluginHook {
    fn label(&self) -> String {
        format!("the before_tool_call hook of plugin `{}`", self.plugin.id())
    }

    fn before<'a>(&'a self, event: &'a ToolEvent) -> HookFuture<'a, Result<HookAnswer, String>> {
        Box::pin(async move {
            let Some(hook) = self.plugin.manifest().before_tool_call.as_ref().filter(|hook| sees(hook, event)) else {
                return Ok(HookAnswer::default());
            };
            let plugin = self.plugin.id();
            Ok(match ask(&self.plugin, hook.timeout, event_json(event)).await {
                Ok(answer) => HookAnswer {
                    block: answer.block.map(|reason| format!("plugin `{plugin}`: {reason}")),
                    require_approval: answer.require_approval.map(|reason| format!("plugin `{plugin}`: {reason}")),
                    ..answer
                },
                Err(why) => {
                    tracing::warn!(plugin, why, "a before_tool_call hook failed, so the call is denied");
                    let reason = format!("plugin `{plugin}` could not decide, so the call is denied: {why}");
                    HookAnswer { block: Some(reason), ..HookAnswer::default() }
                }
            })
        })
    }

    fn after<'a>(&'a self, event: &'a ToolEvent, outcome: &'a Outcome) -> HookFuture<'a, ()> {
        Box::pin(async move {
            let Some(hook) = self.plugin.manifest().after_tool_call.as_ref().filter(|hook| sees(hook, event)) else {
                return;
            };
            let mut params = event_json(event);
            if let Value::Object(fields) = &mut params {
                fields.insert("outcome".to_owned(), outcome_json(outcome));
            }
            let asked = self
                .plugin
                .supervisor()
                .request("hooks/after_tool_call", params, hook.timeout, ProgressSink::default())
                .await;
            let why = match asked {
                Ok(Ok(_)) => return,
                Ok(Err(error)) => explain(&error, hook.timeout, Effects::Reads),
                Err(why) => why.to_string(),
            };
            tracing::warn!(plugin = self.plugin.id(), why, "an after_tool_call hook failed");
        })
    }
}

impl Hook for UnusableHook {
    fn before<'a>(&'a self, _event: &'a ToolEvent) -> HookFuture<'a, Result<HookAnswer, String>> {
        let reason =
            format!("plugin `{}` checks calls and cannot be used, so all calls are denied: {}", self.plugin, self.why);
        Box::pin(async move { Ok(HookAnswer { block: Some(reason), ..HookAnswer::default() }) })
    }
}

/// Asks a hook for its decision on an event.
pub(super) async fn ask(plugin: &Plugin, limit: Duration, event: Value) -> Result<HookAnswer, String> {
    match plugin.supervisor().request("hooks/before_tool_call", event, limit, ProgressSink::default()).await {
        Ok(Ok(answer)) => decision(answer.result),
        Ok(Err(error)) => Err(explain(&error, limit, Effects::Reads)),
        Err(why) => Err(why.to_string()),
    }
}

/// Reads a hook's decision. Anything that is not exactly one is an error, which denies the call.
fn decision(result: Value) -> Result<HookAnswer, String> {
    let fields = match result {
        Value::Null => return Ok(HookAnswer::default()),
        Value::Object(fields) => fields,
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Err("its decision is not an object".to_owned());
        }
    };
    let mut answer = HookAnswer::default();
    let mut reason = None;
    for (key, value) in fields {
        match (key.as_str(), value) {
            ("block", Value::Bool(false) | Value::Null) | ("requireApproval", Value::Bool(false) | Value::Null) => {}
            ("block", Value::Bool(true)) => answer.block = Some("no reason was given".to_owned()),
            ("block", Value::String(why)) => answer.block = Some(plain(&why, MAX_SHOWN_CHARS)),
            ("blockReason", Value::String(why)) => reason = Some(plain(&why, MAX_SHOWN_CHARS)),
            ("requireApproval", Value::Bool(true)) => answer.require_approval = Some("it requires approval".to_owned()),
            ("requireApproval", Value::String(why)) => answer.require_approval = Some(plain(&why, MAX_SHOWN_CHARS)),
            ("params", Value::Object(params)) => answer.params = Some(Value::Object(params)),
            ("params" | "blockReason", Value::Null) => {}
            (other, _) => {
                return Err(format!(
                    "its decision has an unknown key or a value of a wrong type under `{}`",
                    plain(other, 100)
                ));
            }
        }
    }
    if answer.block.is_some() && reason.is_some() {
        answer.block = reason;
    }
    Ok(answer)
}

/// Returns the outcome as an `after_tool_call` hook receives it.
fn outcome_json(outcome: &Outcome) -> Value {
    match outcome {
        Outcome::Returned(returned) => {
            let result = returned.to_cell_value();
            let bytes = result.to_string().len();
            match bytes {
                0..=MAX_HOOKED_RESULT_BYTES => json!({"status": "returned", "result": result}),
                _ => json!({"status": "returned", "resultBytes": bytes}),
            }
        }
        Outcome::Failed(message) => json!({"status": "failed", "error": message}),
        Outcome::Dropped(dropped) => json!({"status": "failed", "error": dropped.message}),
        Outcome::Unknown => json!({"status": "unknown"}),
    }
}

#[cfg(test)]
mod tests {
    use executor::{HookAnswer, Outcome, ToolResult};
    use serde_json::{Value, json};

    use super::{decision, outcome_json};

    #[test]
    fn a_decision_is_read_exactly_and_anything_else_denies() {
        let block = |why: &str| HookAnswer { block: Some(why.to_owned()), ..HookAnswer::default() };
        let cases = [
            (Value::Null, HookAnswer::default()),
            (json!({}), HookAnswer::default()),
            (json!({"block": false, "requireApproval": null}), HookAnswer::default()),
            (json!({"block": "no"}), block("no")),
            (json!({"block": true, "blockReason": "why"}), block("why")),
            (json!({"block": true}), block("no reason was given")),
            (json!({"params": {"a": 1}}), HookAnswer { params: Some(json!({"a": 1})), ..HookAnswer::default() }),
            (
                json!({"requireApproval": "sensitive"}),
                HookAnswer { require_approval: Some("sensitive".to_owned()), ..HookAnswer::default() },
            ),
        ];
        for (result, expected) in cases {
            assert_eq!(decision(result.clone()), Ok(expected), "{result}");
        }
        for wrong in [
            json!("allow"),
            json!(true),
            json!([]),
            json!({"allow": true}),
            json!({"block": 1}),
            json!({"params": "x"}),
            json!({"params": []}),
            json!({"requireApproval": {}}),
        ] {
            assert!(decision(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_large_result_is_replaced_by_its_size() {
        let outcome = |text: String| outcome_json(&Outcome::Returned(ToolResult::text(text)));
        assert_eq!(outcome("a".to_owned()), json!({"status": "returned", "result": "a"}));
        assert_eq!(outcome("a".repeat(1 << 20)), json!({"status": "returned", "resultBytes": (1 << 20) + 2}));
        assert_eq!(outcome_json(&Outcome::Unknown), json!({"status": "unknown"}));
    }
}
