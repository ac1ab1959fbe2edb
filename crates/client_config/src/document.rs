//! A whole configuration file, of Cellmate or another client: its servers, its inputs and its other settings.

use std::collections::BTreeMap;
use std::path::Path;

use contract::limits::MAX_JSON_VALUES;
use serde_json::{Map, Value};

use crate::clients::Client;
use crate::places::Places;
use crate::tree::{Kind, Member, SyntaxError, Tree, effective};
use crate::variables::Dialect;
use crate::{json5, toml};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Toml,
}

impl Format {
    pub(crate) fn of(path: &Path) -> Self {
        if path.extension().is_some_and(|extension| extension == "toml") { Self::Toml } else { Self::Json }
    }

    /// Parses a text, after checking the number of its values: a parsed value takes far more memory than its text.
    pub(crate) fn parse(self, text: &str) -> Result<Tree, SyntaxError> {
        if self.max_values(text) > MAX_JSON_VALUES {
            let why = format!("it may have more than {MAX_JSON_VALUES} values, which is the limit; make it smaller");
            return Err(SyntaxError { line: 1, column: 1, why });
        }
        match self {
            Self::Json => json5::parse(text),
            Self::Toml => toml::parse(text),
        }
    }

    /// Parses one of Cellmate's files, which must not have a key twice; see [`Tree::refuse_repeated_keys`]. Other
    /// clients' files are read as those clients read them.
    pub(crate) fn parse_cellmate(self, text: &str) -> Result<Tree, SyntaxError> {
        let tree = self.parse(text)?;
        tree.refuse_repeated_keys(text)?;
        Ok(tree)
    }

    /// Returns an upper bound of the values and keys in a text.
    ///
    /// Counts separators: each key or value except the first follows one, and those in strings or comments only raise
    /// the bound.
    fn max_values(self, text: &str) -> usize {
        let separates = |byte: &u8| match self {
            Self::Json => matches!(byte, b',' | b':' | b'[' | b'{'),
            Self::Toml => matches!(byte, b',' | b'=' | b'[' | b'{' | b'.' | b'\n'),
        };
        1 + text.bytes().filter(separates).count()
    }
}

/// The top-level keys of Cellmate's files that are not settings; all other keys are.
const NON_SETTING_KEYS: [&str; 7] =
    ["mcpServers", "servers", "mcp_servers", "context_servers", "inputs", "imports", "trustedProjects"];

/// The servers under one key of a file, and the variable syntax used there.
pub(crate) struct ServerContainer<'t> {
    /// The key. For a client's own file always [`Client::servers_key`], also for servers that are elsewhere in it.
    pub(crate) path: &'static [&'static str],
    pub(crate) members: &'t [Member],
    pub(crate) dialect: Dialect,
}

/// Returns the servers of every key that may hold them, by precedence.
pub(crate) fn servers(tree: &Tree) -> Vec<ServerContainer<'_>> {
    let container = |path: &'static [&'static str], dialect| {
        let found = tree.at(path).filter(|found| found.is_map() && !is_server(found))?;
        Some(ServerContainer { path, members: found.members(), dialect })
    };
    let openclaws = container(&["mcp", "servers"], Dialect::Dollar);
    // In opencode's file everything under `mcp` is a server; OpenClaw also has settings there, which are not.
    let only_servers = |found: &ServerContainer<'_>| {
        found.members.iter().all(|member| member.value.is_map())
            && found.members.iter().any(|member| is_server(&member.value))
    };
    let opencodes = container(&["mcp"], Dialect::Brace).filter(|found| openclaws.is_none() && only_servers(found));
    let mut found: Vec<ServerContainer<'_>> = [
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
    let is_one = |member: &Member| is_server(&member.value) && !is_store_setting(member);
    let all_servers = || !tree.members().is_empty() && tree.members().iter().all(is_one);
    if found.is_empty() && all_servers() {
        found.push(ServerContainer { path: &[], members: tree.members(), dialect: Dialect::Dollar });
    }
    found
}

/// Returns the servers in a client's own file, by precedence.
pub(crate) fn clients_servers<'t>(tree: &'t Tree, client: Client, places: &Places) -> Vec<ServerContainer<'t>> {
    let folder = places.folder.display().to_string();
    let found = client.servers_keys(&folder).into_iter().filter_map(|path| tree.at(&path)).collect::<Vec<_>>();
    let (path, dialect) = (client.servers_key(), client.dialect());
    let servers = |found: &'t Tree| ServerContainer { path, members: found.members(), dialect };
    found.into_iter().map(servers).collect()
}

fn is_server(tree: &Tree) -> bool {
    ["command", "url", "baseUrl", "serverUrl", "httpUrl"].iter().any(|key| tree.get(key).is_some())
}

/// Whether this is Cellmate's `store` setting, which has a `url`, too, but not an HTTP one as a server has.
fn is_store_setting(member: &Member) -> bool {
    let url = member.value.get("url").and_then(Tree::text);
    member.key == "store" && url.is_some_and(|url| !url.starts_with("http"))
}

/// Returns the ids of the inputs that a client would prompt for, with their defaults.
pub(crate) fn inputs(tree: &Tree) -> BTreeMap<String, Option<String>> {
    let items = tree.get("inputs").and_then(Tree::items).unwrap_or_default();
    let text = |item: &Tree, key: &str| item.get(key).and_then(Tree::text).map(str::to_owned);
    items.iter().filter_map(|item| Some((text(item, "id")?, text(item, "default")))).collect()
}

/// Returns the list of strings under a key; empty if there is no such key. Fails with the value that is not a list, or
/// the item that is not a string.
pub(crate) fn string_list<'t>(tree: &'t Tree, key: &str) -> Result<Vec<&'t str>, &'t Tree> {
    let Some(found) = tree.get(key) else { return Ok(Vec::new()) };
    let items = found.items().ok_or(found)?;
    items.iter().map(|item| item.text().ok_or(item)).collect()
}

/// Returns the settings of a file in Cellmate's format.
///
/// Returns no settings if any servers are under a key other than `mcpServers` or `mcp.servers`: the other keys of such
/// a file are settings of another program.
pub(crate) fn settings(tree: &Tree) -> Map<String, Value> {
    let is_cellmates = |servers: &ServerContainer<'_>| matches!(servers.path, ["mcpServers"] | ["mcp", "servers"]);
    if !servers(tree).iter().all(is_cellmates) {
        return Map::new();
    }
    let rest = tree.members().iter().filter(|member| !NON_SETTING_KEYS.contains(&member.key.as_str()));
    rest.filter_map(|member| Some((member.key.clone(), without_servers(member)?))).collect()
}

/// Returns the entry of the server with this name that takes effect.
pub(crate) fn server<'t>(tree: &'t Tree, name: &str) -> Option<&'t Tree> {
    let mut found = servers(tree).into_iter();
    found.find_map(|servers| effective(servers.members).find(|member| member.key == name).map(|member| &member.value))
}

/// Returns the key that holds the server of this name, or that a new server is added to.
pub(crate) fn container_for(tree: &Tree, format: Format, name: &str) -> &'static [&'static str] {
    let found = servers(tree);
    let with_it = found.iter().find(|servers| servers.members.iter().any(|member| member.key == name));
    match (with_it.or(found.first()), format) {
        (Some(servers), _) => servers.path,
        (None, Format::Json) => &["mcpServers"],
        (None, Format::Toml) => &["mcp_servers"],
    }
}

/// Returns the paths of all servers with this name.
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

/// Finds a key that differs from one of [`NON_SETTING_KEYS`] only in case or punctuation, and returns it with that one.
pub(crate) fn misspelt(tree: &Tree) -> Option<(&Member, &'static str)> {
    let bare = |key: &str| key.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    let meant = |member: &Member| {
        NON_SETTING_KEYS.into_iter().find(|known| *known != member.key && bare(known) == bare(&member.key))
    };
    tree.members()
        .iter()
        .filter(|member| !NON_SETTING_KEYS.contains(&member.key.as_str()) && !matches!(member.value.kind, Kind::Null))
        .find_map(|member| Some((member, meant(member)?)))
}
