//! `cellmate servers remove`.

use std::process::ExitCode;

use clap::Args;

use super::change::{ChangeArguments, carry_out};
use crate::config::document;
use crate::config::edit::Change;
use crate::config::{self, ConfigArguments, Places, shown};
use crate::render;

#[derive(Debug, Args)]
pub(super) struct RemoveArguments {
    name: String,
    #[command(flatten)]
    change: ChangeArguments,
    #[command(flatten)]
    config: ConfigArguments,
}

pub(super) fn run(arguments: &RemoveArguments) -> ExitCode {
    let places = arguments.config.places();
    match prepared(&arguments.name, &places) {
        Ok(change) => carry_out(&change, &places, &arguments.change, &[]),
        Err(message) => render::trouble(&message),
    }
}

/// The first of our files that has it, without it.
fn prepared(name: &str, places: &Places) -> Result<Change, String> {
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
    Err(nowhere(name, places))
}

fn nowhere(name: &str, places: &Places) -> String {
    let imported = config::load(places).ok().and_then(|loaded| loaded.servers.into_iter().find(|one| one.name == name));
    let name = shown::plain(name);
    match imported {
        Some(server) => format!(
            "`{name}` is imported from {} (`{}`); remove it there, or take {} out of `imports`",
            server.origin.source.as_str(),
            server.origin,
            server.origin.source.as_str(),
        ),
        None => format!("no server is called `{name}`; `cellmate servers list` has them all"),
    }
}
