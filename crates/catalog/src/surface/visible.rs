//! Tools in the form in which a provider receives them.

use contract::cell::Language;
use contract::config::{CodeMode, Languages, ToolSearch};
use contract::limits::MAX_TOOL_DESCRIPTION_BYTES;
use contract::tool::ToolSpec;
use serde::Serialize;
use serde_json::{Value, json};

use super::DirectTools;
use crate::Catalog;
use crate::prompt::{self, Channel, ExecTexts};
use crate::text::clean_lines;

/// A tool as the model sees it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VisibleTool {
    /// The name that the model calls.
    pub name: String,
    /// What the tool does.
    pub description: String,
    /// JSON Schema of the input.
    pub parameters: Value,
}

pub(super) fn direct(tools: &DirectTools) -> Vec<VisibleTool> {
    let visible = |(name, tool): (&str, &ToolSpec)| VisibleTool {
        name: name.to_owned(),
        description: clean_lines(&tool.description, MAX_TOOL_DESCRIPTION_BYTES),
        parameters: parameters(&tool.parameters),
    };
    tools.iter().map(visible).collect()
}

/// Providers reject a whole request if one tool's schema is not an object.
fn parameters(schema: &Value) -> Value {
    let Value::Object(fields) = schema else { return json!({"type": "object", "properties": {}}) };
    let mut fields = fields.clone();
    fields.insert("type".to_owned(), Value::from("object"));
    Value::Object(fields)
}

/// All fields are optional in the contract's schema. If neither `code` nor `command` is given, the call fails with a
/// message. Over MCP, `code` is required and `command` is not shown, although it is accepted.
pub(super) fn exec(config: &CodeMode, catalog: &Catalog, channel: Channel<'_>) -> VisibleTool {
    let ExecTexts { description, namespaces } = prompt::exec(config, catalog, channel);
    let mut code =
        "The program: the body of an async function. `await API.read(\"cell.d.ts\")` declares the functions \
                    that it has besides tools."
            .to_owned();
    if let Some(namespaces) = namespaces {
        code = format!("{code}\n{namespaces}");
    }
    let code = json!({"type": "string", "description": code});
    let language = language(config.languages);
    let parameters = match channel {
        Channel::Contract(_) => {
            let command = json!({"type": "string", "description": "An alias of `code`."});
            object(json!({"code": code, "command": command, "language": language}), &[])
        }
        Channel::Mcp(_) => {
            let has_default = config.languages.allow(Language::JavaScript);
            let required: &[&str] = if has_default { &["code"] } else { &["code", "language"] };
            object(json!({"code": code, "language": language}), required)
        }
    };
    VisibleTool { name: "exec".to_owned(), description, parameters }
}

fn language(allowed: Languages) -> Value {
    let all = [Language::JavaScript, Language::TypeScript];
    let words: Vec<&str> = all.into_iter().filter(|one| allowed.allow(*one)).map(Language::as_str).collect();
    let has_default = allowed.allow(Language::JavaScript);
    let default = if has_default { "javascript if omitted" } else { "required" };
    json!({"type": "string", "enum": words, "description": format!("The language of `code`; {default}.")})
}

/// Over MCP, `runId` is optional: it may be lost with the connection.
pub(super) fn wait(config: &CodeMode, channel: Channel<'_>) -> VisibleTool {
    let run_id = json!({"type": "string", "description": "The `runId` of a result whose status is \"waiting\"."});
    let required: &[&str] = match channel {
        Channel::Contract(_) => &["runId"],
        Channel::Mcp(_) => &[],
    };
    VisibleTool {
        name: "wait".to_owned(),
        description: prompt::wait(config, channel),
        parameters: object(json!({ "runId": run_id }), required),
    }
}

pub(super) fn tool_search_code(config: &ToolSearch, catalog: &Catalog) -> VisibleTool {
    let code = json!({"type": "string", "description": "The body of an async function; `openclaw.tools` is in scope."});
    VisibleTool {
        name: "tool_search_code".to_owned(),
        description: prompt::tool_search_code(config, catalog),
        parameters: object(json!({ "code": code }), &["code"]),
    }
}

/// Descriptions name the tools with this prefix.
pub(super) fn tool_search(config: &ToolSearch, catalog: &Catalog, prefix: &str) -> Vec<VisibleTool> {
    let limit = json!({"type": "integer", "minimum": 1, "maximum": config.search.max});
    let id = json!({"type": "string", "description": format!("A tool's id, from `{prefix}tool_search`.")});
    let tool = |name: &str, description: String, parameters: Value| VisibleTool {
        name: name.to_owned(),
        description,
        parameters,
    };
    vec![
        tool(
            "tool_search",
            prompt::tool_search(config, catalog, prefix),
            object(json!({"query": {"type": "string"}, "limit": limit}), &["query"]),
        ),
        tool("tool_describe", prompt::tool_describe(prefix), object(json!({ "id": id }), &["id"])),
        tool("tool_call", prompt::tool_call(prefix), object(json!({"id": id, "args": {"type": "object"}}), &["id"])),
    ]
}

fn object(properties: Value, required: &[&str]) -> Value {
    let mut schema = json!({"type": "object", "properties": properties});
    if let (false, Some(fields)) = (required.is_empty(), schema.as_object_mut()) {
        fields.insert("required".to_owned(), json!(required));
    }
    schema
}
