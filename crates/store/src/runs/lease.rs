//! Leases: which process holds a run, and until when if it does not renew the lease.

use contract::scope::Scope;
use sqlx::Row;

use super::FencedRun;
use crate::Millis;
use crate::backend::{Store, StoreError};
use crate::commit::{Durability, list};
use crate::rows::RunState;

/// Why a run cannot be taken over.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    #[error("no such run")]
    Unknown,
    #[error("another process is working on the run")]
    HeldElsewhere { until: Millis },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for LeaseError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

/// The most runs per statement.
const RUNS_A_STATEMENT: usize = 500;

impl Store {
    /// Takes over a live run whose lease has expired or belongs to `holder`. The previous holder can no longer change
    /// the run.
    pub async fn take(
        &self,
        run_id: &str,
        holder: &str,
        now: Millis,
        lease_until: Millis,
    ) -> Result<FencedRun, LeaseError> {
        let mut transaction = self.writer(Durability::Relaxed).begin().await?;
        let taken = sqlx::query(
            "UPDATE runs SET sequence = sequence + 1, fence = fence + 1, holder = $1, lease_until = $2 \
             WHERE run_id = $3 AND state IN ('running', 'waiting') AND (lease_until < $4 OR holder = $1)",
        )
        .bind(holder.to_owned())
        .bind(lease_until)
        .bind(run_id.to_owned())
        .bind(now)
        .execute(&mut *transaction)
        .await?;
        let row = sqlx::query(
            "SELECT sequence, fence, definition, agent_id, session_id, agent_run_id, lease_until, state FROM runs \
             WHERE run_id = $1",
        )
        .bind(run_id.to_owned())
        .fetch_optional(&mut *transaction)
        .await?;
        let Some(row) = row else { return Err(LeaseError::Unknown) };
        if taken.rows_affected() != 1 {
            let over = RunState::parse(&row.try_get::<String, _>(7)?)?.is_over();
            return Err(if over { LeaseError::Unknown } else { LeaseError::HeldElsewhere { until: row.try_get(6)? } });
        }
        fault::point("wait.before_take")?;
        fault::commit_answer(transaction.commit().await)?;
        fault::point("wait.after_take")?;
        Ok(FencedRun {
            run_id: run_id.to_owned(),
            scope: Scope {
                agent_id: row.try_get(3)?,
                session_id: row.try_get(4)?,
                agent_run_id: row.try_get(5)?,
                ..Scope::default()
            },
            sequence: row.try_get(0)?,
            fence: row.try_get(1)?,
            definition: row.try_get(2)?,
            unwritten: None,
        })
    }

    /// Takes over a run even if another process has a valid lease; used to abort a run at once.
    pub async fn take_forcibly(
        &self,
        run_id: &str,
        holder: &str,
        lease_until: Millis,
    ) -> Result<FencedRun, LeaseError> {
        self.take(run_id, holder, Millis::MAX, lease_until).await
    }

    /// Releases a run that was taken over but not changed.
    pub async fn release_run(&self, held: &FencedRun) -> Result<(), StoreError> {
        sqlx::query("UPDATE runs SET lease_until = 0 WHERE run_id = $1 AND fence = $2")
            .bind(held.run_id.clone())
            .bind(held.fence)
            .execute(self.writer(Durability::Relaxed))
            .await?;
        Ok(())
    }

    /// Extends a lease that may have expired. Returns `false` if another process has taken over the run or it has
    /// ended.
    pub async fn extend_lease(&self, held: &FencedRun, lease_until: Millis) -> Result<bool, StoreError> {
        if !held.is_written() {
            return Ok(true);
        }
        let still = sqlx::query(
            "UPDATE runs SET lease_until = $1 WHERE run_id = $2 AND fence = $3 AND state IN ('running', 'waiting')",
        )
        .bind(lease_until)
        .bind(held.run_id.clone())
        .bind(held.fence)
        .execute(self.writer(Durability::Relaxed))
        .await?;
        Ok(still.rows_affected() == 1)
    }

    /// Renews the leases of a holder's runs and returns how many were renewed. Runs that it has released or lost are
    /// not renewed.
    pub async fn renew(&self, holder: &str, runs: &[String], lease_until: Millis) -> Result<u64, StoreError> {
        let mut renewed = 0;
        for batch in runs.chunks(RUNS_A_STATEMENT) {
            let sql = format!(
                "UPDATE runs SET lease_until = $1 WHERE run_id IN ({}) AND holder = $2 AND lease_until > 0 \
                 AND state IN ('running', 'waiting')",
                list(3, batch.len())
            );
            let mut query = sqlx::query(&sql).bind(lease_until).bind(holder.to_owned());
            for run_id in batch {
                query = query.bind(run_id.clone());
            }
            renewed += query.execute(self.writer(Durability::Relaxed)).await?.rows_affected();
        }
        fault::point("renew.after_update")?;
        Ok(renewed)
    }

    /// Returns which of these runs another process has taken over, or have ended. Runs that are not in the store yet
    /// are not returned.
    pub async fn lost(&self, holder: &str, runs: &[String]) -> Result<Vec<String>, StoreError> {
        let mut lost = Vec::new();
        for batch in runs.chunks(RUNS_A_STATEMENT) {
            let sql = format!(
                "SELECT run_id FROM runs WHERE run_id IN ({}) AND (holder <> $1 OR state NOT IN ('running', 'waiting'))",
                list(2, batch.len())
            );
            let mut query = sqlx::query(&sql).bind(holder.to_owned());
            for run_id in batch {
                query = query.bind(run_id.clone());
            }
            for row in query.fetch_all(self.reader()).await? {
                lost.push(row.try_get(0)?);
            }
        }
        Ok(lost)
    }

    /// Releases all runs of a holder, so that other processes can take them over before the leases expire.
    pub async fn release(&self, holder: &str) -> Result<u64, StoreError> {
        let released = sqlx::query("UPDATE runs SET lease_until = 0 WHERE holder = $1 AND lease_until > 0")
            .bind(holder.to_owned())
            .execute(self.writer(Durability::Relaxed))
            .await?;
        Ok(released.rows_affected())
    }

    /// Postpones a run's expiry, for example because an outcome arrived for it. Never moves it earlier.
    pub async fn prolong(&self, run_id: &str, expires_at: Millis) -> Result<(), StoreError> {
        sqlx::query(
            "UPDATE runs SET expires_at = $1 WHERE run_id = $2 AND expires_at < $1 AND state IN ('running', 'waiting')",
        )
        .bind(expires_at)
        .bind(run_id.to_owned())
        .execute(self.writer(Durability::Relaxed))
        .await?;
        Ok(())
    }
}
