//! The part of the `exec` description about `MCP` and plugins' namespaces, if a run has any.

use crate::Catalog;
use crate::namespace::Namespace;
use crate::text::clean;

/// The maximum length of the list of MCP servers.
const SERVERS_BYTES: usize = 2 << 10;

/// The maximum length of all plugins' namespaces together, and of one's description and prompt.
const NAMESPACES_BYTES: usize = 5 << 10;
const DESCRIPTION_BYTES: usize = 240;
const PROMPT_BYTES: usize = 1 << 10;

pub(super) fn block(catalog: &Catalog) -> Option<String> {
    let lines: Vec<String> = mcp(catalog).into_iter().chain(plugins(catalog)).collect();
    (!lines.is_empty()).then(|| format!("Namespaces, as globals and as `namespaces.<name>`:\n{}", lines.join("\n")))
}

/// Describes `MCP`: which servers there are, and how to find and call their tools.
fn mcp(catalog: &Catalog) -> Option<String> {
    if catalog.servers.is_empty() {
        return None;
    }
    let identifiers: Vec<&str> = catalog.servers.keys().map(String::as_str).collect();
    let has_more = catalog.servers.values().any(|server| !server.operations.is_empty());
    let more =
        if has_more { " Some servers have resources.list/read and prompts.list/get beside their tools." } else { "" };
    Some(format!(
        "\
- MCP: the tools of MCP servers. They are only here, not in `tools` or `ALL_TOOLS`.
  Servers: {}. `await MCP.$search(\"create an issue\")` searches the tools of all servers, best first, and returns {{ \
call, signature, description }}: `call` is the function to call, `signature` its input. `await \
API.read(\"mcp/<server>.d.ts\")` returns a server's TypeScript declarations, `await API.list(\"mcp\")` lists the \
files; neither is a tool call.
  Call `await MCP.<server>.<tool>({{ ...input }})` with one object. The result is {{ content, structuredContent, \
isError }}; check isError.{more} `await MCP.<server>.$api(\"<tool>\", {{ schema: true }})` returns one tool's \
schema.",
        listed(&identifiers)
    ))
}

/// Lists as many identifiers as fit, then the number of the others.
fn listed(identifiers: &[&str]) -> String {
    let mut line = String::new();
    for (position, identifier) in identifiers.iter().enumerate() {
        if line.len() + identifier.len() > SERVERS_BYTES {
            return format!("{line} and {} more", identifiers.len() - position);
        }
        line += if position == 0 { "" } else { ", " };
        line += identifier;
    }
    line
}

/// Describes plugins' namespaces in the order of their globals, as many as fit.
fn plugins(catalog: &Catalog) -> Vec<String> {
    let namespaces = catalog.namespaces.iter();
    let count = namespaces.len();
    let mut used = 0;
    let fits = |line: &String| {
        used += line.len() + 1;
        used <= NAMESPACES_BYTES
    };
    let mut lines: Vec<String> =
        namespaces.map(|(global, namespace)| entry(global, namespace)).take_while(fits).collect();
    if lines.len() < count {
        lines.push(format!("- {} more: Object.keys(namespaces) names them.", count - lines.len()));
    }
    lines
}

fn entry(global: &str, namespace: &Namespace) -> String {
    let description = clean(&namespace.description, DESCRIPTION_BYTES);
    let prompt = namespace.prompt.as_deref().map(|prompt| clean(prompt, PROMPT_BYTES)).unwrap_or_default();
    let parts = [format!("- {global}: {description}"), prompt];
    parts.iter().map(|part| part.trim_end()).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n  ")
}
