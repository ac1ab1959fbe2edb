//! `cellmate servers add`: takes what `claude mcp add` and `codex mcp add` take, where these agree.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use super::change::{ChangeArguments, carry_out};
use crate::config::document::{self, Format};
use crate::config::edit::Change;
use crate::config::{self, ConfigArguments, shown};
use crate::render;

#[derive(Debug, Args)]
pub(super) struct AddArguments {
    /// What its tools are called after: `mcp:NAME:tool`, and `MCP.name` in cells.
    name: String,
    /// The command that starts it, after `--`; or its address.
    #[arg(value_name = "COMMAND_OR_URL")]
    command: Vec<String>,
    /// The address of a server that is reached over HTTP.
    #[arg(long, conflicts_with = "command")]
    url: Option<String>,
    /// A variable for the server: `NAME=value`, or `NAME` to take it from the environment each time.
    #[arg(short = 'e', long = "env", value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// A header for every request: `NAME=value` or `NAME: value`.
    #[arg(short = 'H', long = "header", value_name = "NAME=VALUE")]
    headers: Vec<String>,
    /// The variable that holds a bearer token.
    #[arg(long, value_name = "NAME")]
    bearer_token_env_var: Option<String>,
    /// Who we are to the issuer of its login, where that wants programs to be registered by hand.
    #[arg(long, value_name = "ID")]
    client_id: Option<String>,
    /// The variable that holds the secret that goes with the id.
    #[arg(long, value_name = "NAME", requires = "client_id")]
    client_secret_env_var: Option<String>,
    /// The port that a browser comes back to from a login, where the issuer wants to know it.
    #[arg(long, value_name = "PORT")]
    callback_port: Option<u16>,
    /// What a login is to allow, where that is not for the server to say; may be repeated.
    #[arg(long = "login-scope", value_name = "SCOPE")]
    login_scopes: Vec<String>,
    #[arg(short = 't', long, value_enum)]
    transport: Option<TransportArgument>,
    /// The user's file, or `.cellmate.json5` in this folder.
    #[arg(short = 's', long, value_enum, default_value_t = ScopeArgument::User)]
    scope: ScopeArgument,
    /// The folder to start it in.
    #[arg(long, value_name = "FOLDER")]
    cwd: Option<PathBuf>,
    /// Believe what it says about its tools: that they only read.
    #[arg(long)]
    trusted: bool,
    /// Put it in place of a server with the same name.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ScopeArgument {
    User,
    #[value(alias = "local")]
    Project,
}

pub(super) fn run(arguments: &AddArguments) -> ExitCode {
    match prepared(arguments) {
        Ok((change, notes)) => carry_out(&change, &arguments.config.places(), &arguments.change, &notes),
        Err(message) => render::trouble(&message),
    }
}

/// The file with the server in it. All that can be wrong here is how it was asked for.
fn prepared(arguments: &AddArguments) -> Result<(Change, Vec<String>), String> {
    let places = arguments.config.places();
    let file = places.file_to_edit(arguments.scope == ScopeArgument::Project);
    let file = file.ok_or("there is no home folder to keep configuration in; set HOME, or give --config")?;
    let mut change = Change::open(&file).map_err(|error| error.to_string())?;
    let tree = change.tree().map_err(|error| error.to_string())?;
    let exists =
        document::servers(&tree).iter().any(|servers| servers.members.iter().any(|one| one.key == arguments.name));
    let name = shown::plain(&arguments.name);
    if exists && !arguments.replace {
        return Err(format!(
            "`{name}` is in `{}` already; give --replace to put this one in its place",
            file.display()
        ));
    }
    let container = document::container_for(&tree, Format::of(&file), &arguments.name);
    let path: Vec<&str> = container.iter().copied().chain([arguments.name.as_str()]).collect();
    change.set(&path, &entry(arguments)?).map_err(|error| error.to_string())?;
    let mut notes = literal_secrets(arguments);
    notes.extend(config::judge_entry(&change, &arguments.name, &places)?);
    notes.extend(config::trust_note(&file, &places));
    Ok((change, notes))
}

fn entry(arguments: &AddArguments) -> Result<Value, String> {
    let address = arguments.url.as_deref().or_else(|| only_an_address(arguments));
    let mut entry = match address {
        Some(url) => http(url, arguments)?,
        None => stdio(arguments)?,
    };
    if arguments.trusted {
        entry.insert("trusted".to_owned(), Value::Bool(true));
    }
    Ok(Value::Object(entry))
}

/// `add --transport http NAME URL`, and plainly `add NAME URL`.
fn only_an_address(arguments: &AddArguments) -> Option<&str> {
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
        return Err("give the command that starts it after `--`, or its address with --url".to_owned());
    };
    if arguments.transport == Some(TransportArgument::Http) {
        return Err("a server over HTTP has an address and no command; give --url".to_owned());
    }
    if oauth(arguments).is_some() {
        return Err("logins are for servers with an address; a command takes --env".to_owned());
    }
    if !arguments.headers.is_empty() || arguments.bearer_token_env_var.is_some() {
        return Err("headers are for servers with an address; a command takes --env".to_owned());
    }
    let mut entry = object(json!({"command": command, "args": args}));
    let env = pairs(&arguments.env, &['='], "--env")?;
    if !env.is_empty() {
        entry.insert("env".to_owned(), Value::Object(env));
    }
    if let Some(cwd) = &arguments.cwd {
        let cwd = std::path::absolute(cwd).map_err(|_| "--cwd: give a folder".to_owned())?;
        entry.insert("cwd".to_owned(), json!(cwd));
    }
    Ok(entry)
}

fn http(url: &str, arguments: &AddArguments) -> Result<Map<String, Value>, String> {
    if arguments.transport == Some(TransportArgument::Stdio) {
        return Err("a server that is started has a command and no address".to_owned());
    }
    if !arguments.env.is_empty() || arguments.cwd.is_some() {
        return Err("--env and --cwd are for servers that are started; one with an address takes --header".to_owned());
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

/// What there is to say of a login; none where nothing is.
fn oauth(arguments: &AddArguments) -> Option<Value> {
    let secret = arguments.client_secret_env_var.as_ref().map(|name| format!("${{{name}}}"));
    let scopes = Some(&arguments.login_scopes).filter(|scopes| !scopes.is_empty());
    let said = [
        ("clientId", arguments.client_id.as_ref().map(|id| json!(id))),
        ("clientSecret", secret.map(|secret| json!(secret))),
        ("scopes", scopes.map(|scopes| json!(scopes))),
        ("callbackPort", arguments.callback_port.map(|port| json!(port))),
    ];
    let said: Map<String, Value> = said.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect();
    (!said.is_empty()).then_some(Value::Object(said))
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// A name alone is a variable that is looked up each time the file is read.
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

/// Secrets that are now in a file, and how they need not be.
fn literal_secrets(arguments: &AddArguments) -> Vec<String> {
    let literal = |flag: &str, text: &String, separators: &[char]| {
        let (name, value) = text.split_once(separators)?;
        let name = name.trim();
        (shown::names_a_secret(name) && !value.contains("${")).then(|| {
            format!("`{name}` is in the file as you gave it; {flag} {name}='${{{}}}' keeps it out", variable_for(name))
        })
    };
    let env = arguments.env.iter().filter_map(|text| literal("--env", text, &['=']));
    env.chain(arguments.headers.iter().filter_map(|text| literal("--header", text, &[':', '=']))).collect()
}

fn variable_for(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}
