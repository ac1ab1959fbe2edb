//! `cellmate config unset`: removes a setting in place, if the result is valid.

use std::process::ExitCode;

use clap::Args;
use client_config::{Change, EditError, KeyPath, Places, display};

use super::schema;
use super::set::{AcceptedErrors, EditArguments, EditedFile};
use crate::render;
use crate::servers::carry_out;

#[derive(Debug, Args)]
pub(super) struct UnsetArguments {
    /// Key with dots, such as `tools.codeMode.timeoutMs` or `agents.list[0].tools.deny`.
    #[arg(value_name = "KEY")]
    key: String,
    #[command(flatten)]
    edit: EditArguments,
}

pub(super) fn run(arguments: &UnsetArguments) -> ExitCode {
    let places = arguments.edit.config.places();
    match prepare(arguments, &places) {
        Ok((change, notes)) if !change.is_empty() => carry_out(&change, &places, &arguments.edit.change, &notes),
        Ok((change, _)) => {
            let key = contract::text::line(&arguments.key, 100);
            render::failed(&format!("`{key}` is not set in `{}`", display::path(&change.file)))
        }
        Err(message) => render::fatal(&message),
    }
}

/// Returns the change, and notes for the user. Fails if the change would add a problem to the file.
fn prepare(arguments: &UnsetArguments, places: &Places) -> Result<(Change, Vec<String>), String> {
    let path = KeyPath::parse(&arguments.key).map_err(|error| error.to_string())?;
    let edited = EditedFile::open(arguments.edit.scope, places)?;
    let changed = edited.change(AcceptedErrors::AsMany, |change| remove(change, &path))?;
    changed.map_err(|why| format!("nothing was written: {why}"))
}

/// Removes the setting, and the objects around it that are empty without it. An object whose name the user chose is kept:
/// an agent exists even if it has no settings.
fn remove(change: &mut Change, path: &KeyPath) -> Result<(), EditError> {
    change.remove_at(path)?;
    if change.is_empty() {
        return Ok(());
    }
    let parents: Vec<KeyPath> = path.around().collect();
    for parent in parents.iter().rev().take_while(|parent| schema::is_fixed_key(parent)) {
        if !change.remove_empty_object(parent)? {
            break;
        }
    }
    Ok(())
}
