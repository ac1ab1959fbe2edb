//! What can be typed.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use contract::cell::Language;
use contract::config::{CodeMode, Languages};
use contract::limits::Limits;

use crate::approvals::ApprovalsArguments;
use crate::backup::{BackupArguments, RestoreArguments};
use crate::connect::ConnectArguments;
use crate::jail::JailArguments;
use crate::keys::KeysArguments;
use crate::log::{LogArguments, LogsArguments};
use crate::runs::RunsArguments;
use crate::serve::McpArguments;
use crate::servers::ServersArguments;
use crate::state::ConfiguredStore;
use crate::tools::ToolsArguments;

/// Run the programs a model writes, safely.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) log: LogArguments,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run one JavaScript or TypeScript cell and print its result.
    Exec(ExecArguments),
    /// Keep the MCP servers that cells call: list, add, remove, test.
    Servers(ServersArguments),
    /// Look at the configured servers' tools, and call one.
    Tools(ToolsArguments),
    /// Put cellmate into a client's configuration.
    Connect(ConnectArguments),
    /// Say what of the sandbox works on this machine, whether the store answers, how each server stands, and what to type
    /// where something does not.
    Doctor(DoctorArguments),
    /// Serve `exec` and `wait` to agents, over standard streams or HTTP.
    Mcp(McpArguments),
    /// See and decide what cells ask a person about.
    Approvals(ApprovalsArguments),
    /// Write all runs, approvals and transcripts into a file, while they are in use.
    Backup(BackupArguments),
    /// Put what `backup` wrote into a store, of the same engine or the other.
    Restore(RestoreArguments),
    /// Keep the keys that suspended cells are sealed with: list, rotate, prune.
    Keys(KeysArguments),
    /// Print the log of `cellmate mcp`.
    Logs(LogsArguments),
    /// Look at runs, go through one again step by step, or go on from one of its steps.
    Runs(RunsArguments),
}

#[derive(Debug, Args)]
pub(crate) struct ExecArguments {
    /// The cell's file; `-` or nothing reads standard input. A `.ts` file is TypeScript.
    pub(crate) file: Option<PathBuf>,
    /// The cell itself.
    #[arg(short = 'e', long = "eval", value_name = "CODE", conflicts_with = "file")]
    pub(crate) code: Option<String>,
    #[arg(long, value_enum)]
    pub(crate) language: Option<LanguageArgument>,
    /// Tools with canned answers, as JSON (see docs/canned-tools.md).
    #[arg(long, value_name = "FILE")]
    pub(crate) catalog: Option<PathBuf>,
    /// Print the result as JSON, also on a terminal.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the first result, even where the cell still waits for tools.
    #[arg(long)]
    pub(crate) no_wait: bool,
    #[command(flatten)]
    pub(crate) limits: LimitArguments,
    #[command(flatten)]
    pub(crate) jail: JailArguments,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// Start every server that is on, too, and say what became of it.
    #[arg(long)]
    pub(crate) servers: bool,
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) store: ConfiguredStore,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LanguageArgument {
    #[value(name = "javascript", alias = "js")]
    JavaScript,
    #[value(name = "typescript", alias = "ts")]
    TypeScript,
}

impl LanguageArgument {
    pub(crate) fn language(self) -> Language {
        match self {
            Self::JavaScript => Language::JavaScript,
            Self::TypeScript => Language::TypeScript,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct LimitArguments {
    #[arg(long, default_value_t = Limits::DEFAULT.timeout_ms, value_name = "MS")]
    timeout_ms: u64,
    #[arg(long, default_value_t = Limits::DEFAULT.max_wait_ms, value_name = "MS")]
    max_wait_ms: u64,
    #[arg(long, default_value_t = Limits::DEFAULT.memory_bytes, value_name = "BYTES")]
    memory_limit_bytes: u64,
    #[arg(long, default_value_t = Limits::DEFAULT.output_bytes, value_name = "BYTES")]
    max_output_bytes: u64,
    #[arg(long, default_value_t = Limits::DEFAULT.snapshot_bytes, value_name = "BYTES")]
    max_snapshot_bytes: u64,
    #[arg(long, default_value_t = Limits::DEFAULT.pending_calls, value_name = "N")]
    max_pending_tool_calls: u64,
    /// The languages cells may be written in; all, where none is named.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LANGUAGES")]
    languages: Vec<LanguageArgument>,
}

impl LimitArguments {
    /// As the contract clamps them.
    pub(crate) fn code_mode(&self) -> CodeMode {
        let limits = Limits {
            timeout_ms: self.timeout_ms,
            max_wait_ms: self.max_wait_ms,
            memory_bytes: self.memory_limit_bytes,
            output_bytes: self.max_output_bytes,
            snapshot_bytes: self.max_snapshot_bytes,
            pending_calls: self.max_pending_tool_calls,
        };
        let languages: Vec<Language> = self.languages.iter().map(|language| language.language()).collect();
        let languages = Languages::of(&languages).unwrap_or(Languages::ALL);
        CodeMode { languages, ..CodeMode::enabled(limits) }
    }
}
