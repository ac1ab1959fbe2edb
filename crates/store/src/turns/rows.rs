//! Writes the rows of a change of a turn.

use std::collections::BTreeSet;

use contract::ids::RunId;
use contract::limits::MAX_OPEN_TURNS;
use serde_json::Value;
use sqlx::{AnyConnection, Row};

use super::limits::TurnTotals;
use super::{HeldTurn, NewDelivery, NewResponse, NewStep, NewTurn, TurnChange, TurnState};
use crate::Millis;
use crate::backend::Dialect;
use crate::commit::{CommitError, TurnLimit};
use crate::sql::{ROWS_PER_STATEMENT, placeholders, row_placeholders};
use crate::statement::{Mismatch, Statement, Step};
use crate::transcript::{Entry, NewEntry};

/// The most bytes of steps per statement. A statement has at least one step.
const BYTES_PER_STATEMENT: usize = 2 << 20;

fn number(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn insert_turn<'a>(
    (turn, holder, lease_until): (&'a NewTurn, &'a str, Millis),
    change: &TurnChange,
    now: Millis,
) -> Statement<'a> {
    let added = TurnTotals::of(change);
    Statement::new(
        "INSERT INTO turns (turn_id, principal, agent_id, session_id, parent, wire, request_digest, state, steps, \
         sequence, fence, holder, lease_until, created_at, updated_at, expires_at, bytes) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 1, 1, $10, $11, $12, $12, $13, $14)",
    )
    .bind(turn.turn_id.as_str())
    .bind(turn.principal.as_str())
    .bind(turn.agent_id.as_str())
    .bind(turn.session_id.as_str())
    .bind(turn.parent.as_deref())
    .bind(turn.wire.as_str())
    .bind(turn.request_digest.as_str())
    .bind(change.state.unwrap_or(TurnState::Running).as_str())
    .bind(number(added.steps))
    .bind(holder)
    .bind(if change.releases() { 0 } else { lease_until })
    .bind(now)
    .bind(change.expires_at.unwrap_or(turn.expires_at))
    .bind(number(added.bytes))
}

/// Returns the step that updates the turn's row if the holder still has the turn.
pub(super) fn update_turn<'a>(held: &'a HeldTurn, change: &TurnChange, now: Millis) -> Step<'a> {
    let added = TurnTotals::of(change);
    let update = Statement::new(
        "UPDATE turns SET sequence = sequence + 1, updated_at = $1, state = COALESCE($2, state), \
         expires_at = COALESCE($3, expires_at), lease_until = CASE WHEN $4 = 1 THEN 0 ELSE lease_until END, \
         steps = steps + $5, bytes = bytes + $6 \
         WHERE turn_id = $7 AND sequence = $8 AND fence = $9 AND state IN ('running', 'waiting')",
    )
    .bind(now)
    .bind(change.state.map(TurnState::as_str))
    .bind(change.expires_at)
    .bind(i64::from(change.releases()))
    .bind(number(added.steps))
    .bind(number(added.bytes))
    .bind(held.turn_id.as_str())
    .bind(held.sequence)
    .bind(held.fence);
    Step::ChangeOne(update, Mismatch::Fenced)
}

/// Fails if the principal has too many waiting turns, this one included.
pub(super) async fn check_open_turns(connection: &mut AnyConnection, principal: &str) -> Result<(), CommitError> {
    let max = number(MAX_OPEN_TURNS);
    let row = sqlx::query(
        "SELECT COUNT(*) FROM (SELECT 1 FROM turns WHERE principal = $1 AND state = 'waiting' LIMIT $2) AS waiting",
    )
    .bind(principal.to_owned())
    .bind(max + 1)
    .fetch_one(connection)
    .await?;
    if row.try_get::<i64, _>(0)? > max { Err(TurnLimit::OpenTurns.into()) } else { Ok(()) }
}

/// Fails if another turn has sent one of these calls. Their runs are locked first: of two turns that send a call at the
/// same time, one fails. An SQLite file has only one writer at a time.
pub(super) async fn check_deliveries(
    connection: &mut AnyConnection,
    dialect: Dialect,
    held: &HeldTurn,
    deliveries: &[NewDelivery],
) -> Result<(), CommitError> {
    // In a fixed order, so that turns that send calls of the same runs do not deadlock.
    let runs: BTreeSet<&RunId> = deliveries.iter().map(|delivery| &delivery.run_id).collect();
    for run_id in runs {
        if dialect == Dialect::Postgres {
            let lock = sqlx::query("SELECT 1 FROM runs WHERE run_id = $1 FOR UPDATE");
            lock.bind(run_id.to_string()).fetch_optional(&mut *connection).await?;
        }
        let sent = sqlx::query("SELECT call FROM deliveries WHERE run_id = $1 AND turn_id <> $2")
            .bind(run_id.to_string())
            .bind(held.turn_id.to_string())
            .fetch_all(&mut *connection)
            .await?;
        for row in sent {
            let call: i64 = row.try_get(0)?;
            if deliveries.iter().any(|one| one.run_id == *run_id && i64::from(one.call.0) == call) {
                return Err(CommitError::DeliveredElsewhere);
            }
        }
    }
    Ok(())
}

pub(super) fn step_statements<'a>(held: &'a HeldTurn, steps: &'a [NewStep], now: Millis) -> Vec<Statement<'a>> {
    let mut next = number(held.totals.steps);
    let (mut rest, mut statements) = (steps, Vec::new());
    while !rest.is_empty() {
        let (batch, later) = rest.split_at(batch_of(rest));
        rest = later;
        let sql = format!(
            "INSERT INTO turn_steps (turn_id, step, at, kind, body) VALUES {}",
            row_placeholders(batch.len(), 5)
        );
        let statement = batch.iter().zip(next..).fold(Statement::new(sql), |statement, (step, position)| {
            let statement = statement.bind(held.turn_id.as_str()).bind(position).bind(now);
            statement.bind(step.kind.as_str()).bind(step.body.as_str())
        });
        next += number(batch.len());
        statements.push(statement);
    }
    statements
}

/// Returns how many of these steps go into one statement, at least one.
fn batch_of(steps: &[NewStep]) -> usize {
    let mut bytes = 0;
    let fits = |step: &&NewStep| {
        bytes += step.body.len();
        bytes <= BYTES_PER_STATEMENT
    };
    steps.iter().take(ROWS_PER_STATEMENT).take_while(fits).count().max(1)
}

/// Returns the statements that write new deliveries and mark those that were answered.
pub(super) fn delivery_statements<'a>(
    held: &'a HeldTurn,
    change: &'a TurnChange,
    now: Millis,
) -> impl Iterator<Item = Statement<'a>> {
    let new = change.deliveries.chunks(ROWS_PER_STATEMENT).map(move |batch| {
        let sql = format!(
            "INSERT INTO deliveries (principal, call_id, turn_id, run_id, call, round, sent_at) VALUES {}",
            row_placeholders(batch.len(), 7)
        );
        batch.iter().fold(Statement::new(sql), |statement, delivery| {
            statement
                .bind(held.principal.as_str())
                .bind(delivery.call_id.as_str())
                .bind(held.turn_id.as_str())
                .bind(delivery.run_id.as_str())
                .bind(i64::from(delivery.call.0))
                .bind(i64::from(delivery.round))
                .bind(now)
        })
    });
    let answered = change.answered.chunks(ROWS_PER_STATEMENT).map(move |batch| {
        let sql = format!(
            "UPDATE deliveries SET answered_at = $1 WHERE principal = $2 AND turn_id = $3 AND answered_at IS NULL \
             AND call_id IN ({})",
            placeholders(4, batch.len())
        );
        Statement::new(sql).bind(now).bind(held.principal.as_str()).bind(held.turn_id.as_str()).bind_all(batch)
    });
    new.chain(answered)
}

/// Returns the statements that write the digests of conversations.
pub(super) fn conversation_statements<'a>(
    held: &'a HeldTurn,
    digests: &'a [String],
    now: Millis,
) -> impl Iterator<Item = Statement<'a>> {
    // In a fixed order, so that turns that write the same digests at the same time do not deadlock.
    in_order(digests).into_iter().map(move |digest| {
        Statement::new(
            "INSERT INTO conversations (principal, agent_id, digest, turn_id, at) VALUES ($1, $2, $3, $4, $5) \
             ON CONFLICT (principal, agent_id, digest) DO UPDATE SET turn_id = excluded.turn_id, at = excluded.at",
        )
        .bind(held.principal.as_str())
        .bind(held.agent_id.as_str())
        .bind(digest)
        .bind(held.turn_id.as_str())
        .bind(now)
    })
}

/// Returns the steps that write a response and the ids of its items.
pub(super) fn response_steps<'a>(held: &'a HeldTurn, response: &'a NewResponse, now: Millis) -> Vec<Step<'a>> {
    let write = Statement::new(
        "INSERT INTO responses (response_id, principal, turn_id, at, expires_at, body) VALUES ($1, $2, $3, $4, $5, $6) \
         ON CONFLICT (response_id) DO UPDATE SET at = excluded.at, expires_at = excluded.expires_at, \
         body = excluded.body WHERE responses.turn_id = excluded.turn_id",
    )
    .bind(response.response_id.as_str())
    .bind(held.principal.as_str())
    .bind(held.turn_id.as_str())
    .bind(now)
    .bind(response.expires_at)
    .bind(response.body.as_str());
    let mut steps = vec![Step::ChangeOne(write, Mismatch::UsedId)];
    let items = in_order(&response.item_ids);
    steps.extend(items.chunks(ROWS_PER_STATEMENT).map(|batch| {
        let sql = format!(
            "INSERT INTO items (principal, item_id, response_id) VALUES {} \
             ON CONFLICT (principal, item_id) DO UPDATE SET response_id = excluded.response_id",
            row_placeholders(batch.len(), 3)
        );
        let bind = |statement: Statement<'a>, item: &&'a str| {
            statement.bind(held.principal.as_str()).bind(*item).bind(response.response_id.as_str())
        };
        Step::Execute(batch.iter().fold(Statement::new(sql), bind))
    }));
    steps
}

/// Returns the texts without repetitions, in order: one statement must not write a row twice.
fn in_order(texts: &[String]) -> Vec<&str> {
    let mut texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    texts.sort_unstable();
    texts.dedup();
    texts
}

/// Returns the entries with the turn's id.
pub(super) fn of_turn(held: &HeldTurn, entries: &[Entry]) -> Vec<NewEntry> {
    let with_id = |mut entry: Entry| {
        if let Value::Object(fields) = &mut entry.entry {
            fields.insert("turnId".to_owned(), Value::String(held.turn_id.to_string()));
        }
        NewEntry::from(entry)
    };
    entries.iter().cloned().map(with_id).collect()
}
