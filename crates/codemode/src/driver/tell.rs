//! Reports results to the model, after they are written to the journal.

use contract::cell::{CellResult, Telemetry};
use contract::error::ErrorCode;
use contract::frame::Failure;
use contract::limits::MAX_ERROR_BYTES;
use executor::clock::now_ms;
use serde_json::{Value, json};
use store::{CommitError, Durability, Entry, EntryKind, Exceeded, Quota, RunState};

use super::{CellLocation, Driver, Run};
use crate::cell::Answer;
use crate::recorded;

impl Driver {
    pub(super) fn enter_exec(&self) {
        self.control(EntryKind::ControlCall, &self.parent, self.run.face.call(&self.run.definition));
    }

    pub(super) fn enter_wait(&self, tool_call_id: &str) {
        let arguments = json!({"runId": self.run.id});
        self.control(EntryKind::ControlCall, tool_call_id, json!({"toolName": "wait", "arguments": arguments}));
    }

    /// Records the result of every waiting control call. If no call waits, records the end of the run as a note.
    fn enter_result(&self, shown: &Value) {
        for (tool_call_id, _) in &self.listeners {
            self.control(EntryKind::ControlResult, tool_call_id, json!({"result": shown}));
        }
        if self.listeners.is_empty() {
            let entry = json!({"note": "ended", "runId": self.run.id, "result": shown});
            self.run.journal.entry(Entry { at: now_ms(), kind: EntryKind::Note, entry });
        }
    }

    fn control(&self, kind: EntryKind, tool_call_id: &str, mut entry: Value) {
        if let Some(fields) = entry.as_object_mut() {
            fields.insert("toolCallId".to_owned(), json!(tool_call_id));
            fields.insert("runId".to_owned(), json!(self.run.id));
        }
        self.run.journal.entry(Entry { at: now_ms(), kind, entry });
    }

    /// Writes the run's state and reports the result. If the state cannot be written, reports that instead and returns
    /// false: the run cannot continue in this process.
    pub(super) async fn answer(&mut self, answer: Answer) -> bool {
        let (state, result) = self.result(answer);
        let text = recorded::to_json(&result);
        let shown = self.run.face.answer(self.run.executor.catalog(), &result);
        self.enter_result(&shown);
        let over = state.is_over();
        let snapshot = self.unsaved_snapshot();
        let dormant = self.is_idle();
        let durability = if over && !self.run.journal.had_effects() { Durability::Relaxed } else { Durability::Synced };
        let progress = serde_json::to_string(&self.telemetry).unwrap_or_default();
        let expires_at = self.extend_expiry();
        let written = self.run.journal.commit(durability, |change| {
            change.state = Some(state);
            change.progress = Some(progress);
            change.expires_at = Some(expires_at);
            change.release = dormant;
            change.result = over.then_some(text);
            change.snapshot = snapshot;
        });
        let [before, after] = if over {
            ["wait.before_cas", "wait.after_cas"]
        } else {
            ["suspend.before_commit", "suspend.after_commit"]
        };
        let written = async {
            fault::point(before)?;
            written.await?;
            Ok(fault::point(after)?)
        };
        match written.await {
            Ok(()) => {
                self.released = dormant;
                self.report(result);
                true
            }
            Err(CommitError::Quota(exceeded)) => {
                if let Some(end) = self.fail_over_quota(&exceeded, result).await {
                    self.report(end);
                }
                false
            }
            Err(error) => {
                if let Some(failure) = write_failure(&self.run, self.taken_over, &error, &result).await {
                    self.report(failure);
                }
                false
            }
        }
    }

    /// Fails a run that a quota does not allow to be suspended. The result says which quota, and what to do about it.
    async fn fail_over_quota(&mut self, exceeded: &Exceeded, waiting: CellResult) -> Option<CellResult> {
        let code = match exceeded.quota {
            Quota::WaitingRuns | Quota::OpenApprovals => ErrorCode::RuntimeUnavailable,
            Quota::StoredBytes => ErrorCode::SnapshotLimitExceeded,
        };
        let output = match waiting {
            CellResult::Waiting { output, .. }
            | CellResult::Completed { output, .. }
            | CellResult::Failed { output, .. } => output,
        };
        let telemetry = self.telemetry.clone();
        let end = CellResult::Failed { error: exceeded.to_string(), code: Some(code), output, telemetry };
        let shown = self.run.face.answer(self.run.executor.catalog(), &end);
        self.enter_result(&shown);
        let text = recorded::to_json(&end);
        let written = self.run.journal.commit(Durability::Synced, |change| {
            change.state = Some(RunState::Failed);
            change.result = Some(text);
        });
        match written.await {
            Ok(()) => Some(end),
            Err(error) => write_failure(&self.run, self.taken_over, &error, &end).await,
        }
    }

    pub(super) fn unsaved_snapshot(&mut self) -> Option<(i64, Vec<u8>)> {
        match &mut self.location {
            CellLocation::Frozen { snapshot, saved } if !*saved => {
                *saved = true;
                Some((self.leg, snapshot.clone()))
            }
            CellLocation::Frozen { .. } | CellLocation::Live(_) | CellLocation::None => None,
        }
    }

    fn report(&mut self, result: CellResult) {
        for (_, listener) in self.listeners.drain(..) {
            // The caller may be gone; the result is stored for the next `wait`.
            drop(listener.send(result.clone()));
        }
        self.last_result = Some(result);
    }

    fn result(&mut self, answer: Answer) -> (RunState, CellResult) {
        self.update_telemetry(&answer);
        let telemetry = self.telemetry.clone();
        match answer {
            Answer::Completed { value, output } => {
                (RunState::Completed, CellResult::Completed { value, output, telemetry })
            }
            Answer::Waiting { reason, pending, output } => (
                RunState::Waiting,
                CellResult::Waiting {
                    run_id: self.run.id.clone(),
                    reason,
                    pending_tool_calls: pending,
                    output,
                    telemetry,
                },
            ),
            Answer::Failed { failure, output } => {
                let aborted = failure.code == Some(ErrorCode::Aborted);
                let state = if aborted { RunState::Aborted } else { RunState::Failed };
                let error = failure_text(&failure);
                (state, CellResult::Failed { error, code: failure.code, output, telemetry })
            }
        }
    }

    fn update_telemetry(&mut self, answer: &Answer) {
        if let Answer::Failed { failure, .. } = answer {
            let counts = &mut self.telemetry.limit_failures;
            match failure.code {
                Some(ErrorCode::Timeout) => counts.timeout += 1,
                Some(ErrorCode::MemoryLimitExceeded) => counts.memory += 1,
                Some(ErrorCode::SnapshotLimitExceeded) => counts.snapshot += 1,
                Some(ErrorCode::OutputLimitExceeded) => counts.output += 1,
                _ => {}
            }
        }
        self.telemetry.snapshots = self.cell.snapshots();
        self.telemetry.duration_ms.guest = self.cell.guest_ms();
        self.telemetry.duration_ms.tools += u64::try_from(std::mem::take(&mut self.tool_time).as_millis()).unwrap_or(0);
        self.telemetry.duration_ms.total = self.now();
    }
}

/// Returns the result to report when a run's state cannot be written.
///
/// If the run has already failed, that failure is reported, since it says more than the failed write. `None` if another
/// process has taken over the run: the caller's `wait` keeps waiting and receives the result from the store or from
/// that process.
async fn write_failure(run: &Run, taken_over: bool, error: &CommitError, unwritten: &CellResult) -> Option<CellResult> {
    let row = run.journal.store().run(&run.id).await.ok().flatten();
    if row.is_some_and(|row| row.state == RunState::Aborted) {
        return Some(failed(ErrorCode::Aborted, "the run was aborted"));
    }
    match (unwritten, error) {
        _ if taken_over => None,
        (CellResult::Failed { error, code: Some(ErrorCode::InternalError), .. }, _) => {
            Some(failed(ErrorCode::InternalError, error))
        }
        (_, CommitError::Fenced) => None,
        _ => Some(failed(
            ErrorCode::InternalError,
            &format!("the run's state could not be written, so the run cannot continue: {error}"),
        )),
    }
}

/// Formats a failure for the model: `TypeError: x is not a function (at 3:5)`.
pub(crate) fn failure_text(failure: &Failure) -> String {
    let mut text = failure.message.clone();
    if text.len() > MAX_ERROR_BYTES * 2 {
        text.truncate(text.floor_char_boundary(MAX_ERROR_BYTES * 2));
    }
    if let Some(place) = failure.place {
        text += &format!(" (at {}:{})", place.line, place.column);
    }
    text
}

pub(crate) fn failed(code: ErrorCode, message: &str) -> CellResult {
    failed_with(&Failure { code: Some(code), message: message.to_owned(), place: None })
}

/// Builds the result for a failure without output and telemetry, such as that of a run that never started.
pub(crate) fn failed_with(failure: &Failure) -> CellResult {
    CellResult::Failed {
        error: failure_text(failure),
        code: failure.code,
        output: Vec::new(),
        telemetry: Telemetry::default(),
    }
}
