//! The file of a server: the header, then everything it offers, as far as it fits.

use std::collections::BTreeSet;

use contract::tool::{Operation, ToolSpec};

use crate::server::Server;

use super::function::{Function, MAX_METHOD_NAME_BYTES};
use super::result_type;
use super::{FILE_BYTES, FRAME_BYTES, omission};

/// The maximum length of full declarations of one server; after that come outlines.
const FULL_BYTES: usize = 256 << 10;

const HEADER: &str = r#"type McpToolResult = {
  content?: unknown[];
  structuredContent?: unknown;
  isError?: boolean;
  [key: string]: unknown;
};

type McpApiHeader = {
  kind: "mcp_api";
  scope: "root" | "server" | "tool";
  header: string;
  server?: { identifier: string; serverName: string };
  servers?: { identifier: string; serverName: string; toolCount: number }[];
  unavailable?: { serverName: string; reason: string }[];
  tools?: { method: string; path: string; mcpTool: string; operation: string; description: string }[];
  schemas?: Record<string, unknown>;
  note: string;
};

"#;

/// Returns the tools and operations that a server offers.
pub(super) fn functions<'a>(tools: &'a [ToolSpec], server: &'a Server) -> Vec<Function<'a>> {
    let function = |method: &'a str, position: usize| {
        let tool = tools.get(position)?;
        Some(Function {
            operation: tool.operation,
            method,
            name: tool.id.name(),
            description: &tool.description,
            input: &tool.parameters,
            output: tool.output.as_ref(),
        })
    };
    let methods = server.methods.iter().filter_map(|(method, position)| function(method, *position));
    let operations = server.operations.iter();
    let others =
        operations.filter_map(|(operation, position)| function(operation.namespace_and_method()?.1, *position));
    methods.chain(others).collect()
}

pub(super) fn namespace(identifier: &str, functions: &[Function<'_>]) -> String {
    let operations: BTreeSet<Operation> = functions.iter().map(|function| function.operation).collect();
    let results: String = operations.into_iter().map(result_type::declaration).collect();
    let mut text = format!("{HEADER}{results}declare namespace MCP.{identifier} {{\n");
    text += "  /** Return this TypeScript-style API header. */\n";
    text += "  function $api(toolName?: string, options?: { schema?: boolean }): Promise<McpApiHeader>;\n\n";
    text + &members(functions) + "}\n"
}

/// Declares tools by method, then `resources` and `prompts`.
pub(super) fn members(functions: &[Function<'_>]) -> String {
    let mut text = String::new();
    let groups: BTreeSet<Option<&str>> = functions.iter().map(|function| function.namespace()).collect();
    for group in groups {
        let mut chosen: Vec<&Function<'_>> =
            functions.iter().filter(|function| function.namespace() == group).collect();
        chosen.sort_by_key(|function| function.method);
        let room = text.len();
        match group {
            None => text += &declarations(&chosen, 2, room),
            Some(name) => {
                let gap = if room == 0 { "" } else { "\n" };
                text += &format!("{gap}  namespace {name} {{\n{}  }}\n", declarations(&chosen, 4, room));
            }
        }
    }
    text
}

/// Declares functions in full while they fit beside the `used` bytes, then as outlines, then as a count.
fn declarations(functions: &[&Function<'_>], indent: usize, used: usize) -> String {
    let margin = " ".repeat(indent);
    let mut text = String::new();
    let mut is_full = false;
    let mut omitted = 0;
    for function in functions {
        let room = |limit: usize, text: &str| limit.saturating_sub(used + text.len() + FRAME_BYTES);
        if function.method.len() > MAX_METHOD_NAME_BYTES {
            omitted += 1;
            continue;
        }
        if !is_full {
            let whole = function.declaration(indent);
            if whole.len() < room(FULL_BYTES, &text) {
                text += if text.is_empty() { "" } else { "\n" };
                text += &whole;
                continue;
            }
            is_full = true;
            text += &format!("\n{margin}// Outlines from here on: $api(\"<method>\") declares one in full.\n");
        }
        let outline = function.outline(indent);
        if outline.len() < room(FILE_BYTES, &text) {
            text += &outline;
        } else {
            omitted += 1;
        }
    }
    text + &omission(omitted, &margin)
}
