//! `cellmate tools`: lists, shows, searches and calls the tools of the configured servers.

mod call;
mod content;
mod input;
mod list;
mod names;
mod rank;
mod run;
mod search;
mod show;
mod withheld;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::render;

#[derive(Debug, Args)]
pub(crate) struct ToolsArguments {
    #[command(subcommand)]
    command: ToolsCommand,
}

#[derive(Debug, Subcommand)]
enum ToolsCommand {
    /// List the tools that a run would have.
    List(list::ListArguments),
    /// Show how a tool is called: its signature, declaration and schemas, and whether it needs approval.
    Show(show::ShowArguments),
    /// Call a tool as a cell would, with policy, approval and journal.
    Call(call::CallArguments),
    /// Search for tools by what they do.
    Search(search::SearchArguments),
    /// Run a search for each line of standard input, to measure search quality.
    Rank(rank::RankArguments),
}

pub(crate) async fn run(arguments: ToolsArguments) -> ExitCode {
    let done = match arguments.command {
        ToolsCommand::List(arguments) => list::run(&arguments).await,
        ToolsCommand::Show(arguments) => show::run(&arguments).await,
        ToolsCommand::Call(arguments) => call::run(&arguments).await,
        ToolsCommand::Search(arguments) => search::run(&arguments).await,
        ToolsCommand::Rank(arguments) => rank::run(&arguments),
    };
    // An error here is about the arguments or a file; failed calls and servers have their own exit code.
    done.unwrap_or_else(|message| render::fatal(&message))
}
