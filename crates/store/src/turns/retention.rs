//! Ends turns that their clients do not continue, and deletes old turns and responses.

use sqlx::{Any, Row, Transaction};

use super::COMPACTION;
use crate::Millis;
use crate::backend::{Backend, Durability};
use crate::error::StoreError;
use crate::locking::{begin_write, skip_locked};
use crate::sql::placeholders;

/// The maximum number of turns, and bytes of turns, per batch. A larger turn has a batch of its own.
pub(crate) const TURNS_PER_BATCH: usize = 100;
const BYTES_PER_BATCH: i64 = 16 << 20;
/// A response has up to 32 MiB.
pub(crate) const RESPONSES_PER_BATCH: usize = 10;

/// Ends one batch of turns that have expired and that no process holds, and returns how many. It also increments the
/// fence, so that a former holder does not take this change for its own commit.
pub(crate) async fn expire_some(backend: &Backend, now: Millis) -> Result<u64, StoreError> {
    let due = "expires_at <= $1 AND lease_until <= $1 AND state IN ('running', 'waiting')";
    let expired = sqlx::query(&format!(
        "UPDATE turns SET sequence = sequence + 1, fence = fence + 1, state = 'failed', lease_until = 0, \
         updated_at = $1 WHERE turn_id IN \
         (SELECT turn_id FROM turns WHERE {due} ORDER BY turn_id LIMIT {TURNS_PER_BATCH}{}) AND {due}",
        skip_locked(backend)
    ))
    .bind(now)
    .execute(backend.writer(Durability::Relaxed))
    .await?;
    Ok(expired.rows_affected())
}

/// Deletes one batch of turns that ended before `then`, with everything that belongs to them, and returns how many. A
/// turn is kept while another turn continues its conversation, because that one needs its history; a compaction is kept
/// while another turn continues the conversation that it summarizes.
pub(crate) async fn delete_some(backend: &Backend, then: Millis) -> Result<u64, StoreError> {
    let mut transaction = begin_write(backend, Durability::Relaxed).await?;
    let old = format!(
        "SELECT turn_id, bytes FROM turns WHERE state NOT IN ('running', 'waiting') AND updated_at < $1 \
         AND NOT EXISTS (SELECT 1 FROM turns AS child WHERE child.parent = turns.turn_id) \
         AND NOT (wire = '{COMPACTION}' AND EXISTS (SELECT 1 FROM turns AS other \
         WHERE other.parent = turns.parent AND other.wire <> '{COMPACTION}')) \
         ORDER BY updated_at LIMIT {TURNS_PER_BATCH}{}",
        skip_locked(backend)
    );
    let found = sqlx::query(&old).bind(then).fetch_all(&mut *transaction).await?;
    let found: Result<Vec<(String, i64)>, sqlx::Error> =
        found.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect();
    let turns = choose(found?);
    if turns.is_empty() {
        return Ok(0);
    }
    let list = placeholders(1, turns.len());
    let items =
        format!("DELETE FROM items WHERE response_id IN (SELECT response_id FROM responses WHERE turn_id IN ({list}))");
    execute(&mut transaction, &items, &turns).await?;
    for table in ["turn_steps", "turn_messages", "deliveries", "conversations", "responses", "turns"] {
        execute(&mut transaction, &format!("DELETE FROM {table} WHERE turn_id IN ({list})"), &turns).await?;
    }
    transaction.commit().await?;
    Ok(turns.len() as u64)
}

/// Chooses the turns of one batch, at least one, from turns and their bytes.
fn choose(found: Vec<(String, i64)>) -> Vec<String> {
    let mut bytes = 0_i64;
    let mut chosen = Vec::new();
    for (turn_id, more) in found {
        bytes = bytes.saturating_add(more);
        if bytes > BYTES_PER_BATCH && !chosen.is_empty() {
            break;
        }
        chosen.push(turn_id);
    }
    chosen
}

/// Deletes one batch of responses that have expired, and returns how many.
pub(crate) async fn delete_expired_responses(backend: &Backend, now: Millis) -> Result<u64, StoreError> {
    let mut transaction = begin_write(backend, Durability::Relaxed).await?;
    let old = format!(
        "SELECT response_id FROM responses WHERE expires_at <= $1 ORDER BY expires_at LIMIT {RESPONSES_PER_BATCH}{}",
        skip_locked(backend)
    );
    let found = sqlx::query(&old).bind(now).fetch_all(&mut *transaction).await?;
    let found: Result<Vec<String>, sqlx::Error> = found.iter().map(|row| row.try_get(0)).collect();
    let found = found?;
    if found.is_empty() {
        return Ok(0);
    }
    let list = placeholders(1, found.len());
    for table in ["items", "responses"] {
        execute(&mut transaction, &format!("DELETE FROM {table} WHERE response_id IN ({list})"), &found).await?;
    }
    transaction.commit().await?;
    Ok(found.len() as u64)
}

/// Deletes a response of a principal. Returns `false` if it has none with this id.
pub(crate) async fn delete_response(backend: &Backend, principal: &str, response_id: &str) -> Result<bool, StoreError> {
    let mut transaction = begin_write(backend, Durability::Relaxed).await?;
    let deleted = sqlx::query("DELETE FROM responses WHERE response_id = $1 AND principal = $2")
        .bind(response_id.to_owned())
        .bind(principal.to_owned())
        .execute(&mut *transaction)
        .await?;
    if deleted.rows_affected() == 0 {
        return Ok(false);
    }
    sqlx::query("DELETE FROM items WHERE response_id = $1")
        .bind(response_id.to_owned())
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(true)
}

async fn execute(transaction: &mut Transaction<'_, Any>, sql: &str, ids: &[String]) -> Result<(), sqlx::Error> {
    ids.iter().fold(sqlx::query(sql), |query, id| query.bind(id.clone())).execute(&mut **transaction).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_at_least_one_turn_and_few_bytes() {
        let turns = |bytes: &[i64]| bytes.iter().map(|bytes| (bytes.to_string(), *bytes)).collect();
        assert!(choose(turns(&[])).is_empty());
        assert_eq!(choose(turns(&[64 << 20, 1])), [(64 << 20).to_string()]);
        assert_eq!(choose(turns(&[1, 2, 16 << 20])), ["1", "2"]);
    }
}
