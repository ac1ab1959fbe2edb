//! Writes the rows of a change: the run with its catalog, its legs and its calls.

use contract::ids::RunId;
use sqlx::{AnyConnection, Row};

use super::{Change, CommitError};
use crate::Millis;
use crate::ended_journal::EndedJournal;
use crate::error::StoreError;
use crate::rows::{CallRow, CallState, LegRow, RunState};
use crate::runs::{FencedRun, NewRun};
use crate::sql::{ROWS_PER_STATEMENT, row_placeholders};
use crate::statement::{Mismatch, RowStatements, SqlValue, Statement, Step};

/// How often a catalog is marked as used: much less than the time for which a sweep keeps a used catalog.
const MARK_USED_EVERY_MS: i64 = 30 * 60 * 1000;

/// The most bytes of calls per statement.
const BYTES_PER_STATEMENT: usize = 2 << 20;

/// The longest journal, in bytes as [`Change::journal_bytes`] counts them, that is stored in the run's row.
const MAX_JOURNAL_BYTES: i64 = 64 << 10;

/// How the transaction of a change is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Execution {
    /// By SQLite's writing connection, with steps that are all known in advance. A new run is inserted only if its catalog
    /// is stored and was marked as used recently. Each call has a statement of its own: one that may update one of several
    /// rows would make SQLite copy each page before it changes it, and would have to be prepared for each number of rows.
    Planned,
    /// With sqlx, which may read between the steps. [`store_catalog`] is called after a new run is inserted. A statement
    /// writes several calls, so that they need only one message to the server.
    Interactive,
}

/// Returns the text of the legs and calls that are stored in the run's row: those of a run that starts and ends with this
/// change. `None` if they have rows of their own: because there is more to come, because a call without a result may still
/// get one, because they are large, or because the run is a direct call, whose row of the call is shown in lists.
pub(super) fn journal_of_row(held: &FencedRun, change: &Change) -> Result<Option<String>, StoreError> {
    let Change { state, legs, calls, journal_bytes, .. } = change;
    let is_whole = !held.is_written() && state.is_some_and(RunState::is_over);
    let is_final =
        |call: &CallRow| matches!(call.state, CallState::Settled | CallState::Delivered | CallState::Cleared);
    let fits = is_whole && !legs.is_empty() && *journal_bytes <= MAX_JOURNAL_BYTES && calls.iter().all(is_final);
    fits.then(|| EndedJournal { legs: legs.into(), calls: calls.into() }.to_text()).transpose()
}

/// Returns the statement that writes the run's row: the first commit inserts it, with the journal if that is stored in the
/// row, and later ones update it if the holder still has the run.
pub(super) fn run_step<'a>(
    held: &'a FencedRun,
    change: &'a Change,
    journal: Option<String>,
    sealed: Option<&'a (i64, Vec<u8>)>,
    now: Millis,
    execution: Execution,
) -> Step<'a> {
    match &held.unwritten {
        Some(run) => insert(run, change, journal, sealed, now, execution),
        None => Step::ChangeOne(update(held, change, sealed, now), Mismatch::Fenced),
    }
}

/// Returns the update of a run's row. It names only the columns that change: SQLite rewrites the entries of every index
/// that has a named column, also if its value stays the same.
fn update<'a>(
    held: &'a FencedRun,
    change: &'a Change,
    sealed: Option<&'a (i64, Vec<u8>)>,
    now: Millis,
) -> Statement<'a> {
    let over = change.state.is_some_and(RunState::is_over);
    let mut columns = vec!["sequence = sequence + 1".to_owned()];
    let mut values: Vec<SqlValue<'a>> = Vec::new();
    let mut set = |column: &str, value: SqlValue<'a>| {
        values.push(value);
        columns.push(format!("{column}${}", values.len()));
    };
    set("updated_at = ", now.into());
    set("journal_bytes = journal_bytes + ", change.journal_bytes.into());
    if let Some(state) = change.state {
        set("state = ", state.as_str().into());
    }
    if let Some(expires_at) = change.expires_at {
        set("expires_at = ", expires_at.into());
    }
    if let Some(progress) = &change.progress {
        set("progress = ", progress.as_str().into());
    }
    if let Some(result) = &change.result {
        set("result = ", result.as_str().into());
    }
    if change.release || over {
        set("lease_until = ", 0.into());
    }
    if let Some((leg, snapshot)) = sealed {
        set("snapshot_leg = ", (*leg).into());
        if !over {
            set("snapshot = ", Some(snapshot.as_slice()).into());
        }
    }
    if over {
        // An ended run keeps no snapshot.
        set("snapshot = ", None::<&[u8]>.into());
    }
    let next = values.len();
    let sql = format!(
        "UPDATE runs SET {} WHERE run_id = ${} AND sequence = ${} AND fence = ${} AND state IN ('running', 'waiting')",
        columns.join(", "),
        next + 1,
        next + 2,
        next + 3
    );
    let statement = values.into_iter().fold(Statement::new(sql), Statement::bind);
    statement.bind(held.run_id.as_str()).bind(held.sequence).bind(held.fence)
}

macro_rules! insert_run {
    ($from:literal) => {
        concat!(
            "INSERT INTO runs (run_id, agent_id, session_id, agent_run_id, tool_call_id, state, sequence, fence, holder, \
             lease_until, created_at, updated_at, expires_at, catalog, definition, progress, snapshot_leg, snapshot, \
             result, journal_bytes, client, journal) ",
            $from
        )
    };
}

fn insert<'a>(
    run: &'a NewRun,
    change: &'a Change,
    journal: Option<String>,
    sealed: Option<&'a (i64, Vec<u8>)>,
    now: Millis,
    execution: Execution,
) -> Step<'a> {
    // A direct call without a cell has no catalog.
    let is_checked = execution == Execution::Planned && !run.catalog.is_empty();
    let sql = if is_checked {
        insert_run!(
            "SELECT $1, $2, $3, $4, $5, $6, 1, 1, $7, $8, $9, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19 \
             FROM catalogs WHERE hash = $11 AND used_at >= $20"
        )
    } else {
        insert_run!(
            "VALUES ($1, $2, $3, $4, $5, $6, 1, 1, $7, $8, $9, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)"
        )
    };
    let over = change.state.is_some_and(RunState::is_over);
    let (leg, snapshot) = sealed.map(|(leg, snapshot)| (*leg, snapshot.as_slice())).unzip();
    let statement = Statement::new(sql)
        .bind(run.run_id.as_str())
        .bind(run.scope.agent_id.as_str())
        .bind(run.scope.session_id.as_str())
        .bind(run.scope.agent_run_id.as_str())
        .bind(run.tool_call_id.as_str())
        .bind(change.state.unwrap_or(RunState::Running).as_str())
        .bind(run.holder.as_str())
        .bind(if change.release || over { 0 } else { run.lease_until })
        .bind(now)
        .bind(change.expires_at.unwrap_or(run.expires_at))
        .bind(run.catalog.as_str())
        .bind(run.definition.as_str())
        .bind(change.progress.as_deref().unwrap_or_default())
        .bind(leg)
        .bind(snapshot.filter(|_| !over))
        .bind(change.result.as_deref())
        .bind(change.journal_bytes)
        .bind(run.scope.client.as_str())
        .bind(journal);
    if is_checked {
        Step::ChangeOne(statement.bind(now.saturating_sub(MARK_USED_EVERY_MS)), Mismatch::Missing)
    } else {
        Step::Execute(statement)
    }
}

/// Stores the catalog tables that the cell reads, unless they are already stored. They are kept as long as the run: to
/// resume it, and to replay it by hand after it has ended.
///
/// It checks first whether they are stored, because compressing them takes longer than most cells. It must be called
/// after another write of the transaction, because SQLite fails a transaction that reads before it writes if another
/// connection wrote in between.
pub(super) async fn store_catalog(
    connection: &mut AnyConnection,
    run: &NewRun,
    now: Millis,
) -> Result<(), CommitError> {
    // A direct call without a cell has no catalog.
    if run.catalog.is_empty() {
        return Ok(());
    }
    let used_at = sqlx::query("SELECT used_at FROM catalogs WHERE hash = $1")
        .bind(run.catalog.clone())
        .fetch_optional(&mut *connection)
        .await?
        .map(|row| row.try_get::<Millis, _>(0))
        .transpose()?;
    let before = now.saturating_sub(MARK_USED_EVERY_MS);
    if used_at.is_some_and(|used_at| used_at >= before) {
        return Ok(());
    }
    // Marked as used from time to time, so that no sweep deletes the catalog before the run that uses it is committed.
    // Not every time, because transactions that start runs would then wait for each other.
    let marked = sqlx::query("UPDATE catalogs SET used_at = $1 WHERE hash = $2")
        .bind(now)
        .bind(run.catalog.clone())
        .execute(&mut *connection)
        .await?;
    if marked.rows_affected() > 0 {
        return Ok(());
    }
    let packed = zstd::bulk::compress(&run.tables, 1).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    sqlx::query("INSERT INTO catalogs (hash, tables, used_at) VALUES ($1, $2, $3) ON CONFLICT (hash) DO NOTHING")
        .bind(run.catalog.clone())
        .bind(packed)
        .bind(now)
        .execute(&mut *connection)
        .await?;
    Ok(())
}

/// Returns the statements that insert or update legs.
pub(super) fn leg_statements<'a>(run_id: &'a RunId, legs: &'a [LegRow]) -> impl Iterator<Item = Statement<'a>> {
    legs.chunks(ROWS_PER_STATEMENT).map(|batch| {
        batch.iter().fold(WRITE_LEGS.statement(batch.len()), |statement, leg| {
            let replies: Vec<String> = leg.replies.iter().map(ToString::to_string).collect();
            statement
                .bind(run_id.as_str())
                .bind(leg.leg)
                .bind(i64::try_from(leg.clock_us).unwrap_or(i64::MAX))
                .bind(replies.join(","))
                .bind(leg.ended.as_ref().map(|ended| ended.kind.as_str()))
                .bind(leg.ended.as_ref().map(|ended| ended.output_digest.as_str()))
        })
    })
}

static WRITE_LEGS: RowStatements = RowStatements::new(write_legs);

fn write_legs(rows: usize) -> String {
    format!(
        "INSERT INTO legs (run_id, leg, clock_us, replies, ended, shown) VALUES {} ON CONFLICT (run_id, leg) DO \
         UPDATE SET ended = COALESCE(excluded.ended, legs.ended), shown = COALESCE(excluded.shown, legs.shown)",
        row_placeholders(rows, 6)
    )
}

/// Returns the statements that insert or update calls. A call that another process has settled stays settled. A stored
/// reply or outcome is kept if the new row has none, because the holder may have dropped it from memory.
pub(super) fn call_statements<'a>(
    run_id: &'a RunId,
    calls: &'a [CallRow],
    execution: Execution,
) -> Result<Vec<Statement<'a>>, StoreError> {
    let (mut rest, mut statements) = (calls, Vec::new());
    while !rest.is_empty() {
        let (batch, later) = rest.split_at(batch_of(rest, execution));
        rest = later;
        let statement = WRITE_CALLS.statement(batch.len());
        let statement = batch.iter().try_fold(statement, |statement, call| bind_call(statement, run_id, call));
        statements.push(statement?);
    }
    Ok(statements)
}

static WRITE_CALLS: RowStatements = RowStatements::new(write_calls);

fn write_calls(rows: usize) -> String {
    format!(
        "INSERT INTO calls (run_id, call, leg, method, target, payload, input_hash, tool_id, tool_hash, input, state, \
         attempt, due_at, since, settle_order, outcome, reply, parent, ticket) VALUES {} ON CONFLICT (run_id, call) DO \
         UPDATE SET tool_id = excluded.tool_id, tool_hash = excluded.tool_hash, input = excluded.input, \
         state = excluded.state, attempt = excluded.attempt, due_at = excluded.due_at, \
         settle_order = excluded.settle_order, outcome = COALESCE(excluded.outcome, calls.outcome), \
         reply = COALESCE(excluded.reply, calls.reply), ticket = excluded.ticket \
         WHERE calls.state <> 'settled' OR excluded.state IN ('settled', 'delivered', 'cleared')",
        row_placeholders(rows, 19)
    )
}

/// Returns how many of these calls go into one statement, at least one.
fn batch_of(calls: &[CallRow], execution: Execution) -> usize {
    if execution == Execution::Planned {
        return 1;
    }
    let mut bytes = 0;
    let fits = |call: &&CallRow| {
        bytes += call.journal_bytes();
        bytes <= BYTES_PER_STATEMENT
    };
    calls.iter().take(ROWS_PER_STATEMENT).take_while(fits).count().max(1)
}

fn bind_call<'a>(statement: Statement<'a>, run_id: &'a RunId, call: &'a CallRow) -> Result<Statement<'a>, StoreError> {
    let reply = call.reply.as_ref().map(serde_json::to_string).transpose();
    let reply = reply.map_err(|error| StoreError::Corrupt(error.to_string()))?;
    Ok(statement
        .bind(run_id.as_str())
        .bind(i64::from(call.call.0))
        .bind(call.leg)
        .bind(call.method.as_str())
        .bind(call.target.as_str())
        .bind(call.payload.as_str())
        .bind(call.input_hash.as_str())
        .bind(call.tool_id.as_deref())
        .bind(call.tool_hash.as_deref())
        .bind(call.input.as_deref())
        .bind(call.state.as_str())
        .bind(call.attempt)
        .bind(call.due_at)
        .bind(call.since)
        .bind(call.settle_order)
        .bind(call.outcome.as_deref())
        .bind(reply)
        .bind(call.parent.as_str())
        .bind(call.ticket.as_deref()))
}
