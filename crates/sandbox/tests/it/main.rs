//! Tests of the sandbox through its frames.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "an unexpected result must fail the test"
)]

// The crate's own name here, as in the other crates.
extern crate cellmate_sandbox as sandbox;

mod budgets;
mod frames;
mod jail;
mod lab;
mod limits;
mod media;
mod output_and_state;
mod snapshots;
mod world;
