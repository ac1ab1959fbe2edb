//! Moves a client's servers into our configuration, with their variables unexpanded.

use std::path::Path;

use serde_json::Value;

use crate::clients::Client;
use crate::connection::MovedServer;
use crate::display;
use crate::document::{self, Format};
use crate::edit::{Change, EditError, Intent};
use crate::tree::{Member, Tree};

/// Our configuration with the client's servers added, and which of them were moved.
#[derive(Debug)]
pub struct TakenOver {
    /// Our configuration, with the servers added.
    pub ours: Change,
    moved: Vec<MovedServer>,
    /// Servers that stay with the client, and why.
    left: Vec<(String, &'static str)>,
}

impl TakenOver {
    /// Marks the moved servers as trusted in what they declare about their tools.
    pub fn trust(&mut self) -> Result<(), EditError> {
        let Self { ours, moved, .. } = self;
        moved.iter().try_for_each(|server| ours.set_in_server(server.key(), "trusted", &Value::Bool(true)))
    }

    /// Returns what happens to each server, one sentence each.
    pub fn notes(&self, intent: Intent) -> Vec<String> {
        let (moves, stays) = match intent {
            Intent::Write => ("moves", "stays"),
            Intent::Show => ("would move", "would stay"),
        };
        let moved = self.moved.iter().map(|server| format!("`{}` {moves} to cellmate's configuration", server.name()));
        moved.chain(self.left.iter().map(|(name, why)| format!("`{name}` {stays} where it is: {why}"))).collect()
    }

    /// Returns the servers that were moved, as the client's file has them.
    pub fn moved(&self) -> &[MovedServer] {
        &self.moved
    }
}

/// Moves all servers but `own_name`, which is cellmate itself, from a client's configuration to ours.
pub fn take_over(
    client: Client,
    own_name: &str,
    folder: &Path,
    theirs: &mut Change,
    ours: Change,
) -> Result<TakenOver, EditError> {
    let tree = theirs.tree()?;
    let mut taken = TakenOver { ours, moved: Vec::new(), left: Vec::new() };
    let folder = folder.display().to_string();
    for container in client.containers(&folder) {
        let members = tree.at(&container).map(Tree::members).unwrap_or_default();
        for member in members.iter().filter(|member| member.key != own_name) {
            match taken.take(client, member)? {
                Ok(()) => {
                    let path: Vec<&str> = container.iter().copied().chain([member.key.as_str()]).collect();
                    theirs.remove(&path)?;
                    let path = path.into_iter().map(str::to_owned).collect();
                    taken.moved.push(MovedServer { path, entry: member.value.to_json() });
                }
                Err(why) => taken.left.push((display::plain(&member.key), why)),
            }
        }
    }
    if let Some(inputs) = tree.get("inputs").filter(|_| !taken.moved.is_empty()) {
        taken.ours.add_inputs(inputs)?;
    }
    Ok(taken)
}

impl TakenOver {
    /// Adds the server to our configuration; the inner error says why it must stay with the client.
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
        let there = document::servers(&tree).iter().find_map(|servers| {
            servers.members.iter().find(|one| one.key == member.key).map(|one| one.value.to_json())
        });
        if let Some(there) = there {
            let same = there == entry;
            return Ok(if same { Ok(()) } else { Err("cellmate has a different server with that name; rename one") });
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

/// Escapes `${`, which is plain text to this client and would be a variable to us.
pub(crate) fn escape_variables(value: &mut Value) {
    each_text(value, &|text| text.replace("${", "$${"));
}

/// Rewrites Gemini's `$NAME` as `${NAME}`, which we read in every file.
pub(crate) fn brace_variables(value: &mut Value) {
    each_text(value, &|text| {
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

fn each_text(value: &mut Value, change: &dyn Fn(&str) -> String) {
    match value {
        Value::String(text) => *text = change(text),
        Value::Array(items) => items.iter_mut().for_each(|item| each_text(item, change)),
        Value::Object(members) => members.values_mut().for_each(|member| each_text(member, change)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
