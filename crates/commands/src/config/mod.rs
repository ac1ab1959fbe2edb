//! `cellmate config`: shows, checks and changes the configuration.

mod check;
mod entries;
mod get;
mod path;
mod ranges;
mod schema;
mod set;
mod trust;
mod unset;

use std::process::ExitCode;

use clap::{Args, Subcommand};

pub(crate) use check::{ProblemCounts, count_problems, counted};

#[derive(Debug, Args)]
pub(crate) struct ConfigCommandArguments {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// List the configuration files in the order in which they are read, and whether each is used.
    Path(path::PathArguments),
    /// Print a setting, or a part of a server's entry, with secrets hidden.
    Get(get::GetArguments),
    /// Change a setting. Comments are kept, and nothing is written if the result is invalid.
    Set(set::SetArguments),
    /// Remove a setting. Comments are kept, and nothing is written if the result is invalid.
    Unset(unset::UnsetArguments),
    /// Report all problems in the configuration, with file, line and column, and the settings that have no effect.
    Check(check::CheckArguments),
    /// Print a JSON Schema of the configuration, for editors.
    Schema(schema::SchemaArguments),
    /// Allow a project's `.cellmate.json5` and imported client files to start servers, as they are now.
    Trust(trust::TrustArguments),
}

pub(crate) fn run(arguments: &ConfigCommandArguments) -> ExitCode {
    match &arguments.command {
        ConfigCommand::Path(arguments) => path::run(arguments),
        ConfigCommand::Get(arguments) => get::run(arguments),
        ConfigCommand::Set(arguments) => set::run(arguments),
        ConfigCommand::Unset(arguments) => unset::run(arguments),
        ConfigCommand::Check(arguments) => check::run(arguments),
        ConfigCommand::Schema(arguments) => schema::run(arguments),
        ConfigCommand::Trust(arguments) => trust::run(arguments),
    }
}
