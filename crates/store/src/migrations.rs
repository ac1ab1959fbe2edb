//! The schema, one step after the other. A step that has shipped is never edited.

use sqlx::{Executor, Row};

use crate::backend::{Dialect, Store, StoreError};
use crate::commit::Durability;
use crate::fault;

const STEPS: [&str; 4] = [
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
    "ALTER TABLE calls ADD COLUMN parent TEXT NOT NULL DEFAULT ''",
    "
ALTER TABLE calls ADD COLUMN ticket TEXT;
ALTER TABLE approvals ADD COLUMN question TEXT;
",
    "
ALTER TABLE legs ADD COLUMN ended TEXT;
ALTER TABLE legs ADD COLUMN shown TEXT;
",
];

pub(crate) async fn apply(store: &Store) -> Result<(), StoreError> {
    let mut transaction = store.writer(Durability::Synced).begin().await?;
    if store.dialect == Dialect::Postgres {
        // Two who open a new store at once take turns; SQLite lets only one write anyway.
        transaction.execute("SELECT 1 FROM (SELECT pg_advisory_xact_lock(7251)) AS turn").await?;
    }
    transaction.execute("CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)").await?;
    let row = transaction.fetch_optional("SELECT version FROM schema_version").await?;
    let found = match &row {
        Some(row) => row.try_get::<i64, _>(0)?,
        None => 0,
    };
    let known = STEPS.len() as i64;
    if found > known {
        return Err(StoreError::TooNew { found, known });
    }
    for step in STEPS.iter().skip(usize::try_from(found).unwrap_or(0)) {
        let step = match store.dialect {
            Dialect::Sqlite => (*step).to_owned(),
            Dialect::Postgres => step.replace("BLOB", "BYTEA"),
        };
        transaction.execute(step.as_str()).await?;
    }
    if found == known {
        // Nothing is written, so that whoever opens a store in use disturbs nobody.
        return Ok(());
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
