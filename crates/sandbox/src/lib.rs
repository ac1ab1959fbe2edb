//! Hostile code in a room of its own: QuickJS in Wasmtime, the parser, the jailed worker.
//!
//! Synchronous throughout. A program that embeds Cellmate calls [`worker_main`] first in its `main`:
//! it re-executes itself as the worker.

mod engine_config;
mod image;
mod machine;
mod vm;
mod host_calls;
mod tables;
mod web_url;
mod failure;
mod source;
mod snapshot;
mod pages;
mod raw;
mod worker;
#[cfg(test)]
mod invariants;

pub use image::{IMAGE_ID, Image};
pub use machine::{Sandbox, Violation};
pub use snapshot::{BadSnapshot, VERSION as SNAPSHOT_VERSION};
pub use worker::{enter_jail, serve_attached, worker_main};
