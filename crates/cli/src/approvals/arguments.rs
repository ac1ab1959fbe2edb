//! The arguments of `cellmate approvals`.

use clap::{Args, Subcommand};
use contract::ids::ApprovalId;

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
        /// Approval id, as shown by `list`.
        id: ApprovalId,
    },
    /// Approve calls, or answer what a tool asks. Each is shown on a terminal and confirmed there; without a terminal,
    /// set `approvals.nonInteractive: true` in your own configuration.
    Approve {
        #[command(flatten)]
        approvals: ApprovalIds,
        /// Also approve all later calls of the tool as it is defined now, on the same server, for the same agent.
        #[arg(long)]
        always: bool,
        /// Answer to a tool's form, or replacement for the call's arguments, as one JSON object.
        #[arg(long, value_name = "JSON", conflicts_with = "always")]
        input: Option<String>,
    },
    /// Deny calls, or decline to answer what a tool asks.
    Deny {
        #[command(flatten)]
        approvals: ApprovalIds,
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
        /// Ids of standing approvals, as shown by `list`.
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ApprovalIds {
    /// Approval ids, as shown by `list`.
    #[arg(required = true, value_name = "ID")]
    pub(crate) ids: Vec<ApprovalId>,
}
