//! `cellmate servers add-json`: adds a server from its entry as JSON, as servers' documentation shows it.

use std::process::ExitCode;

use clap::Args;
use client_config::{Change, display, parse_value};
use serde_json::Value;

use super::change::{ChangeArguments, NewServer};
use super::declared::{DeclaredTrust, TrustChoice};
use crate::render;
use crate::shared_arguments::{ConfigArguments, ScopeArgument};

#[derive(Debug, Args)]
pub(super) struct AddJsonArguments {
    /// Server name: its tools are `mcp:NAME:tool`, and `MCP.name.tool` in cells.
    name: String,
    /// Entry of the server, as JSON or JSON5: `{"command": "npx", "args": ["-y", "server"]}`.
    #[arg(value_name = "JSON")]
    entry: String,
    /// Configuration to change: the user's, or this folder's `.cellmate.json5`.
    #[arg(short = 's', long, value_enum, default_value_t = ScopeArgument::User)]
    scope: ScopeArgument,
    #[command(flatten)]
    trust: DeclaredTrust,
    /// Replace an existing server with the same name.
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    change: ChangeArguments,
    #[command(flatten)]
    config: ConfigArguments,
}

pub(super) async fn run(arguments: &AddJsonArguments) -> ExitCode {
    let (change, trust, notes) = match prepare(arguments) {
        Ok(prepared) => prepared,
        Err(message) => return render::fatal(&message),
    };
    arguments.server().add(&change, notes, trust, &arguments.config.places(), &arguments.change).await
}

impl AddJsonArguments {
    fn server(&self) -> NewServer<'_> {
        NewServer { name: &self.name, scope: self.scope, replace: self.replace }
    }
}

/// Returns the change that adds the server, whether to trust what it declares, and notes for the user. Fails if the
/// entry or the file is invalid.
fn prepare(arguments: &AddJsonArguments) -> Result<(Change, TrustChoice, Vec<String>), String> {
    let mut entry = entry(&arguments.entry, &arguments.name)?;
    let mut notes = literal_secrets(&entry);
    let trust = match (arguments.trust.choice(), entry.get("trusted")) {
        (TrustChoice::Ask, Some(Value::Bool(true))) => TrustChoice::Trust,
        (TrustChoice::Ask, Some(_)) => TrustChoice::DoNotTrust,
        (choice, _) => choice,
    };
    if let Some(fields) = entry.as_object_mut().filter(|_| trust == TrustChoice::Trust) {
        fields.insert("trusted".to_owned(), Value::Bool(true));
    }
    let (change, more) = arguments.server().prepare(&arguments.config.places(), || Ok(entry))?;
    notes.extend(more);
    Ok((change, trust, notes))
}

/// Parses the entry. Documentation often shows it inside `mcpServers`, which is accepted if it has one server.
fn entry(text: &str, name: &str) -> Result<Value, String> {
    // The text is not repeated: it may contain secrets.
    let value = parse_value(text).map_err(|error| format!("JSON: {error}"))?;
    let servers = value.get("mcpServers").or_else(|| value.get("servers")).and_then(Value::as_object);
    match servers {
        None if value.is_object() => Ok(value),
        None => Err("JSON: expected an object with `command` or `url`".to_owned()),
        Some(servers) => match servers.get(name).or_else(|| servers.values().next().filter(|_| servers.len() == 1)) {
            Some(only) => Ok(only.clone()),
            None => Err(format!("JSON: it has {} servers; pass the entry of one", servers.len())),
        },
    }
}

/// Returns a note for each secret that is written into the file.
fn literal_secrets(entry: &Value) -> Vec<String> {
    let of = |key: &str| entry.get(key).and_then(Value::as_object).into_iter().flatten();
    let is_literal = |name: &str, value: &Value| {
        display::names_a_secret(name) && value.as_str().is_some_and(|text| !text.contains("${"))
    };
    let named = ["env", "headers"].into_iter().flat_map(of).filter(|(name, value)| is_literal(name, value));
    let note = |name: &String| {
        let name = display::plain(name);
        format!("the value of `{name}` is in the file; write `${{VARIABLE}}` to take it from the environment")
    };
    named.map(|(name, _)| note(name)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{entry, literal_secrets};

    #[test]
    fn an_entry_may_be_wrapped_as_documentation_shows_it() {
        let plain = json!({"command": "npx"});
        assert_eq!(entry("{command: 'npx'}", "s"), Ok(plain.clone()));
        assert_eq!(entry(r#"{"mcpServers": {"other": {"command": "npx"}}}"#, "s"), Ok(plain.clone()));
        assert_eq!(entry(r#"{"mcpServers": {"a": {}, "s": {"command": "npx"}}}"#, "s"), Ok(plain));
        assert_eq!(
            entry(r#"{"servers": {"a": {}, "b": {}}}"#, "s"),
            Err("JSON: it has 2 servers; pass the entry of one".to_owned())
        );
        for wrong in ["7", "[]", "\"npx\"", "{"] {
            assert!(entry(wrong, "s").is_err(), "{wrong}");
        }
    }

    #[test]
    fn secrets_in_the_entry_are_noted_without_their_values() {
        let notes = literal_secrets(&json!({
            "env": {"API_KEY": "hunter2", "LEVEL": "debug", "TOKEN": "${TOKEN}"}, "headers": {"Authorization": "hunter2"},
        }));
        assert_eq!(notes.len(), 2);
        assert!(notes.iter().all(|note| !note.contains("hunter2")), "{notes:?}");
    }
}
