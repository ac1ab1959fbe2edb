//! One change of one run: everything it writes, or nothing, and only by whoever holds the run.

use sqlx::any::AnyArguments;
use sqlx::query::Query;
use sqlx::{Any, AnyConnection, Row};

use crate::approvals::ApprovalRequest;
use crate::backend::{Store, StoreError};
use crate::rows::{CallRow, LegRow, RunState};
use crate::runs::Held;
use crate::seal::Unsealable;
use crate::transcript::Entry;
use crate::{Millis, approvals, transcript};

/// What a commit must outlive before it returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// A loss of power: owed before anything that must not happen twice, and before a person is asked.
    #[default]
    Synced,
    /// The end of the process.
    Relaxed,
}

/// What changes. Fields left out stay as they are.
#[derive(Clone, Debug, Default)]
pub struct Change {
    pub state: Option<RunState>,
    pub expires_at: Option<Millis>,
    pub progress: Option<String>,
    /// The cell, frozen after this leg. It replaces the one before.
    pub snapshot: Option<(i64, Vec<u8>)>,
    pub result: Option<String>,
    /// Nobody works on the run any more: the next to ask may take it at once.
    pub release: bool,
    pub legs: Vec<LegRow>,
    pub calls: Vec<CallRow>,
    pub approvals: Vec<ApprovalRequest>,
    /// Approvals that this change makes use of; each can be used once.
    pub used_approvals: Vec<String>,
    pub entries: Vec<Entry>,
}

#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    #[error("the run has been taken over, or has ended")]
    Fenced,
    #[error("an approval was used before, or withdrawn")]
    ApprovalGone,
    #[error(transparent)]
    Seal(#[from] Unsealable),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for CommitError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

/// SQLite takes 32,766 parameters in a statement; rows are written in batches that stay far below.
pub(crate) const ROWS_A_STATEMENT: usize = 64;

impl Store {
    /// Writes a change. The run's sequence moves by one; where it is not where the holder left it, or the
    /// fence is another's, nothing is written.
    pub async fn commit(
        &self,
        held: &mut Held,
        change: &Change,
        durability: Durability,
        now: Millis,
    ) -> Result<(), CommitError> {
        let sealed = match &change.snapshot {
            Some((leg, snapshot)) => Some((*leg, self.keys.seal(snapshot, &held.binding(*leg))?)),
            None => None,
        };
        let mut transaction = self.writer(durability).begin().await?;
        held.move_on(&mut transaction, change, sealed, now).await?;
        write_legs(&mut transaction, &held.run_id, &change.legs).await?;
        write_calls(&mut transaction, &held.run_id, &change.calls).await?;
        approvals::write(&mut transaction, held, &change.approvals).await?;
        approvals::mark_used(&mut transaction, &change.used_approvals).await?;
        if change.state.is_some_and(RunState::is_over) {
            approvals::withdraw(&mut transaction, &held.run_id).await?;
        }
        transcript::write(&mut transaction, self.dialect, &held.scope.session_id, &held.run_id, &change.entries)
            .await?;
        if let Err(error) = transaction.commit().await {
            self.look_whether_it_was_written(held, error).await?;
        }
        held.moved_on();
        Ok(())
    }

    /// A commit whose answer was lost is looked for, never repeated.
    async fn look_whether_it_was_written(&self, held: &Held, error: sqlx::Error) -> Result<(), CommitError> {
        let row = sqlx::query("SELECT sequence, fence FROM runs WHERE run_id = $1")
            .bind(held.run_id.as_str())
            .fetch_optional(self.reader())
            .await?;
        let Some(row) = row else { return Err(error.into()) };
        let (sequence, fence): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        if (sequence, fence) == (held.sequence + 1, held.fence) { Ok(()) } else { Err(error.into()) }
    }
}

async fn write_legs(connection: &mut AnyConnection, run_id: &str, legs: &[LegRow]) -> Result<(), CommitError> {
    for batch in legs.chunks(ROWS_A_STATEMENT) {
        let sql = format!(
            "INSERT INTO legs (run_id, leg, clock_us, replies) VALUES {} ON CONFLICT (run_id, leg) DO NOTHING",
            places(batch.len(), 4)
        );
        let mut query = sqlx::query(&sql);
        for leg in batch {
            let replies: Vec<String> = leg.replies.iter().map(u32::to_string).collect();
            query = query
                .bind(run_id.to_owned())
                .bind(leg.leg)
                .bind(i64::try_from(leg.clock_us).unwrap_or(i64::MAX))
                .bind(replies.join(","));
        }
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

/// A call that somebody else has settled meanwhile stays settled.
async fn write_calls(connection: &mut AnyConnection, run_id: &str, calls: &[CallRow]) -> Result<(), CommitError> {
    for batch in calls.chunks(ROWS_A_STATEMENT) {
        let sql = format!(
            "INSERT INTO calls (run_id, call, leg, method, target, payload, input_hash, tool_id, tool_hash, input, state, \
             attempt, due_at, since, settle_order, outcome, reply, parent) VALUES {} ON CONFLICT (run_id, call) DO UPDATE SET \
             tool_id = excluded.tool_id, tool_hash = excluded.tool_hash, input = excluded.input, state = excluded.state, attempt = excluded.attempt, \
             due_at = excluded.due_at, settle_order = excluded.settle_order, outcome = excluded.outcome, \
             reply = excluded.reply \
             WHERE calls.state <> 'settled' OR excluded.state IN ('settled', 'delivered', 'cleared')",
            places(batch.len(), 18)
        );
        let mut query = sqlx::query(&sql);
        for call in batch {
            query = bind_call(query, run_id, call)?;
        }
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

type AnyQuery<'q> = Query<'q, Any, AnyArguments<'q>>;

fn bind_call<'q>(query: AnyQuery<'q>, run_id: &str, call: &CallRow) -> Result<AnyQuery<'q>, CommitError> {
    let reply = call.reply.as_ref().map(serde_json::to_string).transpose();
    let reply = reply.map_err(|error| StoreError::Corrupt(error.to_string()))?;
    Ok(query
        .bind(run_id.to_owned())
        .bind(i64::from(call.call))
        .bind(call.leg)
        .bind(call.method.clone())
        .bind(call.target.clone())
        .bind(call.payload.clone())
        .bind(call.input_hash.clone())
        .bind(call.tool_id.clone())
        .bind(call.tool_hash.clone())
        .bind(call.input.clone())
        .bind(call.state.as_str())
        .bind(call.attempt)
        .bind(call.due_at)
        .bind(call.since)
        .bind(call.settle_order)
        .bind(call.outcome.clone())
        .bind(reply)
        .bind(call.parent.clone()))
}

/// `($1, $2), ($3, $4)`
pub(crate) fn places(rows: usize, columns: usize) -> String {
    let row = |row: usize| {
        let places: Vec<String> = (1..=columns).map(|column| format!("${}", row * columns + column)).collect();
        format!("({})", places.join(", "))
    };
    (0..rows).map(row).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    #[test]
    fn places_count_through_all_rows() {
        assert_eq!(super::places(2, 3), "($1, $2, $3), ($4, $5, $6)");
    }
}
