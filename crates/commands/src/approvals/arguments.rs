//! The arguments of `cellmate approvals`.

use clap::{Args, Subcommand};

use crate::state::ConfiguredStore;

#[derive(Debug, Args)]
pub(crate) struct ApprovalsArguments {
    /// Without a subcommand, pending approvals are reviewed one by one on a terminal, and listed elsewhere.
    #[command(subcommand)]
    pub(crate) action: Option<Action>,
    /// Print JSON.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// The store that the server uses.
    #[command(flatten)]
    pub(crate) store: ConfiguredStore,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// List pending approvals.
    List,
    /// Show a pending approval with all its arguments.
    Show {
        /// Approval id, as shown by `list`, or its first characters.
        id: String,
    },
    /// Approve calls, or answer what a tool asks. They are shown on a terminal and confirmed there; without a terminal,
    /// set `approvals.nonInteractive: true` in your own configuration.
    Approve {
        #[command(flatten)]
        selection: Selection,
        /// Also approve all other calls of the tool as it is defined now, on the same server, for the same agent:
        /// pending ones and later ones.
        #[arg(long)]
        always: bool,
        /// Answer to a tool's form, or replacement for the call's arguments, as one JSON object.
        #[arg(long, value_name = "JSON", conflicts_with = "always")]
        input: Option<String>,
    },
    /// Deny calls, or decline to answer what a tool asks.
    Deny {
        #[command(flatten)]
        selection: Selection,
        /// Reason, shown to the cell and its model.
        #[arg(long, default_value = "", hide_default_value = true)]
        note: String,
    },
    /// Manage standing approvals, which let calls run without asking.
    Rules {
        #[command(subcommand)]
        action: RulesAction,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum RulesAction {
    /// List standing approvals by agent, and whether each is in force.
    List {
        /// Include revoked ones.
        #[arg(long)]
        all: bool,
    },
    /// Revoke standing approvals: calls that they allow need approval again.
    Revoke {
        /// Ids of standing approvals, as shown by `list`, or their unique beginnings.
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
}

/// The pending approvals that a command is about.
#[derive(Debug, Default, Args)]
pub(crate) struct Selection {
    /// Approval ids, as shown by `list`, or their first characters.
    #[arg(required_unless_present_any = ["run", "all"], value_name = "ID")]
    pub(crate) ids: Vec<String>,
    /// All pending approvals of this run; the first characters of its id are enough.
    #[arg(long, value_name = "RUN", conflicts_with = "ids")]
    pub(crate) run: Option<String>,
    /// All pending approvals.
    #[arg(long, conflicts_with_all = ["ids", "run"])]
    pub(crate) all: bool,
}
