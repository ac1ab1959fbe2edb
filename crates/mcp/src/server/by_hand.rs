//! Lets a person resume an agent's run from the command line with the agent's tools, policy and approvals.

use contract::config;
use executor::Executor;
use executor::run::PrepareError;

use super::frontend::McpService;
use super::principal::Principal;
use super::progress::Progress;

impl McpService {
    /// Returns the executor and the configuration that this principal's runs use. Like an agent's call, it first waits
    /// for the upstream servers to be ready.
    pub async fn made_with(&self, principal: &Principal) -> Result<(Executor, config::CodeMode), PrepareError> {
        let prepared = self.prepared(principal).await?;
        Ok((prepared.executor(&Progress::default()), prepared.config.clone()))
    }
}
