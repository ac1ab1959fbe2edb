//! Tests of the sandbox through its frames.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that meets what it does not expect has failed"
)]

mod budgets;
mod frames;
mod jail;
mod lab;
mod limits;
mod snapshots;
mod world;
