//! Stores the outcome of a call without one: [`settle`] from any process, [`settle_held`] only from the process that
//! holds the run.

use contract::ids::{CallId, RunId};
use sqlx::AnyConnection;

use crate::backend::{Backend, Durability};
use crate::commit::CommitError;
use crate::error::StoreError;
use crate::runs::FencedRun;
use crate::runs::read::{call as read_call, run as read_run};
use crate::watch::notify_others;

/// Whether the cell will receive a stored outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleResult {
    /// The run has not ended, so the cell will receive the outcome.
    WillDeliver,
    /// The run has ended. The outcome is stored, but no cell will receive it.
    RunEnded,
}

/// Why an outcome was not stored.
#[derive(Debug, thiserror::Error)]
pub enum SettleError {
    #[error("no such call is waiting for an outcome; it is unknown or already settled")]
    NotWaiting,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for SettleError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

/// Stores the outcome of a call without one, from any process, and notifies the other processes.
pub(crate) async fn settle(
    backend: &Backend,
    run_id: &RunId,
    call: CallId,
    outcome: &str,
) -> Result<SettleResult, SettleError> {
    let mut transaction = backend.writer(Durability::Synced).begin().await?;
    // Every transaction updates the run before its calls: the same lock order everywhere prevents deadlocks.
    sqlx::query("UPDATE runs SET journal_bytes = journal_bytes + $1 WHERE run_id = $2")
        .bind(i64::try_from(outcome.len()).unwrap_or(i64::MAX))
        .bind(run_id.to_string())
        .execute(&mut *transaction)
        .await?;
    if !set_outcome(&mut transaction, run_id, call, outcome).await? {
        return Err(SettleError::NotWaiting);
    }
    notify_others(backend, &mut transaction, run_id).await?;
    fault::point("settle.before_commit")?;
    if let Err(error) = fault::commit_result(transaction.commit().await)
        && !has_outcome(backend, run_id, call, outcome).await?
    {
        return Err(error.into());
    }
    fault::point("settle.after_commit")?;
    match read_run(backend, run_id).await? {
        Some(run) if !run.state.is_over() => Ok(SettleResult::WillDeliver),
        _ => Ok(SettleResult::RunEnded),
    }
}

/// Stores the outcome of a call without one, if this process still holds the run. Returns `false` if there is no such
/// call, or it already has an outcome.
pub(crate) async fn settle_held(
    backend: &Backend,
    held: &FencedRun,
    call: CallId,
    outcome: &str,
) -> Result<bool, CommitError> {
    let mut transaction = backend.writer(Durability::Synced).begin().await?;
    // This update locks the run's row, so that no other process takes over the run before the commit.
    let updated = sqlx::query(
        "UPDATE runs SET journal_bytes = journal_bytes + $1 \
         WHERE run_id = $2 AND fence = $3 AND state IN ('running', 'waiting')",
    )
    .bind(i64::try_from(outcome.len()).unwrap_or(i64::MAX))
    .bind(held.run_id.to_string())
    .bind(held.fence)
    .execute(&mut *transaction)
    .await?;
    if updated.rows_affected() != 1 {
        return Err(CommitError::Fenced);
    }
    if !set_outcome(&mut transaction, &held.run_id, call, outcome).await? {
        return Ok(false);
    }
    fault::point("settle.before_commit")?;
    if let Err(error) = fault::commit_result(transaction.commit().await)
        && !has_outcome(backend, &held.run_id, call, outcome).await?
    {
        return Err(error.into());
    }
    fault::point("settle.after_commit")?;
    Ok(true)
}

/// Returns whether the call has this outcome. After a failed commit it may: the connection can break after the database
/// has committed.
async fn has_outcome(backend: &Backend, run_id: &RunId, call: CallId, outcome: &str) -> Result<bool, StoreError> {
    let row = read_call(backend, run_id, call).await?;
    Ok(row.is_some_and(|row| row.outcome.as_deref() == Some(outcome)))
}

/// Sets the outcome of a call that waits for one. Returns `false` if there is no such call, or it already has an
/// outcome.
async fn set_outcome(
    connection: &mut AnyConnection,
    run_id: &RunId,
    call: CallId,
    outcome: &str,
) -> Result<bool, sqlx::Error> {
    let written = sqlx::query(
        "UPDATE calls SET state = 'settled', outcome = $1, settle_order = \
         (SELECT COALESCE(MAX(settle_order), 0) + 1 FROM calls WHERE run_id = $2) \
         WHERE run_id = $2 AND call = $3 AND state IN ('parked', 'away', 'dispatched') AND outcome IS NULL",
    )
    .bind(outcome.to_owned())
    .bind(run_id.to_string())
    .bind(i64::from(call.0))
    .execute(connection)
    .await?;
    Ok(written.rows_affected() == 1)
}
