//! `exec`, `wait` and Tool Search: runs cells in the worker pool, makes their calls through the executor, and keeps
//! their runs in the store.
//!
//! `cell` is a pure state machine that decides; `driver` does what it decides. `registry` holds the runs of this
//! process, and `code_mode` is the interface to them. This crate never links the sandbox: it talks to workers only in
//! frames.

#![cfg_attr(not(test), warn(clippy::print_stdout))]

mod bridge;
pub mod cell;
mod code_mode;
mod definition;
mod driver;
mod effects;
mod failure;
mod input;
mod mode;
mod output;
mod output_reader;
pub mod pool;
mod registry;
pub mod replay;
pub mod run_telemetry;
mod session_values;
mod stored_result;
pub mod tool_search;

pub use code_mode::{CodeMode, ExecRequest, RecentRun, decide};
pub use definition::first_source_line;
pub use input::ExecInput;
pub use registry::RunChanges;
pub use tool_search::{ControlRequest, MadeCall, ToolSearch, ToolSearchAnswer};
