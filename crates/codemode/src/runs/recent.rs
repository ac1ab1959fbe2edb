//! Runs found without their ids, for whoever lost the answer that had one.

use contract::scope::Scope;
use store::{Millis, RunState, StoreError};

use super::CodeMode;
use crate::definition::Definition;
use crate::face::RunMode;

/// A run of somebody's, and what it was started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recent {
    pub run_id: String,
    pub state: RunState,
    pub started_at: Millis,
    /// When it last moved; for a run that is over, when it ended.
    pub moved_at: Millis,
    pub source: String,
}

impl CodeMode {
    /// The newest cells of a scope that `wait` has something to say of: under way, or over since then. Runs that are
    /// not written yet are not among them.
    pub async fn recent(&self, scope: &Scope, since: Millis, limit: u32) -> Result<Vec<Recent>, StoreError> {
        let rows = self.inner.store.recent_runs(scope, since, limit).await?;
        let cells = rows.into_iter().filter(|row| row.run_id.starts_with(RunMode::CodeMode.run_prefix()));
        Ok(cells
            .map(|row| Recent {
                run_id: row.run_id,
                state: row.state,
                started_at: row.created_at,
                moved_at: row.updated_at,
                source: Definition::from_json(&row.definition).map(|definition| definition.source).unwrap_or_default(),
            })
            .collect())
    }
}
