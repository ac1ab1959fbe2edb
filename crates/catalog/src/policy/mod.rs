//! Tool policy: layers of allow and deny lists that decide which tools a run may see.
//!
//! A run sees a tool if no layer denies it and every layer with an allow list allows it. So the order of layers does
//! not change the decision, only which layer is named as the one that refused.

mod glob;
mod layers;
mod provider;
mod spelling;
mod unmatched;

use std::fmt;

use contract::config::pattern::Pattern;
use contract::config::policy::Lists;
use contract::tool::{Source, ToolId, ToolSpec};

use spelling::{Case, is_cell_name, is_cell_path, is_path_of_one_plugin, is_plugin_path};

pub use glob::matches as matches_glob;
pub use layers::{RunScope, layers, provider_keys};
pub use provider::{BadProvider, Provider};
pub use unmatched::{KnownOwners, KnownTools, ListKind, UnmatchedPattern, unmatched};

/// The lists from one part of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Where the lists come from, for explanations: `tools`, `agents.main.tools`, `run`.
    pub origin: String,
    pub lists: Lists,
}

/// The layers of one run, broadest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    layers: Vec<Layer>,
}

/// A policy's decision about one tool, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision<'p> {
    Allowed,
    Denied { origin: &'p str, pattern: &'p Pattern },
    NotAllowed { origin: &'p str },
}

impl From<Vec<Layer>> for Policy {
    fn from(layers: Vec<Layer>) -> Self {
        Self { layers }
    }
}

impl Policy {
    /// Returns the tools that a run may see, in their original order. If there are none, the run has no tools and code
    /// mode stays inactive.
    pub fn effective(&self, mut tools: Vec<ToolSpec>) -> Vec<ToolSpec> {
        tools.retain(|tool| self.explain(&tool.id) == Decision::Allowed);
        tools
    }

    /// Returns whether an allow list is explicitly empty, so that no tool can ever be allowed.
    pub fn allows_nothing(&self) -> bool {
        let is_empty = |list: &Option<Vec<Pattern>>| list.as_ref().is_some_and(Vec::is_empty);
        let adds_none = |list: &Option<Vec<Pattern>>| list.as_ref().is_none_or(Vec::is_empty);
        self.layers.iter().any(|layer| is_empty(&layer.lists.allow) && adds_none(&layer.lists.also_allow))
    }

    pub fn explain(&self, id: &ToolId) -> Decision<'_> {
        let denied = self.layers.iter().find_map(|layer| Some((layer, find_denying(&layer.lists.deny, id)?)));
        if let Some((layer, pattern)) = denied {
            return Decision::Denied { origin: &layer.origin, pattern };
        }
        match self.layers.iter().find(|layer| !layer.allows(id)) {
            Some(layer) => Decision::NotAllowed { origin: &layer.origin },
            None => Decision::Allowed,
        }
    }
}

impl Layer {
    /// Whether the allow lists allow the tool; deny lists are ignored.
    fn allows(&self, id: &ToolId) -> bool {
        let Some(allow) = &self.lists.allow else { return true };
        let also = self.lists.also_allow.as_deref().unwrap_or_default();
        find(allow, id).or_else(|| find(also, id)).is_some()
    }
}

fn find<'p>(patterns: &'p [Pattern], id: &ToolId) -> Option<&'p Pattern> {
    patterns.iter().find(|pattern| grants(pattern, id))
}

/// Finds a pattern that denies a tool. The case of letters does not matter, as in OpenClaw: a deny list that is written
/// for it must not lose a restriction.
fn find_denying<'p>(patterns: &'p [Pattern], id: &ToolId) -> Option<&'p Pattern> {
    patterns.iter().find(|pattern| denies(pattern, id))
}

/// Returns whether a pattern of a list that allows or exempts tools matches a tool.
///
/// A group matches its members. A glob with a `:` is matched against the whole id only, so `mcp:docs:*` matches the
/// tools of the server `docs`. A glob without one is matched against the name and the owner, for every source, and also
/// against OpenClaw's other names: `docs__read` for `mcp:docs:read`, `bash` for the shell.
///
/// The name of one MCP tool may also be written as in cells: `mcp:docs:readPage`, `readPage` or `MCP.docs.readPage` for
/// `mcp:docs:read_page`. The server's name is written exactly. `docs.read_page` is not accepted: another server may have
/// a tool with this name. A plugin's tool may be written as approvals show it, with the exact id of the plugin:
/// `notary.stamp`, `notary.*`.
pub fn grants(pattern: &Pattern, id: &ToolId) -> bool {
    match pattern.as_str().strip_prefix("MCP.") {
        // No server gets rights by naming a tool `MCP.docs.readPage`.
        Some(path) if pattern.group().is_none() && id.source() == Source::Mcp => {
            let written = path.rsplit_once('.').filter(|_| !id.name().contains('.'));
            let is_named = |(owner, name): (&str, &str)| {
                owner == id.owner() && (name == id.name() || is_cell_name(name, id.name(), Case::Exact))
            };
            written.is_some_and(is_named) || glob::matches(pattern.as_str(), id.owner())
        }
        _ => matches_with(pattern, id, Case::Exact) || is_path_of_one_plugin(pattern, id),
    }
}

/// Returns whether a pattern of a list that restricts tools, such as one of tools that need approval, matches a tool.
///
/// It matches all that [`grants`] does. In addition, the name of an MCP tool may be written with that of its server, in
/// their own spelling or as in cells, with wildcards: `docs.read_page`, `docs.*`, `MCP.docs.readPage`, `MCP.docs`. That of
/// a plugin's tool may be written with the id of the plugin, with wildcards: `notary.stamp`, `*.stamp`.
pub fn restricts(pattern: &Pattern, id: &ToolId) -> bool {
    restricts_with(pattern, id, Case::Exact)
}

/// Returns whether a pattern of a deny list matches a tool: like [`restricts`], in any case of letters.
pub fn denies(pattern: &Pattern, id: &ToolId) -> bool {
    restricts_with(pattern, id, Case::Any)
}

fn restricts_with(pattern: &Pattern, id: &ToolId, case: Case) -> bool {
    matches_with(pattern, id, case) || is_cell_path(pattern, id, case) || is_plugin_path(pattern, id, case)
}

fn matches_with(pattern: &Pattern, id: &ToolId, case: Case) -> bool {
    if let Some(group) = pattern.group() {
        return group.contains(id);
    }
    let (glob, matches) = (pattern.as_str(), case.glob());
    if pattern.is_about_ids() {
        return matches(glob, id.as_str()) || spelling::is_cell_id(glob, id, case);
    }
    matches(glob, id.name())
        || matches(glob, id.owner())
        || matches_in_openclaw(glob, id, matches)
        || (id.source() == Source::Mcp && is_cell_name(glob, id.name(), case))
}

/// Returns whether a glob matches the name that a tool has in OpenClaw's policies, if that differs from ours.
///
/// A server cannot choose a name that matches a pattern for another server: the name begins with that of the server,
/// which the user chose.
fn matches_in_openclaw(glob: &str, id: &ToolId, matches: fn(&str, &str) -> bool) -> bool {
    match id.source() {
        Source::Mcp if glob.contains("__") => {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            let plain = id.owner().chars().map(|c| if is_plain(c) { c.to_ascii_lowercase() } else { '-' });
            let owners = [id.owner().to_owned(), plain.collect()];
            owners.iter().any(|owner| matches(glob, &format!("{owner}__{}", id.name())))
        }
        Source::Openclaw => {
            let is_plain = !glob.contains(['*', '?']);
            is_plain && ALIASES.iter().any(|(alias, name)| *name == id.name() && matches(glob, alias))
        }
        Source::Mcp | Source::Plugin | Source::Client => false,
    }
}

/// Additional names of core tools that OpenClaw accepts in policies.
const ALIASES: [(&str, &str); 2] = [("bash", "exec"), ("apply-patch", "apply_patch")];

impl fmt::Display for Decision<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allowed => f.write_str("allowed"),
            Self::Denied { origin, pattern } => write!(f, "denied by `{pattern}` in the deny list of `{origin}`"),
            Self::NotAllowed { origin } => write!(f, "not in the allow list of `{origin}`"),
        }
    }
}

#[cfg(test)]
mod tests;
