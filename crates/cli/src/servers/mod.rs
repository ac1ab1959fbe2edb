//! `cellmate servers`: manages the configured MCP servers.

mod add;
mod change;
mod filtered_tools;
mod list;
mod login;
mod probe;
mod remove;
mod report;
mod test;
mod trust;

use std::process::ExitCode;

use clap::{Args, Subcommand};

pub(crate) use change::{as_json as change_json, undo};
pub(crate) use filtered_tools::FilteredTools;
pub(crate) use list::{problem_json, server_json};
pub(crate) use probe::{ProbeResult, probe_all};
pub(crate) use report::{ServerReport, ago, server_reports};

#[derive(Debug, Args)]
pub(crate) struct ServersArguments {
    #[command(subcommand)]
    command: ServersCommand,
}

#[derive(Debug, Subcommand)]
enum ServersCommand {
    /// List the configured servers and their state, without starting them.
    List(list::ListArguments),
    /// Add a server: `add NAME -- COMMAND ARGS…`, or `add NAME --url URL`.
    Add(Box<add::AddArguments>),
    /// Remove a server from the configuration.
    Remove(remove::RemoveArguments),
    /// Start servers and report their tools, or why they failed.
    Test(test::TestArguments),
    /// Log in to an HTTP server, in a browser.
    Login(login::LoginArguments),
    /// Allow a project's `.cellmate.json5` and imported client files to start servers, as they are now.
    Trust(trust::TrustArguments),
}

pub(crate) async fn run(arguments: ServersArguments) -> ExitCode {
    match arguments.command {
        ServersCommand::List(arguments) => list::run(&arguments).await,
        ServersCommand::Add(arguments) => add::run(&arguments),
        ServersCommand::Remove(arguments) => remove::run(&arguments),
        ServersCommand::Test(arguments) => test::run(&arguments).await,
        ServersCommand::Login(arguments) => login::run(&arguments).await,
        ServersCommand::Trust(arguments) => trust::run(&arguments),
    }
}
