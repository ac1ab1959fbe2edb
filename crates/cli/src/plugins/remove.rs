//! `cellmate plugins remove`: removes a plugin with all its versions and its data.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::PlaceArguments;
use crate::render;

#[derive(Debug, Args)]
pub(super) struct RemoveArguments {
    /// Plugin to remove.
    id: String,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: PlaceArguments,
}

pub(super) fn run(arguments: &RemoveArguments) -> ExitCode {
    let removed =
        arguments.place.host().and_then(|host| host.folder.remove(&arguments.id).map_err(|error| error.to_string()));
    match removed {
        Ok(()) if arguments.json => render::print_json(&json!({"id": arguments.id, "removed": true})),
        Ok(()) => render::print(&format!("removed `{}` and its data\n", arguments.id)),
        Err(message) => return render::fatal(&message),
    }
    ExitCode::SUCCESS
}
