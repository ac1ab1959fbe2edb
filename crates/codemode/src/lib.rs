//! `exec` and `wait`: a cell driven through the worker pool, its calls answered on the way.
//!
//! `cell` decides, `driver` acts. This crate never links the sandbox; frames are all it knows of it.

mod bridge;
pub mod cell;
mod driver;
mod input;
pub mod pool;
mod runs;

pub use input::ExecInput;
pub use runs::CodeMode;
