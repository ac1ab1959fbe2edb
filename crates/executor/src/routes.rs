//! Which source a tool is in.

use std::collections::HashMap;
use std::sync::Arc;

use contract::tool::{ToolId, ToolSpec};

use crate::source::ToolSource;

#[derive(Debug, Default)]
pub struct Routes {
    sources: HashMap<ToolId, Arc<dyn ToolSource>>,
}

impl Routes {
    /// Asks every source what it has. The first to have an id keeps it: a source that repeats itself, or takes
    /// another's name, harms nobody else.
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

    /// For a call that was made before: whoever has the tool's siblings has what became of it, too, also where the tool
    /// itself is offered no more.
    pub(crate) fn to_owner(&self, id: &ToolId) -> Option<&Arc<dyn ToolSource>> {
        let same = |known: &ToolId| known.source() == id.source() && known.owner() == id.owner();
        self.to(id).or_else(|| self.sources.iter().find(|(known, _)| same(known)).map(|(_, source)| source))
    }
}
