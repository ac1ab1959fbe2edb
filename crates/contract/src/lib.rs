//! Types that the crates of Cellmate share, and the frames between host and worker.
//!
//! Pure: no IO, no clock, no async. A type belongs here if two crates need it.

#![cfg_attr(not(test), warn(clippy::print_stdout))]

pub mod address;
pub mod cell;
pub mod config;
pub mod error;
pub mod frame;
pub mod ids;
pub mod json;
pub mod limits;
pub mod scope;
pub mod snapshot;
pub mod spelling;
pub mod tables;
pub mod text;
pub mod tool;
