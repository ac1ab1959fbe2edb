//! `cellmate tools`: what the configured servers offer, and a way to call it by hand.

mod ask;
mod call;
mod list;
mod rank;
mod run;
mod search;

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
    /// Say which tools a run would have.
    List(list::ListArguments),
    /// Call one tool, as a cell would: policy, arguments, a person's agreement, journal.
    Call(call::CallArguments),
    /// Find tools by what they do, and say why they were found.
    Search(search::SearchArguments),
    /// Answer a search for every line of standard input, to measure how well tools are found.
    Rank(rank::RankArguments),
}

pub(crate) async fn run(arguments: ToolsArguments) -> ExitCode {
    let done = match arguments.command {
        ToolsCommand::List(arguments) => list::run(&arguments).await,
        ToolsCommand::Call(arguments) => call::run(&arguments).await,
        ToolsCommand::Search(arguments) => search::run(&arguments).await,
        ToolsCommand::Rank(arguments) => rank::run(&arguments),
    };
    // What could not be tried, because of how it was asked or of a file.
    done.unwrap_or_else(|message| render::trouble(&message))
}
