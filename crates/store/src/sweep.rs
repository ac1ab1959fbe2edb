//! The sweep: expires runs and deletes old runs, unused catalogs and old transcript entries.
//!
//! A sweep works in batches, each in its own short transaction, so that a writer waits for one batch at most. Several
//! processes may sweep at the same time, and a sweep that was interrupted needs no repair.

use std::time::Duration;

use contract::ids::RunId;
use sqlx::{Any, Executor, Row, Transaction};

use crate::Millis;
use crate::backend::{Backend, Dialect, Durability};
use crate::error::StoreError;
use crate::locking::begin_write;
use crate::sql::placeholders;

/// The maximum number of runs per batch; their legs, calls and approvals are deleted with them.
const RUNS_PER_BATCH: usize = 100;
const CATALOGS_PER_BATCH: i64 = 20;
const ENTRIES_PER_BATCH: i64 = 1_000;

/// The maximum number of batches of each kind in one sweep. The next sweep does the rest.
const BATCHES_PER_SWEEP: usize = 20;

/// The pause between batches, in which other writers can proceed.
const PAUSE: Duration = Duration::from_millis(5);

/// How long a catalog without a run is kept after its last use: the run that uses it may not be committed yet.
const CATALOG_GRACE_MS: i64 = 60 * 60 * 1000;

/// The maximum number of free pages (of 4 KiB) by which one sweep shrinks an SQLite file.
const PAGES_PER_SWEEP: u32 = 4_096;

/// How many rows of each kind a sweep expired or deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepReport {
    pub expired: u64,
    pub runs: u64,
    pub catalogs: u64,
    pub entries: u64,
}

/// Runs one sweep.
pub(crate) async fn sweep(backend: &Backend, now: Millis) -> Result<SweepReport, StoreError> {
    let before = |seconds: u64| now.saturating_sub(i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1000));
    let mut swept = SweepReport { expired: expire(backend, now).await?, ..SweepReport::default() };
    let old = before(backend.retention.runs_seconds);
    swept.runs = in_batches(BATCHES_PER_SWEEP, RUNS_PER_BATCH as u64, || delete_some_runs(backend, old)).await?;
    let unused = now.saturating_sub(CATALOG_GRACE_MS);
    swept.catalogs =
        in_batches(BATCHES_PER_SWEEP, CATALOGS_PER_BATCH as u64, || delete_unused_catalogs(backend, unused)).await?;
    let old = before(backend.retention.transcripts_seconds);
    swept.entries =
        in_batches(BATCHES_PER_SWEEP, ENTRIES_PER_BATCH as u64, || delete_old_entries(backend, old)).await?;
    if swept.runs + swept.catalogs + swept.entries > 0 {
        release_free_pages(backend).await?;
    }
    Ok(swept)
}

/// Expires all due runs, and voids approvals that can no longer be decided.
pub(crate) async fn expire(backend: &Backend, now: Millis) -> Result<u64, StoreError> {
    // Not limited to `BATCHES_PER_SWEEP`: callers rely on every due run being expired.
    let expired = in_batches(usize::MAX, RUNS_PER_BATCH as u64, || expire_some(backend, now)).await?;
    fault::point("sweep.after_expire")?;
    void_approvals(backend, now).await?;
    Ok(expired)
}

/// Expires one batch of runs. It also increments the fence: a former holder whose commit got no answer searches for it
/// by sequence and fence, and would otherwise take this change for its own commit.
async fn expire_some(backend: &Backend, now: Millis) -> Result<u64, StoreError> {
    let expired = sqlx::query(&format!(
        "UPDATE runs SET sequence = sequence + 1, fence = fence + 1, state = 'expired', snapshot = NULL, lease_until = 0, \
         updated_at = $1 WHERE run_id IN \
         (SELECT run_id FROM runs WHERE {DUE} ORDER BY run_id LIMIT {RUNS_PER_BATCH}{}) AND {DUE}",
        skip_locked(backend)
    ))
    .bind(now)
    .execute(backend.writer(Durability::Relaxed))
    .await?;
    Ok(expired.rows_affected())
}

/// Sets pending approvals to `void` if they have expired or their run has ended.
async fn void_approvals(backend: &Backend, now: Millis) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE approvals SET state = 'void' WHERE state = 'pending' AND (expires_at <= $1 OR run_id IN \
         (SELECT run_id FROM runs WHERE state NOT IN ('running', 'waiting')))",
    )
    .bind(now)
    .execute(backend.writer(Durability::Relaxed))
    .await?;
    Ok(())
}

/// Deletes all runs that ended before `then`, with their legs, calls and approvals.
pub(crate) async fn delete_runs_before(backend: &Backend, then: Millis) -> Result<u64, StoreError> {
    let mut deleted = 0;
    loop {
        let some = delete_some_runs(backend, then).await?;
        deleted += some;
        if some < RUNS_PER_BATCH as u64 {
            return Ok(deleted);
        }
    }
}

/// Deletes one batch of runs that ended before `then`.
async fn delete_some_runs(backend: &Backend, then: Millis) -> Result<u64, StoreError> {
    let mut transaction = begin_write(backend, Durability::Relaxed).await?;
    let old = format!(
        "SELECT run_id FROM runs WHERE state NOT IN ('running', 'waiting') AND updated_at < $1 \
         ORDER BY updated_at LIMIT {RUNS_PER_BATCH}{}",
        skip_locked(backend)
    );
    let old = sqlx::query(&old).bind(then).fetch_all(&mut *transaction).await?;
    let old: Vec<String> = old.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    if old.is_empty() {
        return Ok(0);
    }
    delete_rows(&mut transaction, &old).await?;
    fault::point("sweep.before_commit")?;
    transaction.commit().await?;
    fault::point("sweep.after_commit")?;
    Ok(old.len() as u64)
}

/// Deletes those of these runs that have ended.
pub(crate) async fn delete_runs(backend: &Backend, runs: &[RunId]) -> Result<u64, StoreError> {
    let mut deleted = 0;
    for batch in runs.chunks(RUNS_PER_BATCH) {
        let mut transaction = begin_write(backend, Durability::Relaxed).await?;
        let ended = format!(
            "SELECT run_id FROM runs WHERE state NOT IN ('running', 'waiting') AND run_id IN ({})",
            placeholders(1, batch.len())
        );
        let query = batch.iter().fold(sqlx::query(&ended), |query, run_id| query.bind(run_id.to_string()));
        let ended = query.fetch_all(&mut *transaction).await?;
        let ended: Vec<String> = ended.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        if ended.is_empty() {
            continue;
        }
        delete_rows(&mut transaction, &ended).await?;
        transaction.commit().await?;
        deleted += ended.len() as u64;
    }
    Ok(deleted)
}

/// Deletes runs with their legs, calls and approvals.
async fn delete_rows(transaction: &mut Transaction<'_, Any>, runs: &[String]) -> Result<(), StoreError> {
    for table in ["legs", "calls", "approvals", "runs"] {
        if table == "runs" {
            fault::point("sweep.in_transaction")?;
        }
        let sql = format!("DELETE FROM {table} WHERE run_id IN ({})", placeholders(1, runs.len()));
        let query = runs.iter().fold(sqlx::query(&sql), |query, run_id| query.bind(run_id.clone()));
        query.execute(&mut **transaction).await?;
    }
    Ok(())
}

/// Deletes one batch of catalogs that no run uses and that were last used before `unused_since`. A run's first commit
/// updates `used_at`, so the catalog of a run that is just starting is kept.
async fn delete_unused_catalogs(backend: &Backend, unused_since: Millis) -> Result<u64, StoreError> {
    let dropped = sqlx::query(
        "DELETE FROM catalogs WHERE used_at < $1 AND hash IN (SELECT hash FROM catalogs WHERE used_at < $1 \
         AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.catalog = catalogs.hash) LIMIT $2)",
    )
    .bind(unused_since)
    .bind(CATALOGS_PER_BATCH)
    .execute(backend.writer(Durability::Relaxed))
    .await?;
    Ok(dropped.rows_affected())
}

async fn delete_old_entries(backend: &Backend, then: Millis) -> Result<u64, StoreError> {
    let dropped = sqlx::query(
        "DELETE FROM transcript WHERE (session_id, position) IN \
         (SELECT session_id, position FROM transcript WHERE at < $1 ORDER BY at LIMIT $2)",
    )
    .bind(then)
    .bind(ENTRIES_PER_BATCH)
    .execute(backend.writer(Durability::Relaxed))
    .await?;
    Ok(dropped.rows_affected())
}

/// Returns free pages of an SQLite file to the file system; Postgres does this by itself.
async fn release_free_pages(backend: &Backend) -> Result<(), StoreError> {
    if backend.dialect == Dialect::Sqlite {
        let pages = format!("PRAGMA incremental_vacuum({PAGES_PER_SWEEP})");
        backend.writer(Durability::Relaxed).execute(pages.as_str()).await?;
    }
    Ok(())
}

/// Runs batches until one changes fewer rows than `batch_size`, or `max_batches` have run. Returns the total number of
/// rows.
async fn in_batches<F>(max_batches: usize, batch_size: u64, batch: impl Fn() -> F + Send) -> Result<u64, StoreError>
where
    F: Future<Output = Result<u64, StoreError>> + Send,
{
    let mut total = 0;
    for _ in 0..max_batches {
        let rows = batch().await?;
        total += rows;
        if rows < batch_size {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(total)
}

/// Returns the SQL that skips rows locked by another process, so that concurrent sweeps do not wait for each other.
fn skip_locked(backend: &Backend) -> &'static str {
    match backend.dialect {
        Dialect::Sqlite => "",
        Dialect::Postgres => " FOR UPDATE SKIP LOCKED",
    }
}

/// The SQL condition of a run that is past its expiry and that no process holds. A running run without a holder is not
/// due: that is a direct tool call, which has no lease.
const DUE: &str =
    "expires_at <= $1 AND lease_until <= $1 AND (state = 'waiting' OR (state = 'running' AND holder <> ''))";
