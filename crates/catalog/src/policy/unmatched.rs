//! Patterns that match no tool, although the tools that they could match are known.

use contract::config::pattern::Pattern;
use contract::tool::{Source, ToolId};

use super::{denies, glob, grants, restricts};
use crate::search::near;

/// The tools that are known without starting a server.
#[derive(Clone, Debug, Default)]
pub struct KnownTools {
    /// The tools of MCP servers that have listed them, and those of this process.
    pub ids: Vec<ToolId>,
    /// Enabled servers that have listed their tools.
    pub listed: Vec<String>,
    /// Servers whose tools are not known: they have not listed any yet, or they are disabled.
    pub unlisted: Vec<String>,
}

/// A pattern that matches no known tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnmatchedPattern {
    /// The tool that is probably meant.
    pub meant: Option<ToolId>,
}

/// Which list a pattern is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListKind {
    Deny,
    /// Tools that need approval.
    Ask,
    /// Tools that are allowed, or need no approval.
    Grant,
}

/// Returns whether a pattern probably is a mistake: it matches no known tool, and either it names a server that has
/// listed its tools, or a similar tool exists.
///
/// A pattern that could match a tool of a server whose tools are not known is never reported, and neither is one about
/// other servers and tools: policies are shared between machines.
pub fn unmatched(pattern: &Pattern, kind: ListKind, known: &KnownTools) -> Option<UnmatchedPattern> {
    let matches = match kind {
        ListKind::Deny => denies,
        ListKind::Ask => restricts,
        ListKind::Grant => grants,
    };
    if pattern.group().is_some() || known.ids.iter().any(|id| matches(pattern, id)) {
        return None;
    }
    let text = pattern.as_str();
    let has_wildcards = text.contains(['*', '?']);
    let meant = || {
        let tools = known.ids.iter().filter(|_| !has_wildcards).map(ToolId::as_str);
        near(text, tools, 1).first().and_then(|id| ToolId::parse(id).ok())
    };
    if pattern.is_about_ids() {
        let mut parts = text.splitn(3, ':');
        let (Some(source), Some(owner), Some(_)) = (parts.next(), parts.next(), parts.next()) else {
            return meant().map(|meant| UnmatchedPattern { meant: Some(meant) });
        };
        let is_mcp = Source::parse(&source.to_ascii_lowercase()) == Some(Source::Mcp);
        let names_any = |servers: &[String]| servers.iter().any(|name| glob::matches_any_case(owner, name));
        if !is_mcp || names_any(&known.unlisted) {
            return None;
        }
        let meant = meant();
        return (meant.is_some() || names_any(&known.listed)).then_some(UnmatchedPattern { meant });
    }
    let names_a_server = known.listed.iter().any(|name| glob::matches_any_case(text, name));
    if !known.unlisted.is_empty() || names_a_server || is_openclaws(text) {
        return None;
    }
    meant().map(|meant| UnmatchedPattern { meant: Some(meant) })
}

/// Whether a name is that of a core tool, here or in OpenClaw, which may be off.
fn is_openclaws(name: &str) -> bool {
    let id = ToolId::parse(&format!("{}:core:{}", Source::Openclaw.as_str(), name.to_ascii_lowercase()));
    let in_a_list = |group: &str| Pattern::parse(group).ok().and_then(|group| group.group());
    let groups = contract::config::groups::Group::names().filter(|group| *group != "group:openclaw");
    id.is_ok_and(|id| groups.filter_map(in_a_list).any(|group| group.contains(&id)))
}
