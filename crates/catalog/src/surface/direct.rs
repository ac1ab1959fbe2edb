//! What tools are called when the model sees them by themselves. Providers want short names of few letters.

use contract::tool::{Source, ToolSpec};

use crate::free_names::FreeNames;

/// By source, then by id: the host's own tools get their names before strangers number theirs.
pub(super) fn sorted(mut tools: Vec<ToolSpec>) -> Vec<ToolSpec> {
    tools.sort_by(|a, b| (a.id.source(), &a.id).cmp(&(b.id.source(), &b.id)));
    tools
}

pub(super) fn names(tools: &[ToolSpec]) -> Vec<String> {
    let mut names = FreeNames::new(|_| false);
    tools.iter().map(|tool| names.take(&safe(tool))).collect()
}

/// A server's tools carry its name, so that none of them can pass for a tool of the host's.
fn safe(tool: &ToolSpec) -> String {
    let name = match tool.id.source() {
        Source::Mcp => format!("{}__{}", tool.id.owner(), tool.id.name()),
        Source::Openclaw | Source::Plugin | Source::Client => tool.id.name().to_owned(),
    };
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' }).collect()
}
