//! Tries a plugin for `cellmate plugins test`: starts it, asks its hooks about a sample call or a given one, and calls
//! tools.

use std::sync::Arc;
use std::time::{Duration, Instant};

use contract::scope::Scope;
use contract::text::plain;
use contract::tool::ToolId;
use executor::{HookAnswer, ToolEvent, ToolResult};
use serde_json::{Value, json};

use super::hook::{ask, event_json, sees};
use super::manifest::{HookManifest, ScopeManifest};
use super::plugin::Plugin;

/// A hook's decision on a call.
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

/// How a call went that the user chose.
#[derive(Clone, Debug, PartialEq)]
pub struct CallTrial {
    /// The decisions of the plugin's hooks.
    pub hooks: Vec<HookTrial>,
    /// The result of the plugin's own tool; `None` for the tool of another source, which is not called.
    pub result: Option<Result<Value, String>>,
}

impl CallTrial {
    pub fn is_ok(&self) -> bool {
        self.hooks.iter().all(|trial| trial.result.is_ok()) && !matches!(self.result, Some(Err(_)))
    }
}

/// The most characters of a changed input that are shown.
const MAX_SHOWN_INPUT_CHARS: usize = 2_000;

/// The invented tool of the sample call that hooks are asked about.
pub const SAMPLE_TOOL: &str = "mcp:sample:sample";

/// Returns the description of a sample call.
fn sample_event() -> ToolEvent {
    let params = json!({"text": "This is a sample call of `cellmate plugins test`."});
    event_of("sample", SAMPLE_TOOL, params)
}

fn event_of(name: &str, id: &str, params: Value) -> ToolEvent {
    ToolEvent {
        tool_name: name.to_owned(),
        tool_id: Some(id.to_owned()),
        params,
        tool_kind: None,
        tool_input_kind: None,
        run_id: "test".to_owned(),
        tool_call_id: "test".to_owned(),
        scope: Arc::new(Scope { agent_id: "test".to_owned(), session_id: "test".to_owned(), ..Scope::default() }),
    }
}

/// Starts the plugin, lets it create its scopes, and asks its hooks about a call of [`SAMPLE_TOOL`]. No tool is called.
pub async fn try_plugin(plugin: &Arc<Plugin>) -> TrialReport {
    let report = try_start(plugin).await;
    let hooks = if report.start.is_ok() { ask_about_sample(plugin).await } else { Vec::new() };
    TrialReport { hooks, ..report }
}

/// Starts the plugin, and lets it create its scopes. No hook is asked.
pub async fn try_start(plugin: &Arc<Plugin>) -> TrialReport {
    let began = Instant::now();
    if let Err(why) = plugin.start().await {
        return TrialReport { start: Err(why.to_string()), hooks: Vec::new(), scopes: Vec::new() };
    }
    let start = Ok(began.elapsed());
    let scope = sample_event().scope;
    let mut scopes = Vec::new();
    if plugin.scopes.are_created() {
        plugin.scopes.make_ready(plugin.supervisor(), &scope).await;
        let created =
            plugin.manifest().namespaces.iter().filter(|namespace| matches!(namespace.scope, ScopeManifest::Created));
        for namespace in created {
            let result = plugin.scopes.outcome(&namespace.id, &scope);
            scopes.push((namespace.global_name.clone(), result));
        }
    }
    TrialReport { start, hooks: Vec::new(), scopes }
}

/// Asks the hooks that see calls of [`SAMPLE_TOOL`] about one.
async fn ask_about_sample(plugin: &Plugin) -> Vec<HookTrial> {
    let event = sample_event();
    let mut hooks = Vec::new();
    if let Some(hook) = &plugin.manifest().before_tool_call {
        let result = match sees(hook, &event) {
            true => ask(plugin, hook.timeout, event_json(&event)).await.map(|answer| in_words(&answer)),
            false => unseen(),
        };
        hooks.push(HookTrial { hook: "before_tool_call", result });
    }
    if let Some(hook) = &plugin.manifest().after_tool_call {
        let result = if sees(hook, &event) { tell_result(plugin, hook, &event).await } else { unseen() };
        hooks.push(HookTrial { hook: "after_tool_call", result });
    }
    hooks
}

/// Sends an invented result of the call to the `after_tool_call` hook.
async fn tell_result(plugin: &Plugin, hook: &HookManifest, event: &ToolEvent) -> Result<String, String> {
    let mut params = event_json(event);
    if let Value::Object(fields) = &mut params {
        fields.insert("outcome".to_owned(), json!({"status": "returned", "result": "sample"}));
    }
    let updates = executor::ProgressSink::default();
    match plugin.supervisor().request("hooks/after_tool_call", params, hook.timeout, updates).await {
        Ok(Ok(_)) => Ok("answered".to_owned()),
        Ok(Err(error)) => Err(super::messages::explain(&error, hook.timeout, super::Effects::Reads)),
        Err(why) => Err(why.to_string()),
    }
}

/// Returns the result of a hook that does not see a call.
fn unseen() -> Result<String, String> {
    Ok("does not see it: its `tools` do not match".to_owned())
}

/// Asks the plugin's hooks about a call, and calls the tool if it is the plugin's own. A tool of another source is named
/// by its id, `<source>:<owner>:<name>`, and is not called.
pub async fn try_call(plugin: &Arc<Plugin>, tool: &str, input: Value) -> CallTrial {
    let own = |name: &str| plugin.manifest().tool(name).map(|tool| tool.spec.id.clone());
    let id = own(tool).or_else(|| ToolId::parse(tool).ok());
    let Some(id) = id else {
        let why = format!(
            "the plugin has no tool `{}`; to ask its hooks about the tool of another source, write the tool's id, such \
             as `mcp:files:write_file`",
            plain(tool, 200)
        );
        return CallTrial { hooks: Vec::new(), result: Some(Err(why)) };
    };
    let is_own = own(id.name()).is_some_and(|own| own == id);
    let (hooks, admitted) = ask_hooks(plugin, &id, input).await;
    let result = match admitted {
        _ if !is_own => None,
        None => Some(Err("it was not called, because the plugin's own hook does not allow it".to_owned())),
        Some(input) => Some(plugin.try_tool(id.name(), input).await.map(ToolResult::into_cell_value)),
    };
    CallTrial { hooks, result }
}

/// Asks the hooks about a call. Returns their decisions, and the input as they change it; `None` if they do not allow
/// the call.
async fn ask_hooks(plugin: &Plugin, id: &ToolId, input: Value) -> (Vec<HookTrial>, Option<Value>) {
    let event = event_of(id.name(), id.as_str(), input.clone());
    let mut hooks = Vec::new();
    let mut admitted = Some(input);
    if let Some(hook) = &plugin.manifest().before_tool_call {
        let result = match sees(hook, &event) {
            false => unseen(),
            true => match ask(plugin, hook.timeout, event_json(&event)).await {
                Ok(answer) => {
                    admitted = admitted.filter(|_| answer.block.is_none());
                    let changed = answer.params.as_ref().filter(|_| admitted.is_some()).map(|params| {
                        let shown = plain(&params.to_string(), MAX_SHOWN_INPUT_CHARS);
                        admitted = Some(params.clone());
                        format!(": {shown}")
                    });
                    Ok(format!("{}{}", in_words(&answer), changed.unwrap_or_default()))
                }
                Err(why) => {
                    admitted = None;
                    Err(why)
                }
            },
        };
        hooks.push(HookTrial { hook: "before_tool_call", result });
    }
    if let Some(hook) = &plugin.manifest().after_tool_call {
        let result = if sees(hook, &event) { Ok("sees it".to_owned()) } else { unseen() };
        hooks.push(HookTrial { hook: "after_tool_call", result });
    }
    (hooks, admitted)
}

fn in_words(answer: &HookAnswer) -> String {
    match answer {
        HookAnswer { block: Some(reason), .. } => format!("blocks: {reason}"),
        HookAnswer { require_approval: Some(reason), params: None, .. } => format!("requires approval: {reason}"),
        HookAnswer { require_approval: Some(reason), params: Some(_), .. } => {
            format!("requires approval: {reason}; changes the input")
        }
        HookAnswer { params: Some(_), .. } => "changes the input".to_owned(),
        HookAnswer { params: None, .. } => "allows".to_owned(),
    }
}
