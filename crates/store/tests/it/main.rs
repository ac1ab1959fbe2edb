//! What every store must do, wherever its rows are: the same functions run against each.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that meets what it does not expect has failed"
)]

mod approvals;
mod backups;
mod fences;
mod live_migration;
mod model;
mod opening;
mod quotas;
mod retention;
mod sealing;
mod settling;
mod sweeping;
mod tampering;
mod transcripts;
mod watching;
mod world;
