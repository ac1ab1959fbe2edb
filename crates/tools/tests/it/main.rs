//! Tests of the core tools through the executor, as runs call them.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "an unexpected value fails the test")]

// The crate's own name here, as in the other crates.
extern crate cellmate_tools as tools;

mod file_attacks;
mod file_changes;
mod file_limits;
mod file_search;
mod files;
