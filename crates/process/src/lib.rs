//! Child processes that are not trusted: MCP servers and plugins, which exchange one message per line over their standard
//! streams, and shell commands.
//!
//! A [`Process`] has its own process group, a limited environment (`environment`) and a keeper (`keeper`), which ends it
//! and everything that it started when the host process ends. [`Lines`] reads its messages with a length limit, [`Tail`]
//! keeps the end of its standard error. A [`RunningCommand`] is a shell command, which can be confined (`confine`).

#![cfg_attr(not(test), warn(clippy::print_stdout))]

mod child;
mod command;
mod confine;
mod environment;
mod keeper;
mod lines;
mod spec;
mod stderr;

pub use child::{CLOSE_GRACE, Gone, Process, Started};
pub use command::{Reports, RunningCommand};
pub use confine::{
    CommandLimits, Confinement, DEVICES, Folder, Network, SYSTEM_READABLE, Support, support as confinement_support,
};
pub use environment::{command_variables, is_inheritable, withheld};
#[doc(hidden)]
pub use keeper::keep_with;
pub use keeper::{keeper_main, keeper_main_closing};
pub use lines::{LineError, Lines};
pub use spec::{CommandSpec, Report};
pub use stderr::{Draining, MAX_SHOWN_CHARS, STDERR_BYTES, Tail};
