//! Lists recent runs, for clients that lost the response with a run's id.

use contract::scope::Scope;
use store::{Millis, RunState, StoreError};

use super::CodeMode;
use crate::definition::Definition;
use crate::face::RunMode;

/// A recent run and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recent {
    pub run_id: String,
    pub state: RunState,
    pub started_at: Millis,
    /// When it last made progress; for a run that is over, when it ended.
    pub moved_at: Millis,
    pub source: String,
}

impl CodeMode {
    /// Returns the newest runs of a scope that `wait` has a result for: those in progress, and those that ended after
    /// `since`. Runs that are not written yet are not included.
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
