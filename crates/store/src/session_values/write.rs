//! Writes session values within the transaction of a change. What is written is decided by a pure function.
//!
//! On Postgres the writers of a session take turns through an advisory lock, which they take before they read. So a
//! condition still holds when its write is committed, also for keys that do not exist, and writers of several keys do
//! not deadlock. SQLite has only one writer at a time.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use contract::ids::RunId;
use sqlx::any::AnyArguments;
use sqlx::query::Query;
use sqlx::{Any, AnyConnection, Row};

use super::{ExpectedVersion, SessionKey, ValueWrite, VersionConflict};
use crate::Millis;
use crate::backend::Dialect;
use crate::sql::{ROWS_PER_STATEMENT, placeholders, row_placeholders};
use crate::statement::Statement;

/// The most bytes of values per statement. A statement has at least one value.
const BYTES_PER_STATEMENT: usize = 2 << 20;

/// The version of the run's conditional write, and its key.
type WriteId = (String, String);

/// How earlier conditional writes of the run were decided: `None` if written, else the version that the key had.
pub(super) type WriteDecisions = HashMap<WriteId, Option<Refusal>>;

/// The version that a key had when a conditional write of it had no effect; `None` if the key did not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal(pub(super) Option<String>);

/// What a change does to the values of its session.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan<'a> {
    /// The last effective write of each key.
    writes: BTreeMap<&'a str, &'a ValueWrite>,
    /// The conditional writes that are decided now.
    decided: Vec<(&'a ValueWrite, Option<Refusal>)>,
    conflicts: Vec<VersionConflict>,
}

/// Decides which writes have an effect, in order. `versions` are the versions of the keys that have conditional writes.
/// A conditional write that was decided before keeps its result, because its commit is repeated after a crash.
fn plan<'a>(writes: &'a [ValueWrite], versions: &HashMap<String, String>, decided: &WriteDecisions) -> Plan<'a> {
    let mut plan = Plan::default();
    let mut current: HashMap<&str, Option<&str>> = HashMap::new();
    for write in writes {
        let found = *current.entry(&write.key).or_insert_with(|| versions.get(&write.key).map(String::as_str));
        if let Some(expected) = &write.expected {
            let before = decided.get(&(write.version.clone(), write.key.clone()));
            let refusal = match before {
                Some(refusal) => refusal.clone(),
                None => refusal_of(write, expected, found),
            };
            if before.is_none() {
                plan.decided.push((write, refusal.clone()));
            }
            if let Some(refusal) = &refusal {
                plan.conflicts.push(conflict(write, refusal));
            }
            if before.is_some() || refusal.is_some() {
                continue;
            }
        }
        plan.writes.insert(&write.key, write);
        current.insert(&write.key, write.value.as_ref().map(|_| write.version.as_str()));
    }
    plan
}

/// Returns why a conditional write of a key with the version `found` has no effect; `None` if it has.
fn refusal_of(write: &ValueWrite, expected: &ExpectedVersion, found: Option<&str>) -> Option<Refusal> {
    let fits = match expected {
        ExpectedVersion::Absent => found.is_none(),
        ExpectedVersion::Version(version) => found == Some(version),
    };
    let is_written = found == Some(&write.version);
    (!fits && !is_written).then(|| Refusal(found.map(str::to_owned)))
}

pub(super) fn conflict(write: &ValueWrite, refusal: &Refusal) -> VersionConflict {
    VersionConflict { key: write.key.clone(), version: write.version.clone(), current: refusal.0.clone() }
}

/// Writes values of a session and returns the conditional writes that had no effect.
pub(crate) async fn write(
    connection: &mut AnyConnection,
    dialect: Dialect,
    (session, run_id): (&SessionKey, &RunId),
    writes: &[ValueWrite],
    now: Millis,
) -> Result<Vec<VersionConflict>, sqlx::Error> {
    lock(connection, dialect, session).await?;
    let conditional: Vec<&ValueWrite> = writes.iter().filter(|write| write.expected.is_some()).collect();
    let versions = versions(connection, session, &conditional).await?;
    let decided = decided(connection, run_id, &conditional).await?;
    let plan = plan(writes, &versions, &decided);
    delete(connection, session, &plan).await?;
    upsert(connection, (session, run_id), &plan, now).await?;
    record(connection, run_id, &plan.decided).await?;
    Ok(plan.conflicts)
}

/// Makes other transactions that write values of the session wait until this one has ended.
pub(crate) async fn lock(
    connection: &mut AnyConnection,
    dialect: Dialect,
    session: &SessionKey,
) -> Result<(), sqlx::Error> {
    if dialect == Dialect::Postgres {
        // Another seed than that of the lock of transcripts.
        sqlx::query("SELECT 1 FROM (SELECT pg_advisory_xact_lock(hashtextextended($1, 1))) AS turn")
            .bind(format!("{}\n{}\n{}", session.agent_id, session.session_id, session.client))
            .execute(connection)
            .await?;
    }
    Ok(())
}

async fn versions(
    connection: &mut AnyConnection,
    session: &SessionKey,
    conditional: &[&ValueWrite],
) -> Result<HashMap<String, String>, sqlx::Error> {
    let keys: BTreeSet<&str> = conditional.iter().map(|write| write.key.as_str()).collect();
    let keys: Vec<&str> = keys.into_iter().collect();
    let mut versions = HashMap::new();
    for batch in keys.chunks(ROWS_PER_STATEMENT) {
        let sql = format!(
            "SELECT key, version FROM session_values WHERE agent_id = $1 AND session_id = $2 AND client = $3 \
             AND key IN ({})",
            placeholders(4, batch.len())
        );
        let query = batch.iter().fold(of_session(&sql, session), |query, key| query.bind((*key).to_owned()));
        for row in query.fetch_all(&mut *connection).await? {
            versions.insert(row.try_get(0)?, row.try_get(1)?);
        }
    }
    Ok(versions)
}

/// Returns how those of these writes were decided that an earlier commit contained.
pub(super) async fn decided(
    connection: &mut AnyConnection,
    run_id: &RunId,
    conditional: &[&ValueWrite],
) -> Result<WriteDecisions, sqlx::Error> {
    let mut decided = WriteDecisions::new();
    for batch in conditional.chunks(ROWS_PER_STATEMENT) {
        let sql = format!(
            "SELECT version, key, written, found FROM value_writes WHERE run_id = $1 AND version IN ({})",
            placeholders(2, batch.len())
        );
        let query = sqlx::query(&sql).bind(run_id.to_string());
        let query = batch.iter().fold(query, |query, write| query.bind(write.version.clone()));
        for row in query.fetch_all(&mut *connection).await? {
            let found = Refusal(row.try_get(3)?);
            let refusal = (row.try_get::<i64, _>(2)? == 0).then_some(found);
            decided.insert((row.try_get(0)?, row.try_get(1)?), refusal);
        }
    }
    Ok(decided)
}

async fn delete(connection: &mut AnyConnection, session: &SessionKey, plan: &Plan<'_>) -> Result<(), sqlx::Error> {
    let keys: Vec<&str> = plan.writes.values().filter(|write| write.value.is_none()).map(|write| &*write.key).collect();
    for batch in keys.chunks(ROWS_PER_STATEMENT) {
        let sql = format!(
            "DELETE FROM session_values WHERE agent_id = $1 AND session_id = $2 AND client = $3 AND key IN ({})",
            placeholders(4, batch.len())
        );
        let query = batch.iter().fold(of_session(&sql, session), |query, key| query.bind((*key).to_owned()));
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

async fn upsert(
    connection: &mut AnyConnection,
    (session, run_id): (&SessionKey, &RunId),
    plan: &Plan<'_>,
    now: Millis,
) -> Result<(), sqlx::Error> {
    let values: Vec<(&ValueWrite, &String)> =
        plan.writes.values().filter_map(|write| Some((*write, write.value.as_ref()?))).collect();
    let mut rest = values.as_slice();
    while !rest.is_empty() {
        let (batch, later) = rest.split_at(batch_of(rest));
        rest = later;
        let sql = format!(
            "INSERT INTO session_values (agent_id, session_id, client, key, version, run_id, updated_at, bytes, value) \
             VALUES {} ON CONFLICT (agent_id, session_id, client, key) DO UPDATE SET version = excluded.version, \
             run_id = excluded.run_id, updated_at = excluded.updated_at, bytes = excluded.bytes, \
             value = excluded.value",
            row_placeholders(batch.len(), 9)
        );
        let statement = batch.iter().fold(Statement::new(sql), |statement, (write, value)| {
            statement
                .bind(session.agent_id.as_str())
                .bind(session.session_id.as_str())
                .bind(session.client.as_str())
                .bind(write.key.as_str())
                .bind(write.version.as_str())
                .bind(run_id.as_str())
                .bind(now)
                .bind(i64::try_from(value.len()).unwrap_or(i64::MAX))
                .bind(value.as_str())
        });
        statement.execute(&mut *connection).await?;
    }
    Ok(())
}

/// Returns how many of these values go into one statement, at least one.
fn batch_of(values: &[(&ValueWrite, &String)]) -> usize {
    let mut bytes = 0;
    let fits = |(_, value): &&(&ValueWrite, &String)| {
        bytes += value.len();
        bytes <= BYTES_PER_STATEMENT
    };
    values.iter().take(ROWS_PER_STATEMENT).take_while(fits).count().max(1)
}

/// Records the decisions on conditional writes. A repeated commit, and one whose answer was lost, finds them here: by
/// then another run may have changed the keys.
async fn record(
    connection: &mut AnyConnection,
    run_id: &RunId,
    decided: &[(&ValueWrite, Option<Refusal>)],
) -> Result<(), sqlx::Error> {
    for batch in decided.chunks(ROWS_PER_STATEMENT) {
        let sql = format!(
            "INSERT INTO value_writes (run_id, version, key, written, found) VALUES {} \
             ON CONFLICT (run_id, version, key) DO NOTHING",
            row_placeholders(batch.len(), 5)
        );
        let statement = batch.iter().fold(Statement::new(sql), |statement, (write, refusal)| {
            statement
                .bind(run_id.as_str())
                .bind(write.version.as_str())
                .bind(write.key.as_str())
                .bind(i64::from(refusal.is_none()))
                .bind(refusal.as_ref().and_then(|refusal| refusal.0.as_deref()))
        });
        statement.execute(&mut *connection).await?;
    }
    Ok(())
}

/// Begins a query whose first three parameters are the session.
pub(super) fn of_session<'q>(sql: &'q str, session: &SessionKey) -> Query<'q, Any, AnyArguments<'q>> {
    sqlx::query(sql).bind(session.agent_id.clone()).bind(session.session_id.clone()).bind(session.client.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(key: &str, version: &str, expected: Option<ExpectedVersion>) -> ValueWrite {
        ValueWrite { key: key.to_owned(), value: Some("1".to_owned()), version: version.to_owned(), expected }
    }

    fn stored(version: &str) -> HashMap<String, String> {
        HashMap::from([("k".to_owned(), version.to_owned())])
    }

    fn version(version: &str) -> Option<ExpectedVersion> {
        Some(ExpectedVersion::Version(version.to_owned()))
    }

    /// Returns the version that the key gets, and the versions that the refused writes found.
    fn outcome(
        writes: &[ValueWrite],
        versions: &HashMap<String, String>,
        decided: &WriteDecisions,
    ) -> (Option<String>, Vec<Option<String>>) {
        let plan = plan(writes, versions, decided);
        let written = plan.writes.get("k").map(|write| write.version.clone());
        (written, plan.conflicts.into_iter().map(|conflict| conflict.current).collect())
    }

    #[test]
    fn a_write_has_an_effect_only_if_its_condition_holds() {
        let (none, found) = (HashMap::new(), stored("v1"));
        let old = || Some("v1".to_owned());
        let new = || Some("v2".to_owned());
        let absent = || Some(ExpectedVersion::Absent);
        for (expected, versions, outcome_expected) in [
            (None, &none, (new(), vec![])),
            (None, &found, (new(), vec![])),
            (absent(), &none, (new(), vec![])),
            (absent(), &found, (None, vec![old()])),
            (version("v1"), &found, (new(), vec![])),
            (version("v0"), &found, (None, vec![old()])),
            (version("v1"), &none, (None, vec![None])),
        ] {
            let writes = [write("k", "v2", expected.clone())];
            assert_eq!(outcome(&writes, versions, &WriteDecisions::new()), outcome_expected, "{expected:?}");
        }
    }

    #[test]
    fn writes_of_one_change_see_those_before_them() {
        let forgets = ValueWrite { value: None, ..write("k", "v3", version("v2")) };
        let writes = [write("k", "v2", None), forgets, write("k", "v4", Some(ExpectedVersion::Absent))];
        assert_eq!(outcome(&writes, &stored("v1"), &WriteDecisions::new()), (Some("v4".to_owned()), vec![]));
        let writes = [write("k", "v2", None), write("k", "v3", version("v1"))];
        assert_eq!(
            outcome(&writes, &stored("v1"), &WriteDecisions::new()),
            (Some("v2".to_owned()), vec![Some("v2".to_owned())])
        );
    }

    #[test]
    fn a_decided_write_has_no_second_effect_and_keeps_its_result() {
        let writes = [write("k", "v2", version("v1"))];
        let id = ("v2".to_owned(), "k".to_owned());
        let written = WriteDecisions::from([(id.clone(), None)]);
        // Another run has changed the key since.
        assert_eq!(outcome(&writes, &stored("v9"), &written), (None, vec![]));
        let refused = WriteDecisions::from([(id, Some(Refusal(Some("v0".to_owned()))))]);
        assert_eq!(outcome(&writes, &stored("v1"), &refused), (None, vec![Some("v0".to_owned())]));
    }
}
