//! A backup put into a store: all of it or nothing, in one transaction.

use std::io::Read;

use sqlx::any::AnyArguments;
use sqlx::query::Query;
use sqlx::{Any, AnyConnection, Executor, Row};

use super::check::{Checked, fits};
use super::format::{Column, Decoder, Kind, Record, Value};
use super::write::columns;
use super::{BackupError, TABLES};
use crate::Millis;
use crate::backend::Store;
use crate::commit::places;

/// How a backup is put into a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restoring {
    /// In place of what the store holds.
    pub replace: bool,
    /// Runs that were under way are ended: nothing they called after the backup can be called again.
    pub end_runs: bool,
}

/// Who held a run before, and under which fence, is in no backup. A fence is moved on by more than any run's will ever
/// be by itself, so whoever still thinks it holds one writes nothing.
const FENCES_MOVED_ON: i64 = 1_000_000;

/// A statement takes so many rows, and bytes, at once.
const MAX_ROWS: usize = 64;
const MAX_BYTES: usize = 4 << 20;

impl Store {
    /// `from` must be, from its beginning, what was checked: where it is not, nothing is changed.
    pub async fn restore(
        &self,
        from: &mut (dyn Read + Send),
        checked: &Checked,
        how: Restoring,
        now: Millis,
    ) -> Result<(), BackupError> {
        // Others may read on; who wants to write waits until it is over.
        let mut transaction = self.begin_alone(&TABLES, "EXCLUSIVE").await?;
        if !how.replace && !is_empty(&mut transaction).await? {
            return Err(BackupError::NotEmpty);
        }
        transaction.execute("CREATE TEMPORARY TABLE fences_before AS SELECT run_id, fence FROM runs").await?;
        for table in TABLES.iter().chain(&["usage"]) {
            transaction.execute(format!("DELETE FROM {table}").as_str()).await?;
        }
        self.put(&mut transaction, from, checked).await?;
        let moved = format!(
            "UPDATE runs SET holder = '', lease_until = 0, fence = fence + {FENCES_MOVED_ON} + \
             COALESCE((SELECT old.fence FROM fences_before AS old WHERE old.run_id = runs.run_id), 0)"
        );
        transaction.execute(moved.as_str()).await?;
        transaction.execute("DROP TABLE fences_before").await?;
        if how.end_runs {
            end_runs(&mut transaction, now).await?;
        }
        transaction.commit().await?;
        Ok(())
    }

    async fn put(
        &self,
        connection: &mut AnyConnection,
        from: &mut (dyn Read + Send),
        checked: &Checked,
    ) -> Result<(), BackupError> {
        let mut decoder = Decoder::begin(from)?;
        let mut batch: Option<Batch> = None;
        loop {
            match decoder.next()? {
                Record::Table { name, columns: given } => {
                    flush(connection, &mut batch).await?;
                    let known = columns(connection, self.dialect, &name).await?;
                    if !TABLES.contains(&name.as_str()) || !given.iter().all(|column| known.contains(column)) {
                        return Err(BackupError::Damaged("a table is not as it should be"));
                    }
                    batch = Some(Batch { table: name, columns: given, rows: Vec::new(), bytes: 0 });
                }
                Record::Row(values) => {
                    let Some(under_way) = &mut batch else { return Err(BackupError::Changed) };
                    fits(&under_way.columns, &values)?;
                    if under_way.is_full_with(&values) {
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
                    return if digest == checked.digest { Ok(()) } else { Err(BackupError::Changed) };
                }
            }
        }
    }
}

/// Rows of one table that are not written yet.
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
        places(batch.rows.len(), batch.columns.len())
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

/// What is absent is absent of its column's kind: a server wants to know.
fn bind<'q>(
    query: Query<'q, Any, AnyArguments<'q>>,
    column: &Column,
    value: Value,
) -> Query<'q, Any, AnyArguments<'q>> {
    match (value, column.kind) {
        (Value::Integer(number), _) => query.bind(number),
        (Value::Text(text), _) => query.bind(text),
        (Value::Bytes(bytes), _) => query.bind(bytes),
        (Value::Null, Kind::Integer) => query.bind(None::<i64>),
        (Value::Null, Kind::Text) => query.bind(None::<String>),
        (Value::Null, Kind::Bytes) => query.bind(None::<Vec<u8>>),
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

/// Marks of keys are no content: whoever opens a store leaves them.
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
    connection.execute("UPDATE approvals SET state = 'void' WHERE state IN ('pending', 'approved')").await?;
    Ok(())
}
