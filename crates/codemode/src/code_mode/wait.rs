//! `wait`: resumes a run, or returns the result of one that is over.

use std::sync::Arc;
use std::time::Duration;

use catalog::Catalog;
use contract::cell::{CellResult, PendingToolCall, WaitingReason};
use contract::config;
use contract::error::ErrorCode;
use contract::frame::Failure;
use contract::ids::RunId;
use executor::Executor;
use executor::clock::now_ms;
use store::{CallRow, RunRow, RunState, StoreError};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::bridge;
use crate::definition::Definition;
use crate::driver::{Command, reopened};
use crate::effects;
use crate::failure::{
    aborted, commit_message, failed, failed_with, no_such_run, snapshot_expired, snapshot_expired_without_effects,
    started_in_sandbox, store_unavailable, unreadable_result,
};
use crate::mode::RunMode;
use crate::registry::{RunRegistry, WakeError};
use crate::run_telemetry::{of_stored_run, without_run};
use crate::stored_result;

/// How long `wait` pauses before it looks again for a run that is just being released here.
const RELEASE_PAUSE: Duration = Duration::from_millis(10);

/// How often `wait` checks a run that another process holds, if it is not notified: that process may have died.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Resumes a waiting cell, or returns the result of one that has ended.
pub(super) async fn wait(
    registry: &Arc<RunRegistry>,
    executor: &Executor,
    config: &config::CodeMode,
    tool_call_id: &str,
    run_id: &RunId,
) -> CellResult {
    let result = wait_for_result(registry, executor, config, tool_call_id, run_id).await;
    stored_result::with_media(&registry.store, result).await
}

async fn wait_for_result(
    registry: &Arc<RunRegistry>,
    executor: &Executor,
    config: &config::CodeMode,
    tool_call_id: &str,
    run_id: &RunId,
) -> CellResult {
    let deadline = Instant::now() + Duration::from_millis(config.limits.max_wait_ms);
    let mut late = false;
    let mut changes = registry.changes();
    loop {
        let row = match registry.store.run(run_id).await {
            // Only cells of code mode can be resumed; those of Tool Search end within one tool call.
            Ok(row) => row
                .filter(|row| row.scope.admits(executor.scope()))
                .filter(|row| row.run_id.starts_with(RunMode::CodeMode.run_prefix())),
            Err(error) => {
                return failed_with(&store_unavailable("load a run", &error)).with_telemetry(without_run(executor));
            }
        };
        let Some(row) = row else { return no_such_run().with_telemetry(without_run(executor)) };
        match ended(registry, executor.catalog(), &row).await {
            Ok(None) => {}
            Ok(Some(result)) => return result,
            Err(error) => {
                return failed_with(&store_unavailable("expire a run", &error)).with_telemetry(of_stored_run(&row));
            }
        }
        let definition = Definition::from_json(&row.definition);
        if definition.is_some_and(|definition| !definition.may_run_with(executor.scope())) {
            return started_in_sandbox().with_telemetry(of_stored_run(&row));
        }
        if late {
            return held_elsewhere(registry, executor, &row).await;
        }
        let (listener, reported) = oneshot::channel();
        let command = Command::Wait { tool_call_id: tool_call_id.to_owned(), executor: executor.clone(), listener };
        match registry.send_or_wake(executor, config, &row, command).await {
            Ok(()) => {
                if let Ok(result) = reported.await {
                    return result;
                }
                // The driver released the run just then: it is in the store.
                tokio::time::sleep(RELEASE_PAUSE).await;
            }
            Err(WakeError::HeldElsewhere) => changes.wait(run_id, POLL_INTERVAL).await,
            Err(WakeError::Kept(failure)) => return kept(&row, &failure),
            Err(WakeError::Failed(failure)) => return wake_failed(registry, executor.catalog(), &row, &failure).await,
        }
        late = Instant::now() >= deadline;
    }
}

/// Returns the result for a run that cannot be resumed now, and stays as it is.
fn kept(row: &RunRow, failure: &Failure) -> CellResult {
    let mut telemetry = of_stored_run(row);
    match failure.code {
        Some(ErrorCode::MemoryLimitExceeded) => telemetry.limit_failures.memory += 1,
        Some(ErrorCode::SnapshotLimitExceeded) => telemetry.limit_failures.snapshot += 1,
        _ => {}
    }
    failed_with(failure).with_telemetry(telemetry)
}

/// Returns the result of a run that is over. `None` if it can continue.
async fn ended(registry: &RunRegistry, catalog: &Catalog, row: &RunRow) -> Result<Option<CellResult>, StoreError> {
    let now = now_ms();
    if !row.state.is_over() && row.expires_at <= now {
        // If the run has a driver, the driver ends it. Otherwise this expires it.
        registry.store.expire(now).await?;
        let Some(row) = registry.store.run(&row.run_id).await?.filter(|row| row.state == RunState::Expired) else {
            return Ok(None);
        };
        tracing::info!(run = row.run_id.as_str(), "run expired");
        return Ok(Some(expired(registry, catalog, &row).await));
    }
    let telemetry = || of_stored_run(row);
    let recorded = || row.result.as_deref().and_then(stored_result::from_json);
    Ok(match row.state {
        RunState::Running | RunState::Waiting => None,
        RunState::Expired => Some(expired(registry, catalog, row).await),
        RunState::Aborted => Some(recorded().unwrap_or_else(|| failed_with(&aborted()).with_telemetry(telemetry()))),
        RunState::Completed | RunState::Failed => {
            Some(recorded().unwrap_or_else(|| unreadable_result().with_telemetry(telemetry())))
        }
    })
}

/// Returns the result of an expired run. It is not stored, because whatever expires a run has no catalog.
async fn expired(registry: &RunRegistry, catalog: &Catalog, row: &RunRow) -> CellResult {
    let effects = effects::of_stored_run(&registry.store, &row.run_id, Some(catalog)).await;
    // If the store does not say, calls may have been made.
    let made_no_calls = registry.store.journal_totals(&row.run_id).await.is_ok_and(|totals| !totals.had_effects);
    let result = if made_no_calls { snapshot_expired_without_effects() } else { snapshot_expired() };
    effects.added_to(result.with_telemetry(of_stored_run(row)))
}

/// Returns the `waiting` result of a run that another process holds. The model calls `wait` again, and its results
/// arrive through the store.
async fn held_elsewhere(registry: &RunRegistry, executor: &Executor, row: &RunRow) -> CellResult {
    let calls = registry.store.open_calls(&row.run_id).await.unwrap_or_else(|error| {
        tracing::warn!(%error, run = row.run_id.as_str(), "cannot list the pending calls of a run of another process");
        Vec::new()
    });
    let now = u64::try_from(now_ms().saturating_sub(row.created_at)).unwrap_or(0);
    let pending = |call: &CallRow| {
        let pending = reopened(call, row.created_at)?.pending(now);
        let tool_id = pending.tool_id.clone().or_else(|| bridge::tool_of(executor.catalog(), call));
        Some(PendingToolCall { tool_id, ..pending })
    };
    CellResult::Waiting {
        run_id: row.run_id.clone(),
        reason: WaitingReason::PendingTools,
        pending_tool_calls: calls.iter().filter_map(pending).collect(),
        output: Vec::new(),
        telemetry: of_stored_run(row),
    }
}

/// Returns the `waiting` result of a run as the store has it. `None` if this scope has no such run, or if it has ended.
pub(super) async fn waiting(registry: &RunRegistry, executor: &Executor, run_id: &RunId) -> Option<CellResult> {
    let row = registry.store.run(run_id).await.unwrap_or_else(|error| {
        tracing::warn!(%error, run = run_id.as_str(), "cannot load a run that is still in progress");
        None
    });
    let row = row.filter(|row| row.scope.admits(executor.scope()) && !row.state.is_over())?;
    Some(held_elsewhere(registry, executor, &row).await)
}

/// Returns the result for a run that could not be resumed. A snapshot that cannot be restored ends the run; after a
/// temporary failure, such as a busy pool or an unreachable store, the run stays as it is.
async fn wake_failed(registry: &RunRegistry, catalog: &Catalog, row: &RunRow, failure: &Failure) -> CellResult {
    if failure.code == Some(ErrorCode::SnapshotRestoreFailed) {
        let _alone = registry.lock_run(&row.run_id).await;
        match registry.finalize_stored_run(row, failure, Some(catalog)).await {
            Ok(result) => {
                let code = ErrorCode::SnapshotRestoreFailed.as_str();
                tracing::info!(run = row.run_id.as_str(), code, "run failed");
                result
            }
            Err(error) => {
                let what = "the suspended cell can be neither resumed nor ended";
                let message = commit_message("end a run", &error, what, "call `wait` to try again");
                failed(ErrorCode::InternalError, &message).with_telemetry(of_stored_run(row))
            }
        }
    } else {
        kept(row, failure)
    }
}
