//! Leases of runs: taking a run over, and what only runs need besides ([`crate::lease`]).

use contract::ids::RunId;
use contract::scope::Scope;
use sqlx::Row;

use super::FencedRun;
use crate::Millis;
use crate::backend::{Backend, Durability};
use crate::error::StoreError;
use crate::lease::{LeaseError, RUNS};
use crate::rows::RunState;

pub(crate) async fn take(
    backend: &Backend,
    run_id: &RunId,
    holder: &str,
    now: Millis,
    lease_until: Millis,
) -> Result<FencedRun, LeaseError> {
    let mut transaction = backend.writer(Durability::Relaxed).begin().await?;
    let is_taken = RUNS.take(&mut transaction, run_id.as_str(), holder, now, lease_until).await?;
    let row = sqlx::query(
        "SELECT sequence, fence, definition, agent_id, session_id, agent_run_id, lease_until, state, client FROM runs \
         WHERE run_id = $1",
    )
    .bind(run_id.to_string())
    .fetch_optional(&mut *transaction)
    .await?;
    let Some(row) = row else { return Err(LeaseError::Unknown) };
    if !is_taken {
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

/// Whether a process held the run and its lease has expired or was released.
pub(crate) async fn is_abandoned(backend: &Backend, run_id: &RunId, now: Millis) -> Result<bool, StoreError> {
    let row = sqlx::query("SELECT lease_until FROM runs WHERE run_id = $1 AND holder <> ''").bind(run_id.to_string());
    let row = row.fetch_optional(backend.reader()).await?;
    Ok(row.map(|row| row.try_get::<Millis, _>(0)).transpose()?.is_some_and(|until| until < now))
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
    let renewed = RUNS.renew(backend, holder, runs, lease_until).await?;
    fault::point("renew.after_update")?;
    Ok(renewed)
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
