//! Standing approvals, to be compared with the tools' current definitions.

use std::collections::{HashMap, HashSet};

use contract::tool::ToolSpec;
use store::{Store, StoreError};

/// The definitions and source identities that standing approvals are bound to, by tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StandingApprovals(HashMap<String, HashSet<(String, Option<String>)>>);

impl StandingApprovals {
    /// Loads the standing approvals from the store, without the revoked ones.
    pub async fn in_store(store: &Store) -> Result<Self, StoreError> {
        let mut approved = Self::default();
        for rule in store.rules().await?.into_iter().filter(|rule| rule.revoked_at.is_none()) {
            approved.0.entry(rule.tool_id).or_default().insert((rule.tool_hash, rule.source_identity));
        }
        Ok(approved)
    }

    /// Returns whether this tool has standing approvals, but none for its current definition and source. If so, its
    /// next call requests approval again.
    pub fn changed(&self, tool: &ToolSpec, source_identity: &str) -> bool {
        let now = (tool.hash().to_string(), Some(source_identity.to_owned()));
        self.0.get(tool.id.as_str()).is_some_and(|approved| !approved.contains(&now))
    }
}
