//! Namespaces: a plugin's own API for its tools, as globals of a cell.
//!
//! A call in a namespace is a call of a tool in the catalog. This module only determines which one; policy, approvals
//! and hooks apply as to every tool call.

mod build;
mod error;
mod globals;
mod run_namespaces;
mod scope;

use std::collections::BTreeMap;

use contract::limits::MAX_NAMESPACES;
use contract::tool::{Source, ToolId};

use crate::Catalog;
use crate::text::clean;

pub use error::NamespaceError;
pub(crate) use run_namespaces::Namespace;
pub use run_namespaces::Namespaces;
pub use scope::{InputMapping, RunContext, ScopeFailure, ScopeMaker, ScopeValue};

/// A plugin's registration of a namespace. The loader, not the plugin, states which plugin owns it.
#[derive(Clone, Debug)]
pub struct Registration {
    pub id: String,
    pub global_name: String,
    pub description: String,
    /// Instructions for the model in addition to the description.
    pub prompt: Option<String>,
    /// All of these tools must be in a run's catalog and belong to the plugin, or the run does not see the namespace.
    pub required_tool_names: Vec<String>,
    pub scope: ScopeMaker,
}

/// The namespaces that loaded plugins registered. The plugin loader owns it; there is no process-wide registry.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    by_id: BTreeMap<String, RegisteredNamespace>,
}

#[derive(Clone, Debug)]
struct RegisteredNamespace {
    plugin_id: String,
    registration: Registration,
}

impl Registry {
    pub fn register(&mut self, plugin_id: &str, registration: Registration) -> Result<(), NamespaceError> {
        let global = registration.global_name.as_str();
        globals::check_global(global)?;
        if self.by_id.contains_key(&registration.id) {
            return Err(NamespaceError::DuplicateId(clean(&registration.id, build::SHOWN_BYTES)));
        }
        if let Some((owner, _)) = self.by_id.iter().find(|(_, other)| other.registration.global_name == global) {
            let owner = clean(owner, build::SHOWN_BYTES);
            return Err(NamespaceError::GlobalTaken { global: global.to_owned(), owner });
        }
        if self.by_id.len() == MAX_NAMESPACES {
            return Err(NamespaceError::TooMany);
        }
        let plugin_id = plugin_id.to_owned();
        self.by_id.insert(registration.id.clone(), RegisteredNamespace { plugin_id, registration });
        Ok(())
    }

    /// Removes a namespace; returns whether it was registered.
    pub fn unregister(&mut self, id: &str) -> bool {
        self.by_id.remove(id).is_some()
    }

    /// Removes all namespaces of a plugin that is disabled, removed or rolled back; returns their number.
    pub fn clear_plugin(&mut self, plugin_id: &str) -> usize {
        let before = self.by_id.len();
        self.by_id.retain(|_, registered| registered.plugin_id != plugin_id);
        before - self.by_id.len()
    }

    /// Returns the namespaces that one run sees. A namespace with an invalid scope is left out and reported in
    /// [`Namespaces::refused`], so that one broken plugin does not affect the others.
    pub fn visible(&self, catalog: &Catalog, context: &RunContext<'_>) -> Namespaces {
        let mut namespaces = Namespaces::default();
        for registered in self.by_id.values() {
            if let Some(tools) = registered.tools(catalog) {
                namespaces.add(&registered.registration.global_name, registered.open(&tools, context));
            }
        }
        namespaces
    }
}

impl RegisteredNamespace {
    /// Returns the required tools by name, if all are present.
    fn tools(&self, catalog: &Catalog) -> Option<BTreeMap<&str, ToolId>> {
        let required = self.registration.required_tool_names.iter();
        required.map(|name| Some((name.as_str(), self.own_tool(catalog, name)?))).collect()
    }

    /// Only looks at plugins and built-in tools: MCP servers and clients choose their own names, so a matching name
    /// proves nothing.
    fn own_tool(&self, catalog: &Catalog, name: &str) -> Option<ToolId> {
        [Source::Plugin, Source::Openclaw].into_iter().find_map(|source| {
            let tool = catalog.get(&format!("{}:{}:{name}", source.as_str(), self.plugin_id))?;
            // A colon in the plugin's id could make the id that of another owner's tool.
            (tool.id.owner() == self.plugin_id).then(|| tool.id.clone())
        })
    }

    fn open(&self, tools: &BTreeMap<&str, ToolId>, context: &RunContext<'_>) -> Result<Namespace, NamespaceError> {
        let Registration { global_name, description, prompt, scope, .. } = &self.registration;
        let scope =
            scope.make(context).map_err(|cause| NamespaceError::ScopeFailed { global: global_name.clone(), cause })?;
        let (descriptor, calls) = build::build(global_name, &scope, tools)?;
        Ok(Namespace { description: description.clone(), prompt: prompt.clone(), descriptor, calls })
    }
}

#[cfg(test)]
mod tests;
