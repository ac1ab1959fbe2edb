//! What is over is put away: expired runs lose their cells, old ones go altogether.

use crate::Millis;
use crate::backend::{Store, StoreError};
use crate::commit::Durability;
use crate::fault;

impl Store {
    /// Ends runs whose time is over and that nobody works on: who holds a run sees to its end, and who
    /// makes a call without a cell needs no lease to. The fence moves with it, or a holder whose commit was lost
    /// would take this change for its own. Safe to repeat, and to do from many processes.
    pub async fn expire(&self, now: Millis) -> Result<u64, StoreError> {
        let expired = sqlx::query(
            "UPDATE runs SET sequence = sequence + 1, fence = fence + 1, state = 'expired', snapshot = NULL, lease_until = 0, \
             updated_at = $1 WHERE expires_at <= $1 AND lease_until <= $1 \
             AND (state = 'waiting' OR (state = 'running' AND lease_until > 0))",
        )
        .bind(now)
        .execute(self.writer(Durability::Relaxed))
        .await?;
        fault::point("sweep.after_expire")?;
        self.void_approvals(now).await?;
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

    /// Forgets runs that ended before then, with their journals; transcripts are kept.
    pub async fn forget_before(&self, then: Millis) -> Result<u64, StoreError> {
        let mut transaction = self.writer(Durability::Relaxed).begin().await?;
        let old = "SELECT run_id FROM runs WHERE state NOT IN ('running', 'waiting') AND updated_at < $1";
        for table in ["legs", "calls", "approvals"] {
            sqlx::query(&format!("DELETE FROM {table} WHERE run_id IN ({old})"))
                .bind(then)
                .execute(&mut *transaction)
                .await?;
        }
        fault::point("sweep.in_forget")?;
        let gone = sqlx::query(&format!("DELETE FROM runs WHERE run_id IN ({old})"))
            .bind(then)
            .execute(&mut *transaction)
            .await?;
        sqlx::query("DELETE FROM catalogs WHERE hash NOT IN (SELECT catalog FROM runs)")
            .execute(&mut *transaction)
            .await?;
        fault::point("sweep.before_commit")?;
        transaction.commit().await?;
        fault::point("sweep.after_commit")?;
        Ok(gone.rows_affected())
    }
}
