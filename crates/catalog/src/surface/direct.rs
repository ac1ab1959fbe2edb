//! Tools that the model sees directly, with their names. Providers accept only short names with few kinds of characters.

use contract::limits::MAX_IDENTIFIER_BYTES;
use contract::tool::{Source, ToolSpec};

use crate::free_names::FreeNames;

/// Tools in the order in which they are shown, each with its name, which is unique.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DirectTools(Vec<(String, ToolSpec)>);

impl DirectTools {
    /// Names the tools, and leaves room for a prefix of this length. They are sorted by source, then by id, so that the
    /// host's own tools get their names before others are numbered.
    pub fn new(mut tools: Vec<ToolSpec>, prefix_bytes: usize) -> Self {
        tools.sort_by(|a, b| (a.id.source(), &a.id).cmp(&(b.id.source(), &b.id)));
        let mut names = FreeNames::up_to(MAX_IDENTIFIER_BYTES.saturating_sub(prefix_bytes));
        Self(tools.into_iter().map(|tool| (names.take(&safe(&tool)), tool)).collect())
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &ToolSpec)> {
        self.0.iter().map(|(name, tool)| (name.as_str(), tool))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the tool that the model called by this name.
    pub fn get(&self, name: &str) -> Option<&ToolSpec> {
        self.0.iter().find(|(shown, _)| shown == name).map(|(_, tool)| tool)
    }
}

/// A server's tools are prefixed with its name, so that none of them can pass for a tool of the host.
fn safe(tool: &ToolSpec) -> String {
    let name = match tool.id.source() {
        Source::Mcp => format!("{}__{}", tool.id.owner(), tool.id.name()),
        Source::Openclaw | Source::Plugin | Source::Client => tool.id.name().to_owned(),
    };
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' }).collect()
}
