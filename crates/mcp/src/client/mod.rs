//! A server's process and the connection to it.

mod closed;
mod lines;
mod process;
mod stderr;
mod wire;

pub use closed::Closed;
pub(crate) use process::{Process, Started};
pub(crate) use stderr::{Draining, Tail};
pub(crate) use wire::{Era, Request, RequestError, Session, Stdio};
