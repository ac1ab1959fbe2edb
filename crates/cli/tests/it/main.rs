//! End-to-end tests of the `cellmate` binary: its commands, and the workers it starts.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "an unexpected value fails the test")]

mod cells;
mod command;
mod config;
mod connect;
mod disconnect;
mod docs;
mod environment;
mod fairness;
mod gateway;
mod mcp;
mod openclaw;
mod person;
mod plugins;
mod repl;
mod secrets;
mod servers;
mod snapshots;
mod standing;
mod starts;
mod stored;
mod terminal;
mod tools;
mod trust;
mod trust_tools;
mod workers;
