//! The sweep: expires runs and turns, and deletes old runs with their outputs, unused catalogs, and old transcript
//! entries, session values, turns and responses.
//!
//! A sweep works in batches, each in its own short transaction, so that a writer waits for one batch at most. Several
//! processes may sweep at the same time, and a sweep that was interrupted needs no repair.

use std::time::Duration;

use contract::ids::RunId;
use sqlx::any::AnyRow;
use sqlx::{Any, Executor, Row, Transaction};

use crate::Millis;
use crate::backend::{Backend, Dialect, Durability};
use crate::error::StoreError;
use crate::locking::{begin_write, skip_locked};
use crate::runs::due;
use crate::sql::placeholders;
use crate::transcript;
use crate::turns::{retention, usage};

/// The maximum number of runs per batch; their legs, calls and approvals are deleted with them.
const RUNS_PER_BATCH: usize = 100;
/// The maximum number of pieces of outputs per batch, 16 MiB. A run with more is deleted in several batches.
const PIECES_PER_BATCH: u64 = 64;
const CATALOGS_PER_BATCH: i64 = 20;
const ENTRIES_PER_BATCH: i64 = 1_000;
/// The number of sessions whose oldest entry one query reads.
const SESSIONS_PER_BATCH: i64 = 100;
/// A value has up to 1 MiB.
const VALUES_PER_BATCH: i64 = 50;

/// The maximum number of batches of each kind in one sweep. The next sweep does the rest.
const BATCHES_PER_SWEEP: usize = 20;

/// The pause between batches, in which other writers can proceed.
const PAUSE: Duration = Duration::from_millis(5);

/// How long a catalog is kept after it was last marked as used, in addition to the time for which ended runs are kept: the
/// run that uses it may not be committed yet, or may have waited for up to a day before it ended.
const CATALOG_GRACE_MS: i64 = 25 * 60 * 60 * 1000;

/// How long an output is kept that no change has completed: its writer may still be writing it.
const UNFINISHED_OUTPUT_GRACE_MS: i64 = 60 * 60 * 1000;

/// The maximum number of free pages (of 4 KiB) by which one sweep shrinks an SQLite file.
const PAGES_PER_SWEEP: u32 = 4_096;

/// How many rows of each kind a sweep expired or deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepReport {
    pub expired: u64,
    pub runs: u64,
    pub catalogs: u64,
    pub entries: u64,
    /// Outputs that were deleted without their runs, because no change completed them or their runs do not exist.
    pub outputs: u64,
    pub values: u64,
    /// Turns that expired.
    pub expired_turns: u64,
    /// Turns that were deleted.
    pub turns: u64,
    /// Responses that were deleted without their turns, because they expired.
    pub responses: u64,
}

/// Runs one sweep.
pub(crate) async fn sweep(backend: &Backend, now: Millis) -> Result<SweepReport, StoreError> {
    let before = |seconds: u64| now.saturating_sub(i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1000));
    let mut swept = SweepReport { expired: expire(backend, now).await?, ..SweepReport::default() };
    let old = before(backend.retention.runs_seconds);
    swept.runs = in_portions(BATCHES_PER_SWEEP, || delete_some_runs(backend, old)).await?;
    let unfinished = now.saturating_sub(UNFINISHED_OUTPUT_GRACE_MS);
    swept.outputs = in_portions(BATCHES_PER_SWEEP, || delete_lost_output(backend, unfinished, old)).await?;
    let unused = old.saturating_sub(CATALOG_GRACE_MS);
    swept.catalogs =
        in_batches(BATCHES_PER_SWEEP, CATALOGS_PER_BATCH as u64, || delete_unused_catalogs(backend, unused)).await?;
    let old = before(backend.retention.transcripts_seconds);
    swept.entries = in_portions(BATCHES_PER_SWEEP, || delete_old_entries(backend, old)).await?;
    swept.values = in_batches(BATCHES_PER_SWEEP, VALUES_PER_BATCH as u64, || delete_old_values(backend, old)).await?;
    swept.expired_turns = expire_turns(backend, now).await?;
    // A batch may be smaller than the limit because its turns are large.
    swept.turns = in_batches(BATCHES_PER_SWEEP, 1, || retention::delete_some(backend, old)).await?;
    let responses = || retention::delete_expired_responses(backend, now);
    swept.responses = in_batches(BATCHES_PER_SWEEP, retention::RESPONSES_PER_BATCH as u64, responses).await?;
    let old_usage = in_batches(BATCHES_PER_SWEEP, 1, || usage::delete_some(backend, now)).await?;
    let deleted = swept.runs + swept.catalogs + swept.entries + swept.outputs + swept.values;
    let deleted = deleted + swept.turns + swept.responses + old_usage;
    if deleted > 0 || free_pages(backend).await? > i64::from(PAGES_PER_SWEEP) {
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

/// Ends all turns that have expired and that no process holds.
pub(crate) async fn expire_turns(backend: &Backend, now: Millis) -> Result<u64, StoreError> {
    in_batches(usize::MAX, retention::TURNS_PER_BATCH as u64, || retention::expire_some(backend, now)).await
}

/// Expires one batch of runs: in the order of the index, so that a batch does not read and sort all runs that are due. It
/// also increments the fence: a former holder whose commit got no answer searches for it by sequence and fence, and would
/// otherwise take this change for its own commit.
async fn expire_some(backend: &Backend, now: Millis) -> Result<u64, StoreError> {
    let due = due("$1");
    let expired = sqlx::query(&format!(
        "UPDATE runs SET sequence = sequence + 1, fence = fence + 1, state = 'expired', snapshot = NULL, lease_until = 0, \
         updated_at = $1 WHERE run_id IN \
         (SELECT run_id FROM runs WHERE {due} ORDER BY expires_at LIMIT {RUNS_PER_BATCH}{}) AND {due}",
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
        "UPDATE approvals SET state = 'void' WHERE state = 'pending' AND (expires_at <= $1 OR NOT EXISTS \
         (SELECT 1 FROM runs WHERE runs.run_id = approvals.run_id AND runs.state IN ('running', 'waiting')))",
    )
    .bind(now)
    .execute(backend.writer(Durability::Relaxed))
    .await?;
    Ok(())
}

/// What one batch deleted, and whether there may be more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Portion {
    rows: u64,
    has_more: bool,
}

/// Which of the ended runs that were found one batch deletes, so that it deletes few pieces of outputs.
#[derive(Debug, PartialEq, Eq)]
enum RunBatch {
    /// Whole runs.
    Whole(Vec<RunId>),
    /// Pieces of the outputs of this run, which has too many of them for one batch.
    PiecesOf(RunId),
}

/// Chooses from runs and the numbers of their outputs' pieces.
fn choose(runs: Vec<(RunId, u64)>) -> Option<RunBatch> {
    let first = runs.first()?.0.clone();
    let mut pieces = 0;
    let fits = |(_, more): &(RunId, u64)| {
        pieces += more;
        pieces <= PIECES_PER_BATCH
    };
    let whole: Vec<RunId> = runs.into_iter().take_while(fits).map(|(run_id, _)| run_id).collect();
    Some(if whole.is_empty() { RunBatch::PiecesOf(first) } else { RunBatch::Whole(whole) })
}

/// Deletes all runs that ended before `then`, with their legs, calls, approvals and outputs.
pub(crate) async fn delete_runs_before(backend: &Backend, then: Millis) -> Result<u64, StoreError> {
    in_portions(usize::MAX, || delete_some_runs(backend, then)).await
}

/// Deletes one batch of runs that ended before `then`.
async fn delete_some_runs(backend: &Backend, then: Millis) -> Result<Portion, StoreError> {
    let mut transaction = begin_write(backend, Durability::Relaxed).await?;
    let old = format!(
        "SELECT run_id, {PIECES} FROM runs WHERE state NOT IN ('running', 'waiting') AND updated_at < $1 \
         ORDER BY updated_at LIMIT {RUNS_PER_BATCH}{}",
        skip_locked(backend)
    );
    let old = sqlx::query(&old).bind(then).fetch_all(&mut *transaction).await?;
    delete_found(transaction, &old).await
}

/// Deletes those of these runs that have ended.
pub(crate) async fn delete_runs(backend: &Backend, runs: &[RunId]) -> Result<u64, StoreError> {
    let mut deleted = 0;
    for batch in runs.chunks(RUNS_PER_BATCH) {
        let delete = || async {
            let mut transaction = begin_write(backend, Durability::Relaxed).await?;
            let ended = format!(
                "SELECT run_id, {PIECES} FROM runs WHERE state NOT IN ('running', 'waiting') AND run_id IN ({}) \
                 ORDER BY run_id",
                placeholders(1, batch.len())
            );
            let query = batch.iter().fold(sqlx::query(&ended), |query, run_id| query.bind(run_id.to_string()));
            let ended = query.fetch_all(&mut *transaction).await?;
            delete_found(transaction, &ended).await
        };
        deleted += in_portions(usize::MAX, delete).await?;
    }
    Ok(deleted)
}

/// The number of pieces of a run's outputs.
const PIECES: &str = "(SELECT COUNT(*) FROM output_pieces WHERE output_pieces.run_id = runs.run_id)";

/// Deletes one batch of the runs that were found, and commits.
async fn delete_found(mut transaction: Transaction<'static, Any>, found: &[AnyRow]) -> Result<Portion, StoreError> {
    let read = |row: &AnyRow| {
        let run_id = RunId::from(row.try_get::<String, _>(0)?);
        Ok::<_, sqlx::Error>((run_id, u64::try_from(row.try_get::<i64, _>(1)?).unwrap_or(u64::MAX)))
    };
    let runs = found.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let portion = match choose(runs) {
        None => return Ok(Portion { rows: 0, has_more: false }),
        Some(RunBatch::Whole(runs)) => {
            delete_rows(&mut transaction, &runs).await?;
            let is_full = found.len() == RUNS_PER_BATCH || runs.len() < found.len();
            Portion { rows: runs.len() as u64, has_more: is_full }
        }
        Some(RunBatch::PiecesOf(run_id)) => {
            // No reader finds an output whose pieces are deleted.
            sqlx::query("UPDATE outputs SET complete = 0 WHERE run_id = $1 AND complete = 1")
                .bind(run_id.to_string())
                .execute(&mut *transaction)
                .await?;
            delete_some_pieces(&mut transaction, &run_id, None).await?;
            Portion { rows: 0, has_more: true }
        }
    };
    fault::point("sweep.before_commit")?;
    transaction.commit().await?;
    fault::point("sweep.after_commit")?;
    Ok(portion)
}

/// Deletes one batch of pieces of a run's outputs, or of one of them, and returns how many.
async fn delete_some_pieces(
    transaction: &mut Transaction<'_, Any>,
    run_id: &RunId,
    name: Option<&str>,
) -> Result<u64, StoreError> {
    let of_output = if name.is_some() { " AND name = $2" } else { "" };
    let sql = format!(
        "DELETE FROM output_pieces WHERE run_id = $1 AND (name, piece) IN \
         (SELECT name, piece FROM output_pieces WHERE run_id = $1{of_output} LIMIT {PIECES_PER_BATCH})"
    );
    let query = sqlx::query(&sql).bind(run_id.to_string());
    let query = name.into_iter().fold(query, |query, name| query.bind(name.to_owned()));
    Ok(query.execute(&mut **transaction).await?.rows_affected())
}

/// Deletes an output that was begun before `unfinished` and that no change has completed; or one that was stored before
/// `old` and whose run does not exist: a process of an older version deletes runs without their outputs. A large output
/// is deleted in several batches.
async fn delete_lost_output(backend: &Backend, unfinished: Millis, old: Millis) -> Result<Portion, StoreError> {
    let mut transaction = begin_write(backend, Durability::Relaxed).await?;
    let lost = format!(
        "SELECT run_id, name FROM outputs WHERE (complete = 0 AND created_at < $1) OR (created_at < $2 \
         AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.run_id = outputs.run_id)) LIMIT 1{}",
        skip_locked(backend)
    );
    let found = sqlx::query(&lost).bind(unfinished).bind(old).fetch_optional(&mut *transaction).await?;
    let Some(found) = found else { return Ok(Portion { rows: 0, has_more: false }) };
    let (run_id, name) = (RunId::from(found.try_get::<String, _>(0)?), found.try_get::<String, _>(1)?);
    let pieces = delete_some_pieces(&mut transaction, &run_id, Some(&name)).await?;
    let is_whole = pieces < PIECES_PER_BATCH;
    // A writer or a change with this fence no longer finds the output.
    let delete = if is_whole {
        "DELETE FROM outputs WHERE run_id = $1 AND name = $2"
    } else {
        "UPDATE outputs SET complete = 0, fence = -1 WHERE run_id = $1 AND name = $2"
    };
    sqlx::query(delete).bind(run_id.into_string()).bind(name).execute(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(Portion { rows: u64::from(is_whole), has_more: true })
}

/// Deletes runs with their legs, calls, approvals and outputs.
async fn delete_rows(transaction: &mut Transaction<'_, Any>, runs: &[RunId]) -> Result<(), StoreError> {
    for table in ["legs", "calls", "approvals", "value_writes", "outputs", "output_pieces", "runs"] {
        if table == "runs" {
            fault::point("sweep.in_transaction")?;
        }
        let sql = format!("DELETE FROM {table} WHERE run_id IN ({})", placeholders(1, runs.len()));
        let query = runs.iter().fold(sqlx::query(&sql), |query, run_id| query.bind(run_id.to_string()));
        query.execute(&mut **transaction).await?;
    }
    Ok(())
}

/// Deletes one batch of catalogs that no live run uses and that were last used before `unused_since`. A run's first commit
/// updates `used_at`, so the catalog of a run that is just starting is kept, and that of an ended run about as long as the
/// run. An index of runs by their catalog would be exact, but every run would be written to it.
async fn delete_unused_catalogs(backend: &Backend, unused_since: Millis) -> Result<u64, StoreError> {
    let dropped = sqlx::query(
        "DELETE FROM catalogs WHERE used_at < $1 AND hash IN (SELECT hash FROM catalogs WHERE used_at < $1 \
         AND hash NOT IN (SELECT catalog FROM runs WHERE state IN ('running', 'waiting')) LIMIT $2)",
    )
    .bind(unused_since)
    .bind(CATALOGS_PER_BATCH)
    .execute(backend.writer(Durability::Relaxed))
    .await?;
    Ok(dropped.rows_affected())
}

/// Deletes one batch of entries that were written before `then`. It looks at the oldest entries of a batch of sessions
/// after the one that the last batch ended with, because an index of all entries by their time would be written by every
/// commit.
async fn delete_old_entries(backend: &Backend, then: Millis) -> Result<Portion, StoreError> {
    let mut place = backend.swept_session.lock().clone();
    let sessions = transcript::oldest_entries(backend, &place, SESSIONS_PER_BATCH).await?;
    let are_all = sessions.len() < SESSIONS_PER_BATCH as usize;
    let mut rows = 0;
    for (session_id, oldest) in sessions {
        if oldest < then {
            let deleted = transcript::delete_before(backend, &session_id, then, ENTRIES_PER_BATCH).await?;
            rows += deleted;
            if deleted >= ENTRIES_PER_BATCH as u64 {
                // The session may have more of them.
                *backend.swept_session.lock() = place;
                return Ok(Portion { rows, has_more: true });
            }
        }
        place = session_id;
    }
    // After the last session, the next sweep begins with the first one.
    *backend.swept_session.lock() = if are_all { String::new() } else { place };
    Ok(Portion { rows, has_more: !are_all })
}

/// Deletes one batch of session values that were last written before `then`.
async fn delete_old_values(backend: &Backend, then: Millis) -> Result<u64, StoreError> {
    let dropped = sqlx::query(
        "DELETE FROM session_values WHERE updated_at < $1 AND (agent_id, session_id, client, key) IN \
         (SELECT agent_id, session_id, client, key FROM session_values WHERE updated_at < $1 \
         ORDER BY updated_at LIMIT $2)",
    )
    .bind(then)
    .bind(VALUES_PER_BATCH)
    .execute(backend.writer(Durability::Relaxed))
    .await?;
    Ok(dropped.rows_affected())
}

/// Counts the free pages of an SQLite file. A deleted output leaves more of them than one sweep releases.
async fn free_pages(backend: &Backend) -> Result<i64, StoreError> {
    match backend.dialect {
        Dialect::Sqlite => Ok(sqlx::query("PRAGMA freelist_count").fetch_one(backend.reader()).await?.try_get(0)?),
        Dialect::Postgres => Ok(0),
    }
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
async fn in_batches<F>(
    max_batches: usize,
    batch_size: u64,
    batch: impl Fn() -> F + Send + Sync,
) -> Result<u64, StoreError>
where
    F: Future<Output = Result<u64, StoreError>> + Send,
{
    let portion = || async {
        let rows = batch().await?;
        Ok(Portion { rows, has_more: rows >= batch_size })
    };
    in_portions(max_batches, portion).await
}

/// Runs batches until one leaves nothing, or `max_batches` have run. Returns the total number of rows.
async fn in_portions<F>(max_batches: usize, batch: impl Fn() -> F + Send) -> Result<u64, StoreError>
where
    F: Future<Output = Result<Portion, StoreError>> + Send,
{
    let mut total = 0;
    for _ in 0..max_batches {
        let portion = batch().await?;
        total += portion.rows;
        if !portion.has_more {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_runs_with_few_pieces_together() {
        let runs = |pieces: &[u64]| pieces.iter().map(|pieces| (RunId::from(pieces.to_string()), *pieces)).collect();
        let whole = |runs: &[&str]| Some(RunBatch::Whole(runs.iter().map(|run| RunId::from(*run)).collect()));
        assert_eq!(choose(runs(&[])), None);
        assert_eq!(choose(runs(&[0, 64, 0, 1, 0])), whole(&["0", "64", "0"]));
        assert_eq!(choose(runs(&[1, 256])), whole(&["1"]));
        assert_eq!(choose(runs(&[256, 1])), Some(RunBatch::PiecesOf("256".into())));
    }
}
