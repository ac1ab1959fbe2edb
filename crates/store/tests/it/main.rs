//! Tests that every kind of store must pass: the same functions run against each of them.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "an unexpected value must fail the test"
)]

mod approvals;
mod backups;
mod ended_journals;
mod fences;
mod live_migration;
mod model;
mod opening;
mod outputs;
mod owners;
mod quotas;
mod retention;
mod sealing;
mod session_values;
mod settling;
mod sweeping;
mod tampering;
mod tokens;
mod transcripts;
mod turns;
mod watching;
mod world;
