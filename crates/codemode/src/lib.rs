//! `exec` and `wait`: a cell driven through the worker pool, its calls answered on the way.
//!
//! `cell` decides, `driver` acts. This crate never links the sandbox; frames are all it knows of it.

pub mod pool;
pub mod cell;
mod bridge;
mod driver;
mod input;
mod runs;

pub use input::ExecInput;
pub use runs::{CodeMode, Toolbox};
