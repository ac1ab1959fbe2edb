//! What people have agreed to for good, to be held against what tools are now.

use std::collections::{HashMap, HashSet};

use contract::tool::ToolSpec;
use store::{Store, StoreError};

/// The definitions that standing rules are bound to, by tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Approved(HashMap<String, HashSet<String>>);

impl Approved {
    /// Rules that were revoked do not count.
    pub async fn in_store(store: &Store) -> Result<Self, StoreError> {
        let mut approved = Self::default();
        for rule in store.rules().await?.into_iter().filter(|rule| rule.revoked_at.is_none()) {
            approved.0.entry(rule.tool_id).or_default().insert(rule.tool_hash);
        }
        Ok(approved)
    }

    /// Whether somebody agreed to this tool for good, but never to what it is now: its next call asks again.
    pub fn changed(&self, tool: &ToolSpec) -> bool {
        self.0.get(tool.id.as_str()).is_some_and(|hashes| !hashes.contains(&tool.hash().to_string()))
    }
}
