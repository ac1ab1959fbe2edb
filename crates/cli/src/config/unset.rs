//! `cellmate config unset`: removes a setting in place, if the result is valid.

use std::process::ExitCode;

use clap::Args;
use client_config::{Change, KeyPath, Places, display};

use super::set::EditedFile;
use crate::render;
use crate::servers::{ChangeArguments, carry_out};
use crate::shared_arguments::{ConfigArguments, ScopeArgument};

#[derive(Debug, Args)]
pub(super) struct UnsetArguments {
    /// Key with dots, such as `tools.codeMode.timeoutMs` or `agents.list[0].tools.deny`.
    #[arg(value_name = "KEY")]
    key: String,
    /// Configuration to change: the user's, or this folder's `.cellmate.json5`.
    #[arg(short = 's', long, value_enum, default_value_t = ScopeArgument::User)]
    scope: ScopeArgument,
    #[command(flatten)]
    change: ChangeArguments,
    #[command(flatten)]
    config: ConfigArguments,
}

pub(super) fn run(arguments: &UnsetArguments) -> ExitCode {
    let places = arguments.config.places();
    match prepare(arguments, &places) {
        Ok((change, notes)) if !change.is_empty() => carry_out(&change, &places, &arguments.change, &notes),
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
    let edited = EditedFile::open(arguments.scope, places)?;
    edited.change(|change| change.remove_at(&path))?.map_err(|why| format!("nothing was written: {why}"))
}
