//! Lists for programs that page through runs and sessions or follow what changes, and the deletion of a session.
//!
//! A run belongs to a principal if one of the principal's turns or direct calls started it, or the principal itself over
//! MCP. Runs of the command line belong to no principal.

use contract::ids::RunId;
use sqlx::any::{AnyArguments, AnyRow};
use sqlx::query::Query;
use sqlx::{Any, Row};

use crate::Millis;
use crate::backend::{Backend, Durability};
use crate::error::StoreError;
use crate::locking::begin_write;
use crate::rows::RunState;
use crate::sql::placeholders;
use crate::turns::SessionSummary;
use crate::turns::read::session_summary;

/// What the session id of a principal's runs over MCP begins with; the principal's name follows.
pub const MCP_SESSION: &str = "mcp:";

/// What the agent run of a direct call over HTTP begins with; the principal's name follows.
pub const INVOKE_RUN: &str = "invoke:";

/// The owner of a run, as SQL over the table `runs`.
const RUN_OWNER: &str = "CASE WHEN SUBSTR(runs.session_id, 1, 4) = 'mcp:' THEN SUBSTR(runs.session_id, 5) \
     WHEN SUBSTR(runs.agent_run_id, 1, 7) = 'invoke:' THEN SUBSTR(runs.agent_run_id, 8) \
     ELSE (SELECT owning.principal FROM turns AS owning WHERE owning.turn_id = runs.agent_run_id) END";

/// How many characters of a run's definition a list contains: enough for the first line of most cells.
const HEAD_CHARS: u32 = 400;

/// The turns of a session that one transaction deletes.
const TURNS_PER_BATCH: usize = 20;

/// Which runs a page contains. Conditions that are `None` admit all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunPageFilter {
    /// The principal that the runs belong to.
    pub owner: Option<String>,
    pub session: Option<String>,
    pub agent: Option<String>,
    pub state: Option<RunState>,
}

/// The place of a row in a list that is sorted by a time, newest first, and then by id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageKey {
    pub at: Millis,
    pub id: String,
}

/// A run in a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedRun {
    pub run_id: RunId,
    pub agent_id: String,
    pub session_id: String,
    pub agent_run_id: String,
    /// The principal that it belongs to.
    pub owner: Option<String>,
    pub state: RunState,
    pub created_at: Millis,
    pub updated_at: Millis,
    pub expires_at: Millis,
    /// The start of the run's definition, in the format of the caller that started it.
    pub definition_head: String,
}

/// The kind of a row that has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChangedKind {
    Run,
    Turn,
    Approval,
}

/// A row that has changed, without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedRow {
    pub kind: ChangedKind,
    pub id: String,
    pub state: String,
    pub session_id: String,
    pub owner: Option<String>,
    pub at: Millis,
}

enum Bound {
    Text(String),
    Number(i64),
}

/// The conditions of a statement and the values that they refer to.
#[derive(Default)]
struct Conditions {
    sql: Vec<String>,
    values: Vec<Bound>,
}

impl Conditions {
    fn bind(&mut self, value: Bound) -> usize {
        self.values.push(value);
        self.values.len()
    }

    fn equal(&mut self, column: &str, value: Option<&str>) {
        if let Some(value) = value {
            let place = self.bind(Bound::Text(value.to_owned()));
            self.sql.push(format!("{column} = ${place}"));
        }
    }

    /// Admits the rows after a place in a list that is sorted by `time DESC, id`.
    fn after(&mut self, time: &str, id: &str, key: Option<&PageKey>) {
        if let Some(key) = key {
            let (at, text) = (self.bind(Bound::Number(key.at)), self.bind(Bound::Text(key.id.clone())));
            self.sql.push(format!("({time} < ${at} OR ({time} = ${at} AND {id} > ${text}))"));
        }
    }

    fn joined(&self) -> String {
        if self.sql.is_empty() { "1 = 1".to_owned() } else { self.sql.join(" AND ") }
    }

    fn apply<'q>(self, query: Query<'q, Any, AnyArguments<'q>>) -> Query<'q, Any, AnyArguments<'q>> {
        self.values.into_iter().fold(query, |query, value| match value {
            Bound::Text(text) => query.bind(text),
            Bound::Number(number) => query.bind(number),
        })
    }
}

pub(crate) async fn runs(
    backend: &Backend,
    filter: &RunPageFilter,
    after: Option<&PageKey>,
    limit: u32,
) -> Result<Vec<ListedRun>, StoreError> {
    let mut conditions = Conditions::default();
    if let Some(owner) = &filter.owner {
        let mcp = conditions.bind(Bound::Text(format!("{MCP_SESSION}{owner}")));
        let invoke = conditions.bind(Bound::Text(format!("{INVOKE_RUN}{owner}")));
        let name = conditions.bind(Bound::Text(owner.clone()));
        conditions.sql.push(format!(
            "(runs.session_id = ${mcp} OR (SUBSTR(runs.session_id, 1, 4) <> 'mcp:' AND (runs.agent_run_id = ${invoke} \
             OR runs.agent_run_id IN (SELECT turn_id FROM turns WHERE principal = ${name}))))"
        ));
    }
    conditions.equal("runs.session_id", filter.session.as_deref());
    conditions.equal("runs.agent_id", filter.agent.as_deref());
    conditions.equal("runs.state", filter.state.map(RunState::as_str));
    conditions.after("runs.created_at", "runs.run_id", after);
    let limit = conditions.bind(Bound::Number(i64::from(limit)));
    let sql = format!(
        "SELECT run_id, agent_id, session_id, agent_run_id, {RUN_OWNER}, state, created_at, updated_at, expires_at, \
         SUBSTR(definition, 1, {HEAD_CHARS}) FROM runs WHERE {} ORDER BY created_at DESC, run_id LIMIT ${limit}",
        conditions.joined()
    );
    let rows = conditions.apply(sqlx::query(&sql)).fetch_all(backend.reader()).await?;
    rows.iter().map(listed_run).collect()
}

fn listed_run(row: &AnyRow) -> Result<ListedRun, StoreError> {
    Ok(ListedRun {
        run_id: row.try_get::<String, _>(0)?.into(),
        agent_id: row.try_get(1)?,
        session_id: row.try_get(2)?,
        agent_run_id: row.try_get(3)?,
        owner: row.try_get(4)?,
        state: RunState::parse(&row.try_get::<String, _>(5)?)?,
        created_at: row.try_get(6)?,
        updated_at: row.try_get(7)?,
        expires_at: row.try_get(8)?,
        definition_head: row.try_get(9)?,
    })
}

pub(crate) async fn sessions(
    backend: &Backend,
    (owner, agent): (Option<&str>, Option<&str>),
    after: Option<&PageKey>,
    limit: u32,
) -> Result<Vec<SessionSummary>, StoreError> {
    let (mut conditions, mut having) = (Conditions::default(), Conditions::default());
    conditions.equal("principal", owner);
    conditions.equal("agent_id", agent);
    let filter = conditions.joined();
    having.values = conditions.values;
    having.after("MAX(updated_at)", "session_id", after);
    let limit = having.bind(Bound::Number(i64::from(limit)));
    let sql = format!(
        "SELECT session_id, agent_id, principal, COUNT(*), MIN(created_at), MAX(updated_at) FROM turns WHERE {filter} \
         GROUP BY session_id, agent_id, principal HAVING {} \
         ORDER BY MAX(updated_at) DESC, session_id, agent_id, principal LIMIT ${limit}",
        having.joined()
    );
    let rows = having.apply(sqlx::query(&sql)).fetch_all(backend.reader()).await?;
    rows.iter().map(session_summary).collect()
}

pub(crate) async fn session_owners(backend: &Backend, session_id: &str) -> Result<Vec<Option<String>>, StoreError> {
    let sql = format!(
        "SELECT principal FROM turns WHERE session_id = $1 UNION SELECT {RUN_OWNER} FROM runs WHERE session_id = $1"
    );
    let rows = sqlx::query(&sql).bind(session_id.to_owned()).fetch_all(backend.reader()).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

pub(crate) async fn changed_since(backend: &Backend, since: Millis, limit: u32) -> Result<Vec<ChangedRow>, StoreError> {
    let runs = format!(
        "SELECT run_id, state, session_id, {RUN_OWNER}, updated_at FROM runs WHERE updated_at >= $1 \
         ORDER BY updated_at, run_id LIMIT $2"
    );
    let turns = "SELECT turn_id, state, session_id, principal, updated_at FROM turns WHERE updated_at >= $1 \
                 ORDER BY updated_at, turn_id LIMIT $2";
    let mut changed = Vec::new();
    for (kind, sql) in [(ChangedKind::Run, runs.as_str()), (ChangedKind::Turn, turns)] {
        let rows = sqlx::query(sql).bind(since).bind(i64::from(limit)).fetch_all(backend.reader()).await?;
        for row in &rows {
            changed.push(changed_row(kind, row)?);
        }
    }
    changed.sort_by_key(|row| row.at);
    Ok(changed)
}

pub(crate) async fn pending_approvals(backend: &Backend, limit: u32) -> Result<Vec<ChangedRow>, StoreError> {
    let sql = format!(
        "SELECT approvals.approval_id, approvals.state, approvals.session_id, {RUN_OWNER}, approvals.requested_at \
         FROM approvals JOIN runs ON runs.run_id = approvals.run_id WHERE approvals.state = 'pending' \
         ORDER BY approvals.requested_at, approvals.approval_id LIMIT $1"
    );
    let rows = sqlx::query(&sql).bind(i64::from(limit)).fetch_all(backend.reader()).await?;
    rows.iter().map(|row| changed_row(ChangedKind::Approval, row)).collect()
}

fn changed_row(kind: ChangedKind, row: &AnyRow) -> Result<ChangedRow, StoreError> {
    Ok(ChangedRow {
        kind,
        id: row.try_get(0)?,
        state: row.try_get(1)?,
        session_id: row.try_get(2)?,
        owner: row.try_get(3)?,
        at: row.try_get(4)?,
    })
}

/// Deletes a session's turns that have ended, its transcript and its values, in several transactions. Returns the
/// number of turns.
pub(crate) async fn delete_session(backend: &Backend, session_id: &str) -> Result<u64, StoreError> {
    let mut deleted = 0;
    loop {
        let mut transaction = begin_write(backend, Durability::Relaxed).await?;
        let found = format!(
            "SELECT turn_id FROM turns WHERE session_id = $1 AND state NOT IN ('running', 'waiting') \
             ORDER BY turn_id LIMIT {TURNS_PER_BATCH}"
        );
        let found = sqlx::query(&found).bind(session_id.to_owned()).fetch_all(&mut *transaction).await?;
        let turns: Vec<String> = found.iter().map(|row| row.try_get(0)).collect::<Result<_, sqlx::Error>>()?;
        if turns.is_empty() {
            break;
        }
        let list = placeholders(1, turns.len());
        let items = format!(
            "DELETE FROM items WHERE response_id IN (SELECT response_id FROM responses WHERE turn_id IN ({list}))"
        );
        let tables = ["turn_steps", "turn_messages", "deliveries", "conversations", "responses", "turns"];
        let rest = tables.map(|table| format!("DELETE FROM {table} WHERE turn_id IN ({list})"));
        for sql in std::iter::once(&items).chain(&rest) {
            let query = turns.iter().fold(sqlx::query(sql), |query, id| query.bind(id.clone()));
            query.execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        deleted += turns.len() as u64;
    }
    let mut transaction = begin_write(backend, Durability::Relaxed).await?;
    for table in ["transcript", "session_values"] {
        let sql = format!("DELETE FROM {table} WHERE session_id = $1");
        sqlx::query(&sql).bind(session_id.to_owned()).execute(&mut *transaction).await?;
    }
    transaction.commit().await?;
    Ok(deleted)
}
