//! The format of namespaces in a file of canned tools.
//!
//! ```json
//! { "plugin": "tracker", "global": "Issues", "tools": ["list_issues", "update_issue"],
//!   "scope": { "repository": "demo", "list": { "$tool": "list_issues" },
//!              "update": { "$tool": "update_issue", "$input": ["number", "patch"] } } }
//! ```

use catalog::{InputMapping, NamespaceError, Registration, Registry, ScopeMaker, ScopeValue};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct NamespaceFormat {
    plugin: String,
    global: String,
    #[serde(default)]
    description: String,
    prompt: Option<String>,
    /// Names of the plugin's tools that its scope calls.
    tools: Vec<String>,
    scope: Value,
}

pub(super) fn register(registry: &mut Registry, format: NamespaceFormat) -> Result<(), NamespaceError> {
    let registration = Registration {
        id: format!("{}-{}", format.plugin, format.global),
        global_name: format.global,
        description: format.description,
        prompt: format.prompt,
        required_tool_names: format.tools,
        scope: ScopeMaker::fixed(scope(format.scope)),
    };
    registry.register(&format.plugin, registration)
}

fn scope(value: Value) -> ScopeValue {
    match value {
        Value::Object(fields) => match fields.get("$tool").and_then(Value::as_str) {
            Some(name) => ScopeValue::Tool { name: name.to_owned(), input: mapping(fields.get("$input")) },
            None => ScopeValue::Object(fields.into_iter().map(|(key, value)| (key, scope(value))).collect()),
        },
        Value::Array(items) => ScopeValue::Array(items.into_iter().map(scope).collect()),
        other => ScopeValue::Json(other),
    }
}

fn mapping(names: Option<&Value>) -> InputMapping {
    match names.and_then(Value::as_array) {
        Some(names) => InputMapping::Positional(names.iter().filter_map(Value::as_str).map(str::to_owned).collect()),
        None => InputMapping::First,
    }
}
