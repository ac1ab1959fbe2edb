//! Logging helpers shared by the asynchronous crates.
//!
//! The crates emit `tracing` events; only the binary decides where they go. An error that a model may see has two
//! sides: the model reads a safe sentence with an incident id ([`IncidentId`]), and the log holds the whole chain of
//! causes under that id. An error that the program can ignore is logged once ([`LogIgnored`]). Secrets are removed from
//! log lines by value ([`Redactor`]).

#![cfg_attr(not(test), warn(clippy::print_stdout))]

mod ignored;
mod incident;
mod redact;

pub use ignored::LogIgnored;
pub use incident::{IncidentId, error_chain};
pub use redact::{REDACTED, Redactor, is_credential_name};
