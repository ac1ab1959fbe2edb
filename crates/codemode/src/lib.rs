//! `exec`, `wait` and Tool Search: a cell driven through the worker pool, its calls made through the executor's door, its
//! run kept in the store.
//!
//! `cell` decides, `driver` acts. This crate never links the sandbox; frames are all it knows of it.

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
