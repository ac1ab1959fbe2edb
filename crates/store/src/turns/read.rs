//! Reads turns, deliveries, responses and sessions.

use contract::ids::{RunId, TurnId};
use sqlx::Row;
use sqlx::any::AnyRow;

use super::{COMPACTION, DeliveryRow, ResponseRow, SessionFilter, SessionSummary, TurnRow, TurnState, TurnStep};
use crate::Millis;
use crate::backend::Backend;
use crate::error::StoreError;
use crate::runs::read::call_id;
use crate::sql::placeholders;

const COLUMNS: &str = "turn_id, principal, agent_id, session_id, parent, wire, request_digest, state, steps, holder, \
                       lease_until, created_at, updated_at, expires_at, bytes";
const DELIVERY_COLUMNS: &str = "call_id, turn_id, run_id, call, round, sent_at, answered_at";
const RESPONSE_COLUMNS: &str = "response_id, turn_id, at, expires_at, body";

/// The most deliveries per statement.
const IDS_PER_STATEMENT: usize = 500;

pub(crate) async fn turn(backend: &Backend, turn_id: &TurnId) -> Result<Option<TurnRow>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM turns WHERE turn_id = $1");
    let row = sqlx::query(&sql).bind(turn_id.to_string()).fetch_optional(backend.reader()).await?;
    row.map(|row| read_turn(&row)).transpose()
}

pub(crate) async fn steps(backend: &Backend, turn_id: &TurnId) -> Result<Vec<TurnStep>, StoreError> {
    let rows = sqlx::query("SELECT step, at, kind, body FROM turn_steps WHERE turn_id = $1 ORDER BY step")
        .bind(turn_id.to_string())
        .fetch_all(backend.reader())
        .await?;
    rows.iter()
        .map(|row| {
            Ok(TurnStep {
                number: small(row.try_get(0)?)?,
                at: row.try_get(1)?,
                kind: row.try_get(2)?,
                body: row.try_get(3)?,
            })
        })
        .collect()
}

pub(crate) async fn by_request(
    backend: &Backend,
    principal: &str,
    request_digest: &str,
    since: Millis,
) -> Result<Option<TurnRow>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM turns WHERE principal = $1 AND request_digest = $2 \
         AND (state = 'running' OR updated_at >= $3) ORDER BY created_at DESC, turn_id DESC LIMIT 1"
    );
    let row = sqlx::query(&sql)
        .bind(principal.to_owned())
        .bind(request_digest.to_owned())
        .bind(since)
        .fetch_optional(backend.reader())
        .await?;
    row.map(|row| read_turn(&row)).transpose()
}

pub(crate) async fn by_conversation(
    backend: &Backend,
    principal: &str,
    agent_id: &str,
    digest: &str,
) -> Result<Option<TurnId>, StoreError> {
    let row = sqlx::query("SELECT turn_id FROM conversations WHERE principal = $1 AND agent_id = $2 AND digest = $3")
        .bind(principal.to_owned())
        .bind(agent_id.to_owned())
        .bind(digest.to_owned())
        .fetch_optional(backend.reader())
        .await?;
    Ok(row.map(|row| row.try_get::<String, _>(0)).transpose()?.map(TurnId::from))
}

pub(crate) async fn deliveries(
    backend: &Backend,
    principal: &str,
    call_ids: &[String],
) -> Result<Vec<DeliveryRow>, StoreError> {
    let mut found = Vec::new();
    for batch in call_ids.chunks(IDS_PER_STATEMENT) {
        let sql = format!(
            "SELECT {DELIVERY_COLUMNS} FROM deliveries WHERE principal = $1 AND call_id IN ({})",
            placeholders(2, batch.len())
        );
        let query = sqlx::query(&sql).bind(principal.to_owned());
        let query = batch.iter().fold(query, |query, call_id| query.bind(call_id.clone()));
        for row in query.fetch_all(backend.reader()).await? {
            found.push(read_delivery(&row)?);
        }
    }
    Ok(found)
}

pub(crate) async fn deliveries_of_turn(backend: &Backend, turn_id: &TurnId) -> Result<Vec<DeliveryRow>, StoreError> {
    let sql =
        format!("SELECT {DELIVERY_COLUMNS} FROM deliveries WHERE turn_id = $1 ORDER BY round, run_id, call, call_id");
    let rows = sqlx::query(&sql).bind(turn_id.to_string()).fetch_all(backend.reader()).await?;
    rows.iter().map(read_delivery).collect()
}

pub(crate) async fn turns_of_run(backend: &Backend, run_id: &RunId) -> Result<Vec<TurnId>, StoreError> {
    let rows = sqlx::query("SELECT DISTINCT turn_id FROM deliveries WHERE run_id = $1 ORDER BY turn_id")
        .bind(run_id.to_string())
        .fetch_all(backend.reader())
        .await?;
    rows.iter().map(|row| Ok(row.try_get::<String, _>(0)?.into())).collect()
}

pub(crate) async fn response(
    backend: &Backend,
    principal: &str,
    response_id: &str,
) -> Result<Option<ResponseRow>, StoreError> {
    let sql = format!("SELECT {RESPONSE_COLUMNS} FROM responses WHERE response_id = $1 AND principal = $2");
    let row = sqlx::query(&sql)
        .bind(response_id.to_owned())
        .bind(principal.to_owned())
        .fetch_optional(backend.reader())
        .await?;
    row.map(|row| read_response(&row)).transpose()
}

pub(crate) async fn response_of_item(
    backend: &Backend,
    principal: &str,
    item_id: &str,
) -> Result<Option<ResponseRow>, StoreError> {
    let sql = format!(
        "SELECT {RESPONSE_COLUMNS} FROM responses WHERE principal = $1 AND response_id = \
         (SELECT response_id FROM items WHERE principal = $1 AND item_id = $2)"
    );
    let row =
        sqlx::query(&sql).bind(principal.to_owned()).bind(item_id.to_owned()).fetch_optional(backend.reader()).await?;
    row.map(|row| read_response(&row)).transpose()
}

pub(crate) async fn sessions(
    backend: &Backend,
    filter: &SessionFilter,
    limit: u32,
    before: Option<Millis>,
) -> Result<Vec<SessionSummary>, StoreError> {
    let mut conditions = vec!["1 = 1".to_owned()];
    let named = [("principal", &filter.principal), ("agent_id", &filter.agent)];
    let named: Vec<(&str, &String)> =
        named.into_iter().filter_map(|(column, value)| Some((column, value.as_ref()?))).collect();
    for (place, (column, _)) in named.iter().enumerate() {
        conditions.push(format!("{column} = ${}", place + 3));
    }
    let sql = format!(
        "SELECT session_id, agent_id, principal, COUNT(*), MIN(created_at), MAX(updated_at) FROM turns WHERE {} \
         GROUP BY session_id, agent_id, principal HAVING MAX(updated_at) < $1 \
         ORDER BY MAX(updated_at) DESC, session_id, agent_id, principal LIMIT $2",
        conditions.join(" AND ")
    );
    let query = sqlx::query(&sql).bind(before.unwrap_or(Millis::MAX)).bind(i64::from(limit));
    let query = named.iter().fold(query, |query, (_, value)| query.bind((*value).clone()));
    let rows = query.fetch_all(backend.reader()).await?;
    rows.iter().map(session_summary).collect()
}

/// Reads a row of session id, agent, principal, number of turns, and the times of the first and the last one.
pub(crate) fn session_summary(row: &AnyRow) -> Result<SessionSummary, StoreError> {
    Ok(SessionSummary {
        session_id: row.try_get(0)?,
        agent_id: row.try_get(1)?,
        principal: row.try_get(2)?,
        turns: u64::try_from(row.try_get::<i64, _>(3)?).unwrap_or(0),
        first_at: row.try_get(4)?,
        last_at: row.try_get(5)?,
    })
}

pub(crate) async fn turns_of_session(backend: &Backend, session_id: &str) -> Result<Vec<TurnRow>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM turns WHERE session_id = $1 ORDER BY created_at, turn_id");
    let rows = sqlx::query(&sql).bind(session_id.to_owned()).fetch_all(backend.reader()).await?;
    rows.iter().map(read_turn).collect()
}

/// Returns the finished compactions of a session, oldest first: the turns up to which they summarize, and themselves.
pub(crate) async fn compactions(
    backend: &Backend,
    principal: &str,
    session_id: &str,
) -> Result<Vec<(TurnId, TurnId)>, StoreError> {
    let rows = sqlx::query(
        "SELECT parent, turn_id FROM turns WHERE session_id = $1 AND principal = $2 AND wire = $3 \
         AND state = 'completed' AND parent IS NOT NULL ORDER BY created_at, turn_id",
    )
    .bind(session_id.to_owned())
    .bind(principal.to_owned())
    .bind(COMPACTION)
    .fetch_all(backend.reader())
    .await?;
    let id = |row: &AnyRow, at: usize| Ok::<_, StoreError>(TurnId::from(row.try_get::<String, _>(at)?));
    rows.iter().map(|row| Ok((id(row, 0)?, id(row, 1)?))).collect()
}

pub(crate) async fn running(backend: &Backend, principal: &str, limit: u32) -> Result<Vec<TurnRow>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM turns WHERE principal = $1 AND state = 'running' \
         ORDER BY created_at DESC, turn_id LIMIT $2"
    );
    let rows = sqlx::query(&sql).bind(principal.to_owned()).bind(i64::from(limit)).fetch_all(backend.reader()).await?;
    rows.iter().map(read_turn).collect()
}

pub(crate) async fn orphaned(backend: &Backend, now: Millis, limit: u32) -> Result<Vec<TurnRow>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM turns WHERE state = 'running' AND lease_until < $1 \
         ORDER BY lease_until, created_at, turn_id LIMIT $2"
    );
    let rows = sqlx::query(&sql).bind(now).bind(i64::from(limit)).fetch_all(backend.reader()).await?;
    rows.iter().map(read_turn).collect()
}

fn read_turn(row: &AnyRow) -> Result<TurnRow, StoreError> {
    Ok(TurnRow {
        turn_id: row.try_get::<String, _>(0)?.into(),
        principal: row.try_get(1)?,
        agent_id: row.try_get(2)?,
        session_id: row.try_get(3)?,
        parent: row.try_get::<Option<String>, _>(4)?.map(TurnId::from),
        wire: row.try_get(5)?,
        request_digest: row.try_get(6)?,
        state: TurnState::parse(&row.try_get::<String, _>(7)?)?,
        steps: small(row.try_get(8)?)?,
        holder: row.try_get(9)?,
        lease_until: row.try_get(10)?,
        created_at: row.try_get(11)?,
        updated_at: row.try_get(12)?,
        expires_at: row.try_get(13)?,
        bytes: u64::try_from(row.try_get::<i64, _>(14)?).unwrap_or(0),
    })
}

fn read_delivery(row: &AnyRow) -> Result<DeliveryRow, StoreError> {
    Ok(DeliveryRow {
        call_id: row.try_get(0)?,
        turn_id: row.try_get::<String, _>(1)?.into(),
        run_id: row.try_get::<String, _>(2)?.into(),
        call: call_id(row.try_get(3)?)?,
        round: small(row.try_get(4)?)?,
        sent_at: row.try_get(5)?,
        answered_at: row.try_get(6)?,
    })
}

fn read_response(row: &AnyRow) -> Result<ResponseRow, StoreError> {
    Ok(ResponseRow {
        response_id: row.try_get(0)?,
        turn_id: row.try_get::<String, _>(1)?.into(),
        at: row.try_get(2)?,
        expires_at: row.try_get(3)?,
        body: row.try_get(4)?,
    })
}

/// Converts a stored number of a step or round.
fn small(number: i64) -> Result<u32, StoreError> {
    u32::try_from(number).map_err(|_| StoreError::Corrupt("invalid number of a turn's step or round".to_owned()))
}
