//! Plugins that run for real: a scripted one that misbehaves, and those in `plugins/`.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that meets what it does not expect has failed"
)]

// The crate's own name here, as in the other crates.
extern crate cellmate_tools as tools;

mod attacks;
mod place;
mod shipped;
mod work;
