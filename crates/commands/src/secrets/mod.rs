//! `cellmate secrets`: stores the values to which `${secret:NAME}` refers, in the entries of servers, providers and
//! plugins.

mod input;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use client_config::{Places, References, SECRET_NAME_RULE, is_secret_name};
use executor::clock::now_ms;
use serde_json::{Value, json};
use store::Secrets;

use crate::age::ago;
use crate::render;
use crate::shared_arguments::ConfigArguments;
use crate::state::{SecretFile, SecretFileError};

/// Shorter values are not removed from logs, because they occur in ordinary text.
const MIN_REDACTED_BYTES: usize = 6;

#[derive(Debug, Args)]
pub(crate) struct SecretsArguments {
    #[command(subcommand)]
    action: Action,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    config: ConfigArguments,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Set a secret; its value is read from the terminal, or from standard input.
    Set {
        /// Name of the secret, for `${secret:NAME}`.
        #[arg(value_parser = name)]
        name: String,
        /// Accepted only to explain why it is refused.
        #[arg(hide = true)]
        value: Option<OsString>,
    },
    /// List the names of secrets and the servers, providers and plugins that use them.
    List,
    /// Remove a secret.
    #[command(alias = "remove")]
    Rm {
        /// Name of the secret.
        #[arg(value_parser = name)]
        name: String,
    },
}

fn name(text: &str) -> Result<String, String> {
    if is_secret_name(text) { Ok(text.to_owned()) } else { Err(SECRET_NAME_RULE.to_owned()) }
}

pub(crate) fn run(arguments: &SecretsArguments) -> ExitCode {
    let places = arguments.config.places();
    let file = match SecretFile::of(&places) {
        Ok(file) => file,
        Err(error) => return render::fatal(&error.to_string()),
    };
    let done = match &arguments.action {
        Action::Set { value: Some(_), .. } => {
            return render::fatal(
                "a value is not accepted as an argument, which process lists and the shell's history show; type it \
                 when asked, or pass it on standard input",
            );
        }
        Action::Set { name, value: None } => set(name, &file, arguments),
        Action::List => list(&file, &places, arguments),
        Action::Rm { name } => remove(name, &file, &places, arguments),
    };
    done.unwrap_or_else(|message| render::fatal(&message))
}

fn set(name: &str, file: &SecretFile, arguments: &SecretsArguments) -> Result<ExitCode, String> {
    let value = input::read_value(name)?;
    let length = value.len();
    let replaced = file.change(|secrets| secrets.set(name, value, now_ms())).map_err(|error| error.to_string())?;
    if arguments.json {
        render::print_json(&json!({"name": name, "replaced": replaced}));
    } else {
        let done = if replaced { "replaced" } else { "set" };
        render::print(&format!(
            "{done} `{name}`; write ${{secret:{name}}} in `env`, `headers`, `url` or `oauth` of a server, in `apiKey` or \
             `headers` of a provider, or in `env` of a plugin\n"
        ));
    }
    if length < MIN_REDACTED_BYTES {
        render::note(&format!(
            "note: values of fewer than {MIN_REDACTED_BYTES} bytes are not removed from logs, because they occur in \
             ordinary text"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn list(file: &SecretFile, places: &Places, arguments: &SecretsArguments) -> Result<ExitCode, String> {
    let secrets = file.read().map_err(|error| error.to_string())?;
    let used = uses(places);
    let users = |name: &str| used.get(name).cloned().unwrap_or_default();
    let missing: Vec<&String> = used.keys().filter(|name| secrets.get(name).is_none()).collect();
    if arguments.json {
        let stored: Vec<Value> = secrets
            .iter()
            .map(|(name, secret)| json!({"name": name, "setAt": secret.set_at, "usedBy": users(name)}))
            .collect();
        let missing: Vec<Value> = missing.iter().map(|name| json!({"name": name, "usedBy": users(name)})).collect();
        render::print_json(&json!({"secrets": stored, "missing": missing}));
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = String::new();
    let width = secrets.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, secret) in secrets.iter() {
        let when = ago(now_ms().saturating_sub(secret.set_at));
        text += &format!("{name:width$}  set {when}, {}\n", used_by(&users(name)));
    }
    if text.is_empty() {
        text = "no secrets; set one with `cellmate secrets set NAME`\n".to_owned();
    }
    render::print(&text);
    for name in missing {
        render::note(&format!(
            "problem: secret `{name}` is not set, {}; run `cellmate secrets set {name}`",
            used_by(&users(name))
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn remove(name: &str, file: &SecretFile, places: &Places, arguments: &SecretsArguments) -> Result<ExitCode, String> {
    // Without the check, a file and its key would be created to remove nothing from it.
    let is_there = file.read().map_err(|error| error.to_string())?.get(name).is_some();
    let removed = is_there && file.change(|secrets| Ok(secrets.remove(name))).map_err(|error| error.to_string())?;
    if !removed {
        return Ok(render::failed(&format!("no secret named `{name}`; `cellmate secrets list` lists them")));
    }
    let users = uses(places).remove(name).unwrap_or_default();
    if arguments.json {
        render::print_json(&json!({"name": name, "removed": true, "usedBy": users}));
    } else {
        render::print(&format!("removed `{name}`\n"));
        if !users.is_empty() {
            render::note(&format!("note: it is still {}, which cannot be used without it", used_by(&users)));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns what refers to each secret: servers by their names, providers and plugins as `provider NAME` and `plugin ID`.
/// A configuration that cannot be read has none: managing secrets must be possible regardless.
fn uses(places: &Places) -> BTreeMap<String, BTreeSet<String>> {
    let mut used: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let loaded = match client_config::load(places) {
        Ok(loaded) => loaded,
        Err(error) => {
            render::note(&format!("problem: {error}"));
            return used;
        }
    };
    for (server, references) in &loaded.references {
        for secret in &references.secrets {
            used.entry(secret.clone()).or_default().insert(server.clone());
        }
    }
    for (kind, place) in [("provider", "/models/providers"), ("plugin", "/plugins/entries")] {
        for (name, entry) in loaded.settings.pointer(place).and_then(Value::as_object).into_iter().flatten() {
            for secret in References::of_settings(entry).secrets {
                used.entry(secret).or_default().insert(format!("{kind} {name}"));
            }
        }
    }
    used
}

/// The state of the secrets, for `cellmate doctor`.
pub(crate) struct SecretsCheck {
    pub(crate) text: String,
    pub(crate) json: Value,
    /// Whether the file can be read. Secrets that are not set are reported with the servers that need them.
    pub(crate) is_ok: bool,
}

/// Checks that the secrets can be read, and finds those that are not set.
pub(crate) fn check(places: &Places) -> SecretsCheck {
    let secrets = match SecretFile::of(places).and_then(|file| file.read()) {
        Ok(secrets) => secrets,
        // Without a home folder nothing is stored, and other checks report it.
        Err(SecretFileError::NoHome) => Secrets::default(),
        Err(error) => {
            let text = format!("cannot be read: {error}");
            return SecretsCheck { json: json!({"error": error.to_string()}), text, is_ok: false };
        }
    };
    let used = client_config::load(places).map(|loaded| loaded.all_references().secrets).unwrap_or_default();
    let missing: Vec<&String> = used.iter().filter(|name| secrets.get(name).is_none()).collect();
    let count = secrets.iter().count();
    let text = match missing.len() {
        0 => format!("{count} set"),
        missing => format!("{count} set, {missing} missing: see `cellmate secrets list`"),
    };
    SecretsCheck { text, json: json!({"count": count, "missing": missing}), is_ok: true }
}

/// How many servers, providers and plugins a line names.
const MAX_USERS: usize = 10;

fn used_by(users: &BTreeSet<String>) -> String {
    if users.is_empty() {
        return "not used".to_owned();
    }
    let names: Vec<String> =
        users.iter().take(MAX_USERS).map(|name| format!("`{}`", client_config::display::plain(name))).collect();
    let more = users.len().saturating_sub(MAX_USERS);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("used by {}{more}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::used_by;

    #[test]
    fn servers_that_use_a_secret_are_named_up_to_a_limit() {
        let servers = |count: usize| (0..count).map(|number| format!("s{number:02}")).collect();
        assert_eq!(used_by(&servers(0)), "not used");
        assert_eq!(used_by(&servers(2)), "used by `s00`, `s01`");
        assert!(used_by(&servers(12)).ends_with("`s09` and 2 more"));
    }
}
