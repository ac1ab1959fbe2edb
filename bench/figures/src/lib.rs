//! Shared parts of the benchmarks: samples, facts, bars, and the state of the machine.

mod facts;
pub mod machine;
mod samples;

pub use facts::{Bar, Claim, Facts};
pub use samples::Samples;

pub type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;
