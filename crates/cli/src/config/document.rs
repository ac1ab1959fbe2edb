//! A whole file of anybody's: which parts of it are servers, which are inputs, and what is the rest.

use std::collections::BTreeMap;
use std::path::Path;

use contract::limits::MAX_JSON_VALUES;
use serde_json::{Map, Value};

use super::clients::Client;
use super::places::Places;
use super::tree::{Kind, Member, SyntaxError, Tree};
use super::variables::Dialect;
use super::{json5, toml};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Toml,
}

impl Format {
    pub(crate) fn of(path: &Path) -> Self {
        if path.extension().is_some_and(|extension| extension == "toml") { Self::Toml } else { Self::Json }
    }

    /// Parses a text, after a count of its values: a parsed value takes far more memory than its text.
    pub(crate) fn parse(self, text: &str) -> Result<Tree, SyntaxError> {
        if self.most_values(text) > MAX_JSON_VALUES {
            let why = format!("it may have more than {MAX_JSON_VALUES} values; make it smaller");
            return Err(SyntaxError { line: 1, column: 1, why });
        }
        match self {
            Self::Json => json5::parse(text),
            Self::Toml => toml::parse(text),
        }
    }

    /// An upper bound of the values and keys in a text, whatever its strings and comments hold: one of these characters
    /// stands before each but the first.
    fn most_values(self, text: &str) -> usize {
        let separates = |byte: &u8| match self {
            Self::Json => matches!(byte, b',' | b':' | b'[' | b'{'),
            Self::Toml => matches!(byte, b',' | b'=' | b'[' | b'{' | b'.' | b'\n'),
        };
        1 + text.bytes().filter(separates).count()
    }
}

/// Keys of ours that say which servers there are; everything else is for whoever reads settings.
const ABOUT_SERVERS: [&str; 7] =
    ["mcpServers", "servers", "mcp_servers", "context_servers", "inputs", "imports", "trustedProjects"];

/// Servers that stand together, and how variables are written there.
pub(crate) struct Servers<'t> {
    pub(crate) path: &'static [&'static str],
    pub(crate) members: &'t [Member],
    pub(crate) dialect: Dialect,
}

/// Every place in the file where servers may stand, in the order in which they win.
pub(crate) fn servers(tree: &Tree) -> Vec<Servers<'_>> {
    let container = |path: &'static [&'static str], dialect| {
        let found = tree.at(path).filter(|found| found.is_map() && !is_server(found))?;
        Some(Servers { path, members: found.members(), dialect })
    };
    let openclaws = container(&["mcp", "servers"], Dialect::Dollar);
    // In opencode's file everything under `mcp` is a server; in OpenClaw's there are settings.
    let only_objects =
        |found: &Servers<'_>| !found.members.is_empty() && found.members.iter().all(|one| one.value.is_map());
    let opencodes = container(&["mcp"], Dialect::Brace).filter(|found| openclaws.is_none() && only_objects(found));
    let mut found: Vec<Servers<'_>> = [
        container(&["mcpServers"], Dialect::Dollar),
        openclaws,
        container(&["servers"], Dialect::Dollar),
        container(&["mcp_servers"], Dialect::Literal),
        container(&["context_servers"], Dialect::Literal),
        opencodes,
    ]
    .into_iter()
    .flatten()
    .collect();
    let is_one = |member: &Member| is_server(&member.value) && !is_where_runs_are_kept(member);
    let all_servers = || !tree.members().is_empty() && tree.members().iter().all(is_one);
    if found.is_empty() && all_servers() {
        found.push(Servers { path: &[], members: tree.members(), dialect: Dialect::Dollar });
    }
    found
}

/// The places of a client's own file where its servers stand, in the order in which they win.
pub(crate) fn clients_servers<'t>(tree: &'t Tree, client: Client, places: &Places) -> Vec<Servers<'t>> {
    let folder = places.folder.display().to_string();
    let found = client.containers(&folder).into_iter().filter_map(|path| tree.at(&path)).collect::<Vec<_>>();
    let servers =
        |found: &'t Tree| Servers { path: client.container(), members: found.members(), dialect: client.dialect() };
    found.into_iter().map(servers).collect()
}

fn is_server(tree: &Tree) -> bool {
    ["command", "url", "baseUrl", "serverUrl", "httpUrl"].iter().any(|key| tree.get(key).is_some())
}

/// Our `store` has a `url`, too, of which no server could be reached.
fn is_where_runs_are_kept(member: &Member) -> bool {
    let url = member.value.get("url").and_then(Tree::text);
    member.key == "store" && url.is_some_and(|url| !url.starts_with("http"))
}

/// Ids of the inputs a client would ask for, with their defaults.
pub(crate) fn inputs(tree: &Tree) -> BTreeMap<String, Option<String>> {
    let items = tree.get("inputs").and_then(Tree::items).unwrap_or_default();
    let text = |item: &Tree, key: &str| item.get(key).and_then(Tree::text).map(str::to_owned);
    items.iter().filter_map(|item| Some((text(item, "id")?, text(item, "default")))).collect()
}

/// A list of words under a key, and whether it is anything else.
pub(crate) fn words<'t>(tree: &'t Tree, key: &str) -> Result<Vec<&'t str>, &'t Tree> {
    let Some(found) = tree.get(key) else { return Ok(Vec::new()) };
    let items = found.items().ok_or(found)?;
    items.iter().map(|item| item.text().ok_or(item)).collect()
}

/// What is not about servers, in a file that is written as ours: what stands beside `servers` or `mcp_servers` is about
/// another program.
pub(crate) fn settings(tree: &Tree) -> Map<String, Value> {
    let ours = |servers: &Servers<'_>| matches!(servers.path, ["mcpServers"] | ["mcp", "servers"]);
    if !servers(tree).iter().all(ours) {
        return Map::new();
    }
    let rest = tree.members().iter().filter(|member| !ABOUT_SERVERS.contains(&member.key.as_str()));
    rest.filter_map(|member| Some((member.key.clone(), without_servers(member)?))).collect()
}

/// Where a server of this name stands, or would be put.
pub(crate) fn container_for(tree: &Tree, format: Format, name: &str) -> &'static [&'static str] {
    let found = servers(tree);
    let with_it = found.iter().find(|servers| servers.members.iter().any(|member| member.key == name));
    match (with_it.or(found.first()), format) {
        (Some(servers), _) => servers.path,
        (None, Format::Json) => &["mcpServers"],
        (None, Format::Toml) => &["mcp_servers"],
    }
}

/// Every place where a server of this name stands.
pub(crate) fn paths_to<'n>(tree: &Tree, name: &'n str) -> Vec<Vec<&'n str>> {
    let found = servers(tree);
    let with_it = found.iter().filter(|servers| servers.members.iter().any(|member| member.key == name));
    with_it.map(|servers| servers.path.iter().copied().chain([name]).collect()).collect()
}

fn without_servers(member: &Member) -> Option<Value> {
    if member.key != "mcp" {
        return Some(member.value.to_json());
    }
    let Value::Object(mut rest) = member.value.to_json() else { return None };
    rest.shift_remove("servers");
    (!rest.is_empty()).then_some(Value::Object(rest))
}

/// A key that was meant to be one of ours, and which.
pub(crate) fn misspelt(tree: &Tree) -> Option<(&Member, &'static str)> {
    let bare = |key: &str| key.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    let meant = |member: &Member| {
        ABOUT_SERVERS.into_iter().find(|known| *known != member.key && bare(known) == bare(&member.key))
    };
    tree.members()
        .iter()
        .filter(|member| !ABOUT_SERVERS.contains(&member.key.as_str()) && !matches!(member.value.kind, Kind::Null))
        .find_map(|member| Some((member, meant(member)?)))
}
