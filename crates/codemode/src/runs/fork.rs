//! Forks a run: writes the journal of a new run that continues from a recorded step of another. `wait` then runs it.

use contract::config;
use contract::scope::Scope;
use executor::clock::now_ms;
use executor::random_name;
use serde_json::json;
use store::{CallRow, Change, Durability, Entry, EntryKind, RunState};

use super::CodeMode;
use crate::face::RunMode;
use crate::replay::{ForkError, Record, RecordError, forked};

impl CodeMode {
    /// Creates a run of the same scope with the first `at` legs of another run, and returns its id.
    ///
    /// `wait` resumes the new run: it replays those legs from the record and runs the rest live. Approvals of the
    /// original run do not apply to it.
    pub async fn fork(
        &self,
        scope: &Scope,
        config: &config::CodeMode,
        tool_call_id: &str,
        run_id: &str,
        at: usize,
    ) -> Result<String, ForkError> {
        let record = Record::read(&self.inner.store, run_id).await?;
        if !record.run.scope.admits(scope) {
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
        if !self.inner.has_room_for(config.max_live_runs).await.map_err(RecordError::from)? {
            return Err(ForkError::Full);
        }
        let new_id = format!("{prefix}{}", random_name()?);
        let kept = (record.run.definition.clone(), definition.expires_at(now));
        let mut held = self.inner.new_run(new_id.clone(), record.run.scope.clone(), tool_call_id, tables, kept);
        let entry = json!({"note": "forked", "runId": new_id, "from": run_id, "at": at});
        let journal_bytes: usize = forked.calls.iter().map(CallRow::journal_bytes).sum();
        let change = Change {
            state: Some(RunState::Waiting),
            progress: serde_json::to_string(&forked.telemetry).ok(),
            legs: forked.legs,
            journal_bytes: i64::try_from(journal_bytes).unwrap_or(i64::MAX),
            calls: forked.calls,
            release: true,
            entries: vec![Entry { at: now, kind: EntryKind::Note, entry }],
            ..Change::default()
        };
        self.inner.store.commit(&mut held, &change, Durability::Synced, now).await?;
        Ok(new_id)
    }
}
