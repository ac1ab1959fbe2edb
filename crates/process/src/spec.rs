//! The messages between a host and the keeper of a command.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::confine::{CommandLimits, Confinement};

/// The maximum length of a [`CommandSpec`] as JSON.
pub(crate) const MAX_SPEC_BYTES: u64 = 4 << 20;

/// A command to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandSpec {
    /// The absolute path of the program.
    pub program: PathBuf,
    pub args: Vec<String>,
    /// The whole environment: nothing is inherited.
    pub env: BTreeMap<String, String>,
    pub cwd: PathBuf,
    pub limits: CommandLimits,
    /// `None` if the command is not confined: it has all rights of the user.
    pub confinement: Option<Confinement>,
}

/// A message from a command's keeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Report {
    /// The command was not started, for this reason.
    NotStarted(String),
    Exited(i32),
    /// The number of the signal that ended the command.
    Signalled(i32),
    /// The command was ended because it had more processes than this.
    TooManyProcesses(usize),
}
