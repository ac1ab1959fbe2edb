//! What is over is put away: expired runs lose their cells, old ones go altogether, and so do old transcripts.
//!
//! In batches, each a short transaction of its own: whoever writes waits for one of them at most. Safe to repeat, and to
//! do from many processes at once.

use std::time::Duration;

use sqlx::{Executor, Row};

use crate::Millis;
use crate::backend::{Dialect, Store, StoreError};
use crate::commit::{Durability, list};
use crate::fault;

/// Runs in a batch, with all their legs, calls and approvals.
const RUNS_A_BATCH: usize = 100;
const CATALOGS_A_BATCH: i64 = 20;
const ENTRIES_A_BATCH: i64 = 1_000;

/// Batches of each kind in one sweep, and the time in between that is others'. What is left is for the next sweep.
const BATCHES_A_SWEEP: usize = 20;
const PAUSE: Duration = Duration::from_millis(5);

/// A catalog that a run was begun with so lately is not looked at: its run may not be written yet.
const CATALOG_GRACE_MS: i64 = 60 * 60 * 1000;

/// A file gives back so many pages (of 4 KiB) in one sweep.
const PAGES_A_SWEEP: u32 = 4_096;

/// What a sweep came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    pub expired: u64,
    pub runs: u64,
    pub catalogs: u64,
    pub entries: u64,
}

impl Store {
    /// Everything that is due, as far as one sweep goes.
    pub async fn sweep(&self, now: Millis) -> Result<Swept, StoreError> {
        let before = |seconds: u64| now.saturating_sub(i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1000));
        let mut swept = Swept { expired: self.expire(now).await?, ..Swept::default() };
        let old = before(self.retention.runs_seconds);
        swept.runs = self.in_batches(BATCHES_A_SWEEP, RUNS_A_BATCH as u64, || self.forget_some(old)).await?;
        let unused = now.saturating_sub(CATALOG_GRACE_MS);
        swept.catalogs =
            self.in_batches(BATCHES_A_SWEEP, CATALOGS_A_BATCH as u64, || self.drop_some_catalogs(unused)).await?;
        let old = before(self.retention.transcripts_seconds);
        swept.entries =
            self.in_batches(BATCHES_A_SWEEP, ENTRIES_A_BATCH as u64, || self.drop_some_entries(old)).await?;
        if swept.runs + swept.catalogs + swept.entries > 0 {
            self.give_space_back().await?;
        }
        Ok(swept)
    }

    /// Ends runs whose time is over and that nobody works on: who holds a run sees to its end, and who
    /// makes a call without a cell needs no lease to. The fence moves with it, or a holder whose commit was lost
    /// would take this change for its own.
    pub async fn expire(&self, now: Millis) -> Result<u64, StoreError> {
        // All of them: whoever asks about one run must find it ended.
        let expired = self.in_batches(usize::MAX, RUNS_A_BATCH as u64, || self.expire_some(now)).await?;
        fault::point("sweep.after_expire")?;
        self.void_approvals(now).await?;
        Ok(expired)
    }

    async fn expire_some(&self, now: Millis) -> Result<u64, StoreError> {
        let expired = sqlx::query(&format!(
            "UPDATE runs SET sequence = sequence + 1, fence = fence + 1, state = 'expired', snapshot = NULL, lease_until = 0, \
             updated_at = $1 WHERE run_id IN (SELECT run_id FROM runs WHERE {DUE} ORDER BY run_id LIMIT {RUNS_A_BATCH}{}) \
             AND {DUE}",
            self.others_may_have_it()
        ))
        .bind(now)
        .execute(self.writer(Durability::Relaxed))
        .await?;
        Ok(expired.rows_affected())
    }

    /// Nobody can say yes any more to a call of a run that is over, nor after the time to do so.
    pub(crate) async fn void_approvals(&self, now: Millis) -> Result<(), StoreError> {
        sqlx::query(
            "UPDATE approvals SET state = 'void' WHERE state = 'pending' AND (expires_at <= $1 OR run_id IN \
             (SELECT run_id FROM runs WHERE state NOT IN ('running', 'waiting')))",
        )
        .bind(now)
        .execute(self.writer(Durability::Relaxed))
        .await?;
        Ok(())
    }

    /// Forgets every run that ended before then, with its journal; transcripts are kept.
    pub async fn forget_before(&self, then: Millis) -> Result<u64, StoreError> {
        let mut gone = 0;
        loop {
            let some = self.forget_some(then).await?;
            gone += some;
            if some < RUNS_A_BATCH as u64 {
                return Ok(gone);
            }
        }
    }

    async fn forget_some(&self, then: Millis) -> Result<u64, StoreError> {
        let mut transaction = self.begin_to_write(Durability::Relaxed).await?;
        let old = format!(
            "SELECT run_id FROM runs WHERE state NOT IN ('running', 'waiting') AND updated_at < $1 \
             ORDER BY updated_at LIMIT {RUNS_A_BATCH}{}",
            self.others_may_have_it()
        );
        let old = sqlx::query(&old).bind(then).fetch_all(&mut *transaction).await?;
        let old: Vec<String> = old.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        if old.is_empty() {
            return Ok(0);
        }
        for table in ["legs", "calls", "approvals", "runs"] {
            if table == "runs" {
                fault::point("sweep.in_forget")?;
            }
            let sql = format!("DELETE FROM {table} WHERE run_id IN ({})", list(1, old.len()));
            let query = old.iter().fold(sqlx::query(&sql), |query, run_id| query.bind(run_id.clone()));
            query.execute(&mut *transaction).await?;
        }
        fault::point("sweep.before_commit")?;
        transaction.commit().await?;
        fault::point("sweep.after_commit")?;
        Ok(old.len() as u64)
    }

    /// A run's first commit says that its catalog is used, so one that is being begun keeps its own.
    async fn drop_some_catalogs(&self, unused_since: Millis) -> Result<u64, StoreError> {
        let dropped = sqlx::query(
            "DELETE FROM catalogs WHERE used_at < $1 AND hash IN (SELECT hash FROM catalogs WHERE used_at < $1 \
             AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.catalog = catalogs.hash) LIMIT $2)",
        )
        .bind(unused_since)
        .bind(CATALOGS_A_BATCH)
        .execute(self.writer(Durability::Relaxed))
        .await?;
        Ok(dropped.rows_affected())
    }

    async fn drop_some_entries(&self, then: Millis) -> Result<u64, StoreError> {
        let dropped = sqlx::query(
            "DELETE FROM transcript WHERE (session_id, position) IN \
             (SELECT session_id, position FROM transcript WHERE at < $1 ORDER BY at LIMIT $2)",
        )
        .bind(then)
        .bind(ENTRIES_A_BATCH)
        .execute(self.writer(Durability::Relaxed))
        .await?;
        Ok(dropped.rows_affected())
    }

    /// A server sees to it itself.
    async fn give_space_back(&self) -> Result<(), StoreError> {
        if self.dialect == Dialect::Sqlite {
            let pages = format!("PRAGMA incremental_vacuum({PAGES_A_SWEEP})");
            self.writer(Durability::Relaxed).execute(pages.as_str()).await?;
        }
        Ok(())
    }

    /// Until a batch is not full, or enough was done for one sweep.
    async fn in_batches<F>(&self, most: usize, full: u64, batch: impl Fn() -> F + Send) -> Result<u64, StoreError>
    where
        F: Future<Output = Result<u64, StoreError>> + Send,
    {
        let mut all = 0;
        for _ in 0..most {
            let some = batch().await?;
            all += some;
            if some < full {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(all)
    }

    /// What another has just now is left to them: two who sweep at once do not wait for each other.
    fn others_may_have_it(&self) -> &'static str {
        match self.dialect {
            Dialect::Sqlite => "",
            Dialect::Postgres => " FOR UPDATE SKIP LOCKED",
        }
    }
}

const DUE: &str =
    "expires_at <= $1 AND lease_until <= $1 AND (state = 'waiting' OR (state = 'running' AND lease_until > 0))";
