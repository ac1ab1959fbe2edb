//! One server's entry, in any client's words, as a [`ServerEntry`].
//!
//! The words do not contradict each other, so one reader knows them all; that is what lets a server move from any
//! client's file to ours as it stands.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use mcp::Transport;

use super::server::{Origin, ServerEntry, Source};
use super::shown;
use super::tree::{Kind, Tree};
use super::variables::{Dialect, Unset, Variables};

/// As long as a name may be in a tool's id.
const MAX_NAME_BYTES: usize = 64;

/// A server that takes longer to start, or a tool to answer, than an hour does not do it at all.
const LONGEST: Duration = Duration::from_secs(60 * 60);
const SHORTEST: Duration = Duration::from_millis(100);

const URLS: [&str; 4] = ["url", "httpUrl", "serverUrl", "baseUrl"];
const ONLY_TOOLS: [&str; 5] = ["enabled_tools", "enabledTools", "includeTools", "allowedTools", "tools"];
const WITHOUT_TOOLS: [&str; 4] = ["disabled_tools", "disabledTools", "excludeTools", "blockedTools"];

/// What was read of an entry, and what is still to be had from elsewhere.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) server: ServerEntry,
    /// A file with more variables; those of the entry itself win.
    pub(crate) env_file: Option<PathBuf>,
    /// What of the entry is not applied, and why.
    pub(crate) notes: Vec<String>,
}

/// Why an entry is not a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EntryError {
    #[error("{0}")]
    Wrong(String),
    /// It may be one elsewhere, or later.
    #[error(transparent)]
    Unset(#[from] Unset),
}

impl From<String> for EntryError {
    fn from(message: String) -> Self {
        Self::Wrong(message)
    }
}

pub(crate) fn read(
    name: &str,
    tree: &Tree,
    origin: Origin,
    variables: &Variables,
    dialect: Dialect,
) -> Result<Entry, EntryError> {
    check_name(name)?;
    if !tree.is_map() {
        return Err(format!("expected an object, found {}", tree.sort()).into());
    }
    let opencode = matches!(text(tree, "type")?, Some("local" | "remote"));
    let fields = Fields { tree, variables, dialect: if opencode { Dialect::Brace } else { dialect } };
    let (transport, shown) = fields.transport()?;
    let timeout = milliseconds(tree, &["timeout"])?;
    let startup = milliseconds(tree, &["startup_timeout_ms", "startupTimeoutMs", "connectionTimeoutMs"])?
        .or(seconds(tree, "startup_timeout_sec")?)
        .or(timeout.filter(|_| opencode));
    let call = milliseconds(tree, &["callTimeoutMs", "requestTimeoutMs"])?
        .or(seconds(tree, "tool_timeout_sec")?)
        .or(timeout.filter(|_| !opencode));
    let said_trusted = truth(tree, "trusted")?.unwrap_or(false);
    let mut notes = Vec::new();
    if said_trusted && origin.source == Source::Project {
        let note = "`trusted` is not applied: only your own configuration can say that a server is believed \
             about its tools";
        notes.push(note.to_owned());
    }
    let server = ServerEntry {
        name: name.to_owned(),
        transport,
        enabled: truth(tree, "enabled")?.unwrap_or(true) && !truth(tree, "disabled")?.unwrap_or(false),
        trusted: origin.source.is_the_users() && said_trusted,
        only_tools: first_list(tree, &ONLY_TOOLS)?,
        without_tools: first_list(tree, &WITHOUT_TOOLS)?.unwrap_or_default(),
        startup,
        call,
        origin,
        shown,
    };
    let env_file = fields.text("envFile")?.map(PathBuf::from);
    if tree.get("headersHelper").is_some() {
        let note = "its `headersHelper` is not run here, so its headers are missing; write them under `headers`";
        notes.push(note.to_owned());
    }
    Ok(Entry { server, env_file, notes })
}

fn check_name(name: &str) -> Result<(), String> {
    let bad = |c: char| c == ':' || c.is_control();
    if name.is_empty() || name.len() > MAX_NAME_BYTES || name.contains(bad) {
        return Err("a server's name has 1 to 64 bytes, no `:` and no control characters; rename it".to_owned());
    }
    Ok(())
}

pub(super) struct Fields<'a> {
    pub(super) tree: &'a Tree,
    variables: &'a Variables,
    dialect: Dialect,
}

impl<'a> Fields<'a> {
    /// The same for something inside of it.
    pub(super) fn within(&self, tree: &'a Tree) -> Self {
        Self { tree, ..*self }
    }

    /// How to reach it, and the same for people to read.
    fn transport(&self) -> Result<(Transport, String), EntryError> {
        let spoken = text(self.tree, "type")?.or(text(self.tree, "transport")?);
        let url = URLS.iter().find_map(|key| self.tree.get(key).map(|_| *key));
        match (self.tree.get("command"), url) {
            (Some(_), Some(key)) => {
                Err(format!("it has both `command` and `{key}`; keep the one that is meant").into())
            }
            (None, None) => Err("it has neither `command` nor `url`; write one of them".to_owned().into()),
            (Some(command), None) => self.stdio(command),
            (None, Some(_)) if matches!(spoken, Some("sse" | "ws" | "websocket")) => {
                Err("it speaks a way that MCP has given up; use its streamable HTTP address, with `type: \"http\"`"
                    .to_owned()
                    .into())
            }
            (None, Some(key)) => self.http(key),
        }
    }

    fn stdio(&self, command: &'a Tree) -> Result<(Transport, String), EntryError> {
        // Zed once wrote all of it under `command`.
        let below = self.within(if command.is_map() { command } else { self.tree });
        let mut line: Vec<String> = match &command.kind {
            Kind::Text(command) => vec![command.clone()],
            Kind::List(_) => list(command, "command")?,
            Kind::Map(_) => vec![text(command, "path")?.unwrap_or_default().to_owned()],
            Kind::Null | Kind::Bool(_) | Kind::Number(_) => {
                return Err(format!("`command`: expected a text, found {}", command.sort()).into());
            }
        };
        if let Some(args) = below.tree.get("args") {
            line.extend(list(args, "args")?);
        }
        let Some((first, rest)) = line.split_first().filter(|(first, _)| !first.trim().is_empty()) else {
            return Err("`command` is empty; write the program to start".to_owned().into());
        };
        let shown = shown::command(first, rest);
        let mut words = line.iter().map(|word| self.expand(word)).collect::<Result<Vec<_>, _>>()?;
        let command = words.remove(0);
        let mut env = below.texts("env")?;
        env.extend(below.texts("environment")?);
        env.extend(self.passed_on()?);
        let cwd = self.text("cwd")?.or(self.text("workingDirectory")?).map(PathBuf::from);
        Ok((Transport::Stdio { command, args: words, env, cwd }, shown))
    }

    fn http(&self, key: &str) -> Result<(Transport, String), EntryError> {
        let written = text(self.tree, key)?.unwrap_or_default();
        let url = self.expand(written)?;
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err(format!("`{key}`: expected an address that begins with `https://` or `http://`").into());
        }
        let mut headers = self.texts("headers")?;
        headers.extend(self.texts("http_headers")?);
        for (header, variable) in self.plain_texts("env_http_headers")? {
            headers.insert(header, self.variable(&variable)?);
        }
        for key in ["bearer_token_env_var", "bearerTokenEnv"] {
            if let Some(name) = text(self.tree, key)? {
                headers.insert("Authorization".to_owned(), format!("Bearer {}", self.variable(name)?));
            }
        }
        Ok((Transport::Http { url, headers, login: self.login()? }, shown::url(written)))
    }

    /// Codex names variables that the server shall have as they are; one that is not set is not passed on.
    fn passed_on(&self) -> Result<Vec<(String, String)>, EntryError> {
        let Some(names) = self.tree.get("env_vars") else { return Ok(Vec::new()) };
        let names = list(names, "env_vars")?;
        Ok(names.into_iter().filter_map(|name| Some((name.clone(), self.variable(&name).ok()?))).collect())
    }

    fn variable(&self, name: &str) -> Result<String, EntryError> {
        Ok(self.variables.variable(name)?)
    }

    fn expand(&self, text: &str) -> Result<String, EntryError> {
        Ok(self.variables.expand(text, self.dialect)?)
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<String>, EntryError> {
        text(self.tree, key)?.map(|text| self.expand(text)).transpose()
    }

    fn texts(&self, key: &str) -> Result<BTreeMap<String, String>, EntryError> {
        let plain = self.plain_texts(key)?;
        plain.into_iter().map(|(name, value)| Ok((name, self.expand(&value)?))).collect()
    }

    /// An object of texts; numbers and truths are taken as they are written, `null` as not there.
    fn plain_texts(&self, key: &str) -> Result<BTreeMap<String, String>, String> {
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
                    let (name, sort) = (shown::plain(&member.key), member.value.sort());
                    return Err(format!("`{key}.{name}`: expected a text, found {sort}"));
                }
            };
            texts.insert(member.key.clone(), value);
        }
        Ok(texts)
    }
}

pub(super) fn text<'t>(tree: &'t Tree, key: &str) -> Result<Option<&'t str>, String> {
    optional(tree, key, "a text", Tree::text)
}

fn truth(tree: &Tree, key: &str) -> Result<Option<bool>, String> {
    optional(tree, key, "`true` or `false`", Tree::truth)
}

pub(super) fn optional<'t, T>(
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

pub(super) fn list(tree: &Tree, key: &str) -> Result<Vec<String>, String> {
    let wrong = |found: &Tree| format!("`{key}`: expected a list of texts, found {} in it", found.sort());
    let items = tree.items().ok_or_else(|| format!("`{key}`: expected a list of texts, found {}", tree.sort()))?;
    let item = |item: &Tree| match &item.kind {
        Kind::Text(text) => Ok(text.clone()),
        Kind::Number(number) => Ok(number.to_string()),
        Kind::Null | Kind::Bool(_) | Kind::List(_) | Kind::Map(_) => Err(wrong(item)),
    };
    items.iter().map(item).collect()
}

/// `["*"]` is how some say all of them.
fn first_list(tree: &Tree, keys: &[&str]) -> Result<Option<Vec<String>>, String> {
    let Some((key, found)) = keys.iter().find_map(|key| Some((key, tree.get(key)?))) else { return Ok(None) };
    let names = list(found, key)?;
    Ok(Some(names).filter(|names| names.iter().all(|name| name != "*")))
}

fn milliseconds(tree: &Tree, keys: &[&str]) -> Result<Option<Duration>, String> {
    let Some(key) = keys.iter().find(|key| tree.get(key).is_some()) else { return Ok(None) };
    duration(tree, key, 1000.0)
}

fn seconds(tree: &Tree, key: &str) -> Result<Option<Duration>, String> {
    duration(tree, key, 1.0)
}

fn duration(tree: &Tree, key: &str, per_second: f64) -> Result<Option<Duration>, String> {
    let Some(number) = optional(tree, key, "a number", Tree::number)? else { return Ok(None) };
    if number <= 0.0 {
        return Err(format!("`{key}`: expected a time longer than none"));
    }
    let given = Duration::try_from_secs_f64(number / per_second).unwrap_or(LONGEST);
    Ok(Some(given.clamp(SHORTEST, LONGEST)))
}
