//! Values that the cells of a session keep for each other. A value that is not written for `keepTranscriptsSeconds` is
//! deleted by a sweep.

mod write;

use contract::ids::RunId;
use contract::limits::JOURNAL_ROW_BYTES;
use contract::scope::Scope;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use crate::Millis;
use crate::backend::{Backend, Dialect, Durability};
use crate::error::StoreError;
use crate::locking::begin_write;
use write::{lock, of_session};

pub(crate) use write::write;

/// Identifies a session: its principal, its id, and the client and project that its runs are started from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SessionKey {
    pub agent_id: String,
    pub session_id: String,
    pub client: String,
}

impl From<&Scope> for SessionKey {
    fn from(scope: &Scope) -> Self {
        Self { agent_id: scope.agent_id.clone(), session_id: scope.session_id.clone(), client: scope.client.clone() }
    }
}

/// A write of a session's value. It is part of a change of the run that makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueWrite {
    pub key: String,
    /// The new value as JSON; `None` deletes the key.
    pub value: Option<String>,
    /// The new version: unique, and the same if the write is repeated after a crash.
    pub version: String,
    /// What the key must have, or the write has no effect.
    pub expected: Option<ExpectedVersion>,
}

/// The condition of a [`ValueWrite`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpectedVersion {
    Absent,
    Version(String),
}

/// A conditional write that had no effect, because the key has another version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionConflict {
    pub key: String,
    /// The version of the write that had no effect.
    pub version: String,
    /// The version that the key has; `None` if the key does not exist.
    pub current: Option<String>,
}

/// A session's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionValue {
    pub key: String,
    /// JSON.
    pub value: String,
    pub version: String,
    /// The run that wrote it.
    pub run_id: RunId,
    pub updated_at: Millis,
}

/// A session's value without its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionValueSize {
    pub key: String,
    pub version: String,
    pub bytes: u64,
}

/// The number of a session's values, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionTotals {
    pub keys: u64,
    /// The bytes of the values' JSON, without their keys.
    pub bytes: u64,
}

impl SessionTotals {
    /// Returns the bytes that these values count for in the quota of their principal.
    pub(crate) fn stored_bytes(self) -> i64 {
        i64::try_from(self.bytes.saturating_add(self.keys.saturating_mul(JOURNAL_ROW_BYTES as u64))).unwrap_or(i64::MAX)
    }
}

impl ValueWrite {
    /// Returns what the write stores.
    pub(crate) fn totals(&self) -> SessionTotals {
        let stored = |value: &String| SessionTotals { keys: 1, bytes: value.len() as u64 };
        self.value.as_ref().map(stored).unwrap_or_default()
    }
}

pub(crate) async fn value(
    backend: &Backend,
    session: &SessionKey,
    key: &str,
) -> Result<Option<SessionValue>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM session_values WHERE {OF_SESSION} AND key = $4");
    let row = of_session(&sql, session).bind(key.to_owned()).fetch_optional(backend.reader()).await?;
    row.map(|row| read_value(&row)).transpose()
}

pub(crate) async fn values(backend: &Backend, session: &SessionKey) -> Result<Vec<SessionValue>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM session_values WHERE {OF_SESSION}");
    let rows = of_session(&sql, session).fetch_all(backend.reader()).await?;
    let mut values = rows.iter().map(read_value).collect::<Result<Vec<_>, _>>()?;
    // Sorted here, because the order of texts in Postgres depends on its locale.
    values.sort_by(|one, other| one.key.cmp(&other.key));
    Ok(values)
}

pub(crate) async fn sizes(backend: &Backend, session: &SessionKey) -> Result<Vec<SessionValueSize>, StoreError> {
    let sql = format!("SELECT key, version, bytes FROM session_values WHERE {OF_SESSION}");
    let rows = of_session(&sql, session).fetch_all(backend.reader()).await?;
    let size = |row: &AnyRow| {
        let bytes = u64::try_from(row.try_get::<i64, _>(2)?).unwrap_or(0);
        Ok(SessionValueSize { key: row.try_get(0)?, version: row.try_get(1)?, bytes })
    };
    rows.iter().map(size).collect()
}

pub(crate) async fn totals(backend: &Backend, session: &SessionKey) -> Result<SessionTotals, StoreError> {
    let sql = format!("SELECT {TOTALS} FROM session_values WHERE {OF_SESSION}");
    read_totals(&of_session(&sql, session).fetch_one(backend.reader()).await?)
}

/// Counts the values of all sessions of a principal, including this transaction's writes.
pub(crate) async fn totals_of_agent(
    connection: &mut AnyConnection,
    agent_id: &str,
) -> Result<SessionTotals, StoreError> {
    let sql = format!("SELECT {TOTALS} FROM session_values WHERE agent_id = $1");
    read_totals(&sqlx::query(&sql).bind(agent_id.to_owned()).fetch_one(connection).await?)
}

pub(crate) async fn sessions(backend: &Backend, limit: u32) -> Result<Vec<(SessionKey, SessionTotals)>, StoreError> {
    let sql = format!(
        "SELECT {TOTALS}, agent_id, session_id, client FROM session_values GROUP BY agent_id, session_id, client \
         ORDER BY MAX(updated_at) DESC, agent_id, session_id, client LIMIT $1"
    );
    let rows = sqlx::query(&sql).bind(i64::from(limit)).fetch_all(backend.reader()).await?;
    rows.iter()
        .map(|row| {
            let (agent_id, session_id, client) = (row.try_get(2)?, row.try_get(3)?, row.try_get(4)?);
            Ok((SessionKey { agent_id, session_id, client }, read_totals(row)?))
        })
        .collect()
}

/// Deletes a value of a session, or all of them if no key is given.
pub(crate) async fn delete(backend: &Backend, session: &SessionKey, key: Option<&str>) -> Result<u64, StoreError> {
    let mut transaction = begin_write(backend, Durability::Synced).await?;
    lock(&mut transaction, backend.dialect, session).await?;
    let of_key = if key.is_some() { " AND key = $4" } else { "" };
    let sql = format!("DELETE FROM session_values WHERE {OF_SESSION}{of_key}");
    let query = of_session(&sql, session);
    let query = match key {
        Some(key) => query.bind(key.to_owned()),
        None => query,
    };
    let deleted = query.execute(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(deleted.rows_affected())
}

/// Copies the values of a session to another, except those whose keys it has, and returns what was copied.
pub(crate) async fn copy(
    connection: &mut AnyConnection,
    dialect: Dialect,
    from: &SessionKey,
    to: &SessionKey,
    now: Millis,
) -> Result<SessionTotals, StoreError> {
    lock(connection, dialect, to).await?;
    let missing = "NOT EXISTS (SELECT 1 FROM session_values AS own WHERE own.agent_id = $4 AND own.session_id = $5 \
                   AND own.client = $6 AND own.key = session_values.key)";
    let with_both =
        |sql| of_session(sql, from).bind(to.agent_id.clone()).bind(to.session_id.clone()).bind(to.client.clone());
    let sql = format!("SELECT {TOTALS} FROM session_values WHERE {OF_SESSION} AND {missing}");
    let totals = read_totals(&with_both(&sql).fetch_one(&mut *connection).await?)?;
    let sql = format!(
        "INSERT INTO session_values (agent_id, session_id, client, key, version, run_id, updated_at, bytes, value) \
         SELECT $4, $5, $6, key, version, run_id, CAST($7 AS BIGINT), bytes, value FROM session_values \
         WHERE {OF_SESSION} AND {missing}"
    );
    with_both(&sql).bind(now).execute(connection).await?;
    Ok(totals)
}

/// Returns the conditional writes among these that had no effect when they were committed.
pub(crate) async fn conflicts(
    backend: &Backend,
    run_id: &RunId,
    writes: &[ValueWrite],
) -> Result<Vec<VersionConflict>, StoreError> {
    let conditional: Vec<&ValueWrite> = writes.iter().filter(|write| write.expected.is_some()).collect();
    if conditional.is_empty() {
        return Ok(Vec::new());
    }
    let decided = write::decided(&mut *backend.reader().acquire().await?, run_id, &conditional).await?;
    let refused = |write: &&ValueWrite| {
        let refusal = decided.get(&(write.version.clone(), write.key.clone()))?.as_ref()?;
        Some(write::conflict(write, refusal))
    };
    Ok(conditional.iter().filter_map(refused).collect())
}

const COLUMNS: &str = "key, value, version, run_id, updated_at";
const TOTALS: &str = "COUNT(*), CAST(COALESCE(SUM(bytes), 0) AS BIGINT)";
const OF_SESSION: &str = "agent_id = $1 AND session_id = $2 AND client = $3";

fn read_value(row: &AnyRow) -> Result<SessionValue, StoreError> {
    Ok(SessionValue {
        key: row.try_get(0)?,
        value: row.try_get(1)?,
        version: row.try_get(2)?,
        run_id: RunId::new(row.try_get::<String, _>(3)?),
        updated_at: row.try_get(4)?,
    })
}

fn read_totals(row: &AnyRow) -> Result<SessionTotals, StoreError> {
    let number = |column: usize| Ok::<u64, sqlx::Error>(u64::try_from(row.try_get::<i64, _>(column)?).unwrap_or(0));
    Ok(SessionTotals { keys: number(0)?, bytes: number(1)? })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::commit::{Change, commit};
    use crate::keys::Keys;
    use crate::location::Location;
    use crate::migrations;
    use crate::runs::{FencedRun, NewRun};

    #[tokio::test]
    async fn the_conflicts_of_a_commit_whose_answer_was_lost_are_found_again() {
        let backend = Backend::connect(&Location::Memory, Keys::new(1, [7; 32])).await.unwrap();
        migrations::apply(&backend).await.unwrap();
        let mut held = FencedRun::new(NewRun {
            run_id: RunId::new("cm_1"),
            scope: Scope { agent_id: "a".to_owned(), session_id: "s".to_owned(), ..Scope::default() },
            tool_call_id: String::new(),
            holder: "one".to_owned(),
            lease_until: 0,
            expires_at: 0,
            catalog: String::new(),
            tables: Arc::from([]),
            definition: String::new(),
        });
        let write = |key: &str, version: &str, expected| ValueWrite {
            key: key.to_owned(),
            value: Some("1".to_owned()),
            version: version.to_owned(),
            expected,
        };
        let values = vec![
            write("a", "v1", None),
            write("a", "v2", Some(ExpectedVersion::Absent)),
            write("b", "v3", Some(ExpectedVersion::Absent)),
            write("b", "v4", Some(ExpectedVersion::Version("v0".to_owned()))),
        ];
        let change = Change { values, ..Change::default() };
        let committed = commit(&backend, &mut held, &change, Durability::Relaxed, 1).await.unwrap();
        assert_eq!(committed.conflicts.len(), 2);
        // The keys have other versions by the time the commit is found.
        let later = Change { values: vec![write("a", "v5", None), write("b", "v6", None)], ..Change::default() };
        commit(&backend, &mut held, &later, Durability::Relaxed, 1).await.unwrap();
        assert_eq!(conflicts(&backend, &held.run_id, &change.values).await.unwrap(), committed.conflicts);
        assert_eq!(conflicts(&backend, &held.run_id, &later.values).await.unwrap(), []);
    }
}
