//! `cellmate servers trust`: a project's file comes with the project, and starts processes; so somebody says yes first.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::change::{ChangeArguments, carry_out};
use crate::config::edit::Change;
use crate::config::{ConfigArguments, Places, document};
use crate::render;

#[derive(Debug, Args)]
pub(super) struct TrustArguments {
    /// This folder where none is given; everything below it is trusted too.
    folder: Option<PathBuf>,
    #[command(flatten)]
    change: ChangeArguments,
}

pub(super) fn run(arguments: &TrustArguments) -> ExitCode {
    let places = ConfigArguments::default().places();
    match prepared(arguments, &places) {
        Ok(change) => carry_out(&change, &places, &arguments.change, &[]),
        Err(message) => render::trouble(&message),
    }
}

fn prepared(arguments: &TrustArguments, places: &Places) -> Result<Change, String> {
    let given = arguments.folder.as_ref().unwrap_or(&places.folder);
    let folder = given.canonicalize().map_err(|_| format!("`{}` is no folder", given.display()))?;
    let folder = folder.to_str().ok_or("the folder's name is not Unicode, and cannot be written down")?;
    // Always the user's own: a file must not be able to trust itself.
    let file = places.user_file().ok_or("there is no home folder to keep configuration in; set HOME")?;
    let mut change = Change::open(&file).map_err(|error| error.to_string())?;
    let tree = change.tree().map_err(|error| error.to_string())?;
    let wrong = || format!("`{}`: `trustedProjects` is not a list of texts; mend it", file.display());
    let trusted = document::words(&tree, "trustedProjects").map_err(|_| wrong())?;
    if !trusted.contains(&folder) {
        change.append(&["trustedProjects"], &json!(folder)).map_err(|error| error.to_string())?;
    }
    Ok(change)
}
