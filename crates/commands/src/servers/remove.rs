//! `cellmate servers remove`: removes a server from the configuration.

use std::process::ExitCode;

use clap::Args;
use client_config::{Change, Places, display};

use super::change::{ChangeArguments, carry_out};
use super::unknown_server;
use crate::render;
use crate::shared_arguments::ConfigArguments;

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
    for (file, _) in client_config::own_files(places) {
        let mut change = Change::open(&file).map_err(|error| error.to_string())?;
        if change.remove_server(name).map_err(|error| error.to_string())? {
            return Ok(change);
        }
    }
    Err(not_found(name, "remove", places))
}

/// Says where a server is that none of our files has, and what to do instead of `verb`.
pub(super) fn not_found(name: &str, verb: &str, places: &Places) -> String {
    let loaded = match client_config::load(places) {
        Ok(loaded) => loaded,
        Err(error) => return error.to_string(),
    };
    match loaded.servers.iter().find(|server| server.name == name) {
        Some(server) => format!(
            "`{}` is imported from {} (`{}`); {verb} it there, or remove {} from `imports`",
            display::plain(name),
            server.origin.source.as_str(),
            server.origin,
            server.origin.source.as_str(),
        ),
        None => unknown_server(name, &loaded, places),
    }
}
