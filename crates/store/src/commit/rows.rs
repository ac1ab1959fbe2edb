//! A change's legs and calls, many rows to a statement.

use sqlx::any::AnyArguments;
use sqlx::query::Query;
use sqlx::{Any, AnyConnection};

use super::CommitError;
use crate::backend::StoreError;
use crate::rows::{CallRow, LegRow};

/// SQLite takes 32,766 parameters in a statement; rows are written in batches that stay far below.
pub(crate) const ROWS_A_STATEMENT: usize = 64;

/// Texts of calls in one statement.
const BYTES_A_STATEMENT: usize = 2 << 20;

pub(super) async fn write_legs(
    connection: &mut AnyConnection,
    run_id: &str,
    legs: &[LegRow],
) -> Result<(), CommitError> {
    for batch in legs.chunks(ROWS_A_STATEMENT) {
        let sql = format!(
            "INSERT INTO legs (run_id, leg, clock_us, replies, ended, shown) VALUES {} ON CONFLICT (run_id, leg) DO \
             UPDATE SET ended = COALESCE(excluded.ended, legs.ended), shown = COALESCE(excluded.shown, legs.shown)",
            places(batch.len(), 6)
        );
        let mut query = sqlx::query(&sql);
        for leg in batch {
            let replies: Vec<String> = leg.replies.iter().map(u32::to_string).collect();
            query = query
                .bind(run_id.to_owned())
                .bind(leg.leg)
                .bind(i64::try_from(leg.clock_us).unwrap_or(i64::MAX))
                .bind(replies.join(","))
                .bind(leg.ended.as_ref().map(|ended| ended.how.as_str()))
                .bind(leg.ended.as_ref().map(|ended| ended.shown.clone()));
        }
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

/// A call that somebody else has settled meanwhile stays settled. A reply and an outcome that are written stay, too:
/// whoever writes the row again need not have them any more.
pub(super) async fn write_calls(
    connection: &mut AnyConnection,
    run_id: &str,
    calls: &[CallRow],
) -> Result<(), CommitError> {
    let mut rest = calls;
    while !rest.is_empty() {
        let (batch, later) = rest.split_at(batch_of(rest));
        rest = later;
        let sql = format!(
            "INSERT INTO calls (run_id, call, leg, method, target, payload, input_hash, tool_id, tool_hash, input, state, \
             attempt, due_at, since, settle_order, outcome, reply, parent, ticket) VALUES {} ON CONFLICT (run_id, call) DO UPDATE SET \
             tool_id = excluded.tool_id, tool_hash = excluded.tool_hash, input = excluded.input, state = excluded.state, attempt = excluded.attempt, \
             due_at = excluded.due_at, settle_order = excluded.settle_order, \
             outcome = COALESCE(excluded.outcome, calls.outcome), reply = COALESCE(excluded.reply, calls.reply), \
             ticket = excluded.ticket \
             WHERE calls.state <> 'settled' OR excluded.state IN ('settled', 'delivered', 'cleared')",
            places(batch.len(), 19)
        );
        let mut query = sqlx::query(&sql);
        for call in batch {
            query = bind_call(query, run_id, call)?;
        }
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

/// How many of these calls go into one statement, which holds a copy of them: one at least.
fn batch_of(calls: &[CallRow]) -> usize {
    let mut bytes = 0;
    let fits = |call: &&CallRow| {
        bytes += call.journal_bytes();
        bytes <= BYTES_A_STATEMENT
    };
    calls.iter().take(ROWS_A_STATEMENT).take_while(fits).count().max(1)
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
        .bind(call.parent.clone())
        .bind(call.ticket.clone()))
}

/// `($1, $2), ($3, $4)`
pub(crate) fn places(rows: usize, columns: usize) -> String {
    let row = |row: usize| {
        let places: Vec<String> = (1..=columns).map(|column| format!("${}", row * columns + column)).collect();
        format!("({})", places.join(", "))
    };
    (0..rows).map(row).collect::<Vec<_>>().join(", ")
}

/// `$3, $4, $5`
pub(crate) fn list(first: usize, count: usize) -> String {
    let places: Vec<String> = (first..first + count).map(|place| format!("${place}")).collect();
    places.join(", ")
}

#[cfg(test)]
mod tests {
    #[test]
    fn placeholders_are_numbered_through_all_rows() {
        assert_eq!(super::places(2, 3), "($1, $2, $3), ($4, $5, $6)");
    }
}
