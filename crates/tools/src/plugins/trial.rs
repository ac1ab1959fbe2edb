//! Tries a plugin for `cellmate plugins test`: starts it, asks its hooks about a sample call and calls tools.

use std::sync::Arc;
use std::time::{Duration, Instant};

use contract::scope::Scope;
use contract::tool::ToolId;
use executor::{HookAnswer, ToolEvent};
use serde_json::{Value, json};

use super::hook::{ask, event_json};
use super::manifest::ScopeManifest;
use super::plugin::Plugin;

/// A hook's decision on the sample call.
#[derive(Clone, Debug, PartialEq)]
pub struct HookTrial {
    pub hook: &'static str,
    pub result: Result<String, String>,
}

/// What was found out about a plugin by running it.
#[derive(Clone, Debug)]
pub struct TrialReport {
    /// How long the start took, or why it failed.
    pub start: Result<Duration, String>,
    pub hooks: Vec<HookTrial>,
    /// The namespaces whose scopes the plugin creates, each with whether it did.
    pub scopes: Vec<(String, Result<(), String>)>,
}

impl TrialReport {
    pub fn is_ok(&self) -> bool {
        self.start.is_ok()
            && self.hooks.iter().all(|trial| trial.result.is_ok())
            && self.scopes.iter().all(|(_, created)| created.is_ok())
    }
}

/// Returns the description of a sample call.
fn sample_event() -> ToolEvent {
    ToolEvent {
        tool_name: "sample".to_owned(),
        tool_id: ToolId::parse("mcp:sample:sample").ok().map(|id| id.as_str().to_owned()),
        params: json!({"text": "This is a sample call of `cellmate plugins test`."}),
        tool_kind: None,
        tool_input_kind: None,
        run_id: "test".to_owned(),
        tool_call_id: "test".to_owned(),
        scope: Arc::new(Scope { agent_id: "test".to_owned(), session_id: "test".to_owned(), ..Scope::default() }),
    }
}

/// Starts the plugin, asks its hooks about a sample call, and lets it create its scopes. No tool is called.
pub async fn try_plugin(plugin: &Arc<Plugin>) -> TrialReport {
    let began = Instant::now();
    if let Err(why) = plugin.start().await {
        return TrialReport { start: Err(why.to_string()), hooks: Vec::new(), scopes: Vec::new() };
    }
    let start = Ok(began.elapsed());
    let mut hooks = Vec::new();
    let event = sample_event();
    if let Some(hook) = &plugin.manifest().before_tool_call {
        let decided = ask(plugin, hook.timeout, event_json(&event)).await;
        hooks.push(HookTrial { hook: "before_tool_call", result: decided.map(|answer| in_words(&answer)) });
    }
    if let Some(hook) = &plugin.manifest().after_tool_call {
        let mut params = event_json(&event);
        if let Value::Object(fields) = &mut params {
            fields.insert("outcome".to_owned(), json!({"status": "returned", "result": "sample"}));
        }
        let asked = plugin
            .supervisor()
            .request("hooks/after_tool_call", params, hook.timeout, executor::ProgressSink::default())
            .await;
        let result = match asked {
            Ok(Ok(_)) => Ok("answered".to_owned()),
            Ok(Err(error)) => Err(super::messages::explain(&error, hook.timeout, super::Effects::Reads)),
            Err(why) => Err(why.to_string()),
        };
        hooks.push(HookTrial { hook: "after_tool_call", result });
    }
    let mut scopes = Vec::new();
    if plugin.scopes.are_created() {
        plugin.scopes.make_ready(plugin.supervisor(), &event.scope).await;
        let created =
            plugin.manifest().namespaces.iter().filter(|namespace| matches!(namespace.scope, ScopeManifest::Created));
        for namespace in created {
            let result = plugin.scopes.outcome(&namespace.id, &event.scope);
            scopes.push((namespace.global_name.clone(), result));
        }
    }
    TrialReport { start, hooks, scopes }
}

fn in_words(answer: &HookAnswer) -> String {
    match answer {
        HookAnswer { block: Some(reason), .. } => format!("blocks: {reason}"),
        HookAnswer { require_approval: Some(reason), .. } => format!("requires approval: {reason}"),
        HookAnswer { params: Some(_), .. } => "changes the input".to_owned(),
        HookAnswer { params: None, .. } => "allows".to_owned(),
    }
}
