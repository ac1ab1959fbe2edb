//! Telemetry of results that no driver reports: of calls that start no run, and of runs that only the store has.

use contract::cell::Telemetry;
use executor::Executor;
use store::{RunRow, RunState};

use crate::mode::RunMode;

/// Returns the telemetry of a call of code mode that starts no run: the catalog and the tools that the model sees.
pub fn without_run(executor: &Executor) -> Telemetry {
    of_catalog(executor, &RunMode::CodeMode)
}

pub(crate) fn of_catalog(executor: &Executor, mode: &RunMode) -> Telemetry {
    let catalog = executor.catalog();
    let visible_tools = match executor.visible_tools() {
        [] => mode.tools().iter().map(|name| (*name).to_owned()).collect(),
        visible => visible.to_vec(),
    };
    Telemetry { catalog_size: catalog.len(), sources: catalog.sources(), visible_tools, ..Telemetry::default() }
}

/// Returns the telemetry of a run as of its last commit, with what has happened to its snapshots since.
pub(crate) fn of_stored_run(row: &RunRow) -> Telemetry {
    // A run that was not suspended yet has none, but its `exec` counts.
    let mut telemetry: Telemetry = serde_json::from_str(&row.progress).unwrap_or_default();
    telemetry.exec_count = telemetry.exec_count.max(1);
    telemetry.snapshots = match row.state {
        RunState::Running | RunState::Waiting => telemetry.snapshots.of_live_run(),
        RunState::Expired => telemetry.snapshots.of_expired_run(),
        RunState::Completed | RunState::Failed | RunState::Aborted => telemetry.snapshots.of_ended_run(),
    };
    telemetry
}
