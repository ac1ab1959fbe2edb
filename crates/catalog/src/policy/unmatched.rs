//! Patterns that match no tool, although the tools that they could match are known.

use contract::config::pattern::Pattern;
use contract::spelling::{edits, nearest};
use contract::tool::{Source, ToolId};

use super::{denies, glob, grants, restricts};
use crate::search::near;

/// The beginning of a tool's path in a cell, such as `MCP.files.readFile`.
const MCP_PATH: &str = "MCP.";

/// The tools that are known without starting a server or a plugin.
#[derive(Clone, Debug, Default)]
pub struct KnownTools {
    /// The tools of MCP servers that have listed them, and those of this process: core tools and plugins.
    pub ids: Vec<ToolId>,
    pub servers: KnownOwners,
    pub plugins: KnownOwners,
}

/// The servers, or the plugins, by whether their tools are known.
#[derive(Clone, Debug, Default)]
pub struct KnownOwners {
    /// The owners whose tools are all known: servers that have listed them, and plugins that are used.
    pub listed: Vec<String>,
    /// The owners whose tools are not known: servers that have not listed any yet, and servers and plugins that are
    /// disabled or cannot be used.
    pub unlisted: Vec<String>,
}

/// A pattern that matches no known tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnmatchedPattern {
    /// What is probably meant: the id of a tool, or the pattern with the name of a similar server or plugin.
    pub meant: Option<String>,
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

/// Returns whether a pattern probably is a mistake: it matches no known tool, and it names a server or plugin whose tools
/// are known, or a similar tool, server or plugin exists.
///
/// A pattern that could match a tool that is not known is never reported, and neither is one about other servers,
/// plugins and tools: policies are shared between machines.
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
    if let Some(meant) = meant_id(text, kind, known) {
        return Some(UnmatchedPattern { meant: Some(meant) });
    }
    let meant = meant_tool(text, known).or_else(|| meant_owner(text, known));
    let names_known = match parts(text).filter(|_| pattern.is_about_ids()) {
        Some((source, owner, name)) => names_known(&source, owner, name, known)?,
        None if pattern.is_about_ids() => false,
        None => {
            let owners = [&known.servers, &known.plugins];
            let names_an_owner = owners.iter().any(|owners| names_any(text, &owners.listed));
            let are_known = owners.iter().all(|owners| owners.unlisted.is_empty());
            if names_an_owner || !are_known || is_openclaws(text) {
                return None;
            }
            names_listed_owner(text, known)
        }
    };
    (names_known || meant.is_some()).then_some(UnmatchedPattern { meant })
}

/// Returns `mcp:docs:*` for `docs.*` in a list that grants something, where [`grants`] does not accept it.
fn meant_id(text: &str, kind: ListKind, known: &KnownTools) -> Option<String> {
    let (owner, name) = text.split_once('.').filter(|_| kind == ListKind::Grant && !text.contains(':'))?;
    let is_one_of = |owners: &KnownOwners| owners.listed.iter().chain(&owners.unlisted).any(|known| known == owner);
    (is_one_of(&known.servers) && !is_one_of(&known.plugins)).then(|| format!("mcp:{owner}:{name}"))
}

/// Returns the id of the known tool that a pattern without wildcards is most similar to.
fn meant_tool(text: &str, known: &KnownTools) -> Option<String> {
    let tools = known.ids.iter().filter(|_| !has_wildcards(text)).map(ToolId::as_str);
    near(text, tools, 1).first().map(|id| (*id).to_owned())
}

/// Returns a pattern such as `mcp:fils:*` or `MCP.fils.*` with the name of the server or plugin that it probably means.
fn meant_owner(text: &str, known: &KnownTools) -> Option<String> {
    let (before, owner, after, owners) = match parts(text) {
        Some((source, owner, name)) => {
            let owners = owners_of(Source::parse(&source)?, known)?;
            (format!("{source}:"), owner, format!(":{name}"), vec![owners])
        }
        None => {
            let (path, in_mcp) = match text.split_at_checked(MCP_PATH.len()) {
                Some((prefix, path)) if prefix.eq_ignore_ascii_case(MCP_PATH) => (path, true),
                _ => (text, false),
            };
            let (owner, name) = path.split_once('.')?;
            let owners = if in_mcp { vec![&known.servers] } else { vec![&known.servers, &known.plugins] };
            (text[..text.len() - path.len()].to_owned(), owner, format!(".{name}"), owners)
        }
    };
    let names = || owners.iter().flat_map(|owners| owners.listed.iter().chain(&owners.unlisted)).map(String::as_str);
    if has_wildcards(owner) || names().any(|name| name.eq_ignore_ascii_case(owner)) {
        return None;
    }
    // Stricter than for commands and keys: `git` and `github` can both be right.
    let is_typo = |name: &&str| edits(owner, name) * 3 <= owner.chars().count().max(name.chars().count());
    nearest(owner, names()).filter(is_typo).map(|name| format!("{before}{name}{after}"))
}

fn has_wildcards(text: &str) -> bool {
    text.contains(['*', '?'])
}

/// Returns source, owner and name of a pattern about ids.
fn parts(text: &str) -> Option<(String, &str, &str)> {
    let mut parts = text.splitn(3, ':');
    Some((parts.next()?.to_ascii_lowercase(), parts.next()?, parts.next()?))
}

/// Returns whether a pattern about ids names an owner whose tools are all known, or `None` if it could match a tool that
/// is not known.
fn names_known(source: &str, owner: &str, name: &str, known: &KnownTools) -> Option<bool> {
    let source = Source::parse(source)?;
    // Core tools may be off, and are known by their names.
    if source == Source::Openclaw {
        return (!has_wildcards(name) && !is_openclaws(name)).then_some(false);
    }
    let owners = owners_of(source, known)?;
    (!names_any(owner, &owners.unlisted)).then(|| names_any(owner, &owners.listed))
}

/// Returns the servers or the plugins. The tools of clients are known only during their requests.
fn owners_of(source: Source, known: &KnownTools) -> Option<&KnownOwners> {
    match source {
        Source::Mcp => Some(&known.servers),
        Source::Plugin => Some(&known.plugins),
        Source::Openclaw | Source::Client => None,
    }
}

/// Returns whether a pattern such as `notary.stamp`, `files.*` or `MCP.files.*` names a plugin or a server whose tools are
/// all known.
fn names_listed_owner(text: &str, known: &KnownTools) -> bool {
    let is_below = |text: &str, owner: &String| {
        text.split_at_checked(owner.len())
            .is_some_and(|(start, rest)| start.eq_ignore_ascii_case(owner) && rest.starts_with('.'))
    };
    let path = text.split_at_checked(MCP_PATH.len()).filter(|(prefix, _)| prefix.eq_ignore_ascii_case(MCP_PATH));
    let of_server = path.map_or(text, |(_, path)| path);
    known.plugins.listed.iter().any(|owner| is_below(text, owner))
        || known.servers.listed.iter().any(|owner| is_below(of_server, owner))
}

fn names_any(pattern: &str, owners: &[String]) -> bool {
    owners.iter().any(|owner| glob::matches_any_case(pattern, owner))
}

/// Whether a name is that of a core tool, here or in OpenClaw, which may be off.
fn is_openclaws(name: &str) -> bool {
    let id = ToolId::parse(&format!("{}:core:{}", Source::Openclaw.as_str(), name.to_ascii_lowercase()));
    let in_a_list = |group: &str| Pattern::parse(group).ok().and_then(|group| group.group());
    let groups = contract::config::groups::Group::names().filter(|group| *group != "group:openclaw");
    id.is_ok_and(|id| groups.filter_map(in_a_list).any(|group| group.contains(&id)))
}
