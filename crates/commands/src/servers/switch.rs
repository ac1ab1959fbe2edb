//! `cellmate servers enable` and `disable`: switch a server on or off and keep its entry.

use std::process::ExitCode;

use clap::Args;
use client_config::{Change, Places, Switch, trust_note};

use super::change::{ChangeArguments, carry_out};
use super::remove::not_found;
use crate::render;
use crate::shared_arguments::ConfigArguments;

#[derive(Debug, Args)]
pub(super) struct SwitchArguments {
    /// Server to switch.
    name: String,
    #[command(flatten)]
    change: ChangeArguments,
    #[command(flatten)]
    config: ConfigArguments,
}

pub(super) fn run(arguments: &SwitchArguments, switch: Switch) -> ExitCode {
    let places = arguments.config.places();
    match prepare(&arguments.name, switch, &places) {
        Ok((change, notes)) => carry_out(&change, &places, &arguments.change, &notes),
        Err(message) => render::fatal(&message),
    }
}

/// Returns the change to the first of our files that has the server, and notes for the user.
fn prepare(name: &str, switch: Switch, places: &Places) -> Result<(Change, Vec<String>), String> {
    for (file, _) in client_config::own_files(places) {
        let mut change = Change::open(&file).map_err(|error| error.to_string())?;
        if change.switch_server(name, switch).map_err(|error| error.to_string())? {
            let notes = trust_note(&file, places).into_iter().collect();
            return Ok((change, notes));
        }
    }
    let verb = match switch {
        Switch::On => "enable",
        Switch::Off => "disable",
    };
    Err(not_found(name, verb, places))
}
