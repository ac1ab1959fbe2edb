//! Moves the MCP servers in a client's configuration to Cellmate's, with the variables in them unexpanded.

use std::path::Path;

use serde_json::Value;

use crate::clients::Client;
use crate::connection::MovedServer;
use crate::display;
use crate::document::{self, Format};
use crate::edit::{Change, EditError, Intent};
use crate::tree::{Member, Tree};

/// Cellmate's configuration with a client's servers added, and what happened to each of them.
#[derive(Debug)]
pub struct TakenOver {
    /// The change to Cellmate's configuration.
    pub ours: Change,
    moved: Vec<MovedServer>,
    /// Servers that stay in the client's configuration, and why.
    not_moved: Vec<(String, &'static str)>,
}

impl TakenOver {
    /// Sets `trusted` for the moved servers: what they declare about their tools is believed.
    pub fn trust(&mut self) -> Result<(), EditError> {
        let Self { ours, moved, .. } = self;
        moved.iter().try_for_each(|server| ours.set_in_server(server.key(), "trusted", &Value::Bool(true)))
    }

    /// Returns a sentence for each server that says what happens to it.
    pub fn notes(&self, intent: Intent) -> Vec<String> {
        let (moves, stays) = match intent {
            Intent::Write => ("moves", "stays"),
            Intent::Show => ("would move", "would stay"),
        };
        let moved = self.moved.iter().map(|server| format!("`{}` {moves} to cellmate's configuration", server.name()));
        moved.chain(self.not_moved.iter().map(|(name, why)| format!("`{name}` {stays} where it is: {why}"))).collect()
    }

    /// Returns the moved servers as they were in the client's file.
    pub fn moved(&self) -> &[MovedServer] {
        &self.moved
    }
}

/// Moves all servers from a client's configuration (`theirs`) to Cellmate's (`ours`), except for `own_name`, which is
/// Cellmate itself.
pub fn take_over(
    client: Client,
    own_name: &str,
    folder: &Path,
    theirs: &mut Change,
    ours: Change,
) -> Result<TakenOver, EditError> {
    let tree = theirs.tree()?;
    let mut taken = TakenOver { ours, moved: Vec::new(), not_moved: Vec::new() };
    let folder = folder.display().to_string();
    for container in client.servers_keys(&folder) {
        let members = tree.at(&container).into_iter().flat_map(Tree::effective_members);
        for member in members.filter(|member| member.key != own_name) {
            match taken.take(client, member)? {
                Ok(()) => {
                    let path: Vec<&str> = container.iter().copied().chain([member.key.as_str()]).collect();
                    theirs.remove(&path)?;
                    let path = path.into_iter().map(str::to_owned).collect();
                    taken.moved.push(MovedServer { path, entry: member.value.to_json() });
                }
                Err(why) => taken.not_moved.push((display::plain(&member.key), why)),
            }
        }
    }
    if let Some(inputs) = tree.get("inputs").filter(|_| !taken.moved.is_empty()) {
        taken.ours.add_inputs(inputs)?;
    }
    Ok(taken)
}

/// Returns how many servers a client's configuration has besides `own_name`, which is Cellmate itself.
pub fn other_servers(client: Client, own_name: &str, folder: &Path, theirs: &Change) -> Result<usize, EditError> {
    let (tree, folder) = (theirs.tree()?, folder.display().to_string());
    let found = client.servers_keys(&folder).into_iter().filter_map(|container| tree.at(&container));
    Ok(found.flat_map(Tree::effective_members).filter(|member| member.key != own_name).count())
}

impl TakenOver {
    /// Adds a server to Cellmate's configuration. The inner error says why the server must stay with the client.
    fn take(&mut self, client: Client, member: &Member) -> Result<Result<(), &'static str>, EditError> {
        if let Some(why) = must_stay(&member.value) {
            return Ok(Err(why));
        }
        let mut entry = member.value.to_json();
        if client == Client::Codex || client == Client::Zed {
            escape_variables(&mut entry);
        }
        if client == Client::Gemini {
            brace_variables(&mut entry);
        }
        let tree = self.ours.tree()?;
        if let Some(existing) = document::server(&tree, &member.key).map(Tree::to_json) {
            let is_same = existing == entry;
            return Ok(if is_same {
                Ok(())
            } else {
                Err("cellmate has a different server with that name; rename one")
            });
        }
        let container = document::container_for(&tree, Format::of(&self.ours.file), &member.key);
        let path: Vec<&str> = container.iter().copied().chain([member.key.as_str()]).collect();
        self.ours.set(&path, &entry)?;
        Ok(Ok(()))
    }
}

/// Returns why a server cannot be moved, or `None` if it can.
fn must_stay(entry: &Tree) -> Option<&'static str> {
    let has = |key: &str| entry.get(key).is_some_and(|found| !found.members().is_empty() || found.text().is_some());
    let transport = entry.get("type").or(entry.get("transport")).and_then(Tree::text);
    let url = ["url", "httpUrl", "serverUrl", "baseUrl"].iter().any(|key| entry.get(key).is_some());
    let authorized = ["headers", "http_headers", "env_http_headers", "bearer_token_env_var", "bearerTokenEnv"];
    if entry.get("headersHelper").is_some() {
        return Some("its headers come from a helper that only the client runs");
    }
    match transport {
        Some("sse" | "ws" | "websocket") => Some("cellmate does not support its transport"),
        _ if !url && entry.get("command").is_none() => Some("it has neither a command nor a URL"),
        // The client's login cannot be moved.
        _ if url && !authorized.iter().any(|key| has(key)) => {
            Some("the client may be logged in to it; if it needs no login, add it with `cellmate servers add`")
        }
        _ => None,
    }
}

/// Escapes `${`, which is plain text in this client's configuration and begins a variable in Cellmate's.
pub(crate) fn escape_variables(value: &mut Value) {
    map_strings(value, &|text| text.replace("${", "$${"));
}

/// Rewrites Gemini's `$NAME` as `${NAME}`, the only form that Cellmate reads.
pub(crate) fn brace_variables(value: &mut Value) {
    map_strings(value, &|text| {
        let mut braced = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            braced.push_str(before);
            let name_ends = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
            let (name, left) = after.split_at(name_ends);
            let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
            braced.push_str(&if is_name { format!("${{{name}}}") } else { format!("${name}") });
            rest = left;
        }
        braced.push_str(rest);
        braced
    });
}

/// Replaces every string in a JSON value.
fn map_strings(value: &mut Value, change: &dyn Fn(&str) -> String) {
    match value {
        Value::String(text) => *text = change(text),
        Value::Array(items) => items.iter_mut().for_each(|item| map_strings(item, change)),
        Value::Object(members) => members.values_mut().for_each(|member| map_strings(member, change)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
