//! Leases: which process holds a run, and until when if it does not renew the lease.

use contract::ids::RunId;
use contract::scope::Scope;
use sqlx::Row;

use super::FencedRun;
use crate::Millis;
use crate::backend::{Backend, Durability};
use crate::error::StoreError;
use crate::rows::RunState;
use crate::sql::placeholders;

/// Why a run or a turn cannot be taken over.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    #[error("no such run or turn, or it has ended")]
    Unknown,
    #[error("another process is working on the run or turn")]
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
const RUNS_PER_STATEMENT: usize = 500;

pub(crate) async fn take(
    backend: &Backend,
    run_id: &RunId,
    holder: &str,
    now: Millis,
    lease_until: Millis,
) -> Result<FencedRun, LeaseError> {
    let mut transaction = backend.writer(Durability::Relaxed).begin().await?;
    let taken = sqlx::query(
        "UPDATE runs SET sequence = sequence + 1, fence = fence + 1, holder = $1, lease_until = $2 \
         WHERE run_id = $3 AND state IN ('running', 'waiting') AND (lease_until < $4 OR holder = $1)",
    )
    .bind(holder.to_owned())
    .bind(lease_until)
    .bind(run_id.to_string())
    .bind(now)
    .execute(&mut *transaction)
    .await?;
    let row = sqlx::query(
        "SELECT sequence, fence, definition, agent_id, session_id, agent_run_id, lease_until, state, client FROM runs \
         WHERE run_id = $1",
    )
    .bind(run_id.to_string())
    .fetch_optional(&mut *transaction)
    .await?;
    let Some(row) = row else { return Err(LeaseError::Unknown) };
    if taken.rows_affected() != 1 {
        let over = RunState::parse(&row.try_get::<String, _>(7)?)?.is_over();
        return Err(if over { LeaseError::Unknown } else { LeaseError::HeldElsewhere { until: row.try_get(6)? } });
    }
    fault::point("wait.before_take")?;
    fault::commit_result(transaction.commit().await)?;
    fault::point("wait.after_take")?;
    Ok(FencedRun {
        run_id: run_id.clone(),
        scope: Scope {
            agent_id: row.try_get(3)?,
            session_id: row.try_get(4)?,
            agent_run_id: row.try_get(5)?,
            client: row.try_get(8)?,
            ..Scope::default()
        },
        sequence: row.try_get(0)?,
        fence: row.try_get(1)?,
        definition: row.try_get(2)?,
        unwritten: None,
    })
}

pub(crate) async fn take_forcibly(
    backend: &Backend,
    run_id: &RunId,
    holder: &str,
    lease_until: Millis,
) -> Result<FencedRun, LeaseError> {
    take(backend, run_id, holder, Millis::MAX, lease_until).await
}

pub(crate) async fn release_run(backend: &Backend, held: &FencedRun) -> Result<(), StoreError> {
    sqlx::query("UPDATE runs SET lease_until = 0 WHERE run_id = $1 AND fence = $2")
        .bind(held.run_id.to_string())
        .bind(held.fence)
        .execute(backend.writer(Durability::Relaxed))
        .await?;
    Ok(())
}

pub(crate) async fn extend_lease(backend: &Backend, held: &FencedRun, lease_until: Millis) -> Result<bool, StoreError> {
    if !held.is_written() {
        return Ok(true);
    }
    let still = sqlx::query(
        "UPDATE runs SET lease_until = $1 WHERE run_id = $2 AND fence = $3 AND state IN ('running', 'waiting')",
    )
    .bind(lease_until)
    .bind(held.run_id.to_string())
    .bind(held.fence)
    .execute(backend.writer(Durability::Relaxed))
    .await?;
    Ok(still.rows_affected() == 1)
}

pub(crate) async fn renew(
    backend: &Backend,
    holder: &str,
    runs: &[RunId],
    lease_until: Millis,
) -> Result<u64, StoreError> {
    let mut renewed = 0;
    for batch in runs.chunks(RUNS_PER_STATEMENT) {
        let sql = format!(
            "UPDATE runs SET lease_until = $1 WHERE run_id IN ({}) AND holder = $2 AND lease_until > 0 \
             AND state IN ('running', 'waiting')",
            placeholders(3, batch.len())
        );
        let mut query = sqlx::query(&sql).bind(lease_until).bind(holder.to_owned());
        for run_id in batch {
            query = query.bind(run_id.to_string());
        }
        renewed += query.execute(backend.writer(Durability::Relaxed)).await?.rows_affected();
    }
    fault::point("renew.after_update")?;
    Ok(renewed)
}

pub(crate) async fn lost(backend: &Backend, holder: &str, runs: &[RunId]) -> Result<Vec<RunId>, StoreError> {
    let mut lost = Vec::new();
    for batch in runs.chunks(RUNS_PER_STATEMENT) {
        let sql = format!(
            "SELECT run_id FROM runs WHERE run_id IN ({}) AND (holder <> $1 OR state NOT IN ('running', 'waiting'))",
            placeholders(2, batch.len())
        );
        let mut query = sqlx::query(&sql).bind(holder.to_owned());
        for run_id in batch {
            query = query.bind(run_id.to_string());
        }
        for row in query.fetch_all(backend.reader()).await? {
            lost.push(row.try_get::<String, _>(0)?.into());
        }
    }
    Ok(lost)
}

pub(crate) async fn release(backend: &Backend, holder: &str) -> Result<u64, StoreError> {
    let released = sqlx::query("UPDATE runs SET lease_until = 0 WHERE holder = $1 AND lease_until > 0")
        .bind(holder.to_owned())
        .execute(backend.writer(Durability::Relaxed))
        .await?;
    Ok(released.rows_affected())
}

pub(crate) async fn prolong(backend: &Backend, run_id: &RunId, expires_at: Millis) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE runs SET expires_at = $1 WHERE run_id = $2 AND expires_at < $1 AND state IN ('running', 'waiting')",
    )
    .bind(expires_at)
    .bind(run_id.to_string())
    .execute(backend.writer(Durability::Relaxed))
    .await?;
    Ok(())
}
