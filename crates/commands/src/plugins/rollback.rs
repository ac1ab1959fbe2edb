//! `cellmate plugins rollback`: uses an earlier version of a plugin again.

use std::process::ExitCode;

use ::tools::plugins::short_hash;
use clap::Args;
use serde_json::json;

use super::PlaceArguments;
use crate::render;

#[derive(Debug, Args)]
pub(super) struct RollbackArguments {
    /// Plugin to roll back.
    id: String,
    /// Version or hash to use, as `cellmate plugins show` lists them [default: the one before].
    #[arg(long, value_name = "VERSION")]
    to: Option<String>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: PlaceArguments,
}

pub(super) fn run(arguments: &RollbackArguments) -> ExitCode {
    let chosen = arguments.place.host().and_then(|host| {
        host.folder.rollback(&arguments.id, arguments.to.as_deref()).map_err(|error| error.to_string())
    });
    match chosen {
        Ok(chosen) if arguments.json => {
            render::print_json(&json!({"id": arguments.id, "version": chosen.version, "hash": chosen.hash}));
            ExitCode::SUCCESS
        }
        Ok(chosen) => {
            render::print(&format!(
                "`{}` is now version {} ({})\n",
                arguments.id,
                chosen.version,
                short_hash(&chosen.hash)
            ));
            ExitCode::SUCCESS
        }
        Err(message) => render::fatal(&message),
    }
}
