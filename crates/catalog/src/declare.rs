//! MCP tools as TypeScript declarations: what a model reads instead of schemas.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use contract::tool::ToolSpec;
use serde_json::{Value, json};

use crate::Server;

pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) description: String,
    pub(crate) text: String,
}

const HEADER: &str = "\
type McpToolResult = {
  content?: unknown[];
  structuredContent?: unknown;
  isError?: boolean;
  [key: string]: unknown;
};

";

/// `mcp/index.d.ts` and one file a server; none where there is no server.
pub(crate) fn files(tools: &[ToolSpec], servers: &BTreeMap<String, Server>) -> Vec<File> {
    if servers.is_empty() {
        return Vec::new();
    }
    let mut files = vec![File {
        path: "mcp/index.d.ts".to_owned(),
        description: "All MCP servers of this run.".to_owned(),
        text: index(servers),
    }];
    files.extend(servers.iter().map(|(identifier, server)| File {
        path: format!("mcp/{identifier}.d.ts"),
        description: format!("{} tools of the MCP server {}.", server.methods.len(), server.name),
        text: declaration(tools, identifier, server),
    }));
    files
}

pub(crate) fn index(servers: &BTreeMap<String, Server>) -> String {
    let mut text = String::new();
    for identifier in servers.keys() {
        text += &format!("/// <reference path=\"./{identifier}.d.ts\" />\n");
    }
    text += "\ndeclare const MCP: {\n";
    for identifier in servers.keys() {
        text += &format!("  {identifier}: typeof MCP.{identifier};\n");
    }
    text + "};\n"
}

fn declaration(tools: &[ToolSpec], identifier: &str, server: &Server) -> String {
    let mut text = format!("{HEADER}declare namespace MCP.{identifier} {{\n");
    text += "  /** Return this TypeScript-style API header. */\n";
    text += "  function $api(toolName?: string, options?: { schema?: boolean }): Promise<McpApiHeader>;\n";
    for (method, position) in &server.methods {
        if let Some(tool) = tools.get(*position) {
            text.push('\n');
            text += &function(method, tool);
        }
    }
    text + "}\n"
}

fn function(method: &str, tool: &ToolSpec) -> String {
    let mut text = String::new();
    if !tool.description.is_empty() {
        text += "  /**\n";
        for line in tool.description.lines().filter(|line| !line.trim().is_empty()).take(12) {
            text += &format!("   * {}\n", line.trim().replace("*/", "*\\/"));
        }
        text += "   */\n";
    }
    let input = match type_of(&tool.parameters, 0) {
        empty if empty == "{}" => "input?: Record<string, never>".to_owned(),
        typed => format!("input: {typed}"),
    };
    // Infallible: a String takes whatever is written to it.
    let _written = writeln!(text, "  function {method}({input}): Promise<McpToolResult>;");
    text
}

const MAX_DEPTH: usize = 6;

fn type_of(schema: &Value, depth: usize) -> String {
    if depth > MAX_DEPTH {
        return "unknown".to_owned();
    }
    if let Some(options) = schema.get("enum").and_then(Value::as_array).filter(|options| options.len() <= 16) {
        return options.iter().map(Value::to_string).collect::<Vec<_>>().join(" | ");
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("string") => "string".to_owned(),
        Some("number" | "integer") => "number".to_owned(),
        Some("boolean") => "boolean".to_owned(),
        Some("null") => "null".to_owned(),
        Some("array") => {
            format!("Array<{}>", schema.get("items").map_or("unknown".to_owned(), |items| type_of(items, depth + 1)))
        }
        Some("object") => object_type(schema, depth),
        _ if schema.get("properties").is_some() => object_type(schema, depth),
        _ => "unknown".to_owned(),
    }
}

fn object_type(schema: &Value, depth: usize) -> String {
    let required: Vec<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let Some(properties) = schema.get("properties").and_then(Value::as_object).filter(|p| !p.is_empty()) else {
        return if depth == 0 { "{}".to_owned() } else { "Record<string, unknown>".to_owned() };
    };
    let (mut first, rest): (Vec<_>, Vec<_>) =
        properties.iter().partition(|(name, _)| required.contains(&name.as_str()));
    first.extend(rest);
    let fields: Vec<String> = first
        .into_iter()
        .map(|(name, schema)| {
            let mark = if required.contains(&name.as_str()) { "" } else { "?" };
            format!("{}{mark}: {}", property_name(name), type_of(schema, depth + 1))
        })
        .collect();
    format!("{{ {} }}", fields.join("; "))
}

fn property_name(name: &str) -> String {
    let identifier = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '$')
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty();
    if identifier { name.to_owned() } else { Value::from(name).to_string() }
}

/// What `MCP.<server>.$api()` answers; a selector is a method or the tool's own name.
pub(crate) fn server_api(
    tools: &[ToolSpec],
    identifier: &str,
    server: &Server,
    selector: Option<&str>,
    with_schema: bool,
) -> Option<Value> {
    let chosen: Vec<(&String, &ToolSpec)> = server
        .methods
        .iter()
        .filter_map(|(method, position)| Some((method, tools.get(*position)?)))
        .filter(|(method, tool)| selector.is_none_or(|wanted| wanted == method.as_str() || wanted == tool.id.name()))
        .collect();
    let listed: Vec<Value> = chosen
        .iter()
        .map(|(method, tool)| {
            json!({
                "method": method,
                "path": method,
                "mcpTool": tool.id.name(),
                "operation": "tool",
                "description": tool.description,
            })
        })
        .collect();
    let mut api = json!({
        "kind": "mcp_api",
        "scope": if selector.is_some() && !chosen.is_empty() { "tool" } else { "server" },
        "server": {"identifier": identifier, "serverName": server.name},
        "header": chosen.iter().map(|(method, tool)| function(method, tool)).collect::<String>(),
        "tools": listed,
        "note": format!("call as MCP.{identifier}.<method>({{ ...input }})"),
    });
    if with_schema {
        let schemas: serde_json::Map<String, Value> =
            chosen.iter().map(|(method, tool)| ((*method).clone(), tool.parameters.clone())).collect();
        api.as_object_mut()?.insert("schemas".to_owned(), Value::Object(schemas));
    }
    Some(api)
}
