//! Writes a run's state, and reports it: results to the model, after they are written to the journal, and what happened
//! to the log. Between turns the run is kept until it expires, and released when there is nothing to do.

use std::time::Duration;

use contract::cell::{CellResult, OutputItem, PendingToolCall, Preview, StoredOutputs, Telemetry};
use contract::error::ErrorCode;
use contract::ids::{CallId, OutputHandle};
use contract::limits::{Limits, MAX_RUN_OUTPUTS};
use executor::clock::now_ms;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use store::{CommitError, Durability, EntryKind, NewEntry, NewOutput, Quota, QuotaExceeded, RunState};
use tokio::time::Instant;
use tracing::Span;

use super::{CellLocation, Driver, DriverExit, Flow, Ownership, Run, RunProgress};
use crate::bridge;
use crate::cell::Answer;
use crate::effects;
use crate::failure::{
    aborted, commit_message, failed, failed_with, failure_text, snapshot_expired, snapshot_expired_without_effects,
};
use crate::output::{Names, fit, media_of, not_stored, take_media};
use crate::stored_result;

impl Driver {
    pub(super) fn enter_exec(&self) {
        self.enter_call(&self.parent, self.run.mode.call(&self.run.definition));
    }

    pub(super) fn enter_wait(&self, tool_call_id: &str) {
        let arguments = json!({"runId": self.run.id});
        self.enter_call(tool_call_id, json!({"toolName": "wait", "arguments": arguments}));
    }

    /// Records the result of every waiting control call. If no call waits, records the end of the run as a note.
    fn enter_result(&self, shown: &str) {
        let result = ("result", shown);
        for (tool_call_id, _) in &self.listeners {
            let fields = json!({"toolCallId": tool_call_id, "runId": self.run.id});
            self.run.journal.entry(NewEntry::with_json(now_ms(), EntryKind::ControlResult, result, &fields));
        }
        if self.listeners.is_empty() {
            let fields = json!({"note": "ended", "runId": self.run.id});
            self.run.journal.entry(NewEntry::with_json(now_ms(), EntryKind::Note, result, &fields));
        }
    }

    fn enter_call(&self, tool_call_id: &str, mut entry: Value) {
        if let Some(fields) = entry.as_object_mut() {
            fields.insert("toolCallId".to_owned(), json!(tool_call_id));
            fields.insert("runId".to_owned(), json!(self.run.id));
        }
        self.run.journal.entry(NewEntry::new(now_ms(), EntryKind::ControlCall, &entry));
    }

    /// Writes the run's state and reports the result. If the state cannot be written, reports that instead, and the run
    /// cannot continue in this process.
    pub(super) async fn answer(&mut self, answer: Answer) -> Flow {
        let (answer, stored) = self.store_outputs(answer).await;
        let stored_handles: Vec<OutputHandle> =
            stored.iter().map(|output| OutputHandle::of(&self.run.id, &output.name)).collect();
        let (state, result) = self.result(answer);
        let result = with_effects(&self.run, result).await;
        let text = stored_result::to_json(&result);
        self.enter_result(&self.run.mode.answer(self.run.executor.catalog(), &result, &text));
        let over = state.is_over();
        let snapshot = self.unstored_snapshot();
        let dormant = self.is_idle();
        let may_be_lost = over && stored.is_empty() && !self.run.journal.had_effects();
        let durability = if may_be_lost { Durability::Relaxed } else { Durability::Synced };
        let progress = serde_json::to_string(&self.telemetry).unwrap_or_default();
        let expires_at = self.extend_expiry();
        let written = self.run.journal.commit(durability, |change| {
            change.state = Some(state);
            change.progress = Some(progress);
            change.expires_at = Some(expires_at);
            change.release = dormant;
            change.result = over.then_some(text);
            change.snapshot = snapshot;
            change.outputs.extend(stored);
        });
        let [before, after] = if over {
            ["finish.before_commit", "finish.after_commit"]
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
                self.location.drop_stored_snapshot(&self.run.journal);
                self.log_result(&result);
                self.report(result);
                if dormant { Flow::Break(DriverExit::Released) } else { Flow::Continue(()) }
            }
            Err(CommitError::Quota(exceeded)) => {
                let result = self.without_outputs(result, &stored_handles);
                let end = self.fail_over_quota(&exceeded, result).await;
                self.break_with(end)
            }
            Err(error) => {
                let end = write_failure(&self.run, self.ownership, &error, &result).await;
                self.break_with(end)
            }
        }
    }

    /// Reports the end of a run that cannot continue in this process. `None` if another process has taken it over.
    fn break_with(&mut self, end: Option<CellResult>) -> Flow {
        match end {
            Some(end) => {
                self.report(end);
                Flow::Break(DriverExit::Stopped)
            }
            None => Flow::Break(DriverExit::TakenOver),
        }
    }

    /// Fails a run that a quota does not allow to be suspended, or whose session values it does not allow to be stored.
    /// The result says which quota, and what to do about it.
    async fn fail_over_quota(&mut self, exceeded: &QuotaExceeded, unwritten: CellResult) -> Option<CellResult> {
        let code = match exceeded.quota {
            Quota::StoredBytes if matches!(unwritten, CellResult::Waiting { .. }) => ErrorCode::SnapshotLimitExceeded,
            Quota::WaitingRuns | Quota::OpenApprovals | Quota::StoredBytes => ErrorCode::RuntimeUnavailable,
        };
        let output = match unwritten {
            CellResult::Waiting { output, .. }
            | CellResult::Completed { output, .. }
            | CellResult::Failed { output, .. } => output,
        };
        let mut telemetry = self.telemetry.clone();
        telemetry.snapshots = telemetry.snapshots.of_ended_run();
        let error = exceeded.to_string();
        let end = CellResult::Failed { error, code: Some(code), output, effects: Vec::new(), telemetry };
        let end = with_effects(&self.run, end).await;
        let text = stored_result::to_json(&end);
        self.enter_result(&self.run.mode.answer(self.run.executor.catalog(), &end, &text));
        let written = self.run.journal.commit(Durability::Synced, |change| {
            change.state = Some(RunState::Failed);
            change.result = Some(text);
        });
        match written.await {
            Ok(()) => {
                self.log_result(&end);
                Some(end)
            }
            Err(error) => write_failure(&self.run, self.ownership, &error, &end).await,
        }
    }

    /// Writes what has happened between turns, and releases the run if it is idle. Progress extends its time to live.
    pub(super) async fn rest(&mut self, made: RunProgress) -> Flow {
        let release = self.is_idle();
        let moved = made == RunProgress::Made;
        if !moved && !release {
            return match self.run.journal.flush().await {
                Ok(()) => Flow::Continue(()),
                Err(error) => Flow::Break(exit_after(&error)),
            };
        }
        let expires_at = moved.then(|| self.extend_expiry());
        let snapshot = if release { self.unstored_snapshot() } else { None };
        let progress = serde_json::to_string(&self.telemetry).unwrap_or_default();
        let written = self.run.journal.commit(Durability::Relaxed, |change| {
            change.expires_at = expires_at;
            change.progress = Some(progress);
            change.release = release;
            change.snapshot = snapshot;
        });
        let written = async {
            if release {
                fault::point("release.before_commit")?;
            }
            written.await?;
            if release {
                fault::point("release.after_commit")?;
            }
            Ok::<_, CommitError>(())
        };
        match written.await {
            Ok(()) if release => Flow::Break(DriverExit::Released),
            Ok(()) => Flow::Continue(()),
            Err(error) => Flow::Break(exit_after(&error)),
        }
    }

    /// Returns whether there is nothing to do until a client, a person or a tool resumes the run.
    pub(super) fn is_idle(&self) -> bool {
        self.has_caller && self.cell.is_dormant() && self.calls.is_empty()
    }

    /// Restarts the time to live of a waiting run, and returns when it expires.
    pub(super) fn extend_expiry(&mut self) -> i64 {
        self.expires = Some(Instant::now() + Duration::from_secs(self.run.definition.ttl_seconds));
        self.run.definition.expires_at(now_ms())
    }

    /// Ends a run that has expired, and cancels its calls.
    pub(super) async fn expire(&mut self) -> DriverExit {
        let written = self.run.journal.commit(Durability::Relaxed, |change| change.state = Some(RunState::Expired));
        match written.await {
            Ok(()) => {
                self.cancel();
                tracing::info!("run expired");
                let snapshots = self.telemetry.snapshots.of_expired_run();
                let telemetry = Telemetry { snapshots, ..self.telemetry.clone() };
                let result = match self.run.journal.had_effects() {
                    true => snapshot_expired(),
                    false => snapshot_expired_without_effects(),
                };
                let result = with_effects(&self.run, result.with_telemetry(telemetry)).await;
                DriverExit::Over(Box::new(result))
            }
            Err(error) => exit_after(&error),
        }
    }

    /// Logs that the run has started. Its source is the model's text, so only the debug log contains it.
    pub(super) fn log_start(&self) {
        let (scope, source) = (self.run.executor.scope(), &self.run.definition.source);
        tracing::info!(agent = scope.agent_id, session = scope.session_id, source_bytes = source.len(), "run started");
        tracing::debug!(source, "source of the run");
    }

    /// Logs a result that was written. The message of a failure may contain guest text, so only the debug log has it.
    fn log_result(&self, result: &CellResult) {
        match result {
            CellResult::Completed { .. } => tracing::info!("run completed"),
            CellResult::Waiting { .. } => {
                tracing::info!(snapshot_bytes = self.telemetry.snapshots.bytes, "run suspended");
            }
            CellResult::Failed { code: Some(ErrorCode::Aborted), .. } => tracing::info!("run cancelled"),
            CellResult::Failed { error, code, .. } => {
                tracing::info!(code = code.map_or("none", ErrorCode::as_str), "run failed");
                tracing::debug!(error, "failure of the run");
            }
        }
    }

    pub(super) fn unstored_snapshot(&mut self) -> Option<(i64, Vec<u8>)> {
        match &mut self.location {
            CellLocation::Frozen { snapshot, is_stored } if !*is_stored => {
                *is_stored = true;
                Some((self.leg, snapshot.clone()))
            }
            CellLocation::Frozen { .. } | CellLocation::Stored(_) | CellLocation::Live(_) | CellLocation::None => None,
        }
    }

    fn report(&mut self, result: CellResult) {
        for (_, listener) in self.listeners.drain(..) {
            // The caller may be gone; the result is stored for the next `wait`.
            drop(listener.send(result.clone()));
        }
        self.last_result = Some(result);
        self.turn = Span::none();
    }

    fn result(&mut self, answer: Answer) -> (RunState, CellResult) {
        self.update_telemetry(&answer);
        let telemetry = self.reported_telemetry();
        match answer {
            Answer::Completed { value, output } => {
                (RunState::Completed, CellResult::Completed { value, output, telemetry })
            }
            Answer::Waiting { reason, pending, output } => {
                let (run_id, pending_tool_calls) = (self.run.id.clone(), self.with_tool_ids(pending));
                (RunState::Waiting, CellResult::Waiting { run_id, reason, pending_tool_calls, output, telemetry })
            }
            Answer::Failed { failure, output } => {
                let aborted = failure.code == Some(ErrorCode::Aborted);
                let state = if aborted { RunState::Aborted } else { RunState::Failed };
                let error = failure_text(&failure);
                (state, CellResult::Failed { error, code: failure.code, output, effects: Vec::new(), telemetry })
            }
        }
    }

    /// Adds the tools that calls of namespaces are for.
    fn with_tool_ids(&self, pending: Vec<(CallId, PendingToolCall)>) -> Vec<PendingToolCall> {
        let catalog = self.run.executor.catalog();
        let named = |(call, pending): (CallId, PendingToolCall)| {
            if pending.tool_id.is_some() {
                return pending;
            }
            let tool_id = self.run.journal.call(call).and_then(|row| bridge::tool_of(catalog, &row));
            PendingToolCall { tool_id, ..pending }
        };
        pending.into_iter().map(named).collect()
    }

    /// Returns the telemetry of a result. Calls in progress count with the time that they have taken so far; when they
    /// end, the whole time is added to what is stored.
    fn reported_telemetry(&self) -> Telemetry {
        let mut telemetry = self.telemetry.clone();
        let so_far: Duration = self.under_way.values().map(Instant::elapsed).sum();
        telemetry.duration_ms.tools += u64::try_from(so_far.as_millis()).unwrap_or(0);
        telemetry
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
        self.telemetry.snapshots = match answer {
            Answer::Waiting { .. } => self.cell.snapshots().of_live_run(),
            Answer::Completed { .. } | Answer::Failed { .. } => self.cell.snapshots().of_ended_run(),
        };
        self.telemetry.duration_ms.guest = self.cell.guest_ms();
        self.telemetry.duration_ms.tools += u64::try_from(std::mem::take(&mut self.tool_time).as_millis()).unwrap_or(0);
        self.telemetry.duration_ms.total = self.now();
    }

    /// Selects what of an answer is stored, and replaces it in the answer.
    pub(super) async fn store_outputs(&mut self, mut answer: Answer) -> (Answer, Vec<NewOutput>) {
        self.held_output.clear();
        let (value, output) = match &mut answer {
            Answer::Completed { value, output } => (Some(value), output),
            Answer::Waiting { output, .. } | Answer::Failed { output, .. } => (None, output),
        };
        let taken =
            value.as_ref().map_or(0, |value| value.get().len()) + output.iter().map(OutputItem::bytes).sum::<usize>();
        let whole_value = value.map(|value| std::mem::replace(value, RawValue::NULL.to_owned()));
        let (limits, names) = (self.run.definition.limits, Names::new(self.run.id.clone(), self.leg));
        let mut whole_output = std::mem::take(output);
        if whole_output.iter_mut().any(|item| media_of(item).is_some()) {
            whole_output = self.output_reader().with_references(whole_output, limits).await;
        }
        let select = move || divide_result(whole_value, whole_output, &limits, names);
        let (mut shown_value, mut shown_output, mut stored) = if taken > MAX_INLINE_BYTES {
            match tokio::task::spawn_blocking(select).await {
                Ok(divide_result) => divide_result,
                Err(error) => {
                    // Only a panic ends the task early.
                    tracing::error!(%error, "cannot select what of a result is stored");
                    (None, Vec::new(), Vec::new())
                }
            }
        } else {
            select()
        };
        let bytes: u64 = stored.iter().map(|output| output.data.len() as u64).sum();
        let before = self.telemetry.stored_outputs;
        self.stored_before = before;
        let totals = StoredOutputs { count: before.count + stored.len() as u64, bytes: before.bytes + bytes };
        if totals.count > MAX_RUN_OUTPUTS as u64 {
            let handles: Vec<OutputHandle> =
                stored.drain(..).map(|output| OutputHandle::of(&self.run.id, &output.name)).collect();
            let why = format!("this run has stored {} outputs, and one run may store {MAX_RUN_OUTPUTS}", before.count);
            shown_output = unstored(shown_output, &handles, &why);
            shown_value = shown_value.map(|value| unstored_value(value, &handles, &why));
        } else {
            self.telemetry.stored_outputs = totals;
            self.cell.add_stored_output(bytes);
        }
        let answer = match answer {
            Answer::Completed { value, .. } => {
                Answer::Completed { value: shown_value.unwrap_or(value), output: shown_output }
            }
            Answer::Waiting { reason, pending, .. } => Answer::Waiting { reason, pending, output: shown_output },
            Answer::Failed { failure, .. } => Answer::Failed { failure, output: shown_output },
        };
        (answer, stored)
    }

    /// Returns a result that refers to none of the outputs that could not be stored. What is small in it is kept, also
    /// the value, because the result of a failed run has none.
    pub(super) fn without_outputs(&mut self, result: CellResult, handles: &[OutputHandle]) -> CellResult {
        if handles.is_empty() {
            return result;
        }
        self.telemetry.stored_outputs = self.stored_before;
        let why = "the store has no space for it";
        match result {
            CellResult::Completed { value, output, telemetry } => {
                let mut output = unstored(output, handles, why);
                let value = unstored_value(value, handles, why);
                output.push(OutputItem::Json { value });
                CellResult::Completed { value: RawValue::NULL.to_owned(), output, telemetry }
            }
            CellResult::Waiting { run_id, reason, pending_tool_calls, output, telemetry } => {
                let output = unstored(output, handles, why);
                CellResult::Waiting { run_id, reason, pending_tool_calls, output, telemetry }
            }
            CellResult::Failed { error, code, output, effects, telemetry } => {
                let output = unstored(output, handles, why);
                CellResult::Failed { error, code, output, effects, telemetry }
            }
        }
    }
}

/// Adds the effects of the run to a failed result.
async fn with_effects(run: &Run, result: CellResult) -> CellResult {
    match result {
        CellResult::Failed { .. } => {
            effects::of_driven_run(&run.journal, run.executor.catalog()).await.added_to(result)
        }
        CellResult::Completed { .. } | CellResult::Waiting { .. } => result,
    }
}

/// Returns the result to report when a run's state cannot be written.
///
/// If the run has already failed, that failure is reported, since it says more than the failed write. `None` if another
/// process has taken over the run: the caller's `wait` keeps waiting and receives the result from the store or from
/// that process.
async fn write_failure(
    run: &Run,
    ownership: Ownership,
    error: &CommitError,
    unwritten: &CellResult,
) -> Option<CellResult> {
    let row = run.journal.store().run(&run.id).await.unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot load a run whose state could not be written");
        None
    });
    if let Some(row) = row.filter(|row| row.state == RunState::Aborted) {
        let recorded = row.result.as_deref().and_then(stored_result::from_json);
        return Some(recorded.unwrap_or_else(|| failed_with(&aborted()).with_telemetry(unwritten.telemetry().clone())));
    }
    match (unwritten, error) {
        _ if ownership == Ownership::TakenOver => None,
        (CellResult::Failed { error, code: Some(ErrorCode::InternalError), .. }, _) => {
            Some(failed(ErrorCode::InternalError, error).with_telemetry(unwritten.telemetry().clone()))
        }
        (_, CommitError::Fenced) => None,
        _ => {
            let what = "the run's state could not be written, so the run cannot continue";
            let message = commit_message("write the state of a run", error, what, "call `wait` to try again");
            Some(failed(ErrorCode::InternalError, &message).with_telemetry(unwritten.telemetry().clone()))
        }
    }
}

/// Returns why the driver ends after a write between turns has failed. No caller waits for a result.
fn exit_after(error: &CommitError) -> DriverExit {
    match error {
        CommitError::Fenced => DriverExit::TakenOver,
        _ => {
            tracing::warn!(%error, "a write between turns failed");
            DriverExit::Stopped
        }
    }
}

/// Results up to this size are divided on the driver's own task.
const MAX_INLINE_BYTES: usize = 1 << 20;

type DividedResult = (Option<Box<RawValue>>, Vec<OutputItem>, Vec<NewOutput>);

fn divide_result(
    mut value: Option<Box<RawValue>>,
    mut output: Vec<OutputItem>,
    limits: &Limits,
    mut names: Names,
) -> DividedResult {
    let mut stored = take_media(&mut value, &mut output, limits, &mut names);
    let limit = usize::try_from(limits.output_bytes).unwrap_or(usize::MAX);
    let fitted = fit(value, output, limit, &mut names);
    stored.extend(fitted.stored);
    (fitted.value, fitted.output, stored)
}

/// Replaces the previews of outputs that were not stored.
fn unstored(output: Vec<OutputItem>, handles: &[OutputHandle], why: &str) -> Vec<OutputItem> {
    let replace = |mut item: OutputItem| {
        if let Some(media) = media_of(&mut item) {
            media.handle.take_if(|handle| handles.contains(handle));
        }
        match item {
            OutputItem::Stored(preview) if handles.contains(&preview.handle) => {
                OutputItem::Text { text: not_stored(&preview, why) }
            }
            item => item,
        }
    };
    output.into_iter().map(replace).collect()
}

fn unstored_value(value: Box<RawValue>, handles: &[OutputHandle], why: &str) -> Box<RawValue> {
    let preview = serde_json::from_str::<Preview>(value.get()).ok();
    match preview.filter(|preview| handles.contains(&preview.handle)) {
        Some(preview) => serde_json::value::to_raw_value(&not_stored(&preview, why)).unwrap_or(value),
        None => value,
    }
}
