//! `cellmate servers add`: accepts the arguments on which `claude mcp add` and `codex mcp add` agree.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use client_config::{Change, display};
use serde_json::{Map, Value, json};

use super::change::{ChangeArguments, NewServer};
use super::declared::{DeclaredTrust, TrustChoice};
use crate::render;
use crate::shared_arguments::{ConfigArguments, ScopeArgument};

#[derive(Debug, Args)]
pub(super) struct AddArguments {
    /// Server name: its tools are `mcp:NAME:tool`, and `MCP.name.tool` in cells.
    name: String,
    /// Command that starts the server, after `--`; or its URL.
    #[arg(value_name = "COMMAND_OR_URL")]
    command: Vec<String>,
    /// URL of an HTTP server.
    #[arg(long, conflicts_with = "command")]
    url: Option<String>,
    /// Environment variable for the server: `NAME=value`, or `NAME` to take its value from cellmate's environment.
    #[arg(short = 'e', long = "env", value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// HTTP header for every request: `NAME=value` or `NAME: value`.
    #[arg(short = 'H', long = "header", value_name = "NAME=VALUE")]
    headers: Vec<String>,
    /// Environment variable that holds a bearer token.
    #[arg(long, value_name = "NAME")]
    bearer_token_env_var: Option<String>,
    /// OAuth client id, if the issuer requires registered clients.
    #[arg(long, value_name = "ID")]
    client_id: Option<String>,
    /// Environment variable that holds the OAuth client secret.
    #[arg(long, value_name = "NAME", requires = "client_id")]
    client_secret_env_var: Option<String>,
    /// Port of the OAuth redirect, if the issuer requires a registered one.
    #[arg(long, value_name = "PORT")]
    callback_port: Option<u16>,
    /// OAuth scope to request instead of those that the server names; may be repeated.
    #[arg(long = "login-scope", value_name = "SCOPE")]
    login_scopes: Vec<String>,
    /// Transport of the server; by default HTTP for a URL, else stdio.
    #[arg(short = 't', long, value_enum)]
    transport: Option<TransportArgument>,
    /// Configuration to change: the user's, or this folder's `.cellmate.json5`.
    #[arg(short = 's', long, value_enum, default_value_t = ScopeArgument::User)]
    scope: ScopeArgument,
    /// Working directory of the server.
    #[arg(long, value_name = "FOLDER")]
    cwd: Option<PathBuf>,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TransportArgument {
    Stdio,
    #[value(alias = "streamable-http")]
    Http,
}

pub(super) async fn run(arguments: &AddArguments) -> ExitCode {
    let (change, notes) = match prepare(arguments) {
        Ok(prepared) => prepared,
        Err(message) => return render::fatal(&message),
    };
    let server = NewServer { name: &arguments.name, scope: arguments.scope, replace: arguments.replace };
    server.add(&change, notes, arguments.trust.choice(), &arguments.config.places(), &arguments.change).await
}

/// Returns the change that adds the server, and notes for the user. Fails if the arguments or the file are invalid.
fn prepare(arguments: &AddArguments) -> Result<(Change, Vec<String>), String> {
    let server = NewServer { name: &arguments.name, scope: arguments.scope, replace: arguments.replace };
    let (change, more) = server.prepare(&arguments.config.places(), || entry(arguments))?;
    let mut notes = literal_secrets(arguments);
    notes.extend(more);
    Ok((change, notes))
}

fn entry(arguments: &AddArguments) -> Result<Value, String> {
    let url = arguments.url.as_deref().or_else(|| positional_url(arguments));
    let mut entry = match url {
        Some(url) => http(url, arguments)?,
        None => stdio(arguments)?,
    };
    if arguments.trust.choice() == TrustChoice::Trust {
        entry.insert("trusted".to_owned(), Value::Bool(true));
    }
    Ok(Value::Object(entry))
}

/// Returns the URL of `add --transport http NAME URL` and of `add NAME URL`.
fn positional_url(arguments: &AddArguments) -> Option<&str> {
    match arguments.command.as_slice() {
        [only]
            if arguments.transport == Some(TransportArgument::Http)
                || only.starts_with("https://")
                || only.starts_with("http://") =>
        {
            Some(only)
        }
        _ => None,
    }
}

fn stdio(arguments: &AddArguments) -> Result<Map<String, Value>, String> {
    let Some((command, args)) = arguments.command.split_first() else {
        return Err("pass the command that starts the server after `--`, or its URL with --url".to_owned());
    };
    if arguments.transport == Some(TransportArgument::Http) {
        return Err("an HTTP server has a URL and no command; pass --url".to_owned());
    }
    if oauth(arguments).is_some() {
        return Err("login options need a server with a URL; use --env for a command".to_owned());
    }
    if !arguments.headers.is_empty() || arguments.bearer_token_env_var.is_some() {
        return Err("headers need a server with a URL; use --env for a command".to_owned());
    }
    let mut entry = object(json!({"command": command, "args": args}));
    let env = pairs(&arguments.env, &['='], "--env")?;
    if !env.is_empty() {
        entry.insert("env".to_owned(), Value::Object(env));
    }
    if let Some(cwd) = &arguments.cwd {
        let cwd = std::path::absolute(cwd).map_err(|_| "--cwd: expected a folder".to_owned())?;
        entry.insert("cwd".to_owned(), json!(cwd));
    }
    Ok(entry)
}

fn http(url: &str, arguments: &AddArguments) -> Result<Map<String, Value>, String> {
    if arguments.transport == Some(TransportArgument::Stdio) {
        return Err("a stdio server has a command and no URL; pass the command after `--`".to_owned());
    }
    if !arguments.env.is_empty() || arguments.cwd.is_some() {
        return Err("--env and --cwd need a server with a command; use --header for a URL".to_owned());
    }
    let mut entry = object(json!({"type": "http", "url": url}));
    let headers = pairs(&arguments.headers, &[':', '='], "--header")?;
    if !headers.is_empty() {
        entry.insert("headers".to_owned(), Value::Object(headers));
    }
    if let Some(variable) = &arguments.bearer_token_env_var {
        entry.insert("bearer_token_env_var".to_owned(), json!(variable));
    }
    entry.extend(oauth(arguments).map(|oauth| ("oauth".to_owned(), oauth)));
    Ok(entry)
}

/// Returns the `oauth` object, or `None` if no login option was given.
fn oauth(arguments: &AddArguments) -> Option<Value> {
    let secret = arguments.client_secret_env_var.as_ref().map(|name| format!("${{{name}}}"));
    let scopes = Some(&arguments.login_scopes).filter(|scopes| !scopes.is_empty());
    let given = [
        ("clientId", arguments.client_id.as_ref().map(|id| json!(id))),
        ("clientSecret", secret.map(|secret| json!(secret))),
        ("scopes", scopes.map(|scopes| json!(scopes))),
        ("callbackPort", arguments.callback_port.map(|port| json!(port))),
    ];
    let given: Map<String, Value> =
        given.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect();
    (!given.is_empty()).then_some(Value::Object(given))
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// Parses `NAME=value` pairs. A name alone becomes `${NAME}`, which is looked up whenever the file is read.
fn pairs(given: &[String], separators: &[char], flag: &str) -> Result<Map<String, Value>, String> {
    let pair = |text: &String| {
        let (name, value) = match text.split_once(separators) {
            Some((name, value)) => (name.trim(), value.trim().to_owned()),
            None => (text.trim(), format!("${{{}}}", text.trim())),
        };
        let is_name =
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
        if is_name { Ok((name.to_owned(), Value::String(value))) } else { Err(format!("{flag}: write NAME=value")) }
    };
    given.iter().map(pair).collect()
}

/// Returns a note for each secret that is written into the file, with the way to avoid it.
fn literal_secrets(arguments: &AddArguments) -> Vec<String> {
    let literal = |flag: &str, text: &String, separators: &[char]| {
        let (name, value) = text.split_once(separators)?;
        let name = name.trim();
        (display::names_a_secret(name) && !value.contains("${")).then(|| {
            let variable = variable_for(name);
            format!(
                "the value of `{name}` is in the file; to keep it out, use {flag} {name}='${{{variable}}}', or run \
                 `cellmate secrets set {variable}` and use {flag} {name}='${{secret:{variable}}}'"
            )
        })
    };
    let env = arguments.env.iter().filter_map(|text| literal("--env", text, &['=']));
    env.chain(arguments.headers.iter().filter_map(|text| literal("--header", text, &[':', '=']))).collect()
}

fn variable_for(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}
