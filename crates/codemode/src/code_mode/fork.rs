//! Forks a run: writes the journal of a new run that continues from a recorded step of another. `wait` then runs it.

use contract::config;
use contract::ids::RunId;
use contract::scope::Scope;
use executor::clock::now_ms;
use executor::run_name;
use serde_json::json;
use store::{CallRow, Change, Durability, EntryKind, NewEntry, RunState};

use crate::mode::RunMode;
use crate::registry::RunRegistry;
use crate::replay::{ForkError, Record, RecordError, forked};

/// Creates a run with the first `at` legs of another run, and returns its id.
pub(super) async fn fork(
    registry: &RunRegistry,
    scope: &Scope,
    config: &config::CodeMode,
    tool_call_id: &str,
    run_id: &RunId,
    at: usize,
) -> Result<RunId, ForkError> {
    let record = Record::read(&registry.store, run_id).await?;
    let may_run = record.definition.as_ref().is_none_or(|definition| definition.may_run_with(scope));
    if !record.run.scope.admits(scope) || !may_run {
        return Err(RecordError::NoSuchRun.into());
    }
    let definition = record.definition.as_ref().ok_or(RecordError::NoCell)?;
    let tables = record.tables.as_ref().ok_or(RecordError::NoCatalog)?;
    let prefix = RunMode::CodeMode.run_prefix();
    if !run_id.starts_with(prefix) {
        return Err(ForkError::NotExec);
    }
    let now = now_ms();
    let forked = forked(&record, at, tool_call_id, now)?;
    if !registry.has_room_for(config.max_live_runs).await.map_err(RecordError::from)? {
        return Err(ForkError::Full);
    }
    let new_id = RunId::new(format!("{prefix}{}", run_name()?));
    let kept = (record.run.definition.clone(), definition.expires_at(now));
    let mut held = registry.new_run(new_id.clone(), record.run.scope.clone(), tool_call_id, tables, kept);
    let entry = json!({"note": "forked", "runId": new_id, "from": run_id, "at": at});
    let journal_bytes: usize = forked.calls.iter().map(CallRow::journal_bytes).sum();
    let change = Change {
        state: Some(RunState::Waiting),
        progress: serde_json::to_string(&forked.telemetry).ok(),
        legs: forked.legs,
        journal_bytes: i64::try_from(journal_bytes).unwrap_or(i64::MAX),
        calls: forked.calls,
        release: true,
        entries: vec![NewEntry::new(now, EntryKind::Note, &entry)],
        ..Change::default()
    };
    registry.store.commit(&mut held, &change, Durability::Synced, now).await?;
    Ok(new_id)
}
