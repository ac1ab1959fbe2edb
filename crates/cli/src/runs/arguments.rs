//! The arguments of `cellmate runs`.

use clap::{Args, Subcommand};
use contract::ids::RunId;

use crate::shared_arguments::JailArguments;
use crate::state::ConfiguredStore;

#[derive(Debug, Args)]
pub(crate) struct RunsArguments {
    #[command(subcommand)]
    pub(super) action: Action,
    /// Print JSON.
    #[arg(long, global = true)]
    pub(super) json: bool,
    /// The store that the server uses.
    #[command(flatten)]
    pub(super) store: ConfiguredStore,
}

#[derive(Debug, Subcommand)]
pub(super) enum Action {
    /// List the newest runs, including those that have ended.
    List {
        /// Maximum number of runs.
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: u32,
    },
    /// Show everything that is recorded about a run.
    Show {
        /// Run id.
        run: RunId,
    },
    /// Replay a run from its record, step by step, without calling tools or writing anything.
    Replay {
        /// Run id.
        run: RunId,
        #[command(flatten)]
        jail: JailArguments,
    },
    /// Start a new run from a step of a recorded one, and continue it with the configured servers.
    Fork(ForkArguments),
}

#[derive(Debug, Args)]
pub(super) struct ForkArguments {
    /// Run id.
    pub(super) run: RunId,
    /// Number of recorded steps to reuse; the new run continues live after them.
    #[arg(long, value_name = "N")]
    pub(super) at: usize,
    /// Only create the new run; the client that the run belongs to resumes it with `wait`.
    #[arg(long)]
    pub(super) no_wait: bool,
    #[command(flatten)]
    pub(super) jail: JailArguments,
}
