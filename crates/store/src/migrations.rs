//! The schema as a sequence of migration steps. A step that has been released is never edited.

use sqlx::{Any, Executor, Row, Transaction};

use crate::backend::{Backend, Dialect};
use crate::error::StoreError;
use crate::locking::begin_with_locks;

/// A step of the schema, in the dialect of each engine.
struct MigrationStep {
    sqlite: &'static str,
    postgres: &'static str,
}

impl MigrationStep {
    /// A step that both engines understand, except that Postgres calls a `BLOB` a `BYTEA`.
    const fn common(sql: &'static str) -> Self {
        Self { sqlite: sql, postgres: sql }
    }

    fn sql(&self, dialect: Dialect) -> String {
        match dialect {
            Dialect::Sqlite => self.sqlite.to_owned(),
            Dialect::Postgres => self.postgres.replace("BLOB", "BYTEA"),
        }
    }
}

/// Indexes of live runs only. A run that ends in its first commit is in none of them, and a later commit that changes
/// neither the state nor the expiry writes to none of them. A query uses them if it has the same condition.
macro_rules! live_indexes {
    () => {
        r"
DROP INDEX runs_by_expiry;
DROP INDEX runs_by_session;
DROP INDEX runs_by_agent;
CREATE INDEX live_runs_by_expiry ON runs (expires_at) WHERE state IN ('running', 'waiting');
CREATE INDEX live_runs_by_session ON runs (session_id) WHERE state IN ('running', 'waiting');
CREATE INDEX live_runs_by_agent ON runs (agent_id, state) WHERE state IN ('running', 'waiting');
CREATE INDEX runs_by_agent ON runs (agent_id);
"
    };
}

const STEPS: [MigrationStep; 16] = [
    MigrationStep::common(
        r"
CREATE TABLE runs (
    run_id        TEXT PRIMARY KEY,
    agent_id      TEXT NOT NULL,
    session_id    TEXT NOT NULL,
    agent_run_id  TEXT NOT NULL,
    tool_call_id  TEXT NOT NULL,
    state         TEXT NOT NULL,
    sequence      BIGINT NOT NULL,
    fence         BIGINT NOT NULL,
    holder        TEXT NOT NULL,
    lease_until   BIGINT NOT NULL,
    created_at    BIGINT NOT NULL,
    updated_at    BIGINT NOT NULL,
    expires_at    BIGINT NOT NULL,
    catalog       TEXT NOT NULL,
    definition    TEXT NOT NULL,
    progress      TEXT NOT NULL,
    snapshot_leg  BIGINT,
    snapshot      BLOB,
    result        TEXT
);
CREATE INDEX runs_by_expiry ON runs (state, expires_at);
CREATE INDEX runs_by_session ON runs (session_id, state);

CREATE TABLE catalogs (
    hash    TEXT PRIMARY KEY,
    tables  BLOB NOT NULL
);

CREATE TABLE legs (
    run_id    TEXT NOT NULL,
    leg       BIGINT NOT NULL,
    clock_us  BIGINT NOT NULL,
    replies   TEXT NOT NULL,
    PRIMARY KEY (run_id, leg)
);

CREATE TABLE calls (
    run_id        TEXT NOT NULL,
    call          BIGINT NOT NULL,
    leg           BIGINT NOT NULL,
    method        TEXT NOT NULL,
    target        TEXT NOT NULL,
    payload       TEXT NOT NULL,
    input_hash    TEXT NOT NULL,
    tool_id       TEXT,
    tool_hash     TEXT,
    input         TEXT,
    state         TEXT NOT NULL,
    attempt       BIGINT NOT NULL,
    due_at        BIGINT,
    since         BIGINT NOT NULL,
    settle_order  BIGINT,
    outcome       TEXT,
    reply         TEXT,
    PRIMARY KEY (run_id, call)
);

CREATE TABLE approvals (
    approval_id   TEXT PRIMARY KEY,
    run_id        TEXT NOT NULL,
    call          BIGINT NOT NULL,
    agent_id      TEXT NOT NULL,
    session_id    TEXT NOT NULL,
    tool_id       TEXT NOT NULL,
    tool_hash     TEXT NOT NULL,
    input         TEXT NOT NULL,
    input_hash    TEXT NOT NULL,
    reason        TEXT NOT NULL,
    state         TEXT NOT NULL,
    requested_at  BIGINT NOT NULL,
    expires_at    BIGINT NOT NULL,
    decided_at    BIGINT,
    decided_by    TEXT,
    note          TEXT,
    edited_input  TEXT
);
CREATE INDEX approvals_by_run ON approvals (run_id, call);
CREATE INDEX approvals_by_state ON approvals (state, requested_at);

CREATE TABLE rules (
    rule_id     TEXT PRIMARY KEY,
    tool_id     TEXT NOT NULL,
    tool_hash   TEXT NOT NULL,
    agent_id    TEXT,
    session_id  TEXT,
    created_at  BIGINT NOT NULL,
    created_by  TEXT NOT NULL,
    revoked_at  BIGINT
);
CREATE INDEX rules_by_tool ON rules (tool_id);

CREATE TABLE transcript (
    session_id  TEXT NOT NULL,
    position    BIGINT NOT NULL,
    at          BIGINT NOT NULL,
    run_id      TEXT NOT NULL,
    kind        TEXT NOT NULL,
    entry       TEXT NOT NULL,
    PRIMARY KEY (session_id, position)
);
",
    ),
    MigrationStep::common("ALTER TABLE calls ADD COLUMN parent TEXT NOT NULL DEFAULT ''"),
    MigrationStep::common(
        "
ALTER TABLE calls ADD COLUMN ticket TEXT;
ALTER TABLE approvals ADD COLUMN question TEXT;
",
    ),
    MigrationStep::common(
        r"
CREATE TABLE sealing_keys (
    key_id  BIGINT PRIMARY KEY,
    mark    TEXT NOT NULL
);
CREATE TABLE usage (
    agent_id        TEXT PRIMARY KEY,
    waiting_runs    BIGINT NOT NULL,
    snapshot_bytes  BIGINT NOT NULL,
    open_approvals  BIGINT NOT NULL,
    counted_at      BIGINT NOT NULL
);
ALTER TABLE catalogs ADD COLUMN used_at BIGINT NOT NULL DEFAULT 0;
CREATE INDEX runs_by_agent ON runs (agent_id, state);
CREATE INDEX runs_by_end ON runs (updated_at);
CREATE INDEX runs_by_catalog ON runs (catalog);
CREATE INDEX approvals_by_agent ON approvals (agent_id, state);
CREATE INDEX transcript_by_time ON transcript (at);
",
    ),
    MigrationStep::common(
        r"
ALTER TABLE legs ADD COLUMN ended TEXT;
ALTER TABLE legs ADD COLUMN shown TEXT;
",
    ),
    MigrationStep::common("ALTER TABLE runs ADD COLUMN journal_bytes BIGINT NOT NULL DEFAULT 0"),
    // Rules from before this step have no source identity and no longer allow any call.
    MigrationStep::common(
        r"
ALTER TABLE approvals ADD COLUMN source_identity TEXT;
ALTER TABLE rules ADD COLUMN source_identity TEXT;
CREATE INDEX rules_by_agent ON rules (agent_id, revoked_at);
",
    ),
    // Runs from before this step belong to no client, and are found by their ids only.
    MigrationStep::common("ALTER TABLE runs ADD COLUMN client TEXT NOT NULL DEFAULT ''"),
    // Long columns are the last ones: SQLite reads what precedes a column to find it.
    MigrationStep::common(
        r"
ALTER TABLE runs ADD COLUMN output_bytes BIGINT NOT NULL DEFAULT 0;

CREATE TABLE outputs (
    run_id      TEXT NOT NULL,
    name        TEXT NOT NULL,
    kind        TEXT NOT NULL,
    mime_type   TEXT,
    call        BIGINT,
    tool_id     TEXT,
    bytes       BIGINT NOT NULL,
    units       BIGINT NOT NULL,
    lines       BIGINT NOT NULL,
    created_at  BIGINT NOT NULL,
    fence       BIGINT NOT NULL,
    complete    BIGINT NOT NULL,
    PRIMARY KEY (run_id, name)
);
CREATE INDEX outputs_by_time ON outputs (created_at);
CREATE INDEX outputs_unfinished ON outputs (created_at) WHERE complete = 0;

CREATE TABLE output_pieces (
    run_id      TEXT NOT NULL,
    name        TEXT NOT NULL,
    piece       BIGINT NOT NULL,
    start_byte  BIGINT NOT NULL,
    start_unit  BIGINT NOT NULL,
    start_line  BIGINT NOT NULL,
    next_line   BIGINT NOT NULL,
    data        BLOB NOT NULL,
    PRIMARY KEY (run_id, name, piece)
);
CREATE INDEX output_pieces_by_byte ON output_pieces (run_id, name, start_byte, piece);
CREATE INDEX output_pieces_by_unit ON output_pieces (run_id, name, start_unit, piece);
CREATE INDEX output_pieces_by_line ON output_pieces (run_id, name, next_line, piece);

CREATE TABLE session_values (
    agent_id    TEXT NOT NULL,
    session_id  TEXT NOT NULL,
    client      TEXT NOT NULL,
    key         TEXT NOT NULL,
    version     TEXT NOT NULL,
    run_id      TEXT NOT NULL,
    updated_at  BIGINT NOT NULL,
    bytes       BIGINT NOT NULL,
    value       TEXT NOT NULL,
    PRIMARY KEY (agent_id, session_id, client, key)
);
CREATE INDEX session_values_by_time ON session_values (updated_at);

CREATE TABLE value_writes (
    run_id   TEXT NOT NULL,
    version  TEXT NOT NULL,
    key      TEXT NOT NULL,
    written  BIGINT NOT NULL,
    found    TEXT,
    PRIMARY KEY (run_id, version, key)
);
",
    ),
    MigrationStep::common(
        r"
CREATE TABLE turns (
    turn_id         TEXT PRIMARY KEY,
    principal       TEXT NOT NULL,
    agent_id        TEXT NOT NULL,
    session_id      TEXT NOT NULL,
    parent          TEXT,
    wire            TEXT NOT NULL,
    request_digest  TEXT NOT NULL,
    state           TEXT NOT NULL,
    steps           BIGINT NOT NULL,
    sequence        BIGINT NOT NULL,
    fence           BIGINT NOT NULL,
    holder          TEXT NOT NULL,
    lease_until     BIGINT NOT NULL,
    created_at      BIGINT NOT NULL,
    updated_at      BIGINT NOT NULL,
    expires_at      BIGINT NOT NULL,
    bytes           BIGINT NOT NULL
);
CREATE INDEX turns_by_request ON turns (principal, request_digest);
CREATE INDEX turns_by_principal ON turns (principal, state);
CREATE INDEX turns_by_lease ON turns (state, lease_until);
CREATE INDEX turns_by_holder ON turns (holder, lease_until);
CREATE INDEX turns_by_session ON turns (session_id);
CREATE INDEX turns_by_expiry ON turns (expires_at);
CREATE INDEX turns_by_end ON turns (updated_at);
CREATE INDEX turns_by_parent ON turns (parent);

CREATE TABLE turn_steps (
    turn_id  TEXT NOT NULL,
    step     BIGINT NOT NULL,
    at       BIGINT NOT NULL,
    kind     TEXT NOT NULL,
    body     TEXT NOT NULL,
    PRIMARY KEY (turn_id, step)
);

CREATE TABLE deliveries (
    principal    TEXT NOT NULL,
    call_id      TEXT NOT NULL,
    turn_id      TEXT NOT NULL,
    run_id       TEXT NOT NULL,
    call         BIGINT NOT NULL,
    round        BIGINT NOT NULL,
    sent_at      BIGINT NOT NULL,
    answered_at  BIGINT,
    PRIMARY KEY (principal, call_id)
);
CREATE INDEX deliveries_by_turn ON deliveries (turn_id);
CREATE INDEX deliveries_by_run ON deliveries (run_id);

CREATE TABLE conversations (
    principal  TEXT NOT NULL,
    agent_id   TEXT NOT NULL,
    digest     TEXT NOT NULL,
    turn_id    TEXT NOT NULL,
    at         BIGINT NOT NULL,
    PRIMARY KEY (principal, agent_id, digest)
);
CREATE INDEX conversations_by_turn ON conversations (turn_id);

CREATE TABLE responses (
    response_id  TEXT PRIMARY KEY,
    principal    TEXT NOT NULL,
    turn_id      TEXT NOT NULL,
    at           BIGINT NOT NULL,
    expires_at   BIGINT NOT NULL,
    body         TEXT NOT NULL
);
CREATE INDEX responses_by_turn ON responses (turn_id);
CREATE INDEX responses_by_expiry ON responses (expires_at);

CREATE TABLE items (
    principal    TEXT NOT NULL,
    item_id      TEXT NOT NULL,
    response_id  TEXT NOT NULL,
    PRIMARY KEY (principal, item_id)
);
CREATE INDEX items_by_response ON items (response_id);

CREATE INDEX runs_by_tool_call ON runs (session_id, tool_call_id);
",
    ),
    MigrationStep::common(
        r"
CREATE TABLE tokens (
    token_id      TEXT PRIMARY KEY,
    name          TEXT NOT NULL,
    hash          TEXT NOT NULL UNIQUE,
    scopes        TEXT NOT NULL,
    created_at    BIGINT NOT NULL,
    expires_at    BIGINT,
    revoked_at    BIGINT,
    last_used_at  BIGINT
);
",
    ),
    MigrationStep::common(
        r"
CREATE TABLE model_usage (
    day                 BIGINT NOT NULL,
    principal           TEXT NOT NULL,
    agent_id            TEXT NOT NULL,
    session_id          TEXT NOT NULL,
    model               TEXT NOT NULL,
    turns               BIGINT NOT NULL,
    calls               BIGINT NOT NULL,
    input_tokens        BIGINT NOT NULL,
    output_tokens       BIGINT NOT NULL,
    cache_read_tokens   BIGINT NOT NULL,
    cache_write_tokens  BIGINT NOT NULL,
    PRIMARY KEY (day, principal, agent_id, session_id, model)
);
CREATE INDEX model_usage_by_principal ON model_usage (principal, day);

CREATE TABLE turn_messages (
    turn_id     TEXT NOT NULL,
    message_id  TEXT NOT NULL,
    at          BIGINT NOT NULL,
    kind        TEXT NOT NULL,
    body        TEXT NOT NULL,
    PRIMARY KEY (turn_id, message_id)
);
",
    ),
    // SQLite stores a table without row ids as one tree instead of two, so that a commit writes fewer pages. Tables whose
    // rows are mostly larger than a quarter of a page keep their row ids.
    MigrationStep { sqlite: concat!(live_indexes!(), include_str!("without_rowid.sql")), postgres: live_indexes!() },
    // Every commit of a live run changes `updated_at`, and only ended runs are searched for by it.
    MigrationStep::common(
        r"
DROP INDEX runs_by_end;
CREATE INDEX ended_runs_by_end ON runs (updated_at) WHERE state NOT IN ('running', 'waiting');
",
    ),
    // The tables stay as they are. From this step on, a row of a transcript may contain several entries, which older
    // programs cannot read.
    MigrationStep::common(""),
    // `journal` holds the legs and calls of a run that ended in its first commit. Only the sweep searched for runs by their
    // catalog and for transcripts by their time, and every commit wrote to these indexes.
    MigrationStep::common(
        r"
ALTER TABLE runs ADD COLUMN journal TEXT;
DROP INDEX runs_by_catalog;
DROP INDEX transcript_by_time;
",
    ),
];

/// The schema of a new SQLite store.
const SQLITE_SCHEMA: &str = include_str!("schema.sql");

/// The schema version that this program writes.
pub(crate) const VERSION: i64 = STEPS.len() as i64;

/// The tables of the first step, in about the order in which a commit writes them.
const TABLES: [&str; 7] = ["catalogs", "runs", "legs", "calls", "approvals", "rules", "transcript"];

/// Returns the store's schema version; `None` for a new store.
async fn version(backend: &Backend) -> Result<Option<i64>, StoreError> {
    let table_count = match backend.dialect {
        Dialect::Sqlite => "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = 'schema_version'",
        Dialect::Postgres => {
            "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = current_schema() \
             AND table_name = 'schema_version'"
        }
    };
    let table_count: i64 = backend.reader().fetch_one(table_count).await?.try_get(0)?;
    if table_count == 0 {
        return Ok(None);
    }
    let row = backend.reader().fetch_optional("SELECT version FROM schema_version").await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?)
}

/// Runs the steps that follow a version.
async fn run_steps(transaction: &mut Transaction<'_, Any>, dialect: Dialect, version: i64) -> Result<(), StoreError> {
    for step in STEPS.iter().skip(usize::try_from(version).unwrap_or(0)) {
        transaction.execute(step.sql(dialect).as_str()).await?;
    }
    Ok(())
}

/// Upgrades the store to the current schema. An up-to-date store is only read, so opening it does not disturb other
/// processes. Processes that upgrade the same store take turns; processes that use it wait during the upgrade.
pub(crate) async fn apply(backend: &Backend) -> Result<(), StoreError> {
    let tables: &[&str] = match version(backend).await? {
        Some(VERSION) => return Ok(()),
        Some(found) if found > VERSION => return Err(StoreError::TooNew { found, known: VERSION }),
        Some(_) => &TABLES,
        None => &[],
    };
    let mut transaction = begin_with_locks(backend, tables, "ACCESS EXCLUSIVE").await?;
    transaction.execute("CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)").await?;
    let row = transaction.fetch_optional("SELECT version FROM schema_version").await?;
    let found = match &row {
        Some(row) => row.try_get::<i64, _>(0)?,
        None => 0,
    };
    let known = VERSION;
    if found > known {
        return Err(StoreError::TooNew { found, known });
    }
    if found == known {
        return Ok(());
    }
    if found == 0 && backend.dialect == Dialect::Sqlite {
        // Creating the final tables takes less time than all steps; a store in memory is created by every process that
        // uses one.
        transaction.execute(SQLITE_SCHEMA).await?;
    } else {
        run_steps(&mut transaction, backend.dialect, found).await?;
    }
    let mark =
        if row.is_some() { "UPDATE schema_version SET version = " } else { "INSERT INTO schema_version VALUES (" };
    let end = if row.is_some() { "" } else { ")" };
    transaction.execute(format!("{mark}{known}{end}").as_str()).await?;
    fault::point("open.before_commit")?;
    transaction.commit().await?;
    fault::point("open.after_commit")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Keys;
    use crate::location::Location;

    async fn empty_store() -> Backend {
        Backend::connect(&Location::Memory, Keys::new(1, [7; 32])).await.unwrap()
    }

    /// Returns the columns of every table, whether it has row ids, and its indexes.
    async fn schema(backend: &Backend) -> Vec<String> {
        let tables = "SELECT format('%s without row ids: %d', name, wr) FROM pragma_table_list \
                      WHERE schema = 'main' AND name NOT LIKE 'sqlite_%'";
        let columns = "SELECT format('%s.%s %d %s %d %s %d', m.name, c.name, cid, c.type, \"notnull\", dflt_value, pk) \
                       FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table'";
        let indexes = "SELECT coalesce(sql, name) FROM sqlite_master WHERE type = 'index'";
        let mut found = Vec::new();
        for query in [tables, columns, indexes] {
            let rows = backend.reader().fetch_all(query).await.unwrap();
            found.extend(rows.iter().map(|row| row.get::<String, _>(0)));
        }
        found.sort();
        found
    }

    #[tokio::test]
    async fn a_new_sqlite_store_has_the_schema_that_all_steps_produce() {
        let (new, stepped) = (empty_store().await, empty_store().await);
        apply(&new).await.unwrap();
        let mut transaction = begin_with_locks(&stepped, &[], "ACCESS EXCLUSIVE").await.unwrap();
        transaction.execute("CREATE TABLE schema_version (version BIGINT NOT NULL)").await.unwrap();
        run_steps(&mut transaction, Dialect::Sqlite, 0).await.unwrap();
        transaction.commit().await.unwrap();
        let (new, stepped) = (schema(&new).await, schema(&stepped).await);
        assert!(new.len() > 200, "{new:?}");
        assert_eq!(new, stepped);
    }

    /// A query without the condition of an index of live or ended runs would read every run of the store.
    #[tokio::test]
    async fn queries_of_live_and_ended_runs_use_the_indexes_of_these_runs() {
        let backend = empty_store().await;
        apply(&backend).await.unwrap();
        let live = "state IN ('running', 'waiting')";
        let queries = [
            (format!("{} ORDER BY expires_at LIMIT 100", crate::runs::due("$1")), "live_runs_by_expiry"),
            (format!("{live} AND expires_at > $1"), "live_runs_by_expiry"),
            (format!("session_id = $1 AND {live}"), "live_runs_by_session"),
            (format!("agent_id = $1 AND {live} AND state = 'waiting'"), "live_runs_by_agent"),
            ("session_id = $1 AND tool_call_id = $1".to_owned(), "runs_by_tool_call"),
            ("agent_id = $1".to_owned(), "runs_by_agent"),
            ("state NOT IN ('running', 'waiting') AND updated_at < $1".to_owned(), "ended_runs_by_end"),
        ];
        for (condition, index) in queries {
            let sql = format!("EXPLAIN QUERY PLAN SELECT run_id FROM runs WHERE {condition}");
            let plan = sqlx::query(&sql).bind("x").fetch_all(backend.reader()).await.unwrap();
            let plan: Vec<String> = plan.iter().map(|row| row.get::<String, _>("detail")).collect();
            assert!(plan.iter().any(|step| step.contains(&format!("INDEX {index} "))), "{condition}: {plan:?}");
            assert!(
                !plan.iter().any(|step| step.contains("TEMP B-TREE")),
                "the runs are sorted: {condition}: {plan:?}"
            );
        }
    }
}
