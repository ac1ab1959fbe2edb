-- The schema of version 2, as released.
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
ALTER TABLE calls ADD COLUMN parent TEXT NOT NULL DEFAULT '';
CREATE TABLE schema_version (version BIGINT NOT NULL);
INSERT INTO schema_version VALUES (2);
