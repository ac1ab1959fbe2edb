//! Transcripts: for each session, the messages of users and models, the model's control calls and the tool calls that
//! they caused, in order.

use contract::ids::RunId;
use serde::Serialize;
use serde_json::Value;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use crate::Millis;
use crate::backend::{Backend, Dialect, Durability};
use crate::error::StoreError;
use crate::sql::ROWS_PER_STATEMENT;
use crate::statement::{RowStatements, Statement};

/// The most entries that have a statement each. More are faster with one statement for several.
const MAX_SINGLE_ENTRIES: usize = 4;

/// The kind of a transcript entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A call by the model of `exec`, `wait` or a tool of Tool Search.
    ControlCall,
    /// What the model received for a control call.
    ControlResult,
    /// A tool call that a cell made, or that the model made without a cell.
    ToolCall,
    /// The outcome of a tool call.
    ToolResult,
    /// An approval that was requested or decided, an abort, or a late result.
    Note,
    /// A message of the user in a turn of the gateway.
    UserMessage,
    /// A response of the model in a turn of the gateway, with its usage.
    ModelMessage,
    /// An event of a turn of the gateway: for example a failure, or an abort and its reason.
    TurnNote,
}

impl EntryKind {
    pub const ALL: [Self; 8] = [
        Self::ControlCall,
        Self::ControlResult,
        Self::ToolCall,
        Self::ToolResult,
        Self::Note,
        Self::UserMessage,
        Self::ModelMessage,
        Self::TurnNote,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::ControlCall => "control_call",
            Self::ControlResult => "control_result",
            Self::ToolCall => "tool_call",
            Self::ToolResult => "tool_result",
            Self::Note => "note",
            Self::UserMessage => "user_message",
            Self::ModelMessage => "model_message",
            Self::TurnNote => "turn_note",
        }
    }

    fn parse(text: &str) -> Result<Self, StoreError> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or_else(|| StoreError::Corrupt(format!("transcript entry `{text}`")))
    }
}

/// An entry of a session's transcript.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    pub at: Millis,
    pub kind: EntryKind,
    /// A JSON object with the fields of this kind.
    #[serde(flatten)]
    pub entry: Value,
}

/// An entry that is to be written: the JSON text of its fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEntry {
    pub at: Millis,
    pub kind: EntryKind,
    entry: String,
}

impl NewEntry {
    /// Returns an entry with the fields of an object.
    pub fn new(at: Millis, kind: EntryKind, fields: &impl Serialize) -> Self {
        // Serializing JSON values and strings does not fail.
        Self { at, kind, entry: serde_json::to_string(fields).unwrap_or_default() }
    }

    /// Returns an entry whose fields are the JSON text of an object.
    pub fn from_json(at: Millis, kind: EntryKind, fields: String) -> Self {
        Self { at, kind, entry: fields }
    }

    /// Returns an entry with a first field whose value is JSON already, and the fields of an object. The JSON may be
    /// large, so it is not parsed.
    pub fn with_json(at: Millis, kind: EntryKind, (name, json): (&str, &str), fields: &impl Serialize) -> Self {
        let fields = Self::new(at, kind, fields).entry;
        let more = fields.strip_prefix('{').filter(|more| *more != "}");
        let separator = if more.is_some() { "," } else { "" };
        let entry = format!("{{\"{name}\":{}{separator}{}", contract::json::well_formed(json), more.unwrap_or("}"));
        Self { at, kind, entry }
    }
}

impl From<Entry> for NewEntry {
    fn from(Entry { at, kind, entry }: Entry) -> Self {
        Self { at, kind, entry: entry.to_string() }
    }
}

/// Appends entries to a session's transcript, within the caller's transaction. Each gets the next position; on
/// Postgres, a lock per session prevents two writers from assigning the same one. SQLite has only one writer at a time.
/// `origin` is the id of the run or turn that writes them.
pub(crate) async fn write(
    connection: &mut AnyConnection,
    dialect: Dialect,
    session_id: &str,
    origin: &str,
    entries: &[NewEntry],
) -> Result<(), sqlx::Error> {
    if entries.is_empty() {
        return Ok(());
    }
    if dialect == Dialect::Postgres {
        sqlx::query("SELECT 1 FROM (SELECT pg_advisory_xact_lock(hashtextextended($1, 0))) AS turn")
            .bind(session_id.to_owned())
            .execute(&mut *connection)
            .await?;
    }
    for batch in entries.chunks(ROWS_PER_STATEMENT) {
        append_several(session_id, origin, batch).execute(connection).await?;
    }
    Ok(())
}

/// Returns the statements that append entries in a transaction of SQLite's writing connection. A few entries have a
/// statement for each: with one for several, SQLite copies the rows to a temporary table first, because the statement
/// reads the table that it changes.
pub(crate) fn statements<'a>(
    session_id: &'a str,
    origin: &'a str,
    entries: &'a [NewEntry],
) -> impl Iterator<Item = Statement<'a>> {
    let rows = if entries.len() <= MAX_SINGLE_ENTRIES { 1 } else { ROWS_PER_STATEMENT };
    entries.chunks(rows).map(move |batch| match batch {
        [entry] => append_one(session_id, origin, entry),
        _ => append_several(session_id, origin, batch),
    })
}

fn append_one<'a>(session_id: &'a str, origin: &'a str, entry: &'a NewEntry) -> Statement<'a> {
    Statement::new(
        "INSERT INTO transcript (session_id, position, at, run_id, kind, entry) \
         VALUES ($1, (SELECT COALESCE(MAX(position), 0) + 1 FROM transcript WHERE session_id = $1), $2, $3, $4, $5)",
    )
    .bind(session_id)
    .bind(entry.at)
    .bind(origin)
    .bind(entry.kind.as_str())
    .bind(entry.entry.as_str())
}

/// Returns a statement that appends at most [`ROWS_PER_STATEMENT`] entries.
fn append_several<'a>(session_id: &'a str, origin: &'a str, entries: &'a [NewEntry]) -> Statement<'a> {
    let statement = APPEND_ROWS.statement(entries.len()).bind(session_id).bind(origin);
    entries.iter().fold(statement, |statement, entry| {
        statement.bind(entry.at).bind(entry.kind.as_str()).bind(entry.entry.as_str())
    })
}

static APPEND_ROWS: RowStatements = RowStatements::new(append_rows);

fn append_rows(rows: usize) -> String {
    format!(
        "INSERT INTO transcript (session_id, position, at, run_id, kind, entry) \
         SELECT $1, last.position + new.column1, new.column2, $2, new.column3, new.column4 \
         FROM (SELECT COALESCE(MAX(position), 0) AS position FROM transcript WHERE session_id = $1) AS last, \
         (VALUES {}) AS new",
        numbered_rows(rows)
    )
}

/// Returns rows that each have their number and three values, for the placeholders after the first two.
fn numbered_rows(rows: usize) -> String {
    let row = |row: usize| {
        let separator = if row == 0 { "" } else { ", " };
        let [at, kind, entry] = [3, 4, 5].map(|column| row * 3 + column);
        format!("{separator}({}, ${at}, ${kind}, ${entry})", row + 1)
    };
    (0..rows).map(row).collect()
}

/// Appends entries to a session's transcript in a transaction of their own.
pub(crate) async fn append(
    backend: &Backend,
    session_id: &str,
    run_id: &RunId,
    entries: &[NewEntry],
) -> Result<(), sqlx::Error> {
    let mut transaction = backend.writer(Durability::Relaxed).begin().await?;
    write(&mut transaction, backend.dialect, session_id, run_id, entries).await?;
    transaction.commit().await?;
    Ok(())
}

/// Returns a session's transcript in order.
pub(crate) async fn read(backend: &Backend, session_id: &str) -> Result<Vec<Entry>, StoreError> {
    let rows = sqlx::query("SELECT at, kind, entry FROM transcript WHERE session_id = $1 ORDER BY position")
        .bind(session_id.to_owned())
        .fetch_all(backend.reader())
        .await?;
    rows.iter().map(read_entry).collect()
}

/// Returns the entries of one run in its session's transcript, in order.
pub(crate) async fn read_run(backend: &Backend, session_id: &str, run_id: &RunId) -> Result<Vec<Entry>, StoreError> {
    let sql = "SELECT at, kind, entry FROM transcript WHERE session_id = $1 AND run_id = $2 ORDER BY position";
    let rows =
        sqlx::query(sql).bind(session_id.to_owned()).bind(run_id.to_string()).fetch_all(backend.reader()).await?;
    rows.iter().map(read_entry).collect()
}

/// Deletes the entries of one run from its session's transcript.
pub(crate) async fn delete_run(backend: &Backend, session_id: &str, run_id: &RunId) -> Result<(), StoreError> {
    let mut transaction = backend.writer(Durability::Relaxed).begin().await?;
    sqlx::query("DELETE FROM transcript WHERE session_id = $1 AND run_id = $2")
        .bind(session_id.to_owned())
        .bind(run_id.to_string())
        .execute(&mut *transaction)
        .await?;
    Ok(transaction.commit().await?)
}

/// Reads an entry from the columns `at`, `kind` and `entry`.
pub(crate) fn read_entry(row: &AnyRow) -> Result<Entry, StoreError> {
    let entry: String = row.try_get(2)?;
    Ok(Entry {
        at: row.try_get(0)?,
        kind: EntryKind::parse(&row.try_get::<String, _>(1)?)?,
        entry: contract::json::read(&entry).map_err(|error| StoreError::Corrupt(error.to_string()))?,
    })
}

/// Returns a session's transcript as JSON, one entry per line.
pub(crate) async fn export(backend: &Backend, session_id: &str) -> Result<String, StoreError> {
    let mut lines = String::new();
    for entry in read(backend, session_id).await? {
        let line = serde_json::to_string(&entry).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        lines += &line;
        lines.push('\n');
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{EntryKind, NewEntry};

    #[test]
    fn serialized_json_becomes_the_first_field_and_loses_unpaired_surrogates() {
        for (fields, expected) in [
            (json!({"runId": "r"}), json!({"result": ["\u{FFFD}"], "runId": "r"})),
            (json!({}), json!({"result": ["\u{FFFD}"]})),
        ] {
            let entry = NewEntry::with_json(1, EntryKind::Note, ("result", r#"["\ud800"]"#), &fields).entry;
            assert_eq!(serde_json::from_str::<Value>(&entry).unwrap(), expected, "{entry}");
        }
    }
}
