//! The words every part of Cellmate shares, and the frames between host and worker.
//!
//! Pure: no IO, no clock, no async. A type is admitted here when two crates need it.

pub mod ids;
pub mod error;
pub mod limits;
pub mod json;
pub mod cell;
pub mod tool;
pub mod tables;
pub mod frame;
