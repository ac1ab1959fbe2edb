//! An installed plugin as a tool source.

use std::sync::Arc;
use std::time::Duration;

use contract::config::PluginEntry;
use contract::scope::Scope;
use contract::text::plain;
use contract::tool::{Repeat, ToolId, ToolSpec};
use executor::{AuthorizedCall, CallFuture, Dispatch, DropCause, Outcome, ProgressSink, ToolResult, ToolSource};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::connection::{MAX_SHOWN_CHARS, RequestError};
use super::installed::{InstalledPlugin, short_hash};
use super::manifest::{Effects, Manifest, PluginTool};
use super::messages::{explain, scope_json};
use super::scopes::Scopes;
use super::supervisor::{Launch, PluginOptions, PluginStatus, Supervisor, Unavailable, Variables};

/// How often a call is tried if the plugin ends before it has received the call, or afterwards if the tool may be called
/// again.
const MAX_TRIES: u32 = 2;

/// The most content blocks of a result.
const MAX_BLOCKS: usize = 1_000;

/// A plugin that the user installed. It is started by its first call or hook.
#[derive(Debug)]
pub struct Plugin {
    installed: InstalledPlugin,
    manifest: Arc<Manifest>,
    settings: PluginEntry,
    supervisor: Arc<Supervisor>,
    pub(super) scopes: Scopes,
}

impl Plugin {
    pub(super) fn new(
        installed: InstalledPlugin,
        manifest: Manifest,
        settings: PluginEntry,
        variables: Variables,
        options: PluginOptions,
    ) -> Arc<Self> {
        let manifest = Arc::new(manifest);
        let launch = Launch {
            installed: installed.clone(),
            manifest: Arc::clone(&manifest),
            settings: settings.clone(),
            variables,
        };
        let supervisor = Supervisor::new(launch, options);
        let scopes = Scopes::new(&manifest);
        Arc::new(Self { installed, manifest, settings, supervisor, scopes })
    }

    pub fn id(&self) -> &str {
        &self.manifest.id
    }

    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    pub fn status(&self) -> PluginStatus {
        self.supervisor.status()
    }

    pub(super) fn supervisor(&self) -> &Arc<Supervisor> {
        &self.supervisor
    }

    /// Whether this is the plugin with exactly these files and settings.
    pub(super) fn is_same(&self, installed: &InstalledPlugin, settings: &PluginEntry) -> bool {
        self.installed.record.active == installed.record.active
            && self.installed.folder == installed.folder
            && self.settings.config == settings.config
            && self.settings.env == settings.env
    }

    /// Starts the plugin, if it does not run, and reports why it cannot be started.
    pub async fn start(&self) -> Result<(), Unavailable> {
        self.supervisor.acquire(Instant::now() + START_DEADLINE).await.map(drop)
    }

    /// Stops the plugin permanently: its namespaces are cleaned up, calls under way are cancelled, and new ones fail.
    pub async fn retire(&self) {
        self.scopes.clean_up(self.supervisor.connection().as_deref());
        self.supervisor.retire().await;
    }

    /// Calls a tool outside a run, for `cellmate plugins test`.
    pub async fn try_tool(&self, name: &str, input: Value) -> Result<ToolResult, String> {
        let Some(tool) = self.manifest.tool(name) else {
            return Err(format!("the plugin has no tool `{}`", plain(name, 200)));
        };
        catalog::arguments::check(&tool.spec.parameters, &input).map_err(|error| error.to_string())?;
        let ids = CallIds { call_id: "test", tool_call_id: "test", idempotency_key: "test" };
        let params = call_params(name, input, ids, &Scope::default());
        match self.supervisor.request("tools/call", params, tool.timeout, ProgressSink::default()).await {
            Ok(Ok(answer)) => returned(tool, answer.result),
            Ok(Err(error)) => Err(explain(&error, tool.timeout, tool.effects)),
            Err(why) => Err(why.to_string()),
        }
    }

    async fn call(&self, call: &AuthorizedCall) -> Outcome {
        let id = call.id();
        let Some(tool) = self.manifest.tool(id.name()).filter(|tool| tool.spec.id == *id) else {
            return self.not_called(id, "the plugin does not offer it");
        };
        if call.approved_definition().is_some_and(|approved| approved != tool.spec.hash()) {
            return self.not_called(id, "its definition has changed since it was approved; run a new cell");
        }
        let token = call.token();
        let ids = CallIds {
            call_id: &format!("{}:{}", token.run, token.call),
            tool_call_id: call.tool_call_id(),
            idempotency_key: call.key(),
        };
        let params = call_params(id.name(), call.input().clone(), ids, call.scope());
        let mut tries = 0;
        let mut not_called: fn(&Self, &ToolId, &str) -> Outcome = Self::not_called;
        loop {
            tries += 1;
            let made =
                self.supervisor.request("tools/call", params.clone(), tool.timeout, call.updates().clone()).await;
            let error = match made {
                Ok(Ok(answer)) => {
                    return match returned(tool, answer.result) {
                        Ok(returned) => Outcome::Returned(returned),
                        Err(why) => self.failed(id, &why),
                    };
                }
                Ok(Err(error)) => error,
                Err(why) => return not_called(self, id, &why.to_string()),
            };
            let may_repeat = tool.spec.repeat != Repeat::Never;
            match &error {
                RequestError::NotSent(_) if tries < MAX_TRIES => {}
                RequestError::Lost(_) if tries < MAX_TRIES && may_repeat => not_called = Self::not_called_again,
                RequestError::Lost(_) if !may_repeat => return Outcome::Unknown,
                RequestError::NotSent(_) | RequestError::Crowded => {
                    return not_called(self, id, &explain(&error, tool.timeout, tool.effects));
                }
                RequestError::TooLarge(why) => {
                    let why = format_args!("`{}` of plugin `{}`: {why}", id.name(), self.id());
                    return Outcome::dropped(DropCause::TooLarge, why);
                }
                _ => return self.failed(id, &explain(&error, tool.timeout, tool.effects)),
            }
        }
    }

    fn failed(&self, id: &ToolId, why: &str) -> Outcome {
        Outcome::Failed(format!("`{}` of plugin `{}` failed: {why}", id.name(), self.id()))
    }

    /// Returns the failure of a call during which the plugin ended, and that could not be made again.
    fn not_called_again(&self, id: &ToolId, why: &str) -> Outcome {
        self.failed(id, &format!("the plugin ended during the call and could not be called again: {why}"))
    }

    fn not_called(&self, id: &ToolId, why: &str) -> Outcome {
        Outcome::not_called(format_args!("`{}` of plugin `{}`", id.name(), self.id()), why)
    }
}

/// How long `cellmate plugins test` waits for a start; longer than the start itself may take.
const START_DEADLINE: Duration = Duration::from_secs(15);

/// The ids of a call.
struct CallIds<'a> {
    /// Run and number, under which the journal has the call.
    call_id: &'a str,
    /// The id in transcripts and in the events of hooks.
    tool_call_id: &'a str,
    idempotency_key: &'a str,
}

fn call_params(name: &str, input: Value, ids: CallIds<'_>, scope: &Scope) -> Value {
    let CallIds { call_id, tool_call_id, idempotency_key } = ids;
    json!({
        "name": name, "input": input, "callId": call_id, "toolCallId": tool_call_id, "idempotencyKey": idempotency_key,
        "scope": scope_json(scope),
    })
}

/// Converts the result of `tools/call`.
pub(super) fn returned(tool: &PluginTool, result: Value) -> Result<ToolResult, String> {
    let wrong = |what: &str| {
        let took_effect = if tool.effects == Effects::Reads { "" } else { "; the call may have taken effect" };
        Err(format!("its result is invalid: {what}{took_effect}"))
    };
    let Value::Object(mut fields) = result else {
        return wrong("it is not an object with `text`, `content` or `details`");
    };
    let is_known = |key: &String| ["text", "content", "details", "isError"].contains(&key.as_str());
    if let Some(unknown) = fields.keys().find(|key| !is_known(key)) {
        return wrong(&format!("it has the unknown key `{}`", plain(unknown, 100)));
    }
    let mut content = match fields.shift_remove("content") {
        None => Vec::new(),
        Some(Value::Array(blocks)) if blocks.len() <= MAX_BLOCKS && blocks.iter().all(is_block) => blocks,
        Some(_) => return wrong("`content` is not a list of content blocks"),
    };
    match fields.shift_remove("text") {
        None => {}
        Some(Value::String(text)) => content.push(json!({"type": "text", "text": text})),
        Some(_) => return wrong("`text` is not a text"),
    }
    let details = fields.shift_remove("details");
    match fields.get("isError") {
        None | Some(Value::Bool(false)) => {}
        Some(Value::Bool(true)) => return Err(error_text(&content)),
        Some(_) => return wrong("`isError` is not `true` or `false`"),
    }
    if let Some(schema) = &tool.spec.output {
        let Some(details) = &details else {
            return wrong("the tool has an output schema, but the result has no `details`");
        };
        if let Err(error) = catalog::arguments::check(schema, details) {
            return wrong(&format!(
                "`details` violates the output schema:\n{}",
                plain(&error.naming("details").to_string(), MAX_SHOWN_CHARS)
            ));
        }
    }
    if content.is_empty() && details.is_none() {
        return wrong("it has neither `text`, `content` nor `details`");
    }
    Ok(ToolResult { content, details, ..ToolResult::default() })
}

fn is_block(block: &Value) -> bool {
    let text = |block: &Map<String, Value>, key: &str| block.get(key).is_some_and(Value::is_string);
    block.as_object().is_some_and(|block| match block.get("type").and_then(Value::as_str) {
        Some("text") => text(block, "text"),
        Some("image" | "audio") => text(block, "data") && text(block, "mimeType"),
        _ => false,
    })
}

fn error_text(content: &[Value]) -> String {
    let texts: Vec<&str> = content.iter().filter_map(|block| block.get("text")?.as_str()).collect();
    if texts.is_empty() { "an error without a text".to_owned() } else { plain(&texts.join("\n"), MAX_SHOWN_CHARS) }
}

impl ToolSource for Plugin {
    /// Returns the tools of the manifest; the plugin need not run.
    fn tools(&self) -> Vec<ToolSpec> {
        let about: Arc<str> = self.manifest.description.as_str().into();
        let tools = self.manifest.tools.iter();
        tools.map(|tool| ToolSpec { about_owner: Some(Arc::clone(&about)), ..tool.spec.clone() }).collect()
    }

    /// Returns the plugin's id and the hash of its content: a standing approval does not hold for changed code.
    fn identity(&self) -> Option<String> {
        Some(format!("plugin {} {}", self.id(), short_hash(&self.installed.record.active)))
    }

    fn call(&self, call: AuthorizedCall) -> CallFuture<'_> {
        Box::pin(async move { Dispatch::Settled(self.call(&call).await) })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value, json};

    use super::returned;
    use crate::plugins::manifest::Manifest;

    #[test]
    fn a_result_is_converted_or_refused_with_a_reason() {
        let manifest = json!({
            "id": "p", "name": "P", "version": "1", "description": "d", "command": ["x"],
            "tools": [
                {"name": "plain", "description": "d", "effects": "reads"},
                {"name": "typed", "description": "d", "outputSchema": {
                    "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
                }},
            ],
        });
        let manifest = Manifest::read(manifest.to_string().as_bytes(), Path::new("m")).unwrap();
        let run = |name: &str, result: Value| returned(manifest.tool(name).unwrap(), result);
        assert_eq!(run("plain", json!({"text": "a"})).unwrap().to_cell_value(), json!("a"));
        assert_eq!(run("plain", json!({"details": null})).unwrap().to_cell_value(), Value::Null);
        assert_eq!(run("typed", json!({"details": {"n": 1}})).unwrap().to_cell_value(), json!({"n": 1}));
        assert_eq!(run("plain", json!({"text": "no such file", "isError": true})), Err("no such file".to_owned()));
        let image = json!({"type": "image", "data": "AA==", "mimeType": "image/png"});
        assert_eq!(run("plain", json!({"content": [image]})).unwrap().content.len(), 1);
        let wrong = [
            ("plain", json!("text"), "not an object"),
            ("plain", json!({}), "neither"),
            ("plain", json!({"text": 7}), "`text`"),
            ("plain", json!({"content": [{"type": "video"}]}), "content blocks"),
            ("plain", json!({"content": vec![json!({"type": "text", "text": ""}); 1_001]}), "content blocks"),
            ("plain", json!({"details": 1, "labels": []}), "unknown key `labels`"),
            ("plain", json!({"text": "a", "isError": "no"}), "`isError`"),
            ("typed", json!({"text": "a"}), "no `details`"),
            ("typed", json!({"details": {}}), "violates the output schema:\ndetails: missing property \"n\""),
            ("typed", json!({"details": {"n": "1"}}), "\ndetails.n: expected integer, was \"1\""),
            ("typed", json!({"details": {"m": 1}}), "may have taken effect"),
        ];
        for (name, result, expected) in wrong {
            let error = run(name, result.clone()).unwrap_err();
            assert!(error.contains(expected), "{result}: {error}");
        }
    }
}
