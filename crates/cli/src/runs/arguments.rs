//! What can be typed after `cellmate runs`.

use clap::{Args, Subcommand};

use crate::jail::JailArguments;
use crate::state::ConfiguredStore;

#[derive(Debug, Args)]
pub(crate) struct RunsArguments {
    #[command(subcommand)]
    pub(super) action: Action,
    /// Print JSON.
    #[arg(long, global = true)]
    pub(super) json: bool,
    /// The one that the server uses.
    #[command(flatten)]
    pub(super) store: ConfiguredStore,
}

#[derive(Debug, Subcommand)]
pub(super) enum Action {
    /// The newest runs, also those that are over.
    List {
        /// How many at most.
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: u32,
    },
    /// All that is recorded of one run.
    Show { run: String },
    /// Run a cell again from its record, step by step: no tool is called, nothing is written.
    Replay {
        run: String,
        #[command(flatten)]
        jail: JailArguments,
    },
    /// Begin another run with a run's first steps, and go on from there with the configured servers.
    Fork(ForkArguments),
}

#[derive(Debug, Args)]
pub(super) struct ForkArguments {
    pub(super) run: String,
    /// So many steps are taken over from the record; the next one is the first of its own.
    #[arg(long, value_name = "N")]
    pub(super) at: usize,
    /// Only begin it, for the client that the run belongs to: its `wait` goes on with it.
    #[arg(long)]
    pub(super) no_wait: bool,
    #[command(flatten)]
    pub(super) jail: JailArguments,
}
