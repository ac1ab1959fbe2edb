//! Reads runs with their legs and calls.

use contract::ids::{CallId, RunId};
use contract::scope::Scope;
use sqlx::Row;
use sqlx::any::AnyRow;

use super::FencedRun;
use crate::Millis;
use crate::backend::Backend;
use crate::ended_journal;
use crate::error::StoreError;
use crate::rows::{
    CallRow, CallState, DispatchedCall, JournalTotals, LegEndKind, LegRow, RunFilter, RunListEntry, RunRow, RunState,
    RunSummary, StoredLegEnd,
};
use crate::seal::SealError;
use crate::sql::placeholders;

const COLUMNS: &str = "run_id, agent_id, session_id, agent_run_id, client, tool_call_id, state, created_at, expires_at, catalog, \
                       definition, progress, snapshot_leg, snapshot, result";

const CALL_COLUMNS: &str = "call, leg, method, target, payload, input_hash, tool_id, tool_hash, input, state, attempt, \
                            due_at, since, settle_order, outcome, reply, parent, ticket";

pub(crate) async fn run(backend: &Backend, run_id: &RunId) -> Result<Option<RunRow>, StoreError> {
    let row = sqlx::query(&format!("SELECT {COLUMNS} FROM runs WHERE run_id = $1"))
        .bind(run_id.to_string())
        .fetch_optional(backend.reader())
        .await?;
    row.map(|row| read_run(&row)).transpose()
}

pub(crate) fn open_snapshot(backend: &Backend, held: &FencedRun, row: &RunRow) -> Result<Option<Vec<u8>>, SealError> {
    match (&row.snapshot, row.snapshot_leg) {
        (Some(sealed), Some(leg)) => backend.keys.open(sealed, &held.binding(leg)).map(Some),
        _ => Ok(None),
    }
}

pub(crate) async fn tables(backend: &Backend, hash: &str, max_bytes: usize) -> Result<Option<Vec<u8>>, StoreError> {
    let row = sqlx::query("SELECT tables FROM catalogs WHERE hash = $1")
        .bind(hash.to_owned())
        .fetch_optional(backend.reader())
        .await?;
    let Some(row) = row else { return Ok(None) };
    let packed: Vec<u8> = row.try_get(0)?;
    let tables = zstd::bulk::decompress(&packed, max_bytes).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    Ok(Some(tables))
}

pub(crate) async fn legs(backend: &Backend, run_id: &RunId) -> Result<Vec<LegRow>, StoreError> {
    let rows = sqlx::query("SELECT leg, clock_us, replies, ended, shown FROM legs WHERE run_id = $1 ORDER BY leg")
        .bind(run_id.to_string())
        .fetch_all(backend.reader())
        .await?;
    if rows.is_empty() {
        return Ok(ended_journal::read(backend, run_id).await?.legs.into_owned());
    }
    rows.iter().map(read_leg).collect()
}

pub(crate) async fn calls(backend: &Backend, run_id: &RunId) -> Result<Vec<CallRow>, StoreError> {
    let sql = format!("SELECT {CALL_COLUMNS} FROM calls WHERE run_id = $1 ORDER BY call");
    let rows = sqlx::query(&sql).bind(run_id.to_string()).fetch_all(backend.reader()).await?;
    if rows.is_empty() {
        return Ok(ended_journal::read(backend, run_id).await?.calls.into_owned());
    }
    rows.iter().map(read_call).collect()
}

pub(crate) async fn call(backend: &Backend, run_id: &RunId, call: CallId) -> Result<Option<CallRow>, StoreError> {
    let row = sqlx::query(&format!("SELECT {CALL_COLUMNS} FROM calls WHERE run_id = $1 AND call = $2"))
        .bind(run_id.to_string())
        .bind(i64::from(call.0))
        .fetch_optional(backend.reader())
        .await?;
    if let Some(row) = row {
        return read_call(&row).map(Some);
    }
    let ended = ended_journal::read(backend, run_id).await?.calls;
    Ok(ended.iter().find(|row| row.call == call).cloned())
}

pub(crate) async fn open_calls(backend: &Backend, run_id: &RunId) -> Result<Vec<CallRow>, StoreError> {
    let sql = format!(
        "SELECT {CALL_COLUMNS} FROM calls WHERE run_id = $1 AND state NOT IN ('delivered', 'cleared') ORDER BY call"
    );
    let rows = sqlx::query(&sql).bind(run_id.to_string()).fetch_all(backend.reader()).await?;
    rows.iter().map(read_call).collect()
}

/// Characters of a reply and of an outcome that tell how a call ended; messages begin with the names of tool and server.
const ENDING_CHARS: usize = 256;

pub(crate) async fn dispatched_calls(backend: &Backend, run_id: &RunId) -> Result<Vec<DispatchedCall>, StoreError> {
    let sql = format!(
        "SELECT call, COALESCE(tool_id, target), SUBSTR(reply, 1, {ENDING_CHARS}), SUBSTR(outcome, 1, {ENDING_CHARS}), \
         attempt FROM calls WHERE run_id = $1 AND attempt > 0 ORDER BY call"
    );
    let rows = sqlx::query(&sql).bind(run_id.to_string()).fetch_all(backend.reader()).await?;
    if rows.is_empty() {
        let ended = ended_journal::read(backend, run_id).await?.calls;
        return Ok(ended.iter().filter(|row| row.attempt > 0).map(dispatched).collect());
    }
    rows.iter()
        .map(|row| {
            Ok(DispatchedCall {
                call: call_id(row.try_get(0)?)?,
                tool_id: row.try_get(1)?,
                reply_start: row.try_get(2)?,
                outcome_start: row.try_get(3)?,
                attempt: row.try_get(4)?,
            })
        })
        .collect()
}

fn dispatched(row: &CallRow) -> DispatchedCall {
    let start = |text: &str| text.chars().take(ENDING_CHARS).collect();
    DispatchedCall {
        call: row.call,
        tool_id: row.tool_id.clone().unwrap_or_else(|| row.target.clone()),
        reply_start: row.reply.as_ref().map(|reply| start(&serde_json::to_string(reply).unwrap_or_default())),
        outcome_start: row.outcome.as_deref().map(start),
        attempt: row.attempt,
    }
}

pub(crate) async fn journal_totals(backend: &Backend, run_id: &RunId) -> Result<JournalTotals, StoreError> {
    let row = sqlx::query(
        "SELECT COUNT(*), CAST(COALESCE(MAX(call), 0) AS BIGINT), CAST(COALESCE(MAX(settle_order), 0) AS BIGINT), \
         CAST(COALESCE(MAX(attempt), 0) AS BIGINT), \
         CAST(COALESCE((SELECT journal_bytes FROM runs WHERE run_id = $1), 0) AS BIGINT) \
         FROM calls WHERE run_id = $1",
    )
    .bind(run_id.to_string())
    .fetch_one(backend.reader())
    .await?;
    let count = |number: i64| usize::try_from(number).unwrap_or(0);
    Ok(JournalTotals {
        calls: count(row.try_get(0)?),
        last_call: call_id(row.try_get(1)?)?,
        settle_order: row.try_get(2)?,
        had_effects: row.try_get::<i64, _>(3)? > 0,
        bytes: count(row.try_get(4)?),
    })
}

pub(crate) async fn live_runs(backend: &Backend) -> Result<u64, StoreError> {
    let row = sqlx::query("SELECT COUNT(*) FROM runs WHERE state IN ('running', 'waiting')")
        .fetch_one(backend.reader())
        .await?;
    Ok(u64::try_from(row.try_get::<i64, _>(0)?).unwrap_or(0))
}

pub(crate) async fn recent_runs(
    backend: &Backend,
    scope: &Scope,
    since: Millis,
    limit: u32,
) -> Result<Vec<RunSummary>, StoreError> {
    let of_client = if scope.client.is_empty() { "" } else { " AND client = $6" };
    let sql = format!(
        "SELECT run_id, state, created_at, updated_at, definition FROM runs WHERE session_id = $1 AND agent_id = $2 \
         AND agent_run_id = $3 AND (state IN ('running', 'waiting') OR updated_at > $4){of_client} \
         ORDER BY created_at DESC, run_id LIMIT $5"
    );
    let mut query = sqlx::query(&sql)
        .bind(scope.session_id.clone())
        .bind(scope.agent_id.clone())
        .bind(scope.agent_run_id.clone())
        .bind(since)
        .bind(i64::from(limit));
    if !scope.client.is_empty() {
        query = query.bind(scope.client.clone());
    }
    let rows = query.fetch_all(backend.reader()).await?;
    rows.iter()
        .map(|row| {
            Ok(RunSummary {
                run_id: row.try_get::<String, _>(0)?.into(),
                state: RunState::parse(&row.try_get::<String, _>(1)?)?,
                created_at: row.try_get(2)?,
                updated_at: row.try_get(3)?,
                definition: row.try_get(4)?,
            })
        })
        .collect()
}

pub(crate) async fn run_of_tool_call(
    backend: &Backend,
    scope: &Scope,
    tool_call_id: &str,
) -> Result<Option<RunId>, StoreError> {
    let row = sqlx::query(
        "SELECT run_id FROM runs WHERE session_id = $1 AND tool_call_id = $2 AND agent_id = $3 AND agent_run_id = $4 \
         ORDER BY created_at DESC, run_id DESC LIMIT 1",
    )
    .bind(scope.session_id.clone())
    .bind(tool_call_id.to_owned())
    .bind(scope.agent_id.clone())
    .bind(scope.agent_run_id.clone())
    .fetch_optional(backend.reader())
    .await?;
    Ok(row.map(|row| row.try_get::<String, _>(0)).transpose()?.map(RunId::from))
}

/// The most runs that [`waiting_runs`] returns.
const MAX_WAITING_FOUND: i64 = 16;

pub(crate) async fn waiting_runs(
    backend: &Backend,
    scope: &Scope,
    definition: &str,
    now: Millis,
) -> Result<Vec<RunId>, StoreError> {
    let rows = sqlx::query(
        "SELECT run_id FROM runs WHERE session_id = $1 AND agent_id = $2 AND agent_run_id = $3 \
         AND state IN ('running', 'waiting') AND state = 'waiting' AND definition = $4 AND expires_at > $5 \
         ORDER BY created_at, run_id LIMIT $6",
    )
    .bind(scope.session_id.clone())
    .bind(scope.agent_id.clone())
    .bind(scope.agent_run_id.clone())
    .bind(definition.to_owned())
    .bind(now)
    .bind(MAX_WAITING_FOUND)
    .fetch_all(backend.reader())
    .await?;
    rows.iter().map(|row| Ok(row.try_get::<String, _>(0)?.into())).collect()
}

/// How many characters of a run's definition a list contains: enough for the first line of most cells.
const HEAD_CHARS: u32 = 400;

pub(crate) async fn runs(backend: &Backend, filter: &RunFilter, limit: u32) -> Result<Vec<RunListEntry>, StoreError> {
    let (states, prefixes) = (filter.states.len(), filter.prefixes.len());
    let mut conditions = vec!["created_at >= $1".to_owned()];
    if states > 0 {
        conditions.push(format!("state IN ({})", placeholders(3, states)));
    }
    if prefixes > 0 {
        // Comparing the start works in every collation, which a range of ids does not.
        let one = |at: usize| format!("SUBSTR(run_id, 1, LENGTH(${at})) = ${at}");
        let any: Vec<String> = (0..prefixes).map(|number| one(3 + states + number)).collect();
        conditions.push(format!("({})", any.join(" OR ")));
    }
    let sql = format!(
        "SELECT run_id, agent_id, session_id, agent_run_id, client, state, created_at, updated_at, expires_at, \
         (SELECT COUNT(*) FROM calls WHERE calls.run_id = runs.run_id AND calls.state NOT IN \
         ('delivered', 'cleared')), SUBSTR(definition, 1, {HEAD_CHARS}), \
         (SELECT target FROM calls WHERE calls.run_id = runs.run_id ORDER BY call LIMIT 1) \
         FROM runs WHERE {} ORDER BY created_at DESC, run_id LIMIT $2",
        conditions.join(" AND ")
    );
    let mut query = sqlx::query(&sql).bind(filter.since.unwrap_or(Millis::MIN)).bind(i64::from(limit));
    for state in &filter.states {
        query = query.bind(state.as_str());
    }
    for prefix in &filter.prefixes {
        query = query.bind(prefix.clone());
    }
    query.fetch_all(backend.reader()).await?.iter().map(listed).collect()
}

fn listed(row: &AnyRow) -> Result<RunListEntry, StoreError> {
    let state = RunState::parse(&row.try_get::<String, _>(5)?)?;
    // The last result of a call without a cell is not delivered to a cell, and an ended cell waits for no calls.
    let open_calls = if state.is_over() { 0 } else { row.try_get::<i64, _>(9)? };
    Ok(RunListEntry {
        run_id: row.try_get::<String, _>(0)?.into(),
        scope: scope(row)?,
        state,
        created_at: row.try_get(6)?,
        updated_at: row.try_get(7)?,
        expires_at: row.try_get(8)?,
        open_calls: u64::try_from(open_calls).unwrap_or(0),
        definition_head: row.try_get(10)?,
        first_target: row.try_get(11)?,
    })
}

pub(crate) async fn ended_before(backend: &Backend, then: Millis) -> Result<u64, StoreError> {
    let row = sqlx::query("SELECT COUNT(*) FROM runs WHERE state NOT IN ('running', 'waiting') AND updated_at < $1")
        .bind(then)
        .fetch_one(backend.reader())
        .await?;
    Ok(u64::try_from(row.try_get::<i64, _>(0)?).unwrap_or(0))
}

pub(crate) async fn runs_of_session(backend: &Backend, session_id: &str) -> Result<Vec<RunId>, StoreError> {
    let rows = sqlx::query("SELECT run_id FROM runs WHERE session_id = $1 AND state IN ('running', 'waiting')")
        .bind(session_id.to_owned())
        .fetch_all(backend.reader())
        .await?;
    rows.iter().map(|row| Ok(row.try_get::<String, _>(0)?.into())).collect()
}

/// Reads the scope from the four columns after the run id.
fn scope(row: &AnyRow) -> Result<Scope, StoreError> {
    Ok(Scope {
        agent_id: row.try_get(1)?,
        session_id: row.try_get(2)?,
        agent_run_id: row.try_get(3)?,
        client: row.try_get(4)?,
        ..Scope::default()
    })
}

fn read_run(row: &AnyRow) -> Result<RunRow, StoreError> {
    Ok(RunRow {
        run_id: row.try_get::<String, _>(0)?.into(),
        scope: scope(row)?,
        tool_call_id: row.try_get(5)?,
        state: RunState::parse(&row.try_get::<String, _>(6)?)?,
        created_at: row.try_get(7)?,
        expires_at: row.try_get(8)?,
        catalog: row.try_get(9)?,
        definition: row.try_get(10)?,
        progress: row.try_get(11)?,
        snapshot_leg: row.try_get(12)?,
        snapshot: row.try_get(13)?,
        result: row.try_get(14)?,
    })
}

fn read_leg(row: &AnyRow) -> Result<LegRow, StoreError> {
    let replies: String = row.try_get(2)?;
    let replies: Result<Vec<CallId>, _> =
        replies.split(',').filter(|part| !part.is_empty()).map(|part| part.parse().map(CallId)).collect();
    let (kind, output_digest): (Option<String>, Option<String>) = (row.try_get(3)?, row.try_get(4)?);
    let kind = kind.map(|kind| LegEndKind::parse(&kind)).transpose()?;
    Ok(LegRow {
        leg: row.try_get(0)?,
        clock_us: u64::try_from(row.try_get::<i64, _>(1)?).unwrap_or(0),
        replies: replies.map_err(|_| StoreError::Corrupt("invalid reply list of a leg".to_owned()))?,
        ended: kind.map(|kind| StoredLegEnd { kind, output_digest: output_digest.unwrap_or_default() }),
    })
}

/// Converts a stored call number.
pub(crate) fn call_id(number: i64) -> Result<CallId, StoreError> {
    u32::try_from(number).map(CallId).map_err(|_| StoreError::Corrupt("invalid call number".to_owned()))
}

fn read_call(row: &AnyRow) -> Result<CallRow, StoreError> {
    let reply: Option<String> = row.try_get(15)?;
    let reply = reply.map(|text| serde_json::from_str(&text)).transpose();
    Ok(CallRow {
        call: call_id(row.try_get(0)?)?,
        leg: row.try_get(1)?,
        method: row.try_get(2)?,
        target: row.try_get(3)?,
        payload: row.try_get(4)?,
        input_hash: row.try_get(5)?,
        tool_id: row.try_get(6)?,
        tool_hash: row.try_get(7)?,
        input: row.try_get(8)?,
        state: CallState::parse(&row.try_get::<String, _>(9)?)?,
        attempt: row.try_get(10)?,
        due_at: row.try_get(11)?,
        since: row.try_get(12)?,
        settle_order: row.try_get(13)?,
        outcome: row.try_get(14)?,
        reply: reply.map_err(|_| StoreError::Corrupt("invalid reply of a call".to_owned()))?,
        parent: row.try_get(16)?,
        ticket: row.try_get(17)?,
    })
}
