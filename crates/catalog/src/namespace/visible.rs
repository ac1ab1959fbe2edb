//! The namespaces of one run, and the tools that calls in them resolve to.

use std::collections::BTreeMap;

use contract::limits::MAX_NAMESPACE_DEPTH;
use contract::tool::ToolId;
use serde_json::Value;

use super::build::{Call, Calls, written};
use super::error::NamespaceError;

/// Namespaces by global name, and the reasons why others are missing.
#[derive(Debug, Default)]
pub struct Namespaces {
    shown: BTreeMap<String, Namespace>,
    refused: Vec<NamespaceError>,
}

#[derive(Debug)]
pub(crate) struct Namespace {
    pub(crate) description: String,
    pub(crate) prompt: Option<String>,
    /// The description from which the prelude builds the namespace.
    pub(crate) descriptor: Value,
    pub(crate) calls: Calls,
}

impl Namespaces {
    pub fn is_empty(&self) -> bool {
        self.shown.is_empty()
    }

    pub fn globals(&self) -> impl Iterator<Item = &str> {
        self.shown.keys().map(String::as_str)
    }

    /// Returns the reasons why namespaces are missing, for the log.
    pub fn refused(&self) -> &[NamespaceError] {
        &self.refused
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Namespace)> {
        self.shown.iter().map(|(global, namespace)| (global.as_str(), namespace))
    }

    pub(super) fn add(&mut self, global: &str, opened: Result<Namespace, NamespaceError>) {
        match opened {
            Ok(namespace) => {
                self.shown.insert(global.to_owned(), namespace);
            }
            Err(error) => self.refused.push(error),
        }
    }

    /// Returns the tool that a guest's call resolves to, and its input. The path comes from the guest and is not
    /// trusted.
    pub(crate) fn resolve(
        &self,
        global: &str,
        path: &[&str],
        arguments: &[Value],
        is_there: impl Fn(&ToolId) -> bool,
    ) -> Result<(ToolId, Value), NamespaceError> {
        match self.call(global, path).filter(|call| is_there(&call.tool)) {
            Some(Call { tool, input }) => Ok((tool.clone(), input.apply(arguments))),
            None => Err(NamespaceError::NotCallable(written(global, path))),
        }
    }

    fn call(&self, global: &str, path: &[&str]) -> Option<&Call> {
        if path.len() > MAX_NAMESPACE_DEPTH {
            return None;
        }
        let path: Vec<String> = path.iter().map(|key| (*key).to_owned()).collect();
        self.shown.get(global)?.calls.get(&path)
    }
}
