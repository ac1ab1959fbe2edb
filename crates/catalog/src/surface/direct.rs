//! Names of tools that the model sees directly. Providers accept only short names with few kinds of characters.

use contract::tool::{Source, ToolSpec};

use crate::free_names::FreeNames;

/// Sorts by source, then by id, so that the host's own tools get their names before others are numbered.
pub(super) fn sorted(mut tools: Vec<ToolSpec>) -> Vec<ToolSpec> {
    tools.sort_by(|a, b| (a.id.source(), &a.id).cmp(&(b.id.source(), &b.id)));
    tools
}

pub(super) fn names(tools: &[ToolSpec]) -> Vec<String> {
    let mut names = FreeNames::new(|_| false);
    tools.iter().map(|tool| names.take(&safe(tool))).collect()
}

/// A server's tools are prefixed with its name, so that none of them can pass for a tool of the host.
fn safe(tool: &ToolSpec) -> String {
    let name = match tool.id.source() {
        Source::Mcp => format!("{}__{}", tool.id.owner(), tool.id.name()),
        Source::Openclaw | Source::Plugin | Source::Client => tool.id.name().to_owned(),
    };
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' }).collect()
}
