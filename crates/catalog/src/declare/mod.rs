//! Declares MCP tools in TypeScript, which a model reads instead of JSON Schemas.
//!
//! All contents come from servers. The text is bounded, always parses, and says where it is shortened.

mod api;
mod function;
mod names;
mod note;
mod print;
mod refs;
mod render;
mod result_type;
mod schema;
mod server;
mod shape;

use std::collections::BTreeMap;

use contract::tool::ToolSpec;

use crate::server::{INDEX, Server};
use crate::text::{clean, in_comment, quoted};
use crate::unavailable::UnavailableServer;
use server::{functions, namespace};

pub use api::ApiSchemas;
pub(crate) use api::server_api;

/// The maximum length of a file, outlines included.
const FILE_BYTES: usize = 384 << 10;

/// Space for everything around the declarations: the header, braces, counts.
const FRAME_BYTES: usize = 4 << 10;

/// The maximum length of one server's list of functions in the index.
const MAX_LISTED_BYTES: usize = 240;

pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) description: String,
    pub(crate) text: String,
}

/// The path of the file that declares the cell API, and its text.
const CELL_PATH: &str = "cell.d.ts";
const CELL_TEXT: &str = include_str!("cell.d.ts");

/// Returns `mcp/index.d.ts` and one file per server, if there are servers, and `cell.d.ts`.
pub(crate) fn files(
    tools: &[ToolSpec],
    servers: &BTreeMap<String, Server>,
    unavailable: &BTreeMap<String, UnavailableServer>,
) -> Vec<File> {
    let cell = File {
        path: CELL_PATH.to_owned(),
        description: "The functions of a cell besides tools: output, stored outputs, values of the session.".to_owned(),
        text: CELL_TEXT.to_owned(),
    };
    if servers.is_empty() && unavailable.is_empty() {
        return vec![cell];
    }
    let mut files = vec![File {
        path: format!("mcp/{INDEX}.d.ts"),
        description: "All MCP servers of this run.".to_owned(),
        text: index(servers, unavailable),
    }];
    files.extend(servers.iter().map(|(identifier, server)| File {
        path: format!("mcp/{identifier}.d.ts"),
        description: format!("{} functions of the MCP server {}.", server.len(), clean(&server.name, 80)),
        text: namespace(identifier, &functions(tools, server)),
    }));
    files.push(cell);
    files
}

/// Returns a tool's input type on one line, enough to call most tools without reading more.
pub(crate) fn signature(tool: &ToolSpec) -> String {
    render::signature(&tool.parameters)
}

/// Returns the index of all servers. It declares a namespace, because a `const` of that name would clash with the
/// servers' files.
pub(crate) fn index(servers: &BTreeMap<String, Server>, unavailable: &BTreeMap<String, UnavailableServer>) -> String {
    let mut references = String::new();
    let mut text = String::from("\ndeclare namespace MCP {\n  /** All servers of this run. */\n");
    text += "  function $api(): Promise<McpApiHeader>;\n";
    text += "  /** Searches all servers' functions by keywords, best first; `call` is the function to call, `signature` its input. */\n";
    text += "  function $search(query: string, options?: { limit?: number }): Promise<{ call: string; signature: string; description: string }[]>;\n\n";
    text += "  // API.read(\"mcp/<server>.d.ts\") declares a server's functions.\n";
    let mut omitted = 0;
    for (identifier, server) in servers {
        let comment = format!("Server {}: {}", quoted(&clean(&server.name, 80)), listed(server));
        let entry = format!("  /** {} */\n  namespace {identifier} {{}}\n", in_comment(&comment));
        let reference = format!("/// <reference path=\"./{identifier}.d.ts\" />\n");
        if references.len() + reference.len() + text.len() + entry.len() > FILE_BYTES - FRAME_BYTES {
            omitted += 1;
        } else {
            references += &reference;
            text += &entry;
        }
    }
    text += &omission(omitted, "  ");
    let mut omitted = 0;
    for server in unavailable.values() {
        let line = format!("  // Unavailable: server {}: {}\n", quoted(&server.name), server.reason);
        if references.len() + text.len() + line.len() > FILE_BYTES - FRAME_BYTES {
            omitted += 1;
        } else {
            text += &line;
        }
    }
    references + &text + &omission(omitted, "  ") + "}\n"
}

/// Lists as many functions as fit on a line.
fn listed(server: &Server) -> String {
    let mut line = String::new();
    for (position, path) in server.paths().enumerate() {
        if line.len() + path.len() > MAX_LISTED_BYTES {
            return format!("{line}… {} more", server.len() - position);
        }
        line += &path;
        line += if position + 1 == server.len() { "" } else { ", " };
    }
    line
}

/// Returns a comment line that counts omitted declarations, or nothing if there are none.
fn omission(omitted: usize, margin: &str) -> String {
    if omitted == 0 { String::new() } else { format!("{margin}/* … {omitted} more */\n") }
}

#[cfg(test)]
mod tests;
