//! The immutable catalog of tools that one run may see, and the tables that its cells read.
//!
//! This crate is pure and deterministic: the same tools give the same catalog, names and bytes.

#![cfg_attr(not(test), warn(clippy::print_stdout))]

pub mod arguments;
mod declare;
mod find;
mod guest_view;
mod names;
mod namespace;
pub mod policy;
pub mod prompt;
mod reference;
pub mod search;
mod server;
mod surface;
mod text;
mod unavailable;
mod unique_names;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use contract::cell::Sources;
use contract::limits::{MAX_COMPACT_DESCRIPTION_BYTES, MAX_TOOL_DESCRIPTION_BYTES};
use contract::tables::CatalogTables;
use contract::tool::{Operation, Source, ToolHash, ToolId, ToolSpec};
use serde_json::{Value, json};

use search::Index;
use server::Server;

pub use declare::ApiSchemas;
pub use names::{convenience_name, mcp_identifier};
pub use namespace::{
    InputMapping, NamespaceError, Namespaces, Registration, Registry, RunContext, ScopeFailure, ScopeMaker, ScopeValue,
};
pub use prompt::ExecHold;
pub use surface::{
    ChosenBy, ChosenSurface, DirectTools, EntryPoint, Origin, Surface, SurfaceChoice, SurfaceConditions, SurfaceError,
    SurfaceOptions, SurfaceReport, SurfaceViolation, VisibleTool, mcp_tools, tool_search_tools,
};
pub use unavailable::UnavailableServer;
pub use view::View;

/// The tools that control the catalog itself, which are never part of it.
pub const CONTROL_TOOLS: [&str; 6] = ["exec", "wait", "tool_search_code", "tool_search", "tool_describe", "tool_call"];

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    #[error("two tools have the id `{0}`; ids must be unique")]
    Duplicate(String),
    #[error("the tool `{id}` is the operation {expected} of an MCP server; its id must be `mcp:<server>:{expected}`")]
    Operation { id: String, expected: &'static str },
}

/// The tools of one run, sorted by id.
#[derive(Debug)]
pub struct Catalog {
    tools: Vec<ToolSpec>,
    servers: BTreeMap<String, Server>,
    /// Configured MCP servers that cannot be called now, by the identifiers that they would have.
    unavailable: BTreeMap<String, UnavailableServer>,
    namespaces: Namespaces,
    tables: CatalogTables,
    direct_bytes: OnceLock<usize>,
    /// The hashes of the tools' definitions, in the order of the tools. Computed when they are first used.
    hashes: Box<[OnceLock<ToolHash>]>,
    /// The index of the catalog before this one, if there was one.
    former: Option<Arc<Index>>,
    index: OnceLock<Arc<Index>>,
    meaning: bool,
}

impl Catalog {
    pub fn new(mut tools: Vec<ToolSpec>) -> Result<Self, CatalogError> {
        tools.retain(|tool| !is_control_tool(tool));
        tools.sort_by(|a, b| a.id.cmp(&b.id));
        if let Some([twin, _]) = tools.array_windows().find(|[a, b]| a.id == b.id) {
            return Err(CatalogError::Duplicate(twin.id.as_str().to_owned()));
        }
        if let Some(misnamed) = tools.iter().find(|tool| !id_matches_operation(tool)) {
            let id = misnamed.id.as_str().to_owned();
            return Err(CatalogError::Operation { id, expected: misnamed.operation.as_str() });
        }
        let servers = server::servers(&tools);
        let (unavailable, namespaces) = (BTreeMap::new(), Namespaces::default());
        let tables = guest_view::tables(&tools, &servers, &unavailable, &namespaces);
        Ok(Self {
            hashes: tools.iter().map(|_| OnceLock::new()).collect(),
            tools,
            servers,
            unavailable,
            namespaces,
            tables,
            direct_bytes: OnceLock::new(),
            former: None,
            index: OnceLock::new(),
            meaning: true,
        })
    }

    /// Replaces the namespaces.
    pub fn with_namespaces(self, namespaces: Namespaces) -> Self {
        let tables = guest_view::tables(&self.tools, &self.servers, &self.unavailable, &namespaces);
        Self { namespaces, tables, ..self }
    }

    /// Names the MCP servers that are configured but cannot be called now. Servers that the catalog has are left out.
    pub fn with_unavailable(self, unavailable: Vec<UnavailableServer>) -> Self {
        let unavailable = unavailable::by_identifier(unavailable, &self.servers);
        if unavailable == self.unavailable {
            return self;
        }
        let tables = guest_view::tables(&self.tools, &self.servers, &unavailable, &self.namespaces);
        Self { unavailable, tables, ..self }
    }

    /// Returns the identifiers of the servers that can be called now, and of those that are starting.
    pub(crate) fn server_identifiers(&self) -> BTreeSet<&str> {
        let starting = self.unavailable.iter().filter(|(_, server)| server.is_starting());
        self.servers.keys().chain(starting.map(|(identifier, _)| identifier)).map(String::as_str).collect()
    }

    /// Returns why `MCP.<identifier>` cannot be called, as an error message. `None` if it is not an unavailable server.
    pub fn why_unavailable(&self, identifier: &str) -> Option<String> {
        let UnavailableServer { name, reason } = self.unavailable.get(identifier)?;
        Some(format!("the MCP server `{name}` is unavailable: {reason}; tell your user, or continue without it"))
    }

    pub fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    /// Returns the tool that `<global>.<path>(...arguments)` calls, and its input.
    pub fn namespace_call(
        &self,
        global: &str,
        path: &[&str],
        arguments: &[Value],
    ) -> Result<(ToolId, Value), NamespaceError> {
        // The namespaces may have been built for another catalog.
        self.namespaces.resolve(global, path, arguments, |tool| self.get(tool.as_str()).is_some())
    }

    /// Returns all tools, in the order of their ids.
    pub fn tools(&self) -> &[ToolSpec] {
        &self.tools
    }

    pub fn len(&self) -> usize {
        self.tools.len()
    }

    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    pub fn tables(&self) -> &CatalogTables {
        &self.tables
    }

    /// Returns the tables for cells with this view. In Tool Search they are the same for every catalog, because cells
    /// query the host instead.
    pub fn tables_for(&self, view: View) -> CatalogTables {
        match view {
            View::CodeMode => self.tables.clone(),
            View::ToolSearch => guest_view::tool_search_tables(),
        }
    }

    /// Returns the size of all tools in a request if each were shown directly, as [`VisibleTool::bytes`] counts it.
    pub fn direct_bytes(&self) -> usize {
        *self.direct_bytes.get_or_init(|| surface::direct_bytes(self))
    }

    pub fn sources(&self) -> Sources {
        let mut sources = Sources::default();
        for tool in &self.tools {
            match tool.id.source() {
                Source::Openclaw => sources.openclaw += 1,
                Source::Plugin => sources.plugin += 1,
                Source::Mcp => sources.mcp += 1,
                Source::Client => sources.client += 1,
            }
        }
        sources
    }

    pub fn get(&self, id: &str) -> Option<&ToolSpec> {
        self.tools.get(self.position(id)?)
    }

    /// Returns [`ToolSpec::hash`] of one of the catalog's tools. It is computed once: every call is journaled with it.
    pub fn hash_of(&self, tool: &ToolSpec) -> ToolHash {
        let known = self.position(tool.id.as_str()).and_then(|at| self.tools.get(at).zip(self.hashes.get(at)));
        match known.filter(|(own, _)| std::ptr::eq(*own, tool)) {
            Some((_, hash)) => *hash.get_or_init(|| tool.hash()),
            None => tool.hash(),
        }
    }

    fn position(&self, id: &str) -> Option<usize> {
        self.tools.binary_search_by(|tool| tool.id.as_str().cmp(id)).ok()
    }

    /// Returns a tool that this view can address by its id.
    pub fn get_in(&self, view: View, id: &str) -> Option<&ToolSpec> {
        self.get(id).filter(|tool| view.shows(tool))
    }

    /// Returns the tool behind `MCP.<server>.<method>` or `MCP.<server>.resources.list`; the path starts with the
    /// server.
    pub fn mcp_function(&self, path: &[&str]) -> Option<&ToolSpec> {
        let (server, path) = path.split_first()?;
        self.tools.get(self.servers.get(*server)?.find(path)?)
    }

    /// Returns a tool as searches list it, without its parameters.
    pub fn compact(&self, view: View, id: &str) -> Option<Value> {
        self.get_in(view, id).map(|tool| guest_view::entry_in(view, tool, MAX_COMPACT_DESCRIPTION_BYTES))
    }

    pub fn describe(&self, view: View, id: &str) -> Option<Value> {
        let tool = self.get_in(view, id)?;
        let mut described = guest_view::entry_in(view, tool, MAX_TOOL_DESCRIPTION_BYTES);
        if let Some(fields) = described.as_object_mut() {
            fields.insert("parameters".to_owned(), tool.parameters.clone());
        }
        Some(described)
    }

    /// Returns the result of `MCP.$api()`.
    pub fn mcp_api(&self) -> Value {
        let servers: Vec<Value> = self
            .servers
            .iter()
            .map(|(identifier, server)| {
                json!({"identifier": identifier, "serverName": server.name, "toolCount": server.methods.len()})
            })
            .collect();
        let mut api = json!({
            "kind": "mcp_api",
            "scope": "root",
            "header": declare::index(&self.servers, &self.unavailable),
            "servers": servers,
            "note": "API.read(\"mcp/<server>.d.ts\") returns each server's declarations",
        });
        if let (false, Some(fields)) = (self.unavailable.is_empty(), api.as_object_mut()) {
            let unavailable = self.unavailable.values();
            let unavailable = unavailable.map(|one| json!({"serverName": one.name, "reason": one.reason}));
            fields.insert("unavailable".to_owned(), unavailable.collect());
        }
        api
    }

    /// Returns the result of `MCP.<server>.$api(selector?, { schema? })`.
    pub fn mcp_server_api(&self, server: &str, selector: Option<&str>, schemas: ApiSchemas) -> Option<Value> {
        declare::server_api(&self.tools, server, self.servers.get(server)?, selector, schemas)
    }
}

/// The shell's own `exec` is an ordinary tool; only the control tool of that name is excluded.
fn is_control_tool(tool: &ToolSpec) -> bool {
    let name = tool.id.name();
    let shell = tool.id.as_str() == "openclaw:core:exec";
    CONTROL_TOOLS.contains(&name) && tool.id.source() == Source::Openclaw && tool.id.owner() == "core" && !shell
}

/// Together with unique ids, this makes each server's operations unique.
fn id_matches_operation(tool: &ToolSpec) -> bool {
    let is_named_so = tool.id.source() == Source::Mcp && tool.id.name() == tool.operation.as_str();
    tool.operation == Operation::Tool || is_named_so
}

#[cfg(test)]
mod tests;
