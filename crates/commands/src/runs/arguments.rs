//! The arguments of `cellmate runs`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use store::RunState;

use crate::age::Age;
use crate::shared_arguments::{JailArguments, PolicyArguments};
use crate::state::ConfiguredStore;

/// The most runs that one command lists.
const MAX_LISTED: i64 = 1_000;

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
    List(ListArguments),
    /// Show everything that is recorded about a run.
    Show {
        /// Run id, or the start of one.
        run: String,
    },
    /// Print the transcript of a run: its control calls and its tool calls with their results. One JSON object per line;
    /// with --json one array.
    Export {
        /// Run id, or the start of one.
        run: String,
    },
    /// List the stored outputs of a run: what was too large for its result, images and sounds. With a handle, write that
    /// output.
    Output(OutputArguments),
    /// List the sessions whose cells have stored values, or the values of one.
    State(StateArguments),
    /// End runs that have not ended. What they have done stays done.
    Cancel {
        /// Run ids, or the start of each.
        #[arg(required = true, value_name = "RUN")]
        runs: Vec<String>,
    },
    /// Delete runs that have ended, with their journal and outputs; transcripts stay without --transcript.
    #[command(alias = "remove")]
    Rm(RemoveArguments),
    /// Replay a run from its record, step by step, without calling tools or writing anything.
    Replay {
        /// Run id, or the start of one.
        run: String,
        #[command(flatten)]
        jail: JailArguments,
    },
    /// Start a new run from a step of a recorded one, and continue it with the configured servers.
    Fork(ForkArguments),
}

#[derive(Debug, Args)]
pub(super) struct ListArguments {
    /// Maximum number of runs.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=MAX_LISTED))]
    pub(super) limit: u32,
    /// Only runs in this state; may be repeated.
    #[arg(long = "state", value_enum, value_name = "STATE", value_delimiter = ',')]
    pub(super) states: Vec<StateArgument>,
    /// Only runs that started within this time, such as 30m, 12h or 7d.
    #[arg(long, value_name = "AGE", value_parser = Age::parse)]
    pub(super) since: Option<Age>,
}

/// A state, or a group of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum StateArgument {
    /// Running or waiting.
    Live,
    Running,
    Waiting,
    Completed,
    Failed,
    Expired,
    #[value(alias = "cancelled")]
    Aborted,
}

impl StateArgument {
    pub(super) fn states(self) -> &'static [RunState] {
        match self {
            Self::Live => &[RunState::Running, RunState::Waiting],
            Self::Running => &[RunState::Running],
            Self::Waiting => &[RunState::Waiting],
            Self::Completed => &[RunState::Completed],
            Self::Failed => &[RunState::Failed],
            Self::Expired => &[RunState::Expired],
            Self::Aborted => &[RunState::Aborted],
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct OutputArguments {
    /// Run id, or the start of one. A handle alone is enough, too.
    pub(super) run: String,
    /// Output to write: its handle, the handle's last part, or the start of either.
    pub(super) handle: Option<String>,
    /// On a terminal, write the output as it is, control characters included.
    #[arg(long)]
    pub(super) raw: bool,
    /// Write the output to this file.
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    pub(super) file: Option<PathBuf>,
    /// Replace the file if it exists.
    #[arg(long, requires = "file")]
    pub(super) force: bool,
}

#[derive(Debug, Args)]
pub(super) struct StateArguments {
    /// Session id, or the start of one.
    pub(super) session: Option<String>,
    /// Print the value of this key.
    #[arg(long, value_name = "KEY", requires = "session", conflicts_with = "remove")]
    pub(super) key: Option<String>,
    /// Delete this key of the session; without a key, all of them.
    #[arg(long = "rm", value_name = "KEY", num_args = 0..=1, requires = "session")]
    pub(super) remove: Option<Option<String>>,
    /// Do not ask for confirmation.
    #[arg(long, requires = "remove")]
    pub(super) yes: bool,
    /// Only sessions of this client; the start of its key is enough, and an empty one means sessions without a client.
    #[arg(long, value_name = "KEY")]
    pub(super) client: Option<String>,
    /// Only sessions of this agent.
    #[arg(long, value_name = "ID")]
    pub(super) agent: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct RemoveArguments {
    /// Run ids, or the start of each.
    #[arg(value_name = "RUN", required_unless_present = "older_than", conflicts_with = "older_than")]
    pub(super) runs: Vec<String>,
    /// Delete all runs that ended longer ago than this, such as 12h or 7d.
    #[arg(long, value_name = "AGE", value_parser = Age::parse)]
    pub(super) older_than: Option<Age>,
    /// Cancel runs that have not ended, then delete them.
    #[arg(long, conflicts_with = "older_than")]
    pub(super) force: bool,
    /// Also delete what the transcript has of them, which is otherwise kept for `store.keepTranscriptsSeconds`.
    #[arg(long, conflicts_with = "older_than")]
    pub(super) transcript: bool,
    /// Do not ask for confirmation.
    #[arg(long)]
    pub(super) yes: bool,
}

#[derive(Debug, Args)]
pub(super) struct ForkArguments {
    /// Run id, or the start of one.
    pub(super) run: String,
    /// Number of recorded steps to reuse; the new run continues live after them.
    #[arg(long, value_name = "N")]
    pub(super) at: usize,
    /// Only create the new run; `cellmate wait`, or the client that the run belongs to, resumes it.
    #[arg(long)]
    pub(super) no_wait: bool,
    #[command(flatten)]
    pub(super) policy: PolicyArguments,
    #[command(flatten)]
    pub(super) jail: JailArguments,
}
