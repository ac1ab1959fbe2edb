//! SQL statements as values: what a transaction writes can be decided before any of it is executed, and executed on
//! either driver.

use std::borrow::Cow;

use sqlx::AnyConnection;

use crate::error::StoreError;

/// A value that is bound to a statement. `None` is NULL; Postgres needs its type.
#[derive(Clone, Debug)]
pub(crate) enum SqlValue {
    Integer(Option<i64>),
    Text(Option<String>),
    Bytes(Option<Vec<u8>>),
}

impl From<i64> for SqlValue {
    fn from(value: i64) -> Self {
        Self::Integer(Some(value))
    }
}

impl From<Option<i64>> for SqlValue {
    fn from(value: Option<i64>) -> Self {
        Self::Integer(value)
    }
}

impl From<String> for SqlValue {
    fn from(value: String) -> Self {
        Self::Text(Some(value))
    }
}

impl From<Option<String>> for SqlValue {
    fn from(value: Option<String>) -> Self {
        Self::Text(value)
    }
}

impl From<&str> for SqlValue {
    fn from(value: &str) -> Self {
        Self::Text(Some(value.to_owned()))
    }
}

impl From<Option<&str>> for SqlValue {
    fn from(value: Option<&str>) -> Self {
        Self::Text(value.map(str::to_owned))
    }
}

impl From<Option<Vec<u8>>> for SqlValue {
    fn from(value: Option<Vec<u8>>) -> Self {
        Self::Bytes(value)
    }
}

impl SqlValue {
    /// Returns about how many bytes the value takes in the store.
    fn bytes(&self) -> usize {
        match self {
            Self::Integer(_) | Self::Text(None) | Self::Bytes(None) => 8,
            Self::Text(Some(text)) => text.len(),
            Self::Bytes(Some(bytes)) => bytes.len(),
        }
    }
}

impl rusqlite::ToSql for SqlValue {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        match self {
            Self::Integer(value) => value.to_sql(),
            Self::Text(value) => value.to_sql(),
            Self::Bytes(value) => value.to_sql(),
        }
    }
}

/// A statement with its values, which are bound to `$1`, `$2` and so on.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    sql: Cow<'static, str>,
    values: Vec<SqlValue>,
}

impl Statement {
    pub(crate) fn new(sql: impl Into<Cow<'static, str>>) -> Self {
        Self { sql: sql.into(), values: Vec::new() }
    }

    #[must_use]
    pub(crate) fn bind(mut self, value: impl Into<SqlValue>) -> Self {
        self.values.push(value.into());
        self
    }

    /// Binds texts one after another.
    #[must_use]
    pub(crate) fn bind_all(self, texts: &[String]) -> Self {
        texts.iter().fold(self, |statement, text| statement.bind(text.clone()))
    }

    /// Executes the statement with `sqlx` and returns how many rows it changed.
    pub(crate) async fn execute(self, connection: &mut AnyConnection) -> Result<u64, sqlx::Error> {
        let is_large = self.values.len() >= LARGE_STATEMENT && connection.backend_name() == SQLITE;
        let unnumbered = if is_large { without_numbers(&self.sql) } else { None };
        let mut query = sqlx::query(unnumbered.as_deref().unwrap_or(&self.sql));
        for value in self.values {
            query = match value {
                SqlValue::Integer(value) => query.bind(value),
                SqlValue::Text(value) => query.bind(value),
                SqlValue::Bytes(value) => query.bind(value),
            };
        }
        Ok(query.execute(connection).await?.rows_affected())
    }

    /// Executes the statement with `rusqlite`, on this thread, and returns how many rows it changed.
    pub(crate) fn execute_here(&self, connection: &rusqlite::Connection) -> rusqlite::Result<u64> {
        let changed = connection.prepare_cached(&self.sql)?.execute(rusqlite::params_from_iter(&self.values))?;
        Ok(changed as u64)
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
pub(crate) enum Step {
    /// A fault point for tests.
    Point(&'static str),
    /// A statement that may change any number of rows.
    Execute(Statement),
    /// A statement that must change exactly one row.
    ChangeOne(Statement, Mismatch),
}

impl From<Statement> for Step {
    fn from(statement: Statement) -> Self {
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

impl Step {
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

    /// Executes the step with `rusqlite`, on this thread, within the transaction of the connection.
    pub(crate) fn execute_here(&self, connection: &rusqlite::Connection) -> Result<(), StepError> {
        match self {
            Self::Point(name) => Ok(fault::point(name)?),
            Self::Execute(statement) => Ok(statement.execute_here(connection).map(drop)?),
            Self::ChangeOne(statement, mismatch) => require_one(statement.execute_here(connection)?, *mismatch),
        }
    }
}

fn require_one(changed: u64, mismatch: Mismatch) -> Result<(), StepError> {
    if changed == 1 { Ok(()) } else { Err(StepError::Mismatch(mismatch)) }
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
