//! MCP servers under the names that cells use: `MCP.<server>.<method>`, and `resources` and `prompts` beside the
//! methods.

use std::collections::{BTreeMap, BTreeSet};

use contract::tool::{Operation, Source, ToolSpec};

use crate::free_names::FreeNames;
use crate::names::{JS_WORDS, mcp_identifier};

/// Properties of `MCP` that a server's identifier must not shadow.
const SERVER_RESERVED: [&str; 5] = ["$api", "$search", "then", "constructor", "prototype"];

/// Properties of `MCP.<server>` that a method must not shadow.
const METHOD_RESERVED: [&str; 7] = ["$api", "$serverName", "resources", "prompts", "then", "constructor", "prototype"];

/// The methods and operations of one server; the numbers are positions in the catalog.
#[derive(Debug, Default)]
pub(crate) struct Server {
    /// The server's configured name.
    pub(crate) name: String,
    pub(crate) methods: BTreeMap<String, usize>,
    /// Operations other than tools, each with a fixed path.
    pub(crate) operations: BTreeMap<Operation, usize>,
}

impl Server {
    pub(crate) fn len(&self) -> usize {
        self.methods.len() + self.operations.len()
    }

    /// Returns the position of the tool at `createIssue` or `resources.list`.
    pub(crate) fn find(&self, path: &[&str]) -> Option<usize> {
        match path {
            [method] => self.methods.get(*method).copied(),
            [group, method] => {
                let is_there = |operation: &&Operation| operation.place() == Some((*group, *method));
                self.operations.keys().find(is_there).and_then(|operation| self.operations.get(operation)).copied()
            }
            _ => None,
        }
    }

    /// Returns the path that [`find`](Self::find) resolves to this position, as it is written after the server's
    /// identifier.
    pub(crate) fn path_to(&self, position: usize) -> Option<String> {
        let method = self.methods.iter().find(|(_, at)| **at == position).map(|(method, _)| method.clone());
        let operation = || self.operations.iter().find(|(_, at)| **at == position).and_then(|(one, _)| one.place());
        method.or_else(|| operation().map(|(group, method)| format!("{group}.{method}")))
    }

    /// Returns `resources` and `prompts`, if the server has them, with their methods.
    pub(crate) fn groups(&self) -> BTreeMap<&'static str, BTreeSet<&'static str>> {
        let mut groups: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for (group, method) in self.operations.keys().filter_map(|operation| operation.place()) {
            groups.entry(group).or_default().insert(method);
        }
        groups
    }

    /// Returns everything that a cell can call, as it is written after the server's identifier.
    pub(crate) fn paths(&self) -> impl Iterator<Item = String> {
        let dotted = |(group, methods): (&'static str, BTreeSet<&'static str>)| {
            methods.into_iter().map(move |method| format!("{group}.{method}"))
        };
        self.methods.keys().cloned().chain(self.groups().into_iter().flat_map(dotted))
    }
}

/// Groups MCP tools by server, under the servers' identifiers. `tools` must be sorted by id, so that names that collide
/// get the same numbers every time.
pub(crate) fn servers(tools: &[ToolSpec]) -> BTreeMap<String, Server> {
    let mut identifiers = FreeNames::new(|name| is_reserved(name, &SERVER_RESERVED));
    let mut by_owner: BTreeMap<&str, (String, Server, FreeNames)> = BTreeMap::new();
    for (position, tool) in tools.iter().enumerate().filter(|(_, tool)| tool.id.source() == Source::Mcp) {
        let owner = tool.id.owner();
        let (_, server, methods) = by_owner.entry(owner).or_insert_with(|| {
            let server = Server { name: owner.to_owned(), ..Server::default() };
            let methods = FreeNames::new(|name| is_reserved(name, &METHOD_RESERVED));
            (identifiers.take(&mcp_identifier(owner, "server")), server, methods)
        });
        if tool.operation == Operation::Tool {
            server.methods.insert(methods.take(&mcp_identifier(tool.id.name(), "tool")), position);
        } else {
            server.operations.insert(tool.operation, position);
        }
    }
    by_owner.into_values().map(|(identifier, server, _)| (identifier, server)).collect()
}

fn is_reserved(name: &str, words: &[&str]) -> bool {
    words.contains(&name) || JS_WORDS.contains(&name)
}

#[cfg(test)]
mod tests;
