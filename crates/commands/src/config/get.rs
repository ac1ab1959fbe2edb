//! `cellmate config get`: prints a setting, or a part of a server's entry.

use std::process::ExitCode;

use clap::Args;
use client_config::{ConfigFile, KeyPath, Places, own_files};
use contract::text;
use serde_json::{Value, json};

use super::schema;
use crate::render::{self, OutputFormat};
use crate::shared_arguments::ConfigArguments;

#[derive(Debug, Args)]
pub(super) struct GetArguments {
    /// Key with dots, such as `tools.codeMode.timeoutMs` or `mcpServers["my.server"].command`; everything if omitted.
    #[arg(value_name = "KEY")]
    key: Option<String>,
    #[command(flatten)]
    config: ConfigArguments,
    /// Print JSON: the value, the file that it is from, and the default.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &GetArguments) -> ExitCode {
    match get(arguments) {
        Ok(code) => code,
        Err(message) => render::fatal(&message),
    }
}

/// A value, and the file that it is from.
struct Found {
    value: Value,
    file: ConfigFile,
}

fn get(arguments: &GetArguments) -> Result<ExitCode, String> {
    let format = OutputFormat::from_flag(arguments.json);
    let files = users_files(&arguments.config.places())?;
    let Some(key) = &arguments.key else { return Ok(print_all(files, format)) };
    let path = KeyPath::parse(key).map_err(|error| error.to_string())?;
    let default = schema::default_of(&path);
    let found = find(files, &path);
    if format == OutputFormat::Json {
        let value = found.as_ref().map(|found| &found.value);
        let file = found.as_ref().map(|found| &found.file.file);
        let line = found.as_ref().map(|found| found.file.position(&path).line);
        render::print_json(&json!({
            "key": path.to_string(), "value": value, "file": file, "line": line, "default": default,
        }));
    }
    Ok(match found {
        Some(found) => {
            if format == OutputFormat::Text {
                render::print(&readable(&found.value));
            }
            ExitCode::SUCCESS
        }
        None => {
            let default = default.map(|default| format!("; its default is {default}")).unwrap_or_default();
            let meant = schema::meant(&path).map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default();
            render::failed(&format!("`{path}` is not set{default}{meant}"))
        }
    })
}

/// Returns the user's own files that exist, by precedence. A project's file cannot change settings.
fn users_files(places: &Places) -> Result<Vec<ConfigFile>, String> {
    let mut files = Vec::new();
    for (file, source) in own_files(places) {
        if source.is_the_users() {
            files.extend(ConfigFile::open(&file, source).map_err(|error| error.to_string())?);
        }
    }
    Ok(files)
}

/// Finds the value in the first file that has the key's section, as all settings are read; servers are merged.
fn find(files: Vec<ConfigFile>, path: &KeyPath) -> Option<Found> {
    for file in files {
        if let Some(value) = file.shown(path) {
            return Some(Found { value, file });
        }
        let has_section = path.section().is_some_and(|section| file.sections().iter().any(|(key, _)| key == section));
        if has_section {
            return None;
        }
    }
    None
}

fn print_all(files: Vec<ConfigFile>, format: OutputFormat) -> ExitCode {
    let mut all = serde_json::Map::new();
    for file in files {
        let Some(Value::Object(shown)) = file.shown_whole() else { continue };
        for (key, value) in shown {
            all.entry(key).or_insert(value);
        }
    }
    if format == OutputFormat::Json {
        render::print_json(&Value::Object(all))
    } else {
        render::print(&readable(&Value::Object(all)))
    }
    ExitCode::SUCCESS
}

/// Returns a string as it is, on one line, and everything else as JSON.
fn readable(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{}\n", text::line(text, usize::MAX)),
        other => format!("{}\n", render::pretty(&other.to_string())),
    }
}
