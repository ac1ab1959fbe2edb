//! MCP servers under the names that cells use: `MCP.<server>.<method>`, and `resources` and `prompts` beside the
//! methods.

use std::collections::{BTreeMap, BTreeSet};

use contract::spelling::folded;
use contract::tool::{Operation, Source, ToolSpec};

use crate::names::{JS_RESERVED_WORDS, mcp_identifier};
use crate::unique_names::UniqueNames;

/// Properties of `MCP` that a server's identifier must not shadow.
const SERVER_RESERVED: [&str; 5] = ["$api", "$search", "then", "constructor", "prototype"];

/// The name of the file that lists all servers, `mcp/index.d.ts`. A server of this name gets a numbered identifier, and
/// can still be called by its own name.
pub(crate) const INDEX: &str = "index";

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
                let is_there = |operation: &&Operation| operation.namespace_and_method() == Some((*group, *method));
                self.operations.keys().find(is_there).and_then(|operation| self.operations.get(operation)).copied()
            }
            _ => None,
        }
    }

    /// Returns the path that [`find`](Self::find) resolves to this position, as it is written after the server's
    /// identifier.
    pub(crate) fn path_to(&self, position: usize) -> Option<String> {
        let method = self.methods.iter().find(|(_, at)| **at == position).map(|(method, _)| method.clone());
        method.or_else(|| {
            let (operation, _) = self.operations.iter().find(|(_, at)| **at == position)?;
            operation.namespace_and_method().map(|(group, method)| format!("{group}.{method}"))
        })
    }

    /// Returns `resources` and `prompts`, if the server has them, with their methods.
    pub(crate) fn groups(&self) -> BTreeMap<&'static str, BTreeSet<&'static str>> {
        let mut groups: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for (group, method) in self.operations.keys().filter_map(|operation| operation.namespace_and_method()) {
            groups.entry(group).or_default().insert(method);
        }
        groups
    }

    /// Returns the tools' own names where they differ from their methods, as properties that a cell may read.
    fn own_names<'a>(&'a self, tools: &'a [ToolSpec]) -> impl Iterator<Item = (&'a str, &'a str)> {
        let own = |(method, position): (&'a String, &usize)| Some((tools.get(*position)?.id.name(), method.as_str()));
        self.methods.iter().filter_map(own)
    }

    /// Returns everything that a cell can call, as it is written after the server's identifier.
    pub(crate) fn paths(&self) -> impl Iterator<Item = String> {
        let dotted = |(group, methods): (&'static str, BTreeSet<&'static str>)| {
            methods.into_iter().map(move |method| format!("{group}.{method}"))
        };
        self.methods.keys().cloned().chain(self.groups().into_iter().flat_map(dotted))
    }
}

/// The tools of a server with their own names, by their positions in the catalog.
type NamedTools<'a> = Vec<(&'a str, usize)>;

/// Groups MCP tools by server, under the servers' identifiers. `tools` must be sorted by id, so that names that collide
/// get the same numbers every time.
pub(crate) fn servers(tools: &[ToolSpec]) -> BTreeMap<String, Server> {
    let mut by_owner: BTreeMap<&str, (Server, NamedTools<'_>)> = BTreeMap::new();
    for (position, tool) in tools.iter().enumerate().filter(|(_, tool)| tool.id.source() == Source::Mcp) {
        let (server, methods) = by_owner.entry(tool.id.owner()).or_default();
        if tool.operation == Operation::Tool {
            methods.push((tool.id.name(), position));
        } else {
            server.operations.insert(tool.operation, position);
        }
    }
    let identifiers = UniqueNames::new(|name| name == INDEX || is_reserved(name, &SERVER_RESERVED));
    let owners = identifiers_of(by_owner.keys().copied().map(|owner| (owner, owner)), identifiers, "server");
    owners
        .into_iter()
        .filter_map(|(identifier, owner)| {
            let (server, methods) = by_owner.remove(owner)?;
            let free = UniqueNames::new(|name| is_reserved(name, &METHOD_RESERVED));
            let methods = identifiers_of(methods.into_iter(), free, "tool");
            Some((identifier, Server { name: owner.to_owned(), methods, ..server }))
        })
        .collect()
}

/// Gives each name an identifier. A name that is an identifier keeps it, whatever the others become.
fn identifiers_of<'a, T>(
    named: impl Iterator<Item = (&'a str, T)>,
    mut free: UniqueNames,
    fallback: &str,
) -> BTreeMap<String, T> {
    let mut identifiers = BTreeMap::new();
    let mut others = Vec::new();
    for (name, value) in named {
        let identifier = mcp_identifier(name, fallback);
        if identifier == name && free.take_unchanged(name) {
            identifiers.insert(identifier, value);
        } else {
            others.push((identifier, value));
        }
    }
    for (identifier, value) in others {
        identifiers.insert(free.take(&identifier), value);
    }
    identifiers
}

/// Alternative spellings of names, and the identifiers that they stand for.
#[derive(Debug, Default)]
pub(crate) struct Spellings {
    /// The names that servers themselves use.
    pub(crate) own: BTreeMap<String, String>,
    /// Names without separators and case, if only one identifier is like it.
    pub(crate) folded: BTreeMap<String, String>,
}

/// Returns other spellings of servers, which are pairs of a name and its identifier.
pub(crate) fn server_spellings<'a>(servers: impl Iterator<Item = (&'a str, &'a str)>) -> Spellings {
    spellings(servers, &SERVER_RESERVED)
}

/// Returns other spellings of a server's tools.
pub(crate) fn tool_spellings(tools: &[ToolSpec], server: &Server) -> Spellings {
    spellings(server.own_names(tools), &METHOD_RESERVED)
}

fn spellings<'a>(names: impl Iterator<Item = (&'a str, &'a str)>, reserved: &[&str]) -> Spellings {
    let mut own = BTreeMap::new();
    let mut alike: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for (name, identifier) in names {
        // A word of JavaScript can be the name of a property.
        if name != identifier && !reserved.contains(&name) && name != "__proto__" {
            own.insert(name.to_owned(), identifier.to_owned());
        }
        alike.entry(folded(name)).or_default().insert(identifier);
        alike.entry(folded(identifier)).or_default().insert(identifier);
    }
    let only = |(spelling, identifiers): (String, BTreeSet<&str>)| {
        let identifier = identifiers.first().filter(|_| identifiers.len() == 1 && !spelling.is_empty())?;
        let identifier = (*identifier).to_owned();
        Some((spelling, identifier))
    };
    Spellings { own, folded: alike.into_iter().filter_map(only).collect() }
}

fn is_reserved(name: &str, words: &[&str]) -> bool {
    words.contains(&name) || JS_RESERVED_WORDS.contains(&name)
}

#[cfg(test)]
mod tests;
