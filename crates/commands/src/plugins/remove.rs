//! `cellmate plugins remove`: removes a plugin with all its versions and its data.

use std::process::ExitCode;

use clap::Args;
use client_config::display;
use serde_json::json;

use super::PlaceArguments;
use crate::render;
use crate::servers::confirm_question;

#[derive(Debug, Args)]
pub(super) struct RemoveArguments {
    /// Plugin to remove.
    id: String,
    /// Do not ask on a terminal.
    #[arg(long)]
    yes: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: PlaceArguments,
}

pub(super) fn run(arguments: &RemoveArguments) -> ExitCode {
    let host = match arguments.place.host() {
        Ok(host) => host,
        Err(message) => return render::fatal(&message),
    };
    let asks = !arguments.yes && !arguments.json && host.folder.get(&arguments.id).is_ok();
    let question = format!("Remove `{}`, all its versions and its data?", display::plain(&arguments.id));
    if asks && confirm_question(&question) == Some(false) {
        render::note("nothing was removed");
        return ExitCode::from(render::FAILED);
    }
    match host.folder.remove(&arguments.id).map_err(|error| error.to_string()) {
        Ok(()) if arguments.json => render::print_json(&json!({"id": arguments.id, "removed": true})),
        Ok(()) => render::print(&format!("removed `{}` and its data\n", arguments.id)),
        Err(message) => return render::fatal(&message),
    }
    ExitCode::SUCCESS
}
