//! `exec`, `wait` and Tool Search: runs cells in the worker pool, makes their calls through the executor, and keeps
//! their runs in the store.
//!
//! `cell` is a pure state machine that decides; `driver` does what it decides. This crate never links the sandbox: it
//! talks to workers only in frames.

mod bridge;
pub mod cell;
mod control;
mod definition;
mod driver;
mod face;
mod input;
pub mod pool;
mod recorded;
pub mod replay;
mod runs;
pub mod tool_search;

pub use input::ExecInput;
pub use runs::{CodeMode, Recent, decide};
pub use tool_search::ToolSearch;
