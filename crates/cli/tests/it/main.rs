//! Cellmate as its user meets it: through the binary, and through workers that are the binary.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that meets what it does not expect has failed"
)]

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
