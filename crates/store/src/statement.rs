//! SQL statements as values: what a transaction writes can be decided before any of it is executed, and executed on
//! either driver.

use std::borrow::Cow;
use std::sync::OnceLock;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection};
use sqlx::AnyConnection;

use crate::error::StoreError;
use crate::sql::ROWS_PER_STATEMENT;

/// A value that is bound to a statement. `None` is NULL; Postgres needs its type.
#[derive(Clone, Debug)]
pub(crate) enum SqlValue<'a> {
    Integer(Option<i64>),
    Text(Option<Cow<'a, str>>),
    Bytes(Option<Cow<'a, [u8]>>),
}

impl From<i64> for SqlValue<'_> {
    fn from(value: i64) -> Self {
        Self::Integer(Some(value))
    }
}

impl From<Option<i64>> for SqlValue<'_> {
    fn from(value: Option<i64>) -> Self {
        Self::Integer(value)
    }
}

impl From<String> for SqlValue<'_> {
    fn from(value: String) -> Self {
        Self::Text(Some(Cow::Owned(value)))
    }
}

impl From<Option<String>> for SqlValue<'_> {
    fn from(value: Option<String>) -> Self {
        Self::Text(value.map(Cow::Owned))
    }
}

impl<'a> From<&'a str> for SqlValue<'a> {
    fn from(value: &'a str) -> Self {
        Self::Text(Some(Cow::Borrowed(value)))
    }
}

impl<'a> From<Cow<'a, str>> for SqlValue<'a> {
    fn from(value: Cow<'a, str>) -> Self {
        Self::Text(Some(value))
    }
}

impl<'a> From<Option<&'a str>> for SqlValue<'a> {
    fn from(value: Option<&'a str>) -> Self {
        Self::Text(value.map(Cow::Borrowed))
    }
}

impl<'a> From<Option<&'a [u8]>> for SqlValue<'a> {
    fn from(value: Option<&'a [u8]>) -> Self {
        Self::Bytes(value.map(Cow::Borrowed))
    }
}

impl SqlValue<'_> {
    /// Returns about how many bytes the value takes in the store.
    fn bytes(&self) -> usize {
        match self {
            Self::Integer(_) | Self::Text(None) | Self::Bytes(None) => 8,
            Self::Text(Some(text)) => text.len(),
            Self::Bytes(Some(bytes)) => bytes.len(),
        }
    }

    /// Returns a value with copies of what this one borrows.
    fn into_owned(self) -> SqlValue<'static> {
        match self {
            Self::Integer(value) => SqlValue::Integer(value),
            Self::Text(value) => SqlValue::Text(value.map(|text| Cow::Owned(text.into_owned()))),
            Self::Bytes(value) => SqlValue::Bytes(value.map(|bytes| Cow::Owned(bytes.into_owned()))),
        }
    }
}

impl rusqlite::ToSql for SqlValue<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        match self {
            Self::Integer(value) => value.to_sql(),
            Self::Text(value) => Ok(borrowed(value.as_deref().map(|text| ValueRef::Text(text.as_bytes())))),
            Self::Bytes(value) => Ok(borrowed(value.as_deref().map(ValueRef::Blob))),
        }
    }
}

fn borrowed(value: Option<ValueRef<'_>>) -> ToSqlOutput<'_> {
    ToSqlOutput::Borrowed(value.unwrap_or(ValueRef::Null))
}

/// A statement with its values, which are bound to `$1`, `$2` and so on.
#[derive(Clone, Debug)]
pub(crate) struct Statement<'a> {
    sql: Cow<'static, str>,
    values: Vec<SqlValue<'a>>,
}

impl<'a> Statement<'a> {
    pub(crate) fn new(sql: impl Into<Cow<'static, str>>) -> Self {
        Self { sql: sql.into(), values: Vec::with_capacity(TYPICAL_VALUES) }
    }

    #[must_use]
    pub(crate) fn bind(mut self, value: impl Into<SqlValue<'a>>) -> Self {
        self.values.push(value.into());
        self
    }

    /// Binds texts one after another.
    #[must_use]
    pub(crate) fn bind_all(self, texts: &'a [String]) -> Self {
        texts.iter().fold(self, |statement, text| statement.bind(text.as_str()))
    }

    /// Executes the statement with `sqlx` and returns how many rows it changed.
    pub(crate) async fn execute(self, connection: &mut AnyConnection) -> Result<u64, sqlx::Error> {
        let is_large = self.values.len() >= LARGE_STATEMENT && connection.backend_name() == SQLITE;
        let unnumbered = if is_large { without_numbers(&self.sql) } else { None };
        let mut query = sqlx::query(unnumbered.as_deref().unwrap_or(&self.sql));
        for value in self.values {
            query = match value {
                SqlValue::Integer(value) => query.bind(value),
                SqlValue::Text(value) => query.bind(value.map(Cow::into_owned)),
                SqlValue::Bytes(value) => query.bind(value.map(Cow::into_owned)),
            };
        }
        Ok(query.execute(connection).await?.rows_affected())
    }

    /// Returns a statement with copies of what this one borrows.
    fn into_owned(self) -> Statement<'static> {
        Statement { sql: self.sql, values: self.values.into_iter().map(SqlValue::into_owned).collect() }
    }
}

/// Space for this many values is allocated at once. Few statements have more.
const TYPICAL_VALUES: usize = 24;

/// The statements of one kind that write different numbers of rows. The text for each number is formatted once and kept.
pub(crate) struct RowStatements {
    texts: [OnceLock<String>; ROWS_PER_STATEMENT + 1],
    text: fn(rows: usize) -> String,
}

impl RowStatements {
    pub(crate) const fn new(text: fn(rows: usize) -> String) -> Self {
        Self { texts: [const { OnceLock::new() }; ROWS_PER_STATEMENT + 1], text }
    }

    /// Returns the statement for this many rows, without values.
    pub(crate) fn statement<'a>(&'static self, rows: usize) -> Statement<'a> {
        match self.texts.get(rows) {
            Some(kept) => Statement::new(kept.get_or_init(|| (self.text)(rows)).as_str()),
            None => Statement::new((self.text)(rows)),
        }
    }
}

/// The number of values from which on a statement is executed without numbers of its placeholders, if it can be.
const LARGE_STATEMENT: usize = 64;
const SQLITE: &str = "SQLite";

/// Returns a statement with `?` for each placeholder; `None` if they are not `$1`, `$2` and so on in this order.
///
/// SQLite keeps placeholders with numbers in a list, which `sqlx` makes it search for each value. For a thousand values,
/// that takes milliseconds.
fn without_numbers(sql: &str) -> Option<String> {
    let mut parts = sql.split('$');
    let mut text = parts.next()?.to_owned();
    for (number, part) in (1_usize..).zip(parts) {
        let rest = part.strip_prefix(&number.to_string())?;
        if rest.starts_with(|next: char| next.is_ascii_digit()) {
            return None;
        }
        text.push('?');
        text.push_str(rest);
    }
    Some(text)
}

/// Returns an INSERT for SQLite that keeps the rows it has inserted if a later one fails. Otherwise SQLite copies each
/// page before an INSERT of several rows changes it, so that it can undo the statement without the transaction.
fn without_undo(sql: &str) -> Cow<'_, str> {
    match sql.strip_prefix("INSERT INTO ") {
        Some(rest) => Cow::Owned(["INSERT OR FAIL INTO ", rest].concat()),
        None => Cow::Borrowed(sql),
    }
}

/// What it means that a statement did not change exactly one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mismatch {
    /// The caller may no longer write the run or turn: another process has taken it over, or it has ended.
    Fenced,
    /// A row that the statement depends on, such as the run's catalog, is not in the store. The caller must start
    /// another transaction, which writes that row first.
    Missing,
    /// The id of the row is in use: its row belongs to something else.
    UsedId,
}

/// A step of a transaction.
#[derive(Clone, Debug)]
pub(crate) enum Step<'a> {
    /// A fault point for tests.
    Point(&'static str),
    /// A statement that may change any number of rows.
    Execute(Statement<'a>),
    /// A statement that must change exactly one row.
    ChangeOne(Statement<'a>, Mismatch),
}

impl<'a> From<Statement<'a>> for Step<'a> {
    fn from(statement: Statement<'a>) -> Self {
        Self::Execute(statement)
    }
}

/// Why the steps of a transaction were not executed.
#[derive(Debug)]
pub(crate) enum StepError {
    Mismatch(Mismatch),
    Store(StoreError),
}

impl<E: Into<StoreError>> From<E> for StepError {
    fn from(error: E) -> Self {
        Self::Store(error.into())
    }
}

impl Step<'_> {
    /// Returns a step with copies of what this one borrows.
    pub(crate) fn into_owned(self) -> Step<'static> {
        match self {
            Self::Point(name) => Step::Point(name),
            Self::Execute(statement) => Step::Execute(statement.into_owned()),
            Self::ChangeOne(statement, mismatch) => Step::ChangeOne(statement.into_owned(), mismatch),
        }
    }

    /// Returns about how many bytes the values of the step take in the store.
    pub(crate) fn value_bytes(&self) -> usize {
        match self {
            Self::Point(_) => 0,
            Self::Execute(statement) | Self::ChangeOne(statement, _) => {
                statement.values.iter().map(SqlValue::bytes).sum()
            }
        }
    }

    /// Executes the step with `sqlx`, within the caller's transaction.
    pub(crate) async fn execute(self, connection: &mut AnyConnection) -> Result<(), StepError> {
        match self {
            Self::Point(name) => Ok(fault::point(name)?),
            Self::Execute(statement) => Ok(statement.execute(connection).await.map(drop)?),
            Self::ChangeOne(statement, mismatch) => require_one(statement.execute(connection).await?, mismatch),
        }
    }
}

fn require_one(changed: u64, mismatch: Mismatch) -> Result<(), StepError> {
    if changed == 1 { Ok(()) } else { Err(StepError::Mismatch(mismatch)) }
}

/// Executes statements with `rusqlite`, on this thread, within the transaction of a connection. Keeps the last statement
/// prepared: many steps of a transaction have the same statement, and finding it in the cache of the connection would
/// read its whole text.
pub(crate) struct StepExecutor<'c, 's> {
    connection: &'c Connection,
    last: Option<(&'s str, CachedStatement<'c>)>,
}

impl<'c, 's> StepExecutor<'c, 's> {
    pub(crate) fn new(connection: &'c Connection) -> Self {
        Self { connection, last: None }
    }

    pub(crate) fn step(&mut self, step: &'s Step<'_>) -> Result<(), StepError> {
        match step {
            Step::Point(name) => Ok(fault::point(name)?),
            Step::Execute(statement) => Ok(self.statement(statement).map(drop)?),
            Step::ChangeOne(statement, mismatch) => require_one(self.statement(statement)?, *mismatch),
        }
    }

    /// Executes a statement and returns how many rows it changed.
    ///
    /// If it fails, it may have written some of its rows, so the caller must roll back the transaction or a savepoint.
    fn statement(&mut self, statement: &'s Statement<'_>) -> rusqlite::Result<u64> {
        let prepared = match &mut self.last {
            Some((sql, prepared)) if *sql == statement.sql => prepared,
            last => {
                let prepared = self.connection.prepare_cached(&without_undo(&statement.sql))?;
                &mut last.insert((&statement.sql, prepared)).1
            }
        };
        Ok(prepared.execute(rusqlite::params_from_iter(&statement.values))? as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::without_numbers;
    use crate::sql::row_placeholders;

    #[test]
    fn placeholders_lose_their_numbers_only_if_they_are_in_order() {
        let rows = format!("INSERT INTO a VALUES {} ON CONFLICT DO NOTHING", row_placeholders(2, 6));
        let row = "(?, ?, ?, ?, ?, ?)";
        assert_eq!(without_numbers(&rows), Some(format!("INSERT INTO a VALUES {row}, {row} ON CONFLICT DO NOTHING")));
        for sql in ["($1, $1)", "($2, $1)", "($1, $3)", "($1, '$.a')", "($12)"] {
            assert_eq!(without_numbers(sql), None, "{sql}");
        }
        assert_eq!(without_numbers("DELETE FROM a").as_deref(), Some("DELETE FROM a"));
    }
}
