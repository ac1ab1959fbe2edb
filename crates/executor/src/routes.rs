//! The map from a tool to its source.

use std::collections::HashMap;
use std::sync::Arc;

use contract::tool::{ToolId, ToolSpec};

use crate::source::ToolSource;

/// Finds the source of a tool.
#[derive(Debug, Default)]
pub struct Routes {
    sources: HashMap<ToolId, Arc<dyn ToolSource>>,
}

impl Routes {
    /// Collects the tools of all sources. The first source that has an id keeps it, so a source that repeats an id, or
    /// uses another source's id, does not affect the others.
    pub fn of(sources: &[Arc<dyn ToolSource>]) -> (Self, Vec<ToolSpec>) {
        let mut routes = Self::default();
        let mut tools = Vec::new();
        for source in sources {
            for tool in source.tools() {
                if routes.sources.contains_key(&tool.id) {
                    continue;
                }
                routes.sources.insert(tool.id.clone(), Arc::clone(source));
                tools.push(tool);
            }
        }
        (routes, tools)
    }

    pub(crate) fn to(&self, id: &ToolId) -> Option<&Arc<dyn ToolSource>> {
        self.sources.get(id)
    }

    /// Finds the source for a call that was dispatched before. If the tool is no longer offered, the source of its
    /// owner's other tools still knows the outcome of the call.
    pub(crate) fn to_owner(&self, id: &ToolId) -> Option<&Arc<dyn ToolSource>> {
        let same = |known: &ToolId| known.source() == id.source() && known.owner() == id.owner();
        self.to(id).or_else(|| self.sources.iter().find(|(known, _)| same(known)).map(|(_, source)| source))
    }
}
