//! The namespaces of one run, and which tool a call in one of them means.

use std::collections::BTreeMap;

use contract::limits::MAX_NAMESPACE_DEPTH;
use contract::tool::ToolId;
use serde_json::Value;

use super::build::{Call, Calls, written};
use super::error::NamespaceError;

/// Under their globals, and the reasons why others are not among them.
#[derive(Debug, Default)]
pub struct Namespaces {
    shown: BTreeMap<String, Namespace>,
    refused: Vec<NamespaceError>,
}

#[derive(Debug)]
pub(crate) struct Namespace {
    pub(crate) description: String,
    pub(crate) prompt: Option<String>,
    /// What the prelude builds it from.
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

    /// For the log: namespaces that should be here and are not.
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

    /// The tool a guest's call means and its input. The guest's word for the path counts for nothing.
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
