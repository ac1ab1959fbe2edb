//! What an agent's runs are made with, for a person who goes on with one of them: the same tools, policy and questions.

use contract::config;
use executor::Executor;
use executor::run::PrepareError;

use super::frontend::McpService;
use super::principal::Principal;
use super::progress::Progress;

impl McpService {
    /// Waits, as calls of agents do, for the servers behind us to be there.
    pub async fn made_with(&self, principal: &Principal) -> Result<(Executor, config::CodeMode), PrepareError> {
        let prepared = self.prepared(principal).await?;
        Ok((prepared.executor(&Progress::default()), prepared.config.clone()))
    }
}
