//! Telemetry of results that no driver reports: of calls that start no run, and of runs that only the store has.

use contract::cell::Telemetry;
use contract::frame::Method;
use executor::Executor;
use store::{CallRow, CallState, RunRow, RunState};

use crate::mode::RunMode;

/// How many ids of tools are listed.
pub(crate) const MAX_NESTED_IDS: usize = 1024;

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

/// Returns the telemetry of a run that this process resumes. A run whose process was killed in its first turn has stored
/// none, and one that was killed later has made calls since; the journal has them.
pub(crate) fn of_resumed_run(row: &RunRow, calls: &[CallRow], executor: &Executor, mode: &RunMode) -> Telemetry {
    let stored: Option<Telemetry> = serde_json::from_str(&row.progress).ok();
    let mut telemetry = stored
        .filter(|telemetry| telemetry.exec_count > 0)
        .unwrap_or_else(|| Telemetry { exec_count: 1, ..of_catalog(executor, mode) });
    // A call that was only requested is counted when it is dispatched.
    let journal = of_calls(calls.iter().filter(|row| row.state != CallState::Requested));
    telemetry.search_count = telemetry.search_count.max(journal.search_count);
    telemetry.describe_count = telemetry.describe_count.max(journal.describe_count);
    telemetry.call_count = telemetry.call_count.max(journal.call_count);
    if telemetry.nested_tool_ids.len() < journal.nested_tool_ids.len() {
        telemetry.nested_tool_ids = journal.nested_tool_ids;
    }
    telemetry
}

/// Counts the calls of a journal.
pub(crate) fn of_calls<'a>(calls: impl IntoIterator<Item = &'a CallRow>) -> Telemetry {
    let mut telemetry = Telemetry::default();
    for row in calls {
        match Method::parse(&row.method) {
            Some(Method::Search) => telemetry.search_count += 1,
            Some(Method::Describe) => telemetry.describe_count += 1,
            Some(Method::Call | Method::Namespace) => telemetry.call_count += 1,
            Some(Method::Yield | Method::Timer | Method::Output | Method::State) | None => {}
        }
        let ids = &mut telemetry.nested_tool_ids;
        if let Some(id) = &row.tool_id
            && ids.len() < MAX_NESTED_IDS
            && !ids.contains(id)
        {
            ids.push(id.clone());
        }
    }
    telemetry
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
