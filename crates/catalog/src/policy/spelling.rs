//! The names of tools as cells, lists of tools and approvals write them, in patterns.

use contract::config::pattern::Pattern;
use contract::tool::{Source, ToolId};

use super::glob;
use crate::names::mcp_identifier;

/// Whether the case of letters matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Case {
    Exact,
    Any,
}

impl Case {
    /// Returns the function that matches a glob with a text.
    pub(super) fn glob(self) -> fn(&str, &str) -> bool {
        match self {
            Self::Exact => glob::matches,
            Self::Any => glob::matches_any_case,
        }
    }

    fn is_same(self, one: &str, other: &str) -> bool {
        match self {
            Self::Exact => one == other,
            Self::Any => one.eq_ignore_ascii_case(other),
        }
    }
}

/// Whether a text is the identifier of a tool in cells: `writeFile` for `write_file`. A wildcard is not: `get?` would
/// match `getX` and not `get_x`.
pub(super) fn is_cell_name(text: &str, name: &str, case: Case) -> bool {
    // Compares the letters first, because an identifier has to be allocated.
    let letters = name.bytes().filter(u8::is_ascii_alphanumeric);
    letters.map(|letter| letter.to_ascii_lowercase()).eq(text.bytes().map(|letter| letter.to_ascii_lowercase()))
        && case.is_same(text, &mcp_identifier(name, ""))
}

/// Whether a text is the id of an MCP tool with its name as in cells: `mcp:files:writeFile`.
pub(super) fn is_cell_id(text: &str, id: &ToolId, case: Case) -> bool {
    let Some((server, name)) = text.rsplit_once(':').filter(|_| id.source() == Source::Mcp) else { return false };
    let (own, _) = id.as_str().rsplit_once(':').unwrap_or_default();
    case.is_same(server, own) && is_cell_name(name, id.name(), case)
}

/// Whether a pattern names an MCP tool together with its server: `files.write_file`, `files.*`, `MCP.files.writeFile`,
/// or all tools of a server, `MCP.files`.
pub(super) fn is_cell_path(pattern: &Pattern, id: &ToolId, case: Case) -> bool {
    let text = pattern.as_str();
    if id.source() != Source::Mcp || pattern.group().is_some() || pattern.is_about_ids() || !text.contains('.') {
        return false;
    }
    let matches = case.glob();
    let owners = [id.owner().to_owned(), mcp_identifier(id.owner(), "server")];
    let names = [id.name().to_owned(), mcp_identifier(id.name(), "tool")];
    let is_tool =
        |glob: &str| owners.iter().any(|owner| names.iter().any(|name| matches(glob, &format!("{owner}.{name}"))));
    let below = text.split_at_checked(4).filter(|(prefix, _)| case.is_same(prefix, "MCP.")).map(|(_, below)| below);
    is_tool(text) || below.is_some_and(|glob| is_tool(glob) || owners.iter().any(|owner| matches(glob, owner)))
}

/// Whether a glob names a plugin's tool together with its plugin: `notary.stamp`, `notary.*`, `*.stamp`.
pub(super) fn is_plugin_path(pattern: &Pattern, id: &ToolId, case: Case) -> bool {
    let text = pattern.as_str();
    if id.source() != Source::Plugin || pattern.is_about_ids() || !text.contains('.') {
        return false;
    }
    case.glob()(text, &format!("{}.{}", id.owner(), id.name()))
}

/// Whether a pattern names the plugin of a tool exactly, and its tool or, with wildcards, several of its tools:
/// `notary.stamp`, `notary.*`. The plugin `a` has no tool `b.c` here, because `a.b` may be another plugin.
pub(super) fn is_path_of_one_plugin(pattern: &Pattern, id: &ToolId) -> bool {
    let below = pattern.as_str().strip_prefix(id.owner()).and_then(|rest| rest.strip_prefix('.'));
    let is_its_own = id.source() == Source::Plugin && !pattern.is_about_ids() && !id.name().contains('.');
    is_its_own && below.is_some_and(|name| glob::matches(name, id.name()))
}
