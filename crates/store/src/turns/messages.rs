//! Messages to turns: what other processes ask the process that runs a turn to do.

use contract::ids::TurnId;
use contract::limits::MAX_TURN_MESSAGES;
use sqlx::Row;

use super::{HeldTurn, TurnChange};
use crate::Millis;
use crate::backend::{Backend, Durability};
use crate::error::StoreError;
use crate::sql::{ROWS_PER_STATEMENT, placeholders};
use crate::statement::Statement;

/// What a message asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnMessageKind {
    /// The turn is to be aborted. The body is the reason.
    Abort,
    /// The model is to receive the body, which is JSON in the gateway's format.
    Steer,
}

impl TurnMessageKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Abort => "abort",
            Self::Steer => "steer",
        }
    }

    fn parse(text: &str) -> Result<Self, StoreError> {
        let known = [Self::Abort, Self::Steer].into_iter().find(|kind| kind.as_str() == text);
        known.ok_or_else(|| StoreError::Corrupt(format!("kind of a turn's message `{text}`")))
    }
}

/// A message to a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnMessage {
    pub turn_id: TurnId,
    /// Unique for the turn.
    pub message_id: String,
    pub kind: TurnMessageKind,
    pub body: String,
}

/// Stores a message. Returns `false` if the turn is not running, or has too many messages.
pub(crate) async fn add(backend: &Backend, message: &TurnMessage, now: Millis) -> Result<bool, StoreError> {
    let added = sqlx::query(
        "INSERT INTO turn_messages (turn_id, message_id, at, kind, body) \
         SELECT turn_id, $1, $2, $3, $4 FROM turns WHERE turn_id = $5 AND state = 'running' \
         AND (SELECT COUNT(*) FROM turn_messages AS sent WHERE sent.turn_id = turns.turn_id) < $6",
    )
    .bind(message.message_id.clone())
    .bind(now)
    .bind(message.kind.as_str())
    .bind(message.body.clone())
    .bind(message.turn_id.to_string())
    .bind(i64::try_from(MAX_TURN_MESSAGES).unwrap_or(i64::MAX))
    .execute(backend.writer(Durability::Synced))
    .await?;
    Ok(added.rows_affected() == 1)
}

/// Returns the messages to the turns that a process holds, oldest first.
pub(crate) async fn of_holder(backend: &Backend, holder: &str) -> Result<Vec<TurnMessage>, StoreError> {
    let rows = sqlx::query(
        "SELECT turn_messages.turn_id, message_id, kind, body FROM turn_messages \
         JOIN turns ON turns.turn_id = turn_messages.turn_id WHERE turns.holder = $1 ORDER BY at, message_id",
    )
    .bind(holder.to_owned())
    .fetch_all(backend.reader())
    .await?;
    let read = |row: &sqlx::any::AnyRow| {
        Ok(TurnMessage {
            turn_id: row.try_get::<String, _>(0)?.into(),
            message_id: row.try_get(1)?,
            kind: TurnMessageKind::parse(&row.try_get::<String, _>(2)?)?,
            body: row.try_get(3)?,
        })
    };
    rows.iter().map(read).collect()
}

/// Returns the statements that delete the messages that a change makes part of its turn; all of them at its end.
pub(super) fn delete<'a>(held: &'a HeldTurn, change: &'a TurnChange) -> Vec<Statement<'a>> {
    if change.is_end() {
        return vec![Statement::new("DELETE FROM turn_messages WHERE turn_id = $1").bind(held.turn_id.as_str())];
    }
    let delete = |batch: &'a [String]| {
        let sql = format!(
            "DELETE FROM turn_messages WHERE turn_id = $1 AND message_id IN ({})",
            placeholders(2, batch.len())
        );
        Statement::new(sql).bind(held.turn_id.as_str()).bind_all(batch)
    };
    change.messages.chunks(ROWS_PER_STATEMENT).map(delete).collect()
}
