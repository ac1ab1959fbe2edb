//! `cellmate config`: the configuration files.

mod trust;

use std::process::ExitCode;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct ConfigCommandArguments {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Allow a project's `.cellmate.json5` and imported client files to start servers, as they are now.
    Trust(trust::TrustArguments),
}

pub(crate) fn run(arguments: &ConfigCommandArguments) -> ExitCode {
    match &arguments.command {
        ConfigCommand::Trust(arguments) => trust::run(arguments),
    }
}
