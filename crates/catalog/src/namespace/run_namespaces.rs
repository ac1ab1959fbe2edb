//! The namespaces of one run, and the tools that calls in them resolve to.

use std::collections::BTreeMap;

use contract::limits::MAX_NAMESPACE_DEPTH;
use contract::tool::ToolId;
use serde_json::Value;

use super::build::{Call, Calls, written};
use super::error::NamespaceError;

/// The namespaces that a run sees, by global name, and the reasons why it does not see others.
#[derive(Debug, Default)]
pub struct Namespaces {
    visible: BTreeMap<String, Namespace>,
    refused: Vec<NamespaceError>,
}

/// A namespace: its texts for the model, its shape in the guest, and its calls.
#[derive(Debug)]
pub(crate) struct Namespace {
    pub(crate) description: String,
    pub(crate) prompt: Option<String>,
    /// The description from which the prelude builds the namespace.
    pub(crate) descriptor: Value,
    /// The tool call behind each path of keys in the namespace.
    pub(crate) calls: Calls,
}

impl Namespaces {
    pub fn is_empty(&self) -> bool {
        self.visible.is_empty()
    }

    /// Returns the global names of the namespaces that the run sees.
    pub fn globals(&self) -> impl Iterator<Item = &str> {
        self.visible.keys().map(String::as_str)
    }

    /// Returns the errors of namespaces that the run does not see, for the log.
    pub fn refused(&self) -> &[NamespaceError] {
        &self.refused
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Namespace)> {
        self.visible.iter().map(|(global, namespace)| (global.as_str(), namespace))
    }

    /// Adds a namespace, or the reason why the run does not see it.
    pub(super) fn add(&mut self, global: &str, built: Result<Namespace, NamespaceError>) {
        match built {
            Ok(namespace) => {
                self.visible.insert(global.to_owned(), namespace);
            }
            Err(error) => self.refused.push(error),
        }
    }

    /// Returns the tool that a guest's call resolves to, and its input. Fails if the path leads to no call, or to a tool
    /// that is not in the catalog. The path comes from the guest and is not trusted.
    pub(crate) fn resolve(
        &self,
        global: &str,
        path: &[&str],
        arguments: &[Value],
        is_in_catalog: impl Fn(&ToolId) -> bool,
    ) -> Result<(ToolId, Value), NamespaceError> {
        match self.find_call(global, path).filter(|call| is_in_catalog(&call.tool)) {
            Some(Call { tool, input }) => Ok((tool.clone(), input.apply(arguments))),
            None => Err(NamespaceError::NotCallable(written(global, path))),
        }
    }

    fn find_call(&self, global: &str, path: &[&str]) -> Option<&Call> {
        if path.len() > MAX_NAMESPACE_DEPTH {
            return None;
        }
        let path: Vec<String> = path.iter().map(|key| (*key).to_owned()).collect();
        self.visible.get(global)?.calls.get(&path)
    }
}
