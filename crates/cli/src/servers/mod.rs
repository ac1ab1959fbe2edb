//! `cellmate servers`: which MCP servers there are, and whether they work.

mod add;
mod change;
mod list;
mod login;
mod meet;
mod offered;
mod remove;
mod standing;
mod test;
mod trust;

use std::process::ExitCode;

use clap::{Args, Subcommand};

pub(crate) use change::{as_json as change_json, undo};
pub(crate) use list::{problem_json, server_json};
pub(crate) use meet::{ProbeResult, meet};
pub(crate) use offered::Offered;
pub(crate) use standing::{ServerReport, standings};

#[derive(Debug, Args)]
pub(crate) struct ServersArguments {
    #[command(subcommand)]
    command: ServersCommand,
}

#[derive(Debug, Subcommand)]
enum ServersCommand {
    /// Say which servers are configured, where, and how each stands. Starts none.
    List(list::ListArguments),
    /// Add a server: `add NAME -- COMMAND ARGS…`, or `add NAME --url URL`.
    Add(Box<add::AddArguments>),
    /// Take a server out of the file it is in.
    Remove(remove::RemoveArguments),
    /// Start each server and say what it offers, or why it does not.
    Test(test::TestArguments),
    /// Log in to a server at an address, in a browser.
    Login(login::LoginArguments),
    /// Let a project's own `.cellmate.json5`, and files of imported clients in it, start servers as they are now.
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
