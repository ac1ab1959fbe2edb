//! Types that the crates of Cellmate share, and the frames between host and worker.
//!
//! Pure: no IO, no clock, no async. A type belongs here if two crates need it.
//!
//! The words of the project, which `STYLE.md` lists in full: a *cell* is a program that a model wrote; a *run* is one
//! execution of it, in *legs* between which it waits for replies; the *worker* is the jailed process that executes its
//! code, the *guest*; the *host* is the process that starts workers and makes the cells' tool calls.

#![cfg_attr(not(test), warn(clippy::print_stdout))]

pub mod address;
pub mod cell;
pub mod config;
pub mod error;
pub mod frame;
pub mod ids;
pub mod json;
pub mod limits;
pub mod schema_shape;
pub mod scope;
pub mod snapshot;
pub mod spelling;
pub mod tables;
pub mod text;
pub mod tool;
