-- The schema of a new SQLite store: what all migration steps together produce, as a test checks.

CREATE TABLE runs (
    run_id         TEXT PRIMARY KEY,
    agent_id       TEXT NOT NULL,
    session_id     TEXT NOT NULL,
    agent_run_id   TEXT NOT NULL,
    tool_call_id   TEXT NOT NULL,
    state          TEXT NOT NULL,
    sequence       BIGINT NOT NULL,
    fence          BIGINT NOT NULL,
    holder         TEXT NOT NULL,
    lease_until    BIGINT NOT NULL,
    created_at     BIGINT NOT NULL,
    updated_at     BIGINT NOT NULL,
    expires_at     BIGINT NOT NULL,
    catalog        TEXT NOT NULL,
    definition     TEXT NOT NULL,
    progress       TEXT NOT NULL,
    snapshot_leg   BIGINT,
    snapshot       BLOB,
    result         TEXT,
    journal_bytes  BIGINT NOT NULL DEFAULT 0,
    client         TEXT NOT NULL DEFAULT '',
    output_bytes   BIGINT NOT NULL DEFAULT 0,
    journal        TEXT
);
CREATE INDEX ended_runs_by_end ON runs (updated_at) WHERE state NOT IN ('running', 'waiting');
CREATE INDEX live_runs_by_agent ON runs (agent_id, state) WHERE state IN ('running', 'waiting');
CREATE INDEX live_runs_by_expiry ON runs (expires_at) WHERE state IN ('running', 'waiting');
CREATE INDEX runs_by_agent ON runs (agent_id);
CREATE INDEX runs_by_tool_call ON runs (session_id, tool_call_id);
-- After `runs_by_tool_call`, as the steps create it: of two indexes that seem equally good, SQLite uses the later one.
CREATE INDEX live_runs_by_session ON runs (session_id) WHERE state IN ('running', 'waiting');

CREATE TABLE legs (
    run_id    TEXT NOT NULL,
    leg       BIGINT NOT NULL,
    clock_us  BIGINT NOT NULL,
    replies   TEXT NOT NULL,
    ended     TEXT,
    shown     TEXT,
    PRIMARY KEY (run_id, leg)
) WITHOUT ROWID;

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
    parent        TEXT NOT NULL DEFAULT '',
    ticket        TEXT,
    PRIMARY KEY (run_id, call)
) WITHOUT ROWID;

CREATE TABLE catalogs (
    hash     TEXT PRIMARY KEY,
    tables   BLOB NOT NULL,
    used_at  BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE approvals (
    approval_id      TEXT PRIMARY KEY,
    run_id           TEXT NOT NULL,
    call             BIGINT NOT NULL,
    agent_id         TEXT NOT NULL,
    session_id       TEXT NOT NULL,
    tool_id          TEXT NOT NULL,
    tool_hash        TEXT NOT NULL,
    input            TEXT NOT NULL,
    input_hash       TEXT NOT NULL,
    reason           TEXT NOT NULL,
    state            TEXT NOT NULL,
    requested_at     BIGINT NOT NULL,
    expires_at       BIGINT NOT NULL,
    decided_at       BIGINT,
    decided_by       TEXT,
    note             TEXT,
    edited_input     TEXT,
    question         TEXT,
    source_identity  TEXT
);
CREATE INDEX approvals_by_agent ON approvals (agent_id, state);
CREATE INDEX approvals_by_run ON approvals (run_id, call);
CREATE INDEX approvals_by_state ON approvals (state, requested_at);

CREATE TABLE rules (
    rule_id          TEXT PRIMARY KEY,
    tool_id          TEXT NOT NULL,
    tool_hash        TEXT NOT NULL,
    agent_id         TEXT,
    session_id       TEXT,
    created_at       BIGINT NOT NULL,
    created_by       TEXT NOT NULL,
    revoked_at       BIGINT,
    source_identity  TEXT
);
CREATE INDEX rules_by_agent ON rules (agent_id, revoked_at);
CREATE INDEX rules_by_tool ON rules (tool_id);

CREATE TABLE transcript (
    session_id  TEXT NOT NULL,
    position    BIGINT NOT NULL,
    at          BIGINT NOT NULL,
    run_id      TEXT NOT NULL,
    kind        TEXT NOT NULL,
    entry       TEXT NOT NULL,
    PRIMARY KEY (session_id, position)
) WITHOUT ROWID;

CREATE TABLE usage (
    agent_id        TEXT PRIMARY KEY,
    waiting_runs    BIGINT NOT NULL,
    snapshot_bytes  BIGINT NOT NULL,
    open_approvals  BIGINT NOT NULL,
    counted_at      BIGINT NOT NULL
);

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
CREATE INDEX output_pieces_by_line ON output_pieces (run_id, name, next_line, piece);
CREATE INDEX output_pieces_by_unit ON output_pieces (run_id, name, start_unit, piece);

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
) WITHOUT ROWID;

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
CREATE INDEX turns_by_end ON turns (updated_at);
CREATE INDEX turns_by_expiry ON turns (expires_at);
CREATE INDEX turns_by_holder ON turns (holder, lease_until);
CREATE INDEX turns_by_lease ON turns (state, lease_until);
CREATE INDEX turns_by_parent ON turns (parent);
CREATE INDEX turns_by_principal ON turns (principal, state);
CREATE INDEX turns_by_request ON turns (principal, request_digest);
CREATE INDEX turns_by_session ON turns (session_id);

CREATE TABLE turn_steps (
    turn_id  TEXT NOT NULL,
    step     BIGINT NOT NULL,
    at       BIGINT NOT NULL,
    kind     TEXT NOT NULL,
    body     TEXT NOT NULL,
    PRIMARY KEY (turn_id, step)
) WITHOUT ROWID;

CREATE TABLE turn_messages (
    turn_id     TEXT NOT NULL,
    message_id  TEXT NOT NULL,
    at          BIGINT NOT NULL,
    kind        TEXT NOT NULL,
    body        TEXT NOT NULL,
    PRIMARY KEY (turn_id, message_id)
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
) WITHOUT ROWID;
CREATE INDEX deliveries_by_run ON deliveries (run_id);
CREATE INDEX deliveries_by_turn ON deliveries (turn_id);

CREATE TABLE conversations (
    principal  TEXT NOT NULL,
    agent_id   TEXT NOT NULL,
    digest     TEXT NOT NULL,
    turn_id    TEXT NOT NULL,
    at         BIGINT NOT NULL,
    PRIMARY KEY (principal, agent_id, digest)
) WITHOUT ROWID;
CREATE INDEX conversations_by_turn ON conversations (turn_id);

CREATE TABLE responses (
    response_id  TEXT PRIMARY KEY,
    principal    TEXT NOT NULL,
    turn_id      TEXT NOT NULL,
    at           BIGINT NOT NULL,
    expires_at   BIGINT NOT NULL,
    body         TEXT NOT NULL
);
CREATE INDEX responses_by_expiry ON responses (expires_at);
CREATE INDEX responses_by_turn ON responses (turn_id);

CREATE TABLE items (
    principal    TEXT NOT NULL,
    item_id      TEXT NOT NULL,
    response_id  TEXT NOT NULL,
    PRIMARY KEY (principal, item_id)
) WITHOUT ROWID;
CREATE INDEX items_by_response ON items (response_id);

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

CREATE TABLE sealing_keys (
    key_id  BIGINT PRIMARY KEY,
    mark    TEXT NOT NULL
);
