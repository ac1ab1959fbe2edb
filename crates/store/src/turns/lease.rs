//! Leases of turns: which process works on a turn, and until when if it does not renew the lease.

use contract::ids::TurnId;
use sqlx::Row;

use super::limits::TurnTotals;
use super::{HeldTurn, TurnState};
use crate::Millis;
use crate::backend::{Backend, Durability};
use crate::error::StoreError;
use crate::runs::LeaseError;
use crate::sql::placeholders;

/// The most turns per statement.
const TURNS_PER_STATEMENT: usize = 500;

pub(crate) async fn take(
    backend: &Backend,
    turn_id: &TurnId,
    holder: &str,
    now: Millis,
    lease_until: Millis,
) -> Result<HeldTurn, LeaseError> {
    let mut transaction = backend.writer(Durability::Relaxed).begin().await?;
    let taken = sqlx::query(
        "UPDATE turns SET sequence = sequence + 1, fence = fence + 1, holder = $1, lease_until = $2 \
         WHERE turn_id = $3 AND state IN ('running', 'waiting') AND (lease_until < $4 OR holder = $1)",
    )
    .bind(holder.to_owned())
    .bind(lease_until)
    .bind(turn_id.to_string())
    .bind(now)
    .execute(&mut *transaction)
    .await?;
    let row = sqlx::query(
        "SELECT sequence, fence, principal, agent_id, session_id, lease_until, state, steps, bytes, \
         (SELECT COUNT(*) FROM deliveries WHERE deliveries.turn_id = turns.turn_id) FROM turns WHERE turn_id = $1",
    )
    .bind(turn_id.to_string())
    .fetch_optional(&mut *transaction)
    .await?;
    let Some(row) = row else { return Err(LeaseError::Unknown) };
    if taken.rows_affected() != 1 {
        let is_over = TurnState::parse(&row.try_get::<String, _>(6)?)?.is_over();
        return Err(if is_over { LeaseError::Unknown } else { LeaseError::HeldElsewhere { until: row.try_get(5)? } });
    }
    fault::commit_result(transaction.commit().await)?;
    let count = |number: i64| usize::try_from(number).unwrap_or(usize::MAX);
    Ok(HeldTurn {
        turn_id: turn_id.clone(),
        principal: row.try_get(2)?,
        agent_id: row.try_get(3)?,
        session_id: row.try_get(4)?,
        holder: holder.to_owned(),
        sequence: row.try_get(0)?,
        fence: row.try_get(1)?,
        totals: TurnTotals {
            steps: count(row.try_get(7)?),
            bytes: count(row.try_get(8)?),
            deliveries: count(row.try_get(9)?),
        },
    })
}

pub(crate) async fn take_forcibly(
    backend: &Backend,
    turn_id: &TurnId,
    holder: &str,
    lease_until: Millis,
) -> Result<HeldTurn, LeaseError> {
    take(backend, turn_id, holder, Millis::MAX, lease_until).await
}

pub(crate) async fn renew(
    backend: &Backend,
    holder: &str,
    turns: &[TurnId],
    lease_until: Millis,
) -> Result<u64, StoreError> {
    let mut renewed = 0;
    for batch in turns.chunks(TURNS_PER_STATEMENT) {
        let sql = format!(
            "UPDATE turns SET lease_until = $1 WHERE turn_id IN ({}) AND holder = $2 AND lease_until > 0 \
             AND state IN ('running', 'waiting')",
            placeholders(3, batch.len())
        );
        let query = sqlx::query(&sql).bind(lease_until).bind(holder.to_owned());
        let query = batch.iter().fold(query, |query, turn_id| query.bind(turn_id.to_string()));
        renewed += query.execute(backend.writer(Durability::Relaxed)).await?.rows_affected();
    }
    Ok(renewed)
}

pub(crate) async fn lost(backend: &Backend, holder: &str, turns: &[TurnId]) -> Result<Vec<TurnId>, StoreError> {
    let mut lost = Vec::new();
    for batch in turns.chunks(TURNS_PER_STATEMENT) {
        let sql =
            format!("SELECT turn_id FROM turns WHERE turn_id IN ({}) AND holder <> $1", placeholders(2, batch.len()));
        let query = sqlx::query(&sql).bind(holder.to_owned());
        let query = batch.iter().fold(query, |query, turn_id| query.bind(turn_id.to_string()));
        for row in query.fetch_all(backend.reader()).await? {
            lost.push(row.try_get::<String, _>(0)?.into());
        }
    }
    Ok(lost)
}

pub(crate) async fn release(backend: &Backend, holder: &str) -> Result<u64, StoreError> {
    let released = sqlx::query("UPDATE turns SET lease_until = 0 WHERE holder = $1 AND lease_until > 0")
        .bind(holder.to_owned())
        .execute(backend.writer(Durability::Relaxed))
        .await?;
    Ok(released.rows_affected())
}
