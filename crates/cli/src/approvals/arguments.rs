//! What can be typed after `cellmate approvals`.

use clap::{Args, Subcommand};

use crate::state::ConfiguredStore;

#[derive(Debug, Args)]
pub(crate) struct ApprovalsArguments {
    /// Without one: on a terminal, show what is asked and decide it one by one; elsewhere, list it.
    #[command(subcommand)]
    pub(crate) action: Option<Action>,
    /// Print JSON.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// The one that the server uses.
    #[command(flatten)]
    pub(crate) store: ConfiguredStore,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Everything that is asked at the moment.
    List,
    /// One question with all its arguments.
    Show { id: String },
    /// Let calls be made, or answer what a tool asks. Shows each on a terminal and asks first; without a terminal it
    /// needs `approvals.nonInteractive: true` in your own configuration.
    Approve {
        #[command(flatten)]
        decided: Decided,
        /// And every later call of the tool as it is defined now, on the same server, for the same agent.
        #[arg(long)]
        always: bool,
        /// What a tool's form is filled in with, or what the call is made with instead, as one JSON object.
        #[arg(long, value_name = "JSON", conflicts_with = "always")]
        input: Option<String>,
    },
    /// Let calls fail, or decline to answer.
    Deny {
        #[command(flatten)]
        decided: Decided,
        /// Why, for the cell and its model to read.
        #[arg(long, default_value = "", hide_default_value = true)]
        note: String,
    },
    /// Standing approvals: what is called without asking.
    Rules {
        #[command(subcommand)]
        action: RulesAction,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum RulesAction {
    /// Standing approvals by agent, and whether each still holds.
    List {
        /// Revoked ones, too.
        #[arg(long)]
        all: bool,
    },
    /// Ask again about calls that these allow.
    Revoke {
        /// As `list` shows them.
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Decided {
    /// As `list` shows them.
    #[arg(required = true, value_name = "ID")]
    pub(crate) ids: Vec<String>,
}
