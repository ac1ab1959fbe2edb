//! A run in the list of runs.

use contract::ids::RunId;
use contract::scope::Scope;
use store::{RunListEntry, RunState};

/// A run in the list of [`Cellmate::runs`](crate::Cellmate::runs). Times are milliseconds since 1970.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunInfo {
    /// The run's id.
    pub run_id: RunId,
    /// The agent and session that it belongs to.
    pub scope: Scope,
    /// Whether it is running, waiting or over.
    pub state: RunState,
    /// When it was started.
    pub started_at: i64,
    /// When it last made progress; for a run that is over, when it ended.
    pub updated_at: i64,
    /// When a waiting run can no longer be resumed.
    pub expires_at: i64,
    /// The number of calls whose result the cell has not received.
    pub open_calls: u64,
}

impl From<RunListEntry> for RunInfo {
    fn from(row: RunListEntry) -> Self {
        let RunListEntry { run_id, scope, state, created_at, updated_at, expires_at, open_calls, .. } = row;
        Self { run_id, scope, state, started_at: created_at, updated_at, expires_at, open_calls }
    }
}
