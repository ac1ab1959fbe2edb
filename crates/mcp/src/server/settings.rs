//! What we are given: how agents meet us, and what stands behind us.

use std::sync::Arc;

use contract::config::AgentsConfig;
use contract::config::pattern::Pattern;
use executor::ToolSource;

use super::asking::ApprovalPolicy;
use super::prefix::ToolPrefix;

/// How an agent meets us, decided once.
#[derive(Clone, Debug)]
pub struct Settings {
    pub config: AgentsConfig,
    pub asking: ApprovalPolicy,
    /// Tools that nobody is asked about all the same.
    pub pass: Vec<Pattern>,
    pub tool_prefix: ToolPrefix,
    /// What answers that come back to us are sealed with: the same in every process that shares the store.
    pub seal: [u8; 32],
}

/// What stands behind us at the moment.
#[derive(Clone, Debug, Default)]
pub struct Offered {
    pub sources: Vec<Arc<dyn ToolSource>>,
    /// Whether all that are to come at the start have come, or will not.
    pub settled: bool,
}
