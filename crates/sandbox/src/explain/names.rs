//! The names in a catalog's tables, and the messages for names that are not there.

use contract::json;
use contract::spelling::folded;
use serde_json::Value;

use super::similar::similar;
use crate::tables::Tables;

/// The maximum length of a name in a message.
const MAX_NAME_CHARS: usize = 64;

/// The maximum number of names that a message lists.
const MAX_LISTED: usize = 12;

/// Globals of cells that models write in another case.
const GLOBALS: [&str; 18] = [
    "MCP",
    "API",
    "ALL_TOOLS",
    "tools",
    "namespaces",
    "text",
    "json",
    "console",
    "yield_control",
    "setTimeout",
    "output",
    "image",
    "audio",
    "bytes",
    "store",
    "load",
    "forget",
    "keys",
];

/// The functions of the global `output`, as `guest/prelude/stored.js` defines them.
const OUTPUT_FUNCTIONS: [&str; 6] = ["list", "read", "lines", "json", "grep", "ref"];

/// A catalog, as far as its tables tell.
pub(super) struct Names<'a> {
    tables: &'a Tables,
}

impl<'a> Names<'a> {
    pub(super) fn new(tables: &'a Tables) -> Self {
        Self { tables }
    }

    /// Returns the function that finds tools. `None` if there are none.
    pub(super) fn search_function(&self) -> Option<&'static str> {
        if !self.servers().is_empty() {
            return Some("MCP.$search");
        }
        if !self.tools().is_empty() {
            return Some("tools.search");
        }
        // Cells of Tool Search have no tables of tools.
        self.value("namespace/openclaw").map(|_| "openclaw.tools.search")
    }

    /// Returns the message for a name that an object of the catalog does not have.
    pub(super) fn unknown_member(&self, label: &str, name: &str) -> String {
        match label {
            "MCP" => self.unknown_server(name),
            "tools" => self.unknown_tool(name),
            _ => match label.strip_prefix("MCP.").filter(|server| !server.contains('.')) {
                Some(server) => self.unknown_method(server, name),
                None => self.unknown_property(label, name),
            },
        }
    }

    /// Returns the message for something that exists but is not a function.
    pub(super) fn not_callable(&self, label: &str, name: &str) -> String {
        let (label, name) = (cleaned(label, MAX_NAME_CHARS), cleaned(name, MAX_NAME_CHARS));
        let methods = self.methods(&name);
        if label == "MCP" && !methods.is_empty() {
            let methods = listed(&methods, MAX_LISTED);
            return format!("MCP.{name} is a server, not a function; call one of its tools: {methods}");
        }
        let inside = self.members(&format!("{label}.{name}"));
        if inside.is_empty() {
            return format!("{label}.{name} is not a function");
        }
        format!("{label}.{name} is not a function; it has {}", listed(&inside, MAX_LISTED))
    }

    /// Returns the expression that a bare name may mean.
    pub(super) fn meant_anywhere(&self, name: &str) -> Option<String> {
        let same = |known: &&str| **known != *name && folded(known) == folded(name);
        if let Some(global) = GLOBALS.iter().find(|global| same(global)) {
            return Some((*global).to_owned());
        }
        if let Some(server) = self.server(name) {
            return Some(format!("MCP.{server}"));
        }
        if self.tools().iter().any(|tool| tool == name) {
            return Some(format!("tools.{name}"));
        }
        self.mcp_tools_named(name).into_iter().next()
    }

    fn unknown_server(&self, name: &str) -> String {
        let shown = cleaned(name, MAX_NAME_CHARS);
        let unknown = format!("there is no MCP server `{shown}`");
        let tools = self.mcp_tools_named(name);
        if !tools.is_empty() {
            return format!("{unknown}; did you mean {}?", quoted(&tools));
        }
        let servers = self.servers();
        if servers.is_empty() {
            let search = self.search_function().map(|search| format!("; `await {search}(query)` finds tools"));
            return format!("{unknown}: this run has no MCP servers{}", search.unwrap_or_default());
        }
        let near = similar(name, servers.iter().map(String::as_str));
        if near.is_empty() {
            let servers = listed(&servers, MAX_LISTED);
            return format!("{unknown}; write MCP.<server>.<tool>({{ … }}). Servers: {servers}");
        }
        let near: Vec<String> = near.into_iter().map(str::to_owned).collect();
        format!("{unknown}; did you mean {}? Servers: {}", quoted(&near), listed(&servers, MAX_LISTED))
    }

    fn unknown_method(&self, server: &str, name: &str) -> String {
        let (server, shown) = (cleaned(server, MAX_NAME_CHARS), cleaned(name, MAX_NAME_CHARS));
        let methods = self.methods(&server);
        if ["resources", "prompts"].contains(&name) {
            return format!("the MCP server `{server}` has no {name}; its tools are {}", listed(&methods, MAX_LISTED));
        }
        let unknown = format!("MCP.{server} has no tool `{shown}`");
        let near = similar(name, methods.iter().map(String::as_str));
        if !near.is_empty() {
            let near: Vec<String> = near.into_iter().map(str::to_owned).collect();
            return format!("{unknown}; did you mean {}?", quoted(&near));
        }
        let elsewhere = self.mcp_tools_named(name);
        if !elsewhere.is_empty() {
            return format!("{unknown}; did you mean {}?", quoted(&elsewhere));
        }
        let methods = listed(&methods, MAX_LISTED);
        format!("{unknown}; its tools are {methods}. `await MCP.{server}.$api()` describes them")
    }

    fn unknown_tool(&self, name: &str) -> String {
        let unknown = format!("`tools` has no `{}`", cleaned(name, MAX_NAME_CHARS));
        let elsewhere = self.mcp_tools_named(name);
        if !elsewhere.is_empty() {
            return format!("{unknown}; did you mean {}?", quoted(&elsewhere));
        }
        let tools = self.tools();
        let near = similar(name, tools.iter().map(String::as_str));
        if !near.is_empty() {
            let near: Vec<String> = near.into_iter().map(str::to_owned).collect();
            return format!("{unknown}; did you mean {}?", quoted(&near));
        }
        let servers = self.servers();
        if tools.is_empty() && !servers.is_empty() {
            let servers = listed(&servers, MAX_LISTED);
            return format!(
                "{unknown}: this run's tools are in `MCP`; `await MCP.$search(query)` finds them. Servers: {servers}"
            );
        }
        format!("{unknown}; `await tools.search(query)` finds tools")
    }

    /// Returns the message for an object of a plugin, or a group of a server.
    fn unknown_property(&self, label: &str, name: &str) -> String {
        let unknown = format!("{} has no `{}`", cleaned(label, 2 * MAX_NAME_CHARS), cleaned(name, MAX_NAME_CHARS));
        let members = self.members(label);
        let near = similar(name, members.iter().map(String::as_str));
        if !near.is_empty() {
            let near: Vec<String> = near.into_iter().map(str::to_owned).collect();
            return format!("{unknown}; did you mean {}?", quoted(&near));
        }
        if members.is_empty() {
            return unknown;
        }
        format!("{unknown}; it has {}", listed(&members, MAX_LISTED))
    }

    fn servers(&self) -> Vec<String> {
        self.list("mcp")
    }

    fn tools(&self) -> Vec<String> {
        self.list("tools")
    }

    /// Returns the identifier of a server by any of its spellings.
    fn server(&self, name: &str) -> Option<String> {
        self.servers().into_iter().find(|server| server == name).or_else(|| self.tables.meant("", name))
    }

    /// Returns the expressions for all MCP tools with this name, in any spelling.
    fn mcp_tools_named(&self, name: &str) -> Vec<String> {
        let method = |server: &String| Some(format!("MCP.{server}.{}", self.tables.meant(server, name)?));
        self.servers().iter().filter_map(method).take(3).collect()
    }

    /// Returns the tools of a server.
    fn methods(&self, server: &str) -> Vec<String> {
        let entries = self.entries(&format!("mcp/{server}"), &[]);
        let is_tool = |(name, entry): &(String, Value)| kind(entry) == "function" && !name.starts_with('$');
        entries.into_iter().filter(is_tool).map(|(name, _)| name).collect()
    }

    /// Returns the names in an object of the catalog.
    fn members(&self, label: &str) -> Vec<String> {
        let mut path = label.split('.');
        let global = path.next().unwrap_or_default();
        let entries = match global {
            "namespaces" => return self.list("namespaces"),
            "output" => return OUTPUT_FUNCTIONS.map(str::to_owned).to_vec(),
            "MCP" => self.entries(&format!("mcp/{}", path.next().unwrap_or_default()), &path.collect::<Vec<_>>()),
            global => self.entries(&format!("namespace/{global}"), &path.collect::<Vec<_>>()),
        };
        entries.into_iter().map(|(name, _)| name).filter(|name| !name.starts_with('$')).collect()
    }

    /// Returns the entries of an object that a table describes, or of an object inside it.
    fn entries(&self, key: &str, path: &[&str]) -> Vec<(String, Value)> {
        let mut found = self.value(key).unwrap_or_default();
        for name in path {
            let inner = pairs(found).into_iter().find(|(entry, _)| entry == name);
            found = inner.map(|(_, value)| value).unwrap_or_default();
        }
        pairs(found)
    }

    fn list(&self, key: &str) -> Vec<String> {
        self.value(key).and_then(|value| serde_json::from_value(value).ok()).unwrap_or_default()
    }

    fn value(&self, key: &str) -> Option<Value> {
        let bytes = self.tables.slice(self.tables.find(key.as_bytes())?)?;
        json::read(std::str::from_utf8(bytes).ok()?).ok()
    }
}

/// Returns the entries of an object's description: `{"kind": "object", "entries": [[name, description], …]}`.
fn pairs(mut description: Value) -> Vec<(String, Value)> {
    let entries = description.get_mut("entries").map(Value::take);
    entries.and_then(|entries| serde_json::from_value(entries).ok()).unwrap_or_default()
}

fn kind(entry: &Value) -> &str {
    entry.get("kind").and_then(Value::as_str).unwrap_or_default()
}

/// Returns names separated by commas; if there are too many, their number.
pub(super) fn listed(names: &[String], limit: usize) -> String {
    let shown: Vec<&str> = names.iter().take(limit).map(String::as_str).collect();
    match names.len().saturating_sub(limit) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Returns names as a choice: `` `a`, `b` or `c` ``.
fn quoted(names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

/// Returns a text on one line, shortened.
pub(super) fn cleaned(text: &str, limit: usize) -> String {
    let mut line: String =
        text.chars().take(limit).map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    if text.chars().nth(limit).is_some() {
        line.push('…');
    }
    line.trim().to_owned()
}
