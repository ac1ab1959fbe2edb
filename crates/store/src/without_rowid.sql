ALTER TABLE legs RENAME TO old_legs;
CREATE TABLE legs (
    run_id    TEXT NOT NULL,
    leg       BIGINT NOT NULL,
    clock_us  BIGINT NOT NULL,
    replies   TEXT NOT NULL,
    ended     TEXT,
    shown     TEXT,
    PRIMARY KEY (run_id, leg)
) WITHOUT ROWID;
INSERT INTO legs SELECT * FROM old_legs;
DROP TABLE old_legs;

ALTER TABLE calls RENAME TO old_calls;
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
INSERT INTO calls SELECT * FROM old_calls;
DROP TABLE old_calls;

ALTER TABLE transcript RENAME TO old_transcript;
CREATE TABLE transcript (
    session_id  TEXT NOT NULL,
    position    BIGINT NOT NULL,
    at          BIGINT NOT NULL,
    run_id      TEXT NOT NULL,
    kind        TEXT NOT NULL,
    entry       TEXT NOT NULL,
    PRIMARY KEY (session_id, position)
) WITHOUT ROWID;
INSERT INTO transcript SELECT * FROM old_transcript;
DROP TABLE old_transcript;
CREATE INDEX transcript_by_time ON transcript (at);

ALTER TABLE value_writes RENAME TO old_value_writes;
CREATE TABLE value_writes (
    run_id   TEXT NOT NULL,
    version  TEXT NOT NULL,
    key      TEXT NOT NULL,
    written  BIGINT NOT NULL,
    found    TEXT,
    PRIMARY KEY (run_id, version, key)
) WITHOUT ROWID;
INSERT INTO value_writes SELECT * FROM old_value_writes;
DROP TABLE old_value_writes;

ALTER TABLE turn_steps RENAME TO old_turn_steps;
CREATE TABLE turn_steps (
    turn_id  TEXT NOT NULL,
    step     BIGINT NOT NULL,
    at       BIGINT NOT NULL,
    kind     TEXT NOT NULL,
    body     TEXT NOT NULL,
    PRIMARY KEY (turn_id, step)
) WITHOUT ROWID;
INSERT INTO turn_steps SELECT * FROM old_turn_steps;
DROP TABLE old_turn_steps;

ALTER TABLE deliveries RENAME TO old_deliveries;
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
INSERT INTO deliveries SELECT * FROM old_deliveries;
DROP TABLE old_deliveries;
CREATE INDEX deliveries_by_turn ON deliveries (turn_id);
CREATE INDEX deliveries_by_run ON deliveries (run_id);

ALTER TABLE conversations RENAME TO old_conversations;
CREATE TABLE conversations (
    principal  TEXT NOT NULL,
    agent_id   TEXT NOT NULL,
    digest     TEXT NOT NULL,
    turn_id    TEXT NOT NULL,
    at         BIGINT NOT NULL,
    PRIMARY KEY (principal, agent_id, digest)
) WITHOUT ROWID;
INSERT INTO conversations SELECT * FROM old_conversations;
DROP TABLE old_conversations;
CREATE INDEX conversations_by_turn ON conversations (turn_id);

ALTER TABLE items RENAME TO old_items;
CREATE TABLE items (
    principal    TEXT NOT NULL,
    item_id      TEXT NOT NULL,
    response_id  TEXT NOT NULL,
    PRIMARY KEY (principal, item_id)
) WITHOUT ROWID;
INSERT INTO items SELECT * FROM old_items;
DROP TABLE old_items;
CREATE INDEX items_by_response ON items (response_id);
