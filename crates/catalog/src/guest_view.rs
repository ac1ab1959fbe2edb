//! The tables from which a cell reads its catalog. `guest/prelude` defines their keys.

use std::collections::BTreeMap;

use contract::limits::MAX_COMPACT_DESCRIPTION_BYTES;
use contract::tables::CatalogTables;
use contract::tool::{Source, ToolSpec};
use serde_json::{Value, json};

use crate::namespace::Namespaces;
use crate::server::{Server, Spellings, server_spellings, tool_spellings};
use crate::text::clean_lines;
use crate::unavailable::UnavailableServer;
use crate::view::View;
use crate::{declare, names};

/// Returns a tool's entry without its parameters.
pub(crate) fn entry(tool: &ToolSpec) -> Value {
    let mut entry = json!({
        "id": tool.id.as_str(),
        "name": tool.id.name(),
        "description": tool.description,
        "source": tool.id.source().as_str(),
        "sourceName": tool.id.owner(),
    });
    if let (Some(label), Some(fields)) = (&tool.label, entry.as_object_mut()) {
        fields.insert("label".to_owned(), Value::from(label.as_str()));
    }
    entry
}

/// Returns a tool's entry for a view. Cells of code mode receive the description as data. In Tool Search it enters the
/// prompt, so text from servers is cleaned and bounded.
pub(crate) fn entry_in(view: View, tool: &ToolSpec, max_description: usize) -> Value {
    let mut entry = entry(tool);
    if let (View::ToolSearch, Some(fields)) = (view, entry.as_object_mut()) {
        let description = clean_lines(&tool.description, max_description);
        fields.insert("description".to_owned(), Value::from(description));
    }
    entry
}

/// Returns a tool as a search result: with its signature and, in code mode, the expression that calls an MCP tool.
pub(crate) fn hit_in(view: View, tool: &ToolSpec, called: Option<String>) -> Value {
    let mut entry = entry_in(view, tool, MAX_COMPACT_DESCRIPTION_BYTES);
    if let Some(fields) = entry.as_object_mut() {
        fields.insert("signature".to_owned(), Value::from(declare::signature(tool)));
        if let Some(called) = called {
            fields.insert("call".to_owned(), Value::from(called));
        }
    }
    entry
}

pub(crate) fn tables(
    tools: &[ToolSpec],
    servers: &BTreeMap<String, Server>,
    unavailable: &BTreeMap<String, UnavailableServer>,
    namespaces: &Namespaces,
) -> CatalogTables {
    let mut tables = BTreeMap::new();
    let mut put = |key: String, value: String| {
        tables.insert(key, value);
    };

    let all: Vec<Value> = tools.iter().filter(|tool| tool.id.source() != Source::Mcp).map(entry).collect();
    put("all".to_owned(), Value::from(all).to_string());
    let functions = names::unique_convenience_names(tools);
    put("tools".to_owned(), json!(functions.keys().collect::<Vec<_>>()).to_string());
    for (name, position) in &functions {
        if let Some(tool) = tools.get(*position) {
            put(format!("tool/{name}"), tool.id.as_str().to_owned());
        }
    }

    put("mcp".to_owned(), json!(servers.keys().collect::<Vec<_>>()).to_string());
    let own_names = servers.iter().map(|(identifier, server)| (server.name.as_str(), identifier.as_str()));
    let unavailable_names = unavailable.iter().map(|(identifier, server)| (server.name.as_str(), identifier.as_str()));
    put_spellings(&mut put, "", server_spellings(own_names.chain(unavailable_names)));
    for (identifier, server) in servers {
        put(format!("mcp/{identifier}"), descriptor(server).to_string());
        put_spellings(&mut put, identifier, tool_spellings(tools, server));
    }
    // These are not in the list of servers, but can be read by name: the host rejects every call of their functions with
    // the reason.
    for identifier in unavailable.keys() {
        put(format!("unavailable/{identifier}"), "true".to_owned());
    }

    // If this table is absent, a cell skips the search for globals.
    if !namespaces.is_empty() {
        put("namespaces".to_owned(), json!(namespaces.globals().collect::<Vec<_>>()).to_string());
    }
    for (global, namespace) in namespaces.iter() {
        put(format!("namespace/{global}"), namespace.descriptor.to_string());
    }

    let files = declare::files(tools, servers, unavailable);
    let listed: Vec<Value> = files
        .iter()
        .map(|file| json!({"path": file.path, "description": file.description, "bytes": file.text.len()}))
        .collect();
    put("api".to_owned(), Value::from(listed).to_string());
    for file in files {
        put(format!("api/{}", file.path), file.text);
    }
    CatalogTables::new(&tables)
}

/// Adds other spellings of a server's tools, or of servers if `server` is empty. Cells can read them, but do not list
/// them.
fn put_spellings(put: &mut impl FnMut(String, String), server: &str, spellings: Spellings) {
    for (name, identifier) in spellings.own {
        put(format!("alias/{server}/{name}"), identifier);
    }
    for (spelling, identifier) in spellings.folded {
        put(format!("fold/{server}/{spelling}"), identifier);
    }
}

/// Returns the tables for cells of Tool Search: `openclaw.tools` only, nothing of the catalog.
pub(crate) fn tool_search_tables() -> CatalogTables {
    let bridge = json!({"kind": "object", "entries": [["tools", {"kind": "tools"}]]});
    let tables = [("namespaces", json!(["openclaw"])), ("namespace/openclaw", bridge)];
    CatalogTables::new(&tables.into_iter().map(|(key, value)| (key.to_owned(), value.to_string())).collect())
}

/// Describes a server in the form from which the prelude builds namespaces.
fn descriptor(server: &Server) -> Value {
    let function = json!({"kind": "function"});
    let mut entries = vec![json!(["$serverName", {"kind": "value", "value": server.name}]), json!(["$api", function])];
    entries.extend(server.methods.keys().map(|method| json!([method, function])));
    entries.extend(server.groups().into_iter().map(|(group, methods)| {
        let methods: Vec<Value> = methods.into_iter().map(|method| json!([method, function])).collect();
        json!([group, {"kind": "object", "entries": methods}])
    }));
    json!({"kind": "object", "entries": entries})
}
