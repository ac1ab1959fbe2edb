//! Writes a run's row: the insert of its first commit and the updates of later ones.

use sqlx::{AnyConnection, Row};

use super::{FencedRun, NewRun};
use crate::Millis;
use crate::backend::StoreError;
use crate::commit::{Change, CommitError};
use crate::rows::RunState;

/// How often a catalog is marked as used: half the time for which a sweep keeps a used catalog.
const MARK_USED_EVERY_MS: i64 = 30 * 60 * 1000;

impl FencedRun {
    pub(crate) async fn write_row(
        &self,
        connection: &mut AnyConnection,
        change: &Change,
        sealed: Option<&(i64, Vec<u8>)>,
        now: Millis,
    ) -> Result<(), CommitError> {
        match &self.unwritten {
            Some(run) => insert(connection, run, change, sealed, now).await,
            None => self.update(connection, change, sealed, now).await,
        }
    }

    /// Records a successful commit. Must be called after the commit, because a transaction can fail until then.
    pub(crate) fn mark_written(&mut self) {
        self.unwritten = None;
        self.sequence += 1;
    }

    async fn update(
        &self,
        connection: &mut AnyConnection,
        change: &Change,
        sealed: Option<&(i64, Vec<u8>)>,
        now: Millis,
    ) -> Result<(), CommitError> {
        let (leg, snapshot) = sealed.map(|(leg, snapshot)| (*leg, snapshot.clone())).unzip();
        // An ended run keeps no snapshot.
        let over = change.state.is_some_and(RunState::is_over);
        let updated = sqlx::query(
            "UPDATE runs SET sequence = sequence + 1, updated_at = $1, state = COALESCE($2, state), \
             expires_at = COALESCE($3, expires_at), progress = COALESCE($4, progress), \
             snapshot_leg = COALESCE($5, snapshot_leg), \
             snapshot = CASE WHEN $6 = 1 THEN NULL ELSE COALESCE($7, snapshot) END, \
             result = COALESCE($8, result), lease_until = CASE WHEN $9 = 1 THEN 0 ELSE lease_until END, \
             journal_bytes = journal_bytes + $10 \
             WHERE run_id = $11 AND sequence = $12 AND fence = $13 AND state IN ('running', 'waiting')",
        )
        .bind(now)
        .bind(change.state.map(RunState::as_str))
        .bind(change.expires_at)
        .bind(change.progress.clone())
        .bind(leg)
        .bind(i64::from(over))
        .bind(snapshot)
        .bind(change.result.clone())
        .bind(i64::from(change.release || over))
        .bind(change.journal_bytes)
        .bind(self.run_id.clone())
        .bind(self.sequence)
        .bind(self.fence)
        .execute(&mut *connection)
        .await?;
        if updated.rows_affected() == 1 { Ok(()) } else { Err(CommitError::Fenced) }
    }
}

async fn insert(
    connection: &mut AnyConnection,
    run: &NewRun,
    change: &Change,
    sealed: Option<&(i64, Vec<u8>)>,
    now: Millis,
) -> Result<(), CommitError> {
    let over = change.state.is_some_and(RunState::is_over);
    let (leg, snapshot) = sealed.map(|(leg, snapshot)| (*leg, snapshot.clone())).unzip();
    sqlx::query(
        "INSERT INTO runs (run_id, agent_id, session_id, agent_run_id, tool_call_id, state, sequence, fence, holder, \
         lease_until, created_at, updated_at, expires_at, catalog, definition, progress, snapshot_leg, snapshot, \
         result, journal_bytes) \
         VALUES ($1, $2, $3, $4, $5, $6, 1, 1, $7, $8, $9, $9, $10, $11, $12, $13, $14, $15, $16, $17)",
    )
    .bind(run.run_id.clone())
    .bind(run.scope.agent_id.clone())
    .bind(run.scope.session_id.clone())
    .bind(run.scope.agent_run_id.clone())
    .bind(run.tool_call_id.clone())
    .bind(change.state.unwrap_or(RunState::Running).as_str())
    .bind(run.holder.clone())
    .bind(if change.release || over { 0 } else { run.lease_until })
    .bind(now)
    .bind(change.expires_at.unwrap_or(run.expires_at))
    .bind(run.catalog.clone())
    .bind(run.definition.clone())
    .bind(change.progress.clone().unwrap_or_default())
    .bind(leg)
    .bind(snapshot.filter(|_| !over))
    .bind(change.result.clone())
    .bind(change.journal_bytes)
    .execute(&mut *connection)
    .await?;
    store_catalog(connection, run, now).await
}

/// Stores the catalog tables that the cell reads, unless they are already stored. They are kept as long as a run uses
/// them: to resume the run, and to replay it by hand after it has ended.
///
/// It checks first whether they are stored, because compressing them takes longer than most cells. It must be called
/// after another write of the transaction, because SQLite fails a transaction that reads before it writes if another
/// connection wrote in between.
async fn store_catalog(connection: &mut AnyConnection, run: &NewRun, now: Millis) -> Result<(), CommitError> {
    // A direct call without a cell has no catalog.
    if run.catalog.is_empty() {
        return Ok(());
    }
    let used_at = sqlx::query("SELECT used_at FROM catalogs WHERE hash = $1")
        .bind(run.catalog.clone())
        .fetch_optional(&mut *connection)
        .await?
        .map(|row| row.try_get::<Millis, _>(0))
        .transpose()?;
    let before = now.saturating_sub(MARK_USED_EVERY_MS);
    if used_at.is_some_and(|used_at| used_at >= before) {
        return Ok(());
    }
    // Marked as used from time to time, so that no sweep deletes the catalog before the run that uses it is committed.
    // Not every time, because transactions that start runs would then wait for each other.
    let marked = sqlx::query("UPDATE catalogs SET used_at = $1 WHERE hash = $2")
        .bind(now)
        .bind(run.catalog.clone())
        .execute(&mut *connection)
        .await?;
    if marked.rows_affected() > 0 {
        return Ok(());
    }
    let packed = zstd::bulk::compress(&run.tables, 1).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    sqlx::query("INSERT INTO catalogs (hash, tables, used_at) VALUES ($1, $2, $3) ON CONFLICT (hash) DO NOTHING")
        .bind(run.catalog.clone())
        .bind(packed)
        .bind(now)
        .execute(&mut *connection)
        .await?;
    Ok(())
}
