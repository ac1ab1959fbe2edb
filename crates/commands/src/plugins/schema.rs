//! `cellmate plugins schema`: the JSON Schema of a plugin's manifest, for editors.

use std::process::ExitCode;

use clap::Args;

use crate::render;

#[derive(Debug, Args)]
pub(super) struct SchemaArguments {
    /// Print the schema on one line.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &SchemaArguments) -> ExitCode {
    let schema = ::tools::plugins::schema();
    if arguments.json {
        render::print_json(&schema);
    } else {
        render::print(&format!("{}\n", render::pretty(&schema.to_string())));
    }
    ExitCode::SUCCESS
}
