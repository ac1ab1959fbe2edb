//! The server's settings, and the tool sources it offers.

use std::sync::Arc;

use contract::config::AgentsConfig;
use contract::config::pattern::Pattern;
use executor::ToolSource;

use super::asking::ApprovalPolicy;
use super::prefix::ToolPrefix;

/// Settings that stay fixed while the server runs.
#[derive(Clone, Debug)]
pub struct Settings {
    pub config: AgentsConfig,
    pub asking: ApprovalPolicy,
    /// Tools that need no approval even if `asking` covers them.
    pub pass: Vec<Pattern>,
    pub tool_prefix: ToolPrefix,
    /// The key that seals state carried by clients: the same in every process that shares the store.
    pub seal: [u8; 32],
}

/// The tool sources that are currently offered.
#[derive(Clone, Debug, Default)]
pub struct Offered {
    pub sources: Vec<Arc<dyn ToolSource>>,
    /// Whether every source that is started with the server is ready or has failed.
    pub settled: bool,
}
