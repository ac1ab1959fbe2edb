//! Quotas: how much one principal may store at once, checked in the transaction that uses it.
//!
//! A `usage` row is an upper bound on what its principal stores: new data is added to it, deleted data is not
//! subtracted. So the usual check is one cheap update. Only when that update would exceed a limit is everything
//! counted, under the row's lock, so that concurrent transactions for the last free slot take turns.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use contract::config::Quotas;
use sqlx::{AnyConnection, Row};

use crate::Millis;
use crate::commit::{Change, CommitError};
use crate::rows::RunState;
use crate::runs::FencedRun;

/// How long a count is used before everything is counted again: processes of an older version do not update it.
const COUNT_KEPT_MS: i64 = 10 * 60 * 1000;

/// How many runs the error message lists.
const MAX_NAMED: i64 = 3;

/// A limit on what one principal may store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    WaitingRuns,
    /// The sum of suspended cells and the journals of all stored runs.
    StoredBytes,
    OpenApprovals,
}

/// A change would exceed a quota of its principal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exceeded {
    pub quota: Quota,
    pub limit: u64,
    /// Some of the principal's suspended runs, oldest first.
    pub oldest: Vec<String>,
}

impl std::error::Error for Exceeded {}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = self.limit;
        match self.quota {
            Quota::WaitingRuns => write!(f, "too many waiting cells: one principal may have {limit}")?,
            Quota::StoredBytes => write!(
                f,
                "suspended cells and recorded calls need too much storage: one principal may store {limit} bytes \
                 (`store.perPrincipal.maxStoredBytes`); ended runs are kept for `store.keepRunsSeconds`"
            )?,
            Quota::OpenApprovals => {
                return write!(
                    f,
                    "too many pending approvals: one principal may have {limit}; wait until an operator has decided \
                     some of them (`cellmate approvals list`), then call the tool again"
                );
            }
        }
        match self.oldest.as_slice() {
            [] => Ok(()),
            oldest => {
                write!(f, "; finish other cells with `wait` or end them, then retry; the oldest: {}", oldest.join(", "))
            }
        }
    }
}

/// The quota that a change uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    runs: i64,
    snapshot_bytes: i64,
    journal_bytes: i64,
    approvals: i64,
}

impl Claim {
    /// Returns what the change uses; `None` if nothing. An ended run no longer waits, but its journal is kept.
    pub(crate) fn of(change: &Change, sealed: Option<&(i64, Vec<u8>)>) -> Option<Self> {
        let length = |length: usize| i64::try_from(length).unwrap_or(i64::MAX);
        let is_over = change.state.is_some_and(RunState::is_over);
        let snapshot = sealed.filter(|_| !is_over).map_or(0, |(_, bytes)| length(bytes.len()));
        let claim = Self {
            runs: i64::from(change.state == Some(RunState::Waiting)),
            snapshot_bytes: snapshot,
            journal_bytes: change.journal_bytes.max(0),
            approvals: if is_over { 0 } else { length(change.approvals.len()) },
        };
        (claim.journal_bytes > 0 || !claim.can_be_deferred()).then_some(claim)
    }

    /// Whether the claim is for journal bytes only.
    fn can_be_deferred(&self) -> bool {
        self.runs + self.snapshot_bytes + self.approvals == 0
    }

    fn bytes(&self) -> i64 {
        self.snapshot_bytes.saturating_add(self.journal_bytes)
    }
}

/// Journal bytes that each principal has written and that are not in its row of `usage` yet.
///
/// Most commits add a few hundred bytes of journal. Adding them to `usage` one commit at a time would cost a statement
/// each, so a process collects them and adds them with the next claim for something else, or once they come to
/// [`MAX_DEFERRED_BYTES`]. If the process dies, at most that much is missing until the next full count.
#[derive(Debug, Default)]
pub(crate) struct DeferredBytes(Mutex<HashMap<String, i64>>);

/// Bytes that one process may defer for one principal; a small quota allows less ([`DeferredBytes::due`]).
const MAX_DEFERRED_BYTES: i64 = 64 << 10;

/// Principals for which one process defers bytes; for further ones every claim is taken at once.
const MAX_DEFERRING_PRINCIPALS: usize = 1_024;

impl DeferredBytes {
    /// Returns the claim to take now, with the bytes deferred before, or `None` if it is deferred.
    pub(crate) fn due(&self, agent_id: &str, claim: Claim, quotas: &Quotas) -> Option<Claim> {
        let most = i64::try_from(quotas.stored_bytes / 16).unwrap_or(i64::MAX).min(MAX_DEFERRED_BYTES);
        let mut deferred = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = deferred.get(agent_id).copied().unwrap_or(0);
        let bytes = before.saturating_add(claim.journal_bytes);
        let has_place = before > 0 || deferred.len() < MAX_DEFERRING_PRINCIPALS;
        if claim.can_be_deferred() && bytes <= most && has_place {
            deferred.insert(agent_id.to_owned(), bytes);
            return None;
        }
        deferred.remove(agent_id);
        Some(Claim { journal_bytes: bytes, ..claim })
    }
}

/// Adds the claim to the principal's usage, or fails if a quota would be exceeded. Must be called after the change's
/// rows are written, because a full count includes them.
pub(crate) async fn take(
    connection: &mut AnyConnection,
    held: &FencedRun,
    claim: Claim,
    quotas: &Quotas,
    now: Millis,
) -> Result<(), CommitError> {
    let most = |limit: u64| i64::try_from(limit).unwrap_or(i64::MAX);
    let limits = [most(quotas.waiting_runs), most(quotas.stored_bytes), most(quotas.open_approvals)];
    let agent_id = &held.scope.agent_id;
    let taken = sqlx::query(
        "UPDATE usage SET waiting_runs = waiting_runs + $1, snapshot_bytes = snapshot_bytes + $2, \
         open_approvals = open_approvals + $3 WHERE agent_id = $4 AND waiting_runs <= $5 AND snapshot_bytes <= $6 \
         AND open_approvals <= $7 AND counted_at > $8",
    )
    .bind(claim.runs)
    .bind(claim.bytes())
    .bind(claim.approvals)
    .bind(agent_id.clone())
    .bind(limits[0].saturating_sub(claim.runs))
    .bind(limits[1].saturating_sub(claim.bytes()))
    .bind(limits[2].saturating_sub(claim.approvals))
    .bind(now.saturating_sub(COUNT_KEPT_MS))
    .execute(&mut *connection)
    .await?;
    if taken.rows_affected() == 1 {
        return Ok(());
    }
    let has = count(connection, agent_id, now).await?;
    let claims = [claim.runs, claim.bytes(), claim.approvals];
    let named = [Quota::WaitingRuns, Quota::StoredBytes, Quota::OpenApprovals];
    let over = claims.iter().zip(has).zip(limits).position(|((claim, has), limit)| *claim > 0 && has > limit);
    if let Some((quota, limit)) = over.and_then(|place| Some((*named.get(place)?, *limits.get(place)?))) {
        let oldest = oldest(connection, held).await?;
        return Err(CommitError::Quota(Box::new(Exceeded { quota, limit: u64::try_from(limit).unwrap_or(0), oldest })));
    }
    sqlx::query(
        "UPDATE usage SET waiting_runs = $1, snapshot_bytes = $2, open_approvals = $3, counted_at = $4 \
         WHERE agent_id = $5",
    )
    .bind(has[0])
    .bind(has[1])
    .bind(has[2])
    .bind(now)
    .bind(agent_id.clone())
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
         CAST(COALESCE(SUM(length(snapshot)), 0) + COALESCE(SUM(journal_bytes), 0) AS BIGINT) FROM runs \
         WHERE agent_id = $1",
    )
    .bind(agent_id.to_owned())
    .fetch_one(&mut *connection)
    .await?;
    let (runs, bytes) = (row.try_get(0)?, row.try_get(1)?);
    let row =
        sqlx::query("SELECT COUNT(*) FROM approvals WHERE agent_id = $1 AND state = 'pending' AND expires_at > $2")
            .bind(agent_id.to_owned())
            .bind(now)
            .fetch_one(&mut *connection)
            .await?;
    Ok([runs, bytes, row.try_get(0)?])
}

async fn oldest(connection: &mut AnyConnection, held: &FencedRun) -> Result<Vec<String>, CommitError> {
    let rows = sqlx::query(
        "SELECT run_id FROM runs WHERE agent_id = $1 AND state = 'waiting' AND run_id <> $2 \
         ORDER BY created_at, run_id LIMIT $3",
    )
    .bind(held.scope.agent_id.clone())
    .bind(held.run_id.clone())
    .bind(MAX_NAMED)
    .fetch_all(&mut *connection)
    .await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(bytes: i64) -> Claim {
        Claim { runs: 0, snapshot_bytes: 0, journal_bytes: bytes, approvals: 0 }
    }

    #[test]
    fn small_journal_claims_are_deferred_until_they_reach_the_limit() {
        let deferred = DeferredBytes::default();
        let claims = [30 << 10, 30 << 10, 30 << 10].map(|bytes| deferred.due("ada", journal(bytes), &Quotas::DEFAULT));
        assert!(claims[0].is_none() && claims[1].is_none());
        assert_eq!(claims[2].map(|claim| claim.bytes()), Some(90 << 10));
        assert!(deferred.due("ada", journal(1), &Quotas::DEFAULT).is_none(), "counting starts again from zero");
    }

    #[test]
    fn a_claim_for_a_waiting_run_takes_the_deferred_bytes_along() {
        let deferred = DeferredBytes::default();
        assert!(deferred.due("ada", journal(100), &Quotas::DEFAULT).is_none());
        let claim = Claim { runs: 1, snapshot_bytes: 10, ..journal(5) };
        assert_eq!(deferred.due("bob", claim, &Quotas::DEFAULT).map(|claim| claim.bytes()), Some(15));
        assert_eq!(deferred.due("ada", claim, &Quotas::DEFAULT).map(|claim| claim.bytes()), Some(115));
    }

    #[test]
    fn a_small_quota_defers_at_most_a_sixteenth_of_itself() {
        let deferred = DeferredBytes::default();
        let quotas = Quotas { stored_bytes: 160, ..Quotas::DEFAULT };
        assert!(deferred.due("ada", journal(10), &quotas).is_none());
        assert!(deferred.due("ada", journal(1), &quotas).is_some());
    }
}
