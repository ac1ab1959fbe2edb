//! What every benchmark says: samples, facts, the bars they must clear, and what the machine was doing.

mod facts;
pub mod machine;
mod samples;

pub use facts::{Bar, Claim, Facts};
pub use samples::Samples;

pub type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;
