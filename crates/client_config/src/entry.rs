//! Reads one server's entry, in any client's format, into a [`ServerEntry`].
//!
//! The formats do not contradict each other, so one reader accepts them all. That is why an entry can be moved from any
//! client's file to ours unchanged.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use contract::spelling::edits;
use mcp::Transport;

use crate::display;
use crate::server::{Origin, ServerEntry, Source};
use crate::tree::{Kind, Tree};
use crate::variables::{Dialect, ExpansionError, SecretUse, Variables};

/// The longest name of a server, because tool ids contain it.
const MAX_SERVER_NAME_BYTES: usize = 64;

/// The longest time limit of a start or call. After an hour, no answer is expected any more.
pub const LONGEST_TIME_LIMIT: Duration = Duration::from_secs(60 * 60);

/// The shortest time limit of a start or call.
pub const SHORTEST_TIME_LIMIT: Duration = Duration::from_millis(100);

/// The keys under which clients write the URL of a server.
const URL_KEYS: [&str; 4] = ["url", "httpUrl", "serverUrl", "baseUrl"];

/// The keys under which clients list the only tools to offer.
const ONLY_TOOLS_KEYS: [&str; 5] = ["enabled_tools", "enabledTools", "includeTools", "allowedTools", "tools"];

/// The keys under which clients list tools not to offer.
const WITHOUT_TOOLS_KEYS: [&str; 4] = ["disabled_tools", "disabledTools", "excludeTools", "blockedTools"];

/// The server of an entry, before its `envFile` is read.
#[derive(Debug)]
pub(crate) struct ParsedEntry {
    pub(crate) server: ServerEntry,
    /// A file with more variables, which those of the entry override.
    pub(crate) env_file: Option<PathBuf>,
    /// Parts of the entry that are not applied, and why.
    pub(crate) notes: Vec<String>,
}

/// Why an entry cannot be used as a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EntryError {
    /// The entry is invalid.
    #[error("{0}")]
    Wrong(String),
    /// A variable or secret has no value here. It may have one elsewhere, or later.
    #[error(transparent)]
    Unset(ExpansionError),
}

impl From<ExpansionError> for EntryError {
    fn from(error: ExpansionError) -> Self {
        match error {
            ExpansionError::MisplacedSecret(_) | ExpansionError::SecretName => Self::Wrong(error.to_string()),
            ExpansionError::Variable(_)
            | ExpansionError::Input { .. }
            | ExpansionError::Secret(_)
            | ExpansionError::UnreadableSecret { .. }
            | ExpansionError::Foreign(_)
            | ExpansionError::Open => Self::Unset(error),
        }
    }
}

impl From<String> for EntryError {
    fn from(message: String) -> Self {
        Self::Wrong(message)
    }
}

/// Reads the entry of the server with this name. `dialect` is how the file writes variables.
pub(crate) fn read(
    name: &str,
    tree: &Tree,
    origin: Origin,
    variables: &Variables,
    dialect: Dialect,
) -> Result<ParsedEntry, EntryError> {
    check_name(name)?;
    if !tree.is_map() {
        return Err(format!("expected an object, found {}", tree.sort()).into());
    }
    let opencode = is_opencode_entry(text(tree, "type")?);
    let fields = Fields { tree, variables, dialect: if opencode { Dialect::Brace } else { dialect } };
    let (transport, shown) = fields.transport()?;
    let timeout = milliseconds(tree, &["timeout"])?;
    let startup = milliseconds(tree, &["startup_timeout_ms", "startupTimeoutMs", "connectionTimeoutMs"])?
        .or(seconds(tree, "startup_timeout_sec")?)
        .or(timeout.filter(|_| opencode));
    let call = milliseconds(tree, &["callTimeoutMs", "requestTimeoutMs"])?
        .or(seconds(tree, "tool_timeout_sec")?)
        .or(timeout.filter(|_| !opencode));
    let says_trusted = boolean(tree, "trusted")?.unwrap_or(false);
    let mut notes = Vec::new();
    if says_trusted && origin.source == Source::Project {
        let note = "`trusted` is not applied: only your own configuration can mark a server as trusted";
        notes.push(note.to_owned());
    }
    let server = ServerEntry {
        name: name.to_owned(),
        transport,
        enabled: boolean(tree, "enabled")?.unwrap_or(true) && !boolean(tree, "disabled")?.unwrap_or(false),
        trusted: origin.source.is_the_users() && says_trusted,
        only_tools: only_tools(tree)?,
        without_tools: without_tools(tree)?,
        startup,
        call,
        origin,
        shown,
    };
    let env_file = fields.path("envFile")?;
    if tree.get("headersHelper").is_some() {
        let note = "`headersHelper` is not run by cellmate, so its headers are missing; write them under `headers`";
        notes.push(note.to_owned());
    }
    Ok(ParsedEntry { server, env_file, notes })
}

/// Returns whether an entry of this type has opencode's format, in which variables are written differently.
pub(crate) fn is_opencode_entry(kind: Option<&str>) -> bool {
    matches!(kind, Some("local" | "remote"))
}

fn check_name(name: &str) -> Result<(), String> {
    let bad = |c: char| c == ':' || c.is_control();
    if name.is_empty() || name.len() > MAX_SERVER_NAME_BYTES || name.contains(bad) {
        return Err("a server's name must have 1 to 64 bytes, no `:` and no control characters; rename it".to_owned());
    }
    Ok(())
}

/// Returns `command` or `url` if this key of an entry is probably meant as one of them.
fn intended_key(key: &str) -> Option<&'static str> {
    match key.to_ascii_lowercase().as_str() {
        "cmd" | "program" | "executable" | "exec" => Some("command"),
        "uri" | "endpoint" | "address" => Some("url"),
        _ if edits(key, "command") <= 2 => Some("command"),
        _ if edits(key, "url") <= 1 => Some("url"),
        _ => None,
    }
}

/// Reads the fields of an object in an entry, and expands the variables in them.
pub(crate) struct Fields<'a> {
    pub(crate) tree: &'a Tree,
    variables: &'a Variables,
    dialect: Dialect,
}

impl<'a> Fields<'a> {
    /// Returns a reader of an object inside this one, with the same variables.
    pub(crate) fn within(&self, tree: &'a Tree) -> Self {
        Self { tree, ..*self }
    }

    /// Returns the transport, and its command or URL for people to read.
    fn transport(&self) -> Result<(Transport, String), EntryError> {
        let kind = text(self.tree, "type")?.or(text(self.tree, "transport")?);
        let url = URL_KEYS.iter().find_map(|key| self.tree.get(key).map(|_| *key));
        match (self.tree.get("command"), url) {
            (Some(_), Some(key)) => Err(format!("it has both `command` and `{key}`; remove one of them").into()),
            (None, None) => {
                let meant = self.tree.members().iter().find_map(|member| Some((member, intended_key(&member.key)?)));
                let remedy = match meant {
                    Some((member, meant)) => format!("`{}`: did you mean `{meant}`?", display::plain(&member.key)),
                    None => "write one of them".to_owned(),
                };
                Err(format!("it has neither `command` nor `url`; {remedy}").into())
            }
            (Some(command), None) => self.stdio(command),
            (None, Some(_)) if matches!(kind, Some("sse" | "ws" | "websocket")) => {
                Err("SSE and WebSocket are not supported; use its streamable HTTP URL, with `type: \"http\"`"
                    .to_owned()
                    .into())
            }
            (None, Some(key)) => self.http(key),
        }
    }

    fn stdio(&self, command: &'a Tree) -> Result<(Transport, String), EntryError> {
        // Older versions of Zed write everything under `command`.
        let below = self.within(if command.is_map() { command } else { self.tree });
        let mut line: Vec<String> = match &command.kind {
            Kind::Text(command) => vec![command.clone()],
            Kind::List(_) => string_list(command, "command")?,
            Kind::Map(_) => vec![text(command, "path")?.unwrap_or_default().to_owned()],
            Kind::Null | Kind::Bool(_) | Kind::Number(_) => {
                return Err(format!("`command`: expected a string, found {}", command.sort()).into());
            }
        };
        if let Some(args) = below.tree.get("args") {
            line.extend(string_list(args, "args")?);
        }
        let Some((first, rest)) = line.split_first().filter(|(first, _)| !first.trim().is_empty()) else {
            return Err("`command` is empty; write the program to start".to_owned().into());
        };
        let shown = display::command(first, rest);
        let mut words = line.iter().map(|word| self.expand_without_secrets(word)).collect::<Result<Vec<_>, _>>()?;
        let command = words.remove(0);
        // As in Codex, a value that the entry has itself wins over a forwarded one.
        let mut env: BTreeMap<String, String> = self.forwarded_variables()?.into_iter().collect();
        env.extend(below.expanded_texts("env")?);
        env.extend(below.expanded_texts("environment")?);
        let cwd = self.path("cwd")?.or(self.path("workingDirectory")?);
        Ok((Transport::Stdio { command, args: words, env, cwd }, shown))
    }

    fn http(&self, key: &str) -> Result<(Transport, String), EntryError> {
        let written = text(self.tree, key)?.unwrap_or_default();
        let url = self.expand(written)?;
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err(format!("`{key}`: expected a URL that begins with `https://` or `http://`").into());
        }
        let mut headers = self.expanded_texts("headers")?;
        headers.extend(self.expanded_texts("http_headers")?);
        for (header, variable) in self.unexpanded_texts("env_http_headers")? {
            headers.insert(header, self.variable(&variable)?);
        }
        for key in ["bearer_token_env_var", "bearerTokenEnv"] {
            if let Some(name) = text(self.tree, key)? {
                headers.insert("Authorization".to_owned(), format!("Bearer {}", self.variable(name)?));
            }
        }
        Ok((Transport::Http { url, headers, login: self.login()? }, display::url(written)))
    }

    /// Returns the variables that Codex's `env_vars` forwards to the server; those that are not set are left out. An item is
    /// a name, or an object with a `name`.
    fn forwarded_variables(&self) -> Result<Vec<(String, String)>, EntryError> {
        let Some(names) = self.tree.get("env_vars") else { return Ok(Vec::new()) };
        let items =
            names.items().ok_or_else(|| format!("`env_vars`: expected a list of names, found {}", names.sort()))?;
        let name = |item: &Tree| match &item.kind {
            Kind::Map(_) => {
                text(item, "name")?.map(str::to_owned).ok_or_else(|| "`env_vars`: an item has no `name`".to_owned())
            }
            Kind::Text(name) => Ok(name.clone()),
            Kind::Null | Kind::Bool(_) | Kind::Number(_) | Kind::List(_) => {
                Err(format!("`env_vars`: expected names, found {}", item.sort()))
            }
        };
        let names = items.iter().map(name).collect::<Result<Vec<String>, String>>()?;
        Ok(names.into_iter().filter_map(|name| Some((name.clone(), self.variable(&name).ok()?))).collect())
    }

    fn variable(&self, name: &str) -> Result<String, EntryError> {
        Ok(self.variables.variable(name)?)
    }

    fn expand(&self, text: &str) -> Result<String, EntryError> {
        Ok(self.variables.expand(text, self.dialect, SecretUse::Allowed)?)
    }

    /// Expands the variables in a text that other users of the machine can see, so it must not contain secrets.
    fn expand_without_secrets(&self, text: &str) -> Result<String, EntryError> {
        Ok(self.variables.expand(text, self.dialect, SecretUse::Refused)?)
    }

    fn path(&self, key: &str) -> Result<Option<PathBuf>, EntryError> {
        let path = text(self.tree, key)?.map(|text| self.expand_without_secrets(text)).transpose()?;
        Ok(path.map(PathBuf::from))
    }

    /// Reads a string and expands the variables in it.
    pub(crate) fn expanded_text(&self, key: &str) -> Result<Option<String>, EntryError> {
        text(self.tree, key)?.map(|text| self.expand(text)).transpose()
    }

    /// Reads an object of strings and expands the variables in them.
    fn expanded_texts(&self, key: &str) -> Result<BTreeMap<String, String>, EntryError> {
        let plain = self.unexpanded_texts(key)?;
        plain.into_iter().map(|(name, value)| Ok((name, self.expand(&value)?))).collect()
    }

    /// Reads an object of strings without expanding variables. Numbers and booleans become strings; `null` counts as
    /// missing.
    fn unexpanded_texts(&self, key: &str) -> Result<BTreeMap<String, String>, String> {
        let Some(found) = self.tree.get(key) else { return Ok(BTreeMap::new()) };
        if matches!(found.kind, Kind::Null) {
            return Ok(BTreeMap::new());
        }
        if !found.is_map() {
            return Err(format!("`{key}`: expected an object, found {}", found.sort()));
        }
        let mut texts = BTreeMap::new();
        for member in found.members() {
            let value = match &member.value.kind {
                Kind::Text(text) => text.clone(),
                Kind::Bool(truth) => truth.to_string(),
                Kind::Number(number) => number.to_string(),
                Kind::Null => continue,
                Kind::List(_) | Kind::Map(_) => {
                    let (name, sort) = (display::plain(&member.key), member.value.sort());
                    return Err(format!("`{key}.{name}`: expected a string, found {sort}"));
                }
            };
            texts.insert(member.key.clone(), value);
        }
        Ok(texts)
    }
}

/// Reads a string without expanding variables; `None` if it is missing or `null`.
pub(crate) fn text<'t>(tree: &'t Tree, key: &str) -> Result<Option<&'t str>, String> {
    optional(tree, key, "a string", Tree::text)
}

fn boolean(tree: &Tree, key: &str) -> Result<Option<bool>, String> {
    optional(tree, key, "`true` or `false`", Tree::truth)
}

/// Reads a field with `read`; `None` if it is missing or `null`. `expected` is for the error message.
pub(crate) fn optional<'t, T>(
    tree: &'t Tree,
    key: &str,
    expected: &str,
    read: fn(&'t Tree) -> Option<T>,
) -> Result<Option<T>, String> {
    match tree.get(key) {
        None => Ok(None),
        Some(found) if matches!(found.kind, Kind::Null) => Ok(None),
        Some(found) => {
            read(found).map(Some).ok_or_else(|| format!("`{key}`: expected {expected}, found {}", found.sort()))
        }
    }
}

/// Reads a list of strings; numbers become strings. `value` is the list itself, and `key` is for the error message.
pub(crate) fn string_list(value: &Tree, key: &str) -> Result<Vec<String>, String> {
    let wrong = |found: &Tree| format!("`{key}`: expected a list of strings, found {} in it", found.sort());
    let items = value.items().ok_or_else(|| format!("`{key}`: expected a list of strings, found {}", value.sort()))?;
    let item = |item: &Tree| match &item.kind {
        Kind::Text(text) => Ok(text.clone()),
        Kind::Number(number) => Ok(number.to_string()),
        Kind::Null | Kind::Bool(_) | Kind::List(_) | Kind::Map(_) => Err(wrong(item)),
    };
    items.iter().map(item).collect()
}

/// Reads the tools that are offered; `None` for all of them, which `"*"` also means. With several lists, a tool must be in
/// each.
fn only_tools(tree: &Tree) -> Result<Option<Vec<String>>, String> {
    let mut lists = lists(tree, &ONLY_TOOLS_KEYS)?;
    if let Some(included) = tool_filter_list(tree, "include")? {
        if !lists.is_empty() {
            return Err("it has `toolFilter.include` and another list of tools; remove one of them".to_owned());
        }
        lists.push(included);
    }
    let restricting = lists.into_iter().filter(|names| names.iter().all(|name| name != "*"));
    Ok(restricting.reduce(|mut names, other| {
        names.retain(|name| other.contains(name));
        names
    }))
}

/// Reads the tools that are not offered; `"*"` means all of them. With several lists, none of their tools is offered.
fn without_tools(tree: &Tree) -> Result<Vec<String>, String> {
    let (named, excluded) = (lists(tree, &WITHOUT_TOOLS_KEYS)?, tool_filter_list(tree, "exclude")?);
    Ok(named.into_iter().chain(excluded).flatten().collect())
}

/// Reads the lists under these keys that the entry has.
fn lists(tree: &Tree, keys: &[&str]) -> Result<Vec<Vec<String>>, String> {
    let found = keys.iter().filter_map(|key| Some((key, tree.get(key)?)));
    let given = found.filter(|(_, list)| !matches!(list.kind, Kind::Null));
    given.map(|(key, list)| string_list(list, key)).collect()
}

/// Reads a list of OpenClaw's `toolFilter`.
fn tool_filter_list(tree: &Tree, key: &str) -> Result<Option<Vec<String>>, String> {
    let found = tree.get("toolFilter").and_then(|filter| filter.get(key));
    found.map(|found| string_list(found, &format!("toolFilter.{key}"))).transpose()
}

/// Reads a time limit in milliseconds under the first of these keys that the entry has.
fn milliseconds(tree: &Tree, keys: &[&str]) -> Result<Option<Duration>, String> {
    let Some(key) = keys.iter().find(|key| tree.get(key).is_some()) else { return Ok(None) };
    duration(tree, key, 1000.0)
}

/// Reads a time limit in seconds.
fn seconds(tree: &Tree, key: &str) -> Result<Option<Duration>, String> {
    duration(tree, key, 1.0)
}

/// Reads a time limit, and clamps it to the allowed range. `per_second` is how many of its units are a second.
fn duration(tree: &Tree, key: &str, per_second: f64) -> Result<Option<Duration>, String> {
    let Some(number) = optional(tree, key, "a number", Tree::number)? else { return Ok(None) };
    if number <= 0.0 {
        return Err(format!("`{key}`: expected a time greater than zero"));
    }
    let given = Duration::try_from_secs_f64(number / per_second).unwrap_or(LONGEST_TIME_LIMIT);
    Ok(Some(given.clamp(SHORTEST_TIME_LIMIT, LONGEST_TIME_LIMIT)))
}
