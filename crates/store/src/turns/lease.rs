//! Leases of turns: taking a turn over ([`crate::lease`]).

use contract::ids::TurnId;
use sqlx::Row;

use super::limits::TurnTotals;
use super::{HeldTurn, TurnState};
use crate::Millis;
use crate::backend::{Backend, Durability};
use crate::lease::{LeaseError, TURNS};

pub(crate) async fn take(
    backend: &Backend,
    turn_id: &TurnId,
    holder: &str,
    now: Millis,
    lease_until: Millis,
) -> Result<HeldTurn, LeaseError> {
    let mut transaction = backend.writer(Durability::Relaxed).begin().await?;
    let is_taken = TURNS.take(&mut transaction, turn_id.as_str(), holder, now, lease_until).await?;
    let row = sqlx::query(
        "SELECT sequence, fence, principal, agent_id, session_id, lease_until, state, steps, bytes, \
         (SELECT COUNT(*) FROM deliveries WHERE deliveries.turn_id = turns.turn_id) FROM turns WHERE turn_id = $1",
    )
    .bind(turn_id.to_string())
    .fetch_optional(&mut *transaction)
    .await?;
    let Some(row) = row else { return Err(LeaseError::Unknown) };
    if !is_taken {
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
