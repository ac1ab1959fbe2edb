//! Shared parts of the benchmarks: samples, facts, bars, slopes of curves, the state of the machine, and an MCP client.

mod facts;
pub mod machine;
mod mcp_client;
mod samples;
mod slope;

pub use facts::{Bar, Claim, Facts};
pub use mcp_client::{Answer, McpClient};
pub use samples::Samples;
pub use slope::steepest_slope;

pub type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;
