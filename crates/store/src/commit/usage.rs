//! The usage of principals, checked against their quotas in the transaction that adds to it.
//!
//! A `usage` row is an upper bound on what its principal stores: new data is added to it, deleted data is not
//! subtracted. So the usual check is one cheap update. Only when that update would exceed a limit is everything
//! counted, under the row's lock, so that concurrent transactions for the last free slot take turns.

use contract::config::Quotas;
use contract::ids::RunId;
use sqlx::{AnyConnection, Row};

use super::{Change, CommitError};
use crate::Millis;
use crate::quota::{Claim, Quota, QuotaExceeded};
use crate::rows::RunState;
use crate::runs::FencedRun;
use crate::session_values;
use crate::statement::Statement;

/// How long a count is used before everything is counted again: processes of an older version do not update it.
const COUNT_KEPT_MS: i64 = 10 * 60 * 1000;

/// How many runs the error message lists.
const MAX_NAMED: i64 = 3;

/// Returns what the change uses; `None` if nothing. An ended run no longer waits, but its journal and its outputs are
/// kept. `finished` are the bytes of the outputs that the change completes.
pub(super) fn claim_of(change: &Change, sealed: Option<&(i64, Vec<u8>)>, finished: i64) -> Option<Claim> {
    let length = |length: usize| i64::try_from(length).unwrap_or(i64::MAX);
    let outputs = change.outputs.iter().map(|output| length(output.data.len()));
    let values = change.values.iter().map(|write| write.totals().stored_bytes());
    let kept = outputs.chain(values).fold(finished, i64::saturating_add);
    let is_over = change.state.is_some_and(RunState::is_over);
    let snapshot = sealed.filter(|_| !is_over).map_or(0, |(_, bytes)| length(bytes.len()));
    let claim = Claim {
        runs: i64::from(change.state == Some(RunState::Waiting)),
        snapshot_bytes: snapshot,
        kept_bytes: change.journal_bytes.max(0).saturating_add(kept),
        approvals: if is_over { 0 } else { length(change.approvals.len()) },
    };
    (claim.kept_bytes > 0 || !claim.can_be_deferred()).then_some(claim)
}

/// The principal that a claim is for, and the run that makes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claimant<'a> {
    pub(crate) agent_id: &'a str,
    pub(crate) run_id: Option<&'a RunId>,
}

impl<'a> From<&'a FencedRun> for Claimant<'a> {
    fn from(held: &'a FencedRun) -> Self {
        Self { agent_id: &held.scope.agent_id, run_id: Some(&held.run_id) }
    }
}

fn limits(quotas: &Quotas) -> [i64; 3] {
    [quotas.waiting_runs, quotas.stored_bytes, quotas.open_approvals]
        .map(|limit| i64::try_from(limit).unwrap_or(i64::MAX))
}

/// Returns the update that adds the claim to the principal's usage. It changes no row if a quota might be exceeded, or
/// if the usage was not counted recently.
pub(super) fn addition<'a>(agent_id: &'a str, claim: Claim, quotas: &Quotas, now: Millis) -> Statement<'a> {
    let [runs, bytes, approvals] = limits(quotas);
    Statement::new(
        "UPDATE usage SET waiting_runs = waiting_runs + $1, snapshot_bytes = snapshot_bytes + $2, \
         open_approvals = open_approvals + $3 WHERE agent_id = $4 AND waiting_runs <= $5 AND snapshot_bytes <= $6 \
         AND open_approvals <= $7 AND counted_at > $8",
    )
    .bind(claim.runs)
    .bind(claim.bytes())
    .bind(claim.approvals)
    .bind(agent_id)
    .bind(runs.saturating_sub(claim.runs))
    .bind(bytes.saturating_sub(claim.bytes()))
    .bind(approvals.saturating_sub(claim.approvals))
    .bind(now.saturating_sub(COUNT_KEPT_MS))
}

/// Adds the claim to the principal's usage, or fails if a quota would be exceeded. Must be called after the change's
/// rows are written, because a full count includes them.
pub(crate) async fn take(
    connection: &mut AnyConnection,
    claimant: Claimant<'_>,
    claim: Claim,
    quotas: &Quotas,
    now: Millis,
) -> Result<(), CommitError> {
    let agent_id = claimant.agent_id;
    if addition(agent_id, claim, quotas, now).execute(&mut *connection).await? == 1 {
        return Ok(());
    }
    let has = count(connection, agent_id, now).await?;
    let limits = limits(quotas);
    let claims = [claim.runs, claim.bytes(), claim.approvals];
    let named = [Quota::WaitingRuns, Quota::StoredBytes, Quota::OpenApprovals];
    let over = claims.iter().zip(has).zip(limits).position(|((claim, has), limit)| *claim > 0 && has > limit);
    if let Some((quota, limit)) = over.and_then(|place| Some((*named.get(place)?, *limits.get(place)?))) {
        let oldest = oldest(connection, claimant).await?;
        return Err(CommitError::Quota(Box::new(QuotaExceeded {
            quota,
            limit: u64::try_from(limit).unwrap_or(0),
            oldest,
        })));
    }
    sqlx::query(
        "UPDATE usage SET waiting_runs = $1, snapshot_bytes = $2, open_approvals = $3, counted_at = $4 \
         WHERE agent_id = $5",
    )
    .bind(has[0])
    .bind(has[1])
    .bind(has[2])
    .bind(now)
    .bind(agent_id.to_owned())
    .execute(&mut *connection)
    .await?;
    Ok(())
}

/// Counts what a principal stores, including this transaction's writes. The lock on the `usage` row makes concurrent
/// counts for the same principal wait.
async fn count(connection: &mut AnyConnection, agent_id: &str, now: Millis) -> Result<[i64; 3], CommitError> {
    sqlx::query(
        "INSERT INTO usage (agent_id, waiting_runs, snapshot_bytes, open_approvals, counted_at) VALUES ($1, 0, 0, 0, 0) \
         ON CONFLICT (agent_id) DO UPDATE SET agent_id = excluded.agent_id",
    )
    .bind(agent_id.to_owned())
    .execute(&mut *connection)
    .await?;
    let row = sqlx::query(
        "SELECT CAST(COALESCE(SUM(CASE WHEN state = 'waiting' THEN 1 ELSE 0 END), 0) AS BIGINT), \
         CAST(COALESCE(SUM(length(snapshot)), 0) + COALESCE(SUM(journal_bytes), 0) + COALESCE(SUM(output_bytes), 0) \
         AS BIGINT) FROM runs WHERE agent_id = $1",
    )
    .bind(agent_id.to_owned())
    .fetch_one(&mut *connection)
    .await?;
    let (runs, bytes): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    let values = session_values::totals_of_agent(connection, agent_id).await?;
    let turns = sqlx::query("SELECT CAST(COALESCE(SUM(bytes), 0) AS BIGINT) FROM turns WHERE principal = $1")
        .bind(agent_id.to_owned())
        .fetch_one(&mut *connection)
        .await?;
    let bytes = bytes.saturating_add(values.stored_bytes()).saturating_add(turns.try_get(0)?);
    let row =
        sqlx::query("SELECT COUNT(*) FROM approvals WHERE agent_id = $1 AND state = 'pending' AND expires_at > $2")
            .bind(agent_id.to_owned())
            .bind(now)
            .fetch_one(&mut *connection)
            .await?;
    Ok([runs, bytes, row.try_get(0)?])
}

async fn oldest(connection: &mut AnyConnection, claimant: Claimant<'_>) -> Result<Vec<RunId>, CommitError> {
    let rows = sqlx::query(
        "SELECT run_id FROM runs WHERE agent_id = $1 AND state IN ('running', 'waiting') AND state = 'waiting' \
         AND run_id <> $2 ORDER BY created_at, run_id LIMIT $3",
    )
    .bind(claimant.agent_id.to_owned())
    .bind(claimant.run_id.map(ToString::to_string).unwrap_or_default())
    .bind(MAX_NAMED)
    .fetch_all(&mut *connection)
    .await?;
    rows.iter().map(|row| Ok(row.try_get::<String, _>(0)?.into())).collect()
}
