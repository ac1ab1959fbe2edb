//! The result of `MCP.<server>.$api()`.

use contract::tool::ToolSpec;
use serde_json::{Map, Value, json};

use crate::server::Server;
use crate::text::cut;

use super::function::Function;
use super::server::{functions, members};

/// The maximum length of a tool's description in the list.
const MAX_DESCRIPTION: usize = 16 << 10;

/// Whether `$api` also returns the JSON Schemas of the tools' arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiSchemas {
    Included,
    Omitted,
}

/// Returns the declarations of a server, or of the tool that `selector` names by its method, path or own name.
pub(crate) fn server_api(
    tools: &[ToolSpec],
    identifier: &str,
    server: &Server,
    selector: Option<&str>,
    schemas: ApiSchemas,
) -> Option<Value> {
    let mut chosen = functions(tools, server);
    if let Some(wanted) = selector {
        chosen.retain(|function| function.method == wanted || function.path() == wanted || function.name == wanted);
    }
    let mut api = json!({
        "kind": "mcp_api",
        "scope": if selector.is_some() && !chosen.is_empty() { "tool" } else { "server" },
        "server": {"identifier": identifier, "serverName": server.name},
        "header": members(&chosen),
        "tools": chosen.iter().map(entry).collect::<Vec<_>>(),
        "note": format!("call as MCP.{identifier}.<method>({{ ...input }})"),
    });
    if schemas == ApiSchemas::Included {
        let schemas: Map<String, Value> =
            chosen.iter().map(|function| (function.path(), function.input.clone())).collect();
        api.as_object_mut()?.insert("schemas".to_owned(), Value::Object(schemas));
    }
    Some(api)
}

fn entry(function: &Function<'_>) -> Value {
    json!({
        "method": function.method,
        "path": function.path(),
        "mcpTool": function.name,
        "operation": function.operation.as_str(),
        "description": cut(function.description.to_owned(), MAX_DESCRIPTION),
    })
}
