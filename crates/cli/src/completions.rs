//! `cellmate completions`: prints a completion script for a shell.

use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;
use serde_json::json;

use crate::render;

#[derive(Debug, Args)]
pub(crate) struct CompletionsArguments {
    /// Shell to print the script for.
    #[arg(value_enum)]
    shell: Shell,
    /// Print the script as JSON.
    #[arg(long)]
    json: bool,
}

/// Prints the script for the program's whole command line.
pub(crate) fn run(arguments: &CompletionsArguments, mut program: Command) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut program, "cellmate", &mut script);
    let script = String::from_utf8_lossy(&script);
    if arguments.json {
        render::print_json(&json!({"shell": arguments.shell.to_string(), "script": script}));
    } else {
        render::print_safe(&script);
    }
    ExitCode::SUCCESS
}
