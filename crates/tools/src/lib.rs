//! Tools that this process runs itself. [`core`] has the core tools, which read and change files, run commands and fetch
//! pages. [`plugins`] runs the plugins that the user installed.
//!
//! They are tool sources like any other: policy, hooks, approvals and the journal apply to every call before it arrives
//! here.

#![cfg_attr(not(test), warn(clippy::print_stdout))]

pub mod core;
pub mod plugins;
