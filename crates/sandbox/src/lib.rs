//! Runs hostile code: QuickJS in Wasmtime, the parser, and the jailed worker process.
//!
//! This crate is synchronous. A program that embeds Cellmate calls [`worker_main`] first in its `main`, because the
//! pool re-executes the program as the worker. Its locks are the standard library's, so that no further crate is part of
//! the process that runs hostile code.

#![cfg_attr(not(test), warn(clippy::print_stdout))]

mod engine_config;
mod explain;
mod failure;
mod host_calls;
mod image;
#[cfg(test)]
mod invariants;
mod machine;
mod media;
mod page;
mod pages;
mod raw;
mod snapshot;
mod source;
mod spare_thread;
mod tables;
mod vm;
mod watchdog;
mod web_url;
mod worker;

pub use image::{IMAGE_ID, Image};
pub use machine::{Answer, Sandbox, Violation};
pub use raw::{close_inherited_files, release_free_memory};
pub use snapshot::{BadSnapshot, VERSION as SNAPSHOT_VERSION};
pub use source::{InsertedReturn, TypedCell};
pub use worker::{enter_jail, serve_attached, worker_main};
