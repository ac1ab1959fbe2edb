//! The command line: commands and the arguments they share.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use mcp::server::Principal;

use crate::approvals::ApprovalsArguments;
use crate::backup::{BackupArguments, RestoreArguments};
use crate::completions::CompletionsArguments;
use crate::config::ConfigCommandArguments;
use crate::connect::{ConnectArguments, DisconnectArguments};
use crate::keys::KeysArguments;
use crate::log::{LogArguments, LogsArguments};
use crate::man::ManArguments;
use crate::plugins::PluginsArguments;
use crate::repl::ReplArguments;
use crate::runs::RunsArguments;
use crate::secrets::SecretsArguments;
use crate::serve::{GatewayArguments, McpArguments};
use crate::servers::ServersArguments;
use crate::shared_arguments::{JailArguments, LanguageArgument, LimitArguments, PolicyArguments};
use crate::state::ConfiguredStore;
use crate::style::ColorArguments;
use crate::tokens::TokensArguments;
use crate::tools::ToolsArguments;

/// The exit codes of all commands, as the help shows them.
const EXIT_CODES: &str = "Exit codes:
  0  the operation succeeded; a cell completed
  1  the operation failed, or found a problem; a cell failed, or a server did not start
  2  the operation could not be attempted, because of the arguments, the configuration or the store
  3  a cell has not ended, and waits for a person or for `cellmate wait`";

/// Run model-written JavaScript and TypeScript in a sandbox, with your MCP servers as tools.
#[derive(Debug, Parser)]
#[command(name = "cellmate", version = env!("CELLMATE_VERSION"), arg_required_else_help = true, max_term_width = 100,
          after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) log: LogArguments,
    #[command(flatten)]
    pub(crate) color: ColorArguments,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a JavaScript or TypeScript cell with the tools of the configured servers, and print its result.
    Exec(Box<ExecArguments>),
    /// Run cells at a prompt, in one session: the values that they store are there for the next cell.
    Repl(Box<ReplArguments>),
    /// Resume a run that has not ended and wait for its result.
    Wait(WaitArguments),
    /// Manage MCP servers.
    Servers(ServersArguments),
    /// List, show, search and call the tools of the configured servers.
    Tools(ToolsArguments),
    /// Manage plugins: programs of yours that add tools, check calls and add globals for cells.
    Plugins(PluginsArguments),
    /// Show, check and change the configuration.
    Config(ConfigCommandArguments),
    /// Add cellmate to an MCP client's configuration.
    Connect(ConnectArguments),
    /// Remove cellmate from an MCP client's configuration.
    Disconnect(DisconnectArguments),
    /// Store secrets for the configuration of servers.
    Secrets(SecretsArguments),
    /// Check the sandbox, the store and the servers, and suggest fixes.
    Doctor(DoctorArguments),
    /// Serve the tools to MCP clients over stdio or HTTP, as `exec` and `wait` by default.
    Mcp(McpArguments),
    /// Serve agents over the APIs of OpenAI and Anthropic, with code mode, policy, approvals and durable sessions.
    Gateway(GatewayArguments),
    /// Review pending approvals and manage standing ones.
    Approvals(ApprovalsArguments),
    /// Write all runs, approvals and transcripts to a file, while the store is in use.
    Backup(BackupArguments),
    /// Restore a backup into a store, SQLite or Postgres.
    Restore(RestoreArguments),
    /// Manage the keys that seal suspended cells.
    Keys(KeysArguments),
    /// Manage named tokens for HTTP clients.
    Tokens(TokensArguments),
    /// Print the log of `cellmate mcp` and `cellmate gateway`.
    Logs(LogsArguments),
    /// List, inspect, cancel, delete, replay and fork runs.
    Runs(RunsArguments),
    /// Print a completion script for a shell.
    Completions(CompletionsArguments),
    /// Print a command's manual page, or write all pages to a folder.
    Man(ManArguments),
}

#[derive(Debug, Args)]
pub(crate) struct ExecArguments {
    /// File to run; standard input if omitted or `-`. A `.ts` file is TypeScript.
    pub(crate) file: Option<PathBuf>,
    /// Code to run instead of a file.
    #[arg(short = 'e', long = "eval", value_name = "CODE", conflicts_with = "file")]
    pub(crate) code: Option<String>,
    /// Language of the cell; by default from the file extension, else JavaScript.
    #[arg(long, value_enum)]
    pub(crate) language: Option<LanguageArgument>,
    /// JSON file with tools that return canned answers (see docs/reference/canned-tools.md), instead of the configured servers.
    /// The run is kept in memory, unless --store or --state-dir is given.
    #[arg(long, value_name = "FILE")]
    pub(crate) catalog: Option<PathBuf>,
    /// Use this agent's policy and standing approvals.
    #[arg(long, default_value_t = Principal::local().name().to_owned(), value_name = "ID")]
    pub(crate) agent: String,
    #[command(flatten)]
    pub(crate) policy: PolicyArguments,
    /// Print the result as JSON, even on a terminal.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the first result, even if the cell has not ended; `cellmate wait` continues it. A cell that waits for tools
    /// has its first result after `--timeout-ms`, which is 10 s by default; starting the servers comes on top. Tool calls
    /// that are under way are finished in the background.
    #[arg(long)]
    pub(crate) no_wait: bool,
    #[command(flatten)]
    pub(crate) store: ConfiguredStore,
    #[command(flatten)]
    pub(crate) limits: LimitArguments,
    #[command(flatten)]
    pub(crate) jail: JailArguments,
}

#[derive(Debug, Args)]
pub(crate) struct WaitArguments {
    /// Run id, or the start of one. May be omitted if exactly one run has not ended.
    pub(crate) run: Option<String>,
    /// Print the result as JSON, even on a terminal.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) policy: PolicyArguments,
    /// The store that the run is in.
    #[command(flatten)]
    pub(crate) store: ConfiguredStore,
    #[command(flatten)]
    pub(crate) jail: JailArguments,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// Also start every enabled server and report whether it works.
    #[arg(long)]
    pub(crate) servers: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) store: ConfiguredStore,
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory};

    use super::Arguments;

    /// The standard output of the first is a protocol, the second prints nothing there; the third is hidden and only names
    /// the command that replaced it.
    const WITHOUT_JSON: [&str; 3] = ["cellmate mcp", "cellmate gateway", "cellmate servers trust"];

    fn check(command: &Command, failures: &mut Vec<String>) {
        let name = command.get_bin_name().unwrap_or_default().to_owned();
        let below: Vec<&Command> = command.get_subcommands().collect();
        let takes_json = command.get_arguments().any(|argument| argument.get_long() == Some("json"));
        // A command that only groups others prints its help.
        if below.is_empty() && takes_json == WITHOUT_JSON.contains(&name.as_str()) {
            failures.push(name);
        }
        below.into_iter().for_each(|command| check(command, failures));
    }

    #[test]
    fn every_command_takes_json_unless_its_output_is_a_protocol() {
        let mut program = Arguments::command().disable_help_subcommand(true);
        program.build();
        let mut failures = Vec::new();
        check(&program, &mut failures);
        assert_eq!(failures, Vec::<String>::new());
    }

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
