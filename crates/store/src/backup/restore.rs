//! Checks a backup, and restores it into a store in one transaction.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use contract::limits::OUTPUT_PIECE_BYTES;
use sqlx::any::AnyArguments;
use sqlx::query::Query;
use sqlx::{Any, AnyConnection, Executor, Row};

use super::format::{Column, ColumnKind, Decoder, Record, Value};
use super::{BackupError, TABLES, columns};
use crate::backend::Backend;
use crate::locking::begin_with_locks;
use crate::outputs::OutputKind;
use crate::rows::RunState;
use crate::seal::key_id_of;
use crate::sql::row_placeholders;
use crate::turns::TurnState;
use crate::{Millis, migrations};

/// The most keys that a backup's cells may be sealed with; more than a key file may hold.
const MAX_KEYS: usize = 256;

/// Fences in a backup are below this: a restore increments them, and they must not overflow.
const MAX_FENCE: i64 = i64::MAX / 4;

/// What a complete, valid backup contains: how many rows, and which keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupSummary {
    pub schema: i64,
    /// The number of rows of each table.
    pub row_counts: BTreeMap<String, u64>,
    /// The text of the key file, if the backup includes one.
    pub key_file: Option<String>,
    /// The numbers of the keys that suspended cells in the backup are sealed with.
    pub sealed_with: BTreeSet<u32>,
    /// The fingerprints of the store's keys, by number.
    pub key_fingerprints: BTreeMap<u32, String>,
    digest: [u8; 32],
}

/// Reads a whole backup and checks it.
pub fn check(from: &mut (dyn Read + Send)) -> Result<BackupSummary, BackupError> {
    let mut decoder = Decoder::begin(from)?;
    if decoder.schema > migrations::VERSION {
        return Err(BackupError::TooNew { found: decoder.schema, known: migrations::VERSION });
    }
    let mut summary = BackupSummary {
        schema: decoder.schema,
        row_counts: BTreeMap::new(),
        key_file: None,
        sealed_with: BTreeSet::new(),
        key_fingerprints: BTreeMap::new(),
        digest: [0; 32],
    };
    let mut table: Option<(String, Vec<Column>)> = None;
    loop {
        match decoder.next()? {
            Record::Table { name, columns } => {
                if !TABLES.contains(&name.as_str()) || summary.row_counts.insert(name.clone(), 0).is_some() {
                    return Err(BackupError::Damaged("a table is unknown or occurs twice"));
                }
                table = Some((name, columns));
            }
            Record::Row(values) => {
                let (name, columns) = table.as_ref().ok_or(BackupError::Damaged("a row precedes the first table"))?;
                fits(columns, &values)?;
                summary.check_row(name, columns, &values)?;
            }
            Record::Keys(text) if summary.key_file.is_none() => summary.key_file = Some(text),
            Record::Keys(_) => return Err(BackupError::Damaged("it contains two key files")),
            Record::End { digest } => {
                summary.digest = digest;
                return Ok(summary);
            }
        }
    }
}

impl BackupSummary {
    /// Checks a row of a table and counts it.
    fn check_row(&mut self, table: &str, columns: &[Column], values: &[Value]) -> Result<(), BackupError> {
        if let Some(count) = self.row_counts.get_mut(table) {
            *count += 1;
        }
        let field =
            |name: &str| columns.iter().zip(values).find(|(column, _)| column.name == name).map(|(_, value)| value);
        match table {
            "runs" => {
                let known = |state: &String| RunState::ALL.iter().any(|one| one.as_str() == state);
                match (field("state"), field("fence")) {
                    (Some(Value::Text(state)), Some(Value::Integer(fence)))
                        if known(state) && (0..MAX_FENCE).contains(fence) => {}
                    _ => return Err(BackupError::Damaged("a run has an invalid state or fence")),
                }
                if let Some(Value::Bytes(snapshot)) = field("snapshot") {
                    self.sealed_with.insert(key_id_of(snapshot).ok_or(BackupError::Damaged("a cell is not sealed"))?);
                }
            }
            "turns" => {
                let known = |state: &String| TurnState::ALL.iter().any(|one| one.as_str() == state);
                let sizes = ["steps", "bytes"].map(|size| field(size).is_some_and(is_natural));
                match (field("state"), field("fence")) {
                    (Some(Value::Text(state)), Some(Value::Integer(fence)))
                        if known(state) && (0..MAX_FENCE).contains(fence) && sizes == [true; 2] => {}
                    _ => return Err(BackupError::Damaged("a turn has an invalid state, fence or size")),
                }
            }
            "sealing_keys" => {
                if let (Some(Value::Integer(id)), Some(Value::Text(fingerprint))) = (field("key_id"), field("mark")) {
                    let id = u32::try_from(*id).map_err(|_| BackupError::Damaged("a key number is invalid"))?;
                    self.key_fingerprints.insert(id, fingerprint.clone());
                }
            }
            "outputs" => {
                let known = |kind: &String| OutputKind::ALL.iter().any(|one| one.as_str() == kind);
                let sizes = ["bytes", "units", "lines"].map(|size| field(size).is_some_and(is_natural));
                match field("kind") {
                    Some(Value::Text(kind)) if known(kind) && sizes == [true; 3] => {}
                    _ => return Err(BackupError::Damaged("an output has an unknown kind or an invalid size")),
                }
            }
            "output_pieces" => {
                let starts = ["piece", "start_byte", "start_unit", "start_line", "next_line"];
                let starts_fit = starts.iter().all(|start| field(start).is_some_and(is_natural));
                match field("data") {
                    Some(Value::Bytes(data)) if starts_fit && data.len() <= OUTPUT_PIECE_BYTES => {}
                    _ => return Err(BackupError::Damaged("a piece of an output is invalid")),
                }
            }
            "session_values" => match field("value") {
                Some(Value::Text(value)) if serde_json::from_str::<serde::de::IgnoredAny>(value).is_ok() => {}
                _ => return Err(BackupError::Damaged("a session value is not JSON")),
            },
            _ => {}
        }
        if self.sealed_with.len() > MAX_KEYS || self.key_fingerprints.len() > MAX_KEYS {
            return Err(BackupError::Damaged("it refers to too many keys"));
        }
        Ok(())
    }
}

/// Whether the value is a number that is not negative.
fn is_natural(value: &Value) -> bool {
    matches!(value, Value::Integer(0..))
}

/// Checks that a row has a value of the right kind for each column.
fn fits(columns: &[Column], values: &[Value]) -> Result<(), BackupError> {
    let fits = |(column, value): (&Column, &Value)| {
        matches!(
            (column.kind, value),
            (_, Value::Null)
                | (ColumnKind::Integer, Value::Integer(_))
                | (ColumnKind::Text, Value::Text(_))
                | (ColumnKind::Bytes, Value::Bytes(_))
        )
    };
    if columns.len() == values.len() && columns.iter().zip(values).all(fits) {
        Ok(())
    } else {
        Err(BackupError::Damaged("a row does not match its table"))
    }
}

/// Options of a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoreOptions {
    /// Replace the contents of a store that is not empty.
    pub replace: bool,
    /// Abort runs and turns that were live at the backup and void open approvals, so that calls made after the backup
    /// are not repeated.
    pub end_runs: bool,
}

/// The amount that a restore adds to each fence of the backup, in addition to the store's current fence. A process may
/// have taken over a run after the backup, with a fence that the backup does not have. This is more than a fence ever
/// grows otherwise, so such a process can no longer write the run.
const FENCE_INCREMENT: i64 = 1_000_000;

/// The most rows, and bytes, that one statement inserts.
const MAX_ROWS: usize = 64;
const MAX_BYTES: usize = 4 << 20;

/// Replaces the contents of the store with a backup: deletes the rows of all tables and inserts those of the backup.
/// Tokens that were revoked before the restore stay revoked, and processes that hold runs or turns can no longer write
/// them.
pub(crate) async fn restore(
    backend: &Backend,
    from: &mut (dyn Read + Send),
    summary: &BackupSummary,
    options: RestoreOptions,
    now: Millis,
) -> Result<(), BackupError> {
    // Other processes can still read; writers wait until the restore is committed.
    let mut transaction = begin_with_locks(backend, &TABLES, "EXCLUSIVE").await?;
    if !options.replace && !is_empty(&mut transaction).await? {
        return Err(BackupError::NotEmpty);
    }
    transaction
        .execute(
            "CREATE TEMPORARY TABLE fences_before AS SELECT run_id AS id, fence FROM runs \
             UNION ALL SELECT turn_id AS id, fence FROM turns",
        )
        .await?;
    let revoked =
        "CREATE TEMPORARY TABLE revoked_before AS SELECT token_id, revoked_at FROM tokens WHERE revoked_at IS NOT NULL";
    transaction.execute(revoked).await?;
    for table in TABLES.iter().chain(&["usage"]) {
        transaction.execute(format!("DELETE FROM {table}").as_str()).await?;
    }
    insert_rows(backend, &mut transaction, from, summary).await?;
    for (table, id) in [("runs", "run_id"), ("turns", "turn_id")] {
        let update = format!(
            "UPDATE {table} SET holder = CASE WHEN holder = '' THEN '' ELSE 'restored' END, lease_until = 0, \
             fence = fence + {FENCE_INCREMENT} + \
             COALESCE((SELECT MAX(old.fence) FROM fences_before AS old WHERE old.id = {table}.{id}), 0)"
        );
        transaction.execute(update.as_str()).await?;
    }
    transaction.execute("DROP TABLE fences_before").await?;
    // A token that was revoked after the backup stays revoked.
    let revoked = "UPDATE tokens SET revoked_at = (SELECT old.revoked_at FROM revoked_before AS old \
         WHERE old.token_id = tokens.token_id) \
         WHERE revoked_at IS NULL AND token_id IN (SELECT token_id FROM revoked_before)";
    transaction.execute(revoked).await?;
    transaction.execute("DROP TABLE revoked_before").await?;
    if options.end_runs {
        end_runs(&mut transaction, now).await?;
    }
    transaction.commit().await?;
    Ok(())
}

/// Inserts the rows of a backup, and checks that it is still the one that was checked.
async fn insert_rows(
    backend: &Backend,
    connection: &mut AnyConnection,
    from: &mut (dyn Read + Send),
    summary: &BackupSummary,
) -> Result<(), BackupError> {
    let mut decoder = Decoder::begin(from)?;
    let mut batch: Option<Batch> = None;
    loop {
        match decoder.next()? {
            Record::Table { name, columns: given } => {
                flush(connection, &mut batch).await?;
                let known = columns(connection, backend.dialect, &name).await?;
                if !TABLES.contains(&name.as_str()) || !given.iter().all(|column| known.contains(column)) {
                    return Err(BackupError::Damaged("a table is unknown or has unknown columns"));
                }
                batch = Some(Batch { table: name, columns: given, rows: Vec::new(), bytes: 0 });
            }
            Record::Row(values) => {
                let Some(current) = &mut batch else { return Err(BackupError::Changed) };
                fits(&current.columns, &values)?;
                if current.is_full_with(&values) {
                    flush(connection, &mut batch).await?;
                }
                if let Some(batch) = &mut batch {
                    batch.bytes += size(&values);
                    batch.rows.push(values);
                }
            }
            Record::Keys(_) => {}
            Record::End { digest } => {
                flush(connection, &mut batch).await?;
                return if digest == summary.digest { Ok(()) } else { Err(BackupError::Changed) };
            }
        }
    }
}

/// Rows of one table that are not inserted yet.
struct Batch {
    table: String,
    columns: Vec<Column>,
    rows: Vec<Vec<Value>>,
    bytes: usize,
}

impl Batch {
    fn is_full_with(&self, more: &[Value]) -> bool {
        self.rows.len() == MAX_ROWS || (!self.rows.is_empty() && self.bytes + size(more) > MAX_BYTES)
    }
}

async fn flush(connection: &mut AnyConnection, batch: &mut Option<Batch>) -> Result<(), BackupError> {
    let Some(batch) = batch.as_mut().filter(|batch| !batch.rows.is_empty()) else { return Ok(()) };
    let names: Vec<&str> = batch.columns.iter().map(|column| column.name.as_str()).collect();
    let sql = format!(
        "INSERT INTO {} ({}) VALUES {}",
        batch.table,
        names.join(", "),
        row_placeholders(batch.rows.len(), batch.columns.len())
    );
    let mut query = sqlx::query(&sql);
    for row in batch.rows.drain(..) {
        for (column, value) in batch.columns.iter().zip(row) {
            query = bind(query, column, value);
        }
    }
    batch.bytes = 0;
    query.execute(connection).await?;
    Ok(())
}

/// Binds a value. Postgres needs the column's type even for a null.
fn bind<'q>(
    query: Query<'q, Any, AnyArguments<'q>>,
    column: &Column,
    value: Value,
) -> Query<'q, Any, AnyArguments<'q>> {
    match (value, column.kind) {
        (Value::Integer(number), _) => query.bind(number),
        (Value::Text(text), _) => query.bind(text),
        (Value::Bytes(bytes), _) => query.bind(bytes),
        (Value::Null, ColumnKind::Integer) => query.bind(None::<i64>),
        (Value::Null, ColumnKind::Text) => query.bind(None::<String>),
        (Value::Null, ColumnKind::Bytes) => query.bind(None::<Vec<u8>>),
    }
}

fn size(values: &[Value]) -> usize {
    let size = |value: &Value| match value {
        Value::Null | Value::Integer(_) => 8,
        Value::Text(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
    };
    values.iter().map(size).sum()
}

/// Whether the store has no runs, turns, outputs, session values, approvals, rules, transcripts or tokens. Key
/// fingerprints do not count, because opening a store writes them; catalogs do not count either.
async fn is_empty(connection: &mut AnyConnection) -> Result<bool, BackupError> {
    for table in TABLES.iter().filter(|table| **table != "sealing_keys" && **table != "catalogs") {
        let sql = format!("SELECT COUNT(*) FROM (SELECT 1 FROM {table} LIMIT 1) AS one");
        if connection.fetch_one(sql.as_str()).await?.try_get::<i64, _>(0)? > 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn end_runs(connection: &mut AnyConnection, now: Millis) -> Result<(), BackupError> {
    sqlx::query(
        "UPDATE runs SET state = 'aborted', snapshot = NULL, updated_at = $1 WHERE state IN ('running', 'waiting')",
    )
    .bind(now)
    .execute(&mut *connection)
    .await?;
    sqlx::query("UPDATE turns SET state = 'aborted', updated_at = $1 WHERE state IN ('running', 'waiting')")
        .bind(now)
        .execute(&mut *connection)
        .await?;
    connection.execute("UPDATE approvals SET state = 'void' WHERE state IN ('pending', 'approved')").await?;
    Ok(())
}
