//! `cellmate plugins add`: installs a plugin from a folder, after the user has confirmed what it may do.

use std::path::PathBuf;
use std::process::ExitCode;

use ::tools::plugins::{InspectedPlugin, Manifest, inspect, short_hash};
use clap::Args;
use executor::clock::now_ms;
use serde_json::json;

use super::PlaceArguments;
use super::show::{manifest_json, summary};
use crate::render;
use crate::servers::confirm_question;

#[derive(Debug, Args)]
pub(super) struct AddArguments {
    /// Folder of the plugin, with a `cellmate.plugin.json`.
    folder: PathBuf,
    /// Install it without asking.
    #[arg(long)]
    yes: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: PlaceArguments,
}

/// What every user should know before installing a plugin.
const WARNING: &str =
    "A plugin is a program that runs as you, outside the sandbox: it can read and change what you can.";

pub(super) fn run(arguments: &AddArguments) -> ExitCode {
    match add(arguments) {
        Ok(code) => code,
        Err(message) => render::fatal(&message),
    }
}

fn add(arguments: &AddArguments) -> Result<ExitCode, String> {
    let host = arguments.place.host()?;
    // The path is recorded, and shown later from other folders.
    let folder = std::fs::canonicalize(&arguments.folder)
        .map_err(|error| format!("cannot use `{}`: {error}", arguments.folder.display()))?;
    let inspected = inspect(&folder).map_err(|error| error.to_string())?;
    if !arguments.json {
        render::print(&description(&inspected));
    }
    if !arguments.yes {
        match confirm_question("Install this plugin?") {
            Some(true) => {}
            Some(false) => {
                render::note("nothing was installed");
                return Ok(ExitCode::from(render::FAILED));
            }
            None => {
                return Err("nothing was installed: confirming needs a terminal; pass --yes to install it".to_owned());
            }
        }
    }
    let added = host.folder.add(&folder, &inspected.hash, now_ms()).map_err(|error| error.to_string())?;
    if arguments.json {
        let mut result = manifest_json(&inspected.manifest);
        if let Some(fields) = result.as_object_mut() {
            fields.insert("hash".to_owned(), json!(inspected.hash));
            fields.insert("enabled".to_owned(), json!(added.record.enabled));
        }
        render::print_json(&result);
        return Ok(ExitCode::SUCCESS);
    }
    let Manifest { id, version, .. } = &inspected.manifest;
    let state = if added.record.enabled { "" } else { "; it is disabled, and stays so" };
    render::print(&format!("installed `{id}` {version}{state}; try it with `cellmate plugins test {id}`\n"));
    Ok(ExitCode::SUCCESS)
}

fn description(plugin: &InspectedPlugin) -> String {
    let InspectedPlugin { manifest, hash, files, bytes } = plugin;
    format!("{}content     {files} files, {bytes} bytes, {}\n\n{WARNING}\n", summary(manifest), short_hash(hash))
}
