//! `cellmate servers`: manages the configured MCP servers.

mod add;
mod add_json;
mod change;
mod declared;
mod filtered_tools;
mod get;
mod import;
mod list;
mod login;
mod missing_command;
mod probe;
mod release;
mod remove;
mod report;
mod switch;
mod test;
mod trust;
mod trust_tools;
mod unknown;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use client_config::{Places, Switch};

pub(crate) use change::{ChangeArguments, NOT_CONFIRMED, as_json as change_json, carry_out, confirm, confirm_question};
pub(crate) use declared::{DeclaredTrust, TrustChoice, review_added, untrusted_note};
pub(crate) use filtered_tools::{FilteredTools, count_tools};
pub(crate) use list::{problem_json, server_json};
pub(crate) use probe::{ProbeResult, probe_all};
pub(crate) use report::{ServerReport, server_reports};
pub(crate) use unknown::unknown_server;

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
    /// Add a server from its entry as JSON.
    AddJson(add_json::AddJsonArguments),
    /// Copy servers from another client's configuration.
    Import(import::ImportArguments),
    /// Show a server: its entry without secrets, its file and line, its state and its tools.
    Get(get::GetArguments),
    /// Use a server again that was disabled.
    Enable(switch::SwitchArguments),
    /// Keep a server's entry and do not use it.
    Disable(switch::SwitchArguments),
    /// Remove a server from the configuration.
    Remove(remove::RemoveArguments),
    /// Start servers and report their tools, or why they failed.
    Test(test::TestArguments),
    /// Log in to an HTTP server, in a browser.
    Login(login::LoginArguments),
    /// Trust what servers declare about their tools: those that only read, or add something once and destroy
    /// nothing, then need no approval.
    TrustTools(trust_tools::TrustToolsArguments),
    /// Moved to `cellmate config trust`.
    #[command(hide = true)]
    Trust(trust::TrustArguments),
}

pub(crate) async fn run(arguments: ServersArguments) -> ExitCode {
    match arguments.command {
        ServersCommand::List(arguments) => list::run(&arguments).await,
        ServersCommand::Add(arguments) => add::run(&arguments).await,
        ServersCommand::AddJson(arguments) => add_json::run(&arguments).await,
        ServersCommand::Import(arguments) => import::run(&arguments).await,
        ServersCommand::Get(arguments) => get::run(&arguments).await,
        ServersCommand::Enable(arguments) => switch::run(&arguments, Switch::On),
        ServersCommand::Disable(arguments) => switch::run(&arguments, Switch::Off),
        ServersCommand::Remove(arguments) => remove::run(&arguments),
        ServersCommand::Test(arguments) => test::run(&arguments).await,
        ServersCommand::Login(arguments) => login::run(&arguments).await,
        ServersCommand::TrustTools(arguments) => trust_tools::run(&arguments).await,
        ServersCommand::Trust(arguments) => trust::run(&arguments),
    }
}

/// Whether a server of this name is configured, usable or not.
pub(crate) fn is_configured(places: &Places, name: &str) -> bool {
    let Ok(loaded) = client_config::load(places) else { return false };
    let has_problem = loaded.problems.iter().any(|problem| problem.server.as_deref() == Some(name));
    has_problem || loaded.servers.iter().any(|server| server.name == name)
}
