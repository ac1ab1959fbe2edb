//! Tests through the real binary: its commands, its MCP server, and its sandbox workers.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a panic fails the test")]

mod cells;
mod command;
mod connect;
mod fairness;
mod mcp;
mod person;
mod servers;
mod standing;
mod terminal;
mod trust;
mod workers;
