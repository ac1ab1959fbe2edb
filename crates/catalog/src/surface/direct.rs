//! Tools that the model sees directly, under names that every provider accepts: short, and of ASCII letters, digits,
//! `_` and `-`.

use contract::limits::MAX_IDENTIFIER_BYTES;
use contract::tool::{Source, ToolSpec};

use crate::unique_names::UniqueNames;

/// Tools in the order in which the model sees them, each with its unique name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DirectTools(Vec<(String, ToolSpec)>);

impl DirectTools {
    /// Gives each tool a unique name that is short enough for a client to add a prefix of `prefix_bytes`. If two names
    /// are equal, the later one gets a number: the tools are sorted by source, then by id, so that the host's own tools
    /// keep their names.
    pub fn new(mut tools: Vec<ToolSpec>, prefix_bytes: usize) -> Self {
        tools.sort_by(|a, b| (a.id.source(), &a.id).cmp(&(b.id.source(), &b.id)));
        let mut names = UniqueNames::with_max_bytes(MAX_IDENTIFIER_BYTES.saturating_sub(prefix_bytes));
        Self(tools.into_iter().map(|tool| (names.take(&provider_safe_name(&tool)), tool)).collect())
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
        self.0.iter().find(|(tool_name, _)| tool_name == name).map(|(_, tool)| tool)
    }
}

/// Returns a name with only the characters that providers accept. Tools of an MCP server are prefixed with the server's
/// name, so that none of them can pass for a tool of the host.
fn provider_safe_name(tool: &ToolSpec) -> String {
    let name = match tool.id.source() {
        Source::Mcp => format!("{}__{}", tool.id.owner(), tool.id.name()),
        Source::Openclaw | Source::Plugin | Source::Client => tool.id.name().to_owned(),
    };
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' }).collect()
}
