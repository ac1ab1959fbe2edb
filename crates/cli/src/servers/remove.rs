//! `cellmate servers remove`: removes a server from the configuration.

use std::process::ExitCode;

use clap::Args;

use super::change::{ChangeArguments, carry_out};
use crate::config::document;
use crate::config::edit::Change;
use crate::config::{self, ConfigArguments, Places, shown};
use crate::render;

#[derive(Debug, Args)]
pub(super) struct RemoveArguments {
    /// Server to remove.
    name: String,
    #[command(flatten)]
    change: ChangeArguments,
    #[command(flatten)]
    config: ConfigArguments,
}

pub(super) fn run(arguments: &RemoveArguments) -> ExitCode {
    let places = arguments.config.places();
    match prepare(&arguments.name, &places) {
        Ok(change) => carry_out(&change, &places, &arguments.change, &[]),
        Err(message) => render::fatal(&message),
    }
}

/// Returns the change that removes the server from the first of our files that has it.
fn prepare(name: &str, places: &Places) -> Result<Change, String> {
    for (file, _) in config::own_files(places) {
        let mut change = Change::open(&file).map_err(|error| error.to_string())?;
        let tree = change.tree().map_err(|error| error.to_string())?;
        let paths = document::paths_to(&tree, name);
        for path in &paths {
            change.remove(path).map_err(|error| error.to_string())?;
        }
        if !paths.is_empty() {
            return Ok(change);
        }
    }
    Err(not_found(name, places))
}

fn not_found(name: &str, places: &Places) -> String {
    let imported = config::load(places).ok().and_then(|loaded| loaded.servers.into_iter().find(|one| one.name == name));
    let name = shown::plain(name);
    match imported {
        Some(server) => format!(
            "`{name}` is imported from {} (`{}`); remove it there, or remove {} from `imports`",
            server.origin.source.as_str(),
            server.origin,
            server.origin.source.as_str(),
        ),
        None => format!("no server named `{name}`; `cellmate servers list` lists them"),
    }
}
