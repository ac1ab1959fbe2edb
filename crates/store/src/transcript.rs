//! Transcripts: for each session, the messages of users and models, the model's control calls and the tool calls that
//! they caused, in order.
//!
//! Entries that a run or turn appends together are stored in as few rows as possible, because a row costs much more than
//! its text. Position and time of a row are those of its last entry.

use std::borrow::Cow;

use contract::ids::RunId;
use futures_util::TryStreamExt;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use crate::Millis;
use crate::backend::{Backend, Dialect, Durability};
use crate::error::StoreError;
use crate::statement::Statement;

/// The kind of a row with several entries. Its column `entry` is the JSON text of a list of `[at, kind, fields]`; in
/// other rows, `kind` is the entry's and `entry` the JSON text of its fields.
const SEVERAL: &str = "several";

/// The most entries of a row.
const MAX_ROW_ENTRIES: usize = 64;

/// The most bytes of a row with several entries.
const MAX_ROW_BYTES: usize = 16 << 10;

/// SQLite stores longer rows of this table partly on pages of their own, whose rest stays empty.
const IN_PAGE_BYTES: usize = 850;

/// Rows of at least this length fill most of their own pages.
const OWN_PAGES_BYTES: usize = 4 << 10;

/// More bytes than the time, the kind and the punctuation of an entry take in a row with several.
const ENTRY_OVERHEAD: usize = 40;

/// The kind of a transcript entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    for statement in statements(session_id, origin, entries) {
        statement.execute(connection).await?;
    }
    Ok(())
}

/// Returns the statements that append entries, within a transaction: one for each row.
pub(crate) fn statements<'a>(
    session_id: &'a str,
    origin: &'a str,
    entries: &'a [NewEntry],
) -> impl Iterator<Item = Statement<'a>> {
    let mut rest = entries;
    std::iter::from_fn(move || {
        let (row, after) = rest.split_at(entries_of_row(rest));
        rest = after;
        row.last().map(|last| append_row(session_id, origin, row, last))
    })
}

/// Returns how many of the entries are in the next row: all that fit, but no more than fit into a page if the row would
/// not fill pages of its own.
fn entries_of_row(entries: &[NewEntry]) -> usize {
    let (mut bytes, mut in_page, mut number) = (0, 0, 0);
    for entry in entries.iter().take(MAX_ROW_ENTRIES) {
        let longer = bytes + entry.entry.len() + ENTRY_OVERHEAD;
        if number > 0 && longer > MAX_ROW_BYTES {
            break;
        }
        (bytes, number) = (longer, number + 1);
        if bytes <= IN_PAGE_BYTES {
            in_page = number;
        }
    }
    if bytes >= OWN_PAGES_BYTES { number } else { in_page.max(1).min(entries.len()) }
}

fn append_row<'a>(session_id: &'a str, origin: &'a str, entries: &'a [NewEntry], last: &'a NewEntry) -> Statement<'a> {
    let (kind, text) = match entries {
        [entry] => (entry.kind.as_str(), Cow::Borrowed(entry.entry.as_str())),
        several => (SEVERAL, Cow::Owned(list(several))),
    };
    Statement::new(
        "INSERT INTO transcript (session_id, position, at, run_id, kind, entry) \
         VALUES ($1, (SELECT COALESCE(MAX(position), 0) + $2 FROM transcript WHERE session_id = $1), $3, $4, $5, $6)",
    )
    .bind(session_id)
    .bind(i64::try_from(entries.len()).unwrap_or(i64::MAX))
    .bind(last.at)
    .bind(origin)
    .bind(kind)
    .bind(text)
}

/// Returns the JSON text of a row with several entries.
fn list(entries: &[NewEntry]) -> String {
    let bytes: usize = entries.iter().map(|entry| entry.entry.len() + ENTRY_OVERHEAD).sum();
    let mut text = String::with_capacity(bytes);
    for NewEntry { at, kind, entry } in entries {
        text.push_str(if text.is_empty() { "[[" } else { ",[" });
        text.push_str(itoa::Buffer::new().format(*at));
        text.push_str(",\"");
        text.push_str(kind.as_str());
        text.push_str("\",");
        text.push_str(entry);
        text.push(']');
    }
    text.push(']');
    text
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
    read_rows(&rows)
}

/// Returns the entries of one run in its session's transcript, in order.
pub(crate) async fn read_run(backend: &Backend, session_id: &str, run_id: &RunId) -> Result<Vec<Entry>, StoreError> {
    let sql = "SELECT at, kind, entry FROM transcript WHERE session_id = $1 AND run_id = $2 ORDER BY position";
    let rows =
        sqlx::query(sql).bind(session_id.to_owned()).bind(run_id.to_string()).fetch_all(backend.reader()).await?;
    read_rows(&rows)
}

/// Returns at most `limit` entries of a session's transcript with their positions, in order, those after a position.
pub(crate) async fn read_page(
    backend: &Backend,
    session_id: &str,
    after: i64,
    limit: u32,
) -> Result<Vec<(i64, Entry)>, StoreError> {
    // Each row has at least one entry after the position.
    let sql = "SELECT at, kind, entry, position FROM transcript WHERE session_id = $1 AND position > $2 \
               ORDER BY position LIMIT $3";
    let mut rows =
        sqlx::query(sql).bind(session_id.to_owned()).bind(after).bind(i64::from(limit)).fetch(backend.reader());
    let mut page = Vec::new();
    while page.len() < limit as usize
        && let Some(row) = rows.try_next().await?
    {
        let entries = read_row(&row)?;
        let last: i64 = row.try_get(3)?;
        let first = last - i64::try_from(entries.len()).unwrap_or(i64::MAX) + 1;
        page.extend((first..).zip(entries).filter(|(position, _)| *position > after));
    }
    page.truncate(limit as usize);
    Ok(page)
}

/// Returns the sessions after this one, at most `limit`, with the times of their oldest entries. Each is found with a seek.
pub(crate) async fn oldest_entries(
    backend: &Backend,
    after: &str,
    limit: i64,
) -> Result<Vec<(String, Millis)>, StoreError> {
    let rows = sqlx::query(
        "WITH RECURSIVE sessions (session_id, number) AS ( \
         SELECT MIN(session_id), 1 FROM transcript WHERE session_id > $1 UNION ALL \
         SELECT (SELECT MIN(session_id) FROM transcript WHERE session_id > sessions.session_id), number + 1 \
         FROM sessions WHERE session_id IS NOT NULL AND number < $2) \
         SELECT session_id, (SELECT at FROM transcript WHERE transcript.session_id = sessions.session_id \
         ORDER BY position LIMIT 1) FROM sessions WHERE session_id IS NOT NULL",
    )
    .bind(after.to_owned())
    .bind(limit)
    .fetch_all(backend.reader())
    .await?;
    // A session has no entries any more if another process has just deleted them.
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get::<Option<Millis>, _>(1)?.unwrap_or(Millis::MAX)))).collect()
}

/// Deletes at most `limit` rows of a session's transcript that were written before `then`, and returns how many.
pub(crate) async fn delete_before(
    backend: &Backend,
    session_id: &str,
    then: Millis,
    limit: i64,
) -> Result<u64, StoreError> {
    let deleted = sqlx::query(
        "DELETE FROM transcript WHERE session_id = $1 AND position IN \
         (SELECT position FROM transcript WHERE session_id = $1 AND at < $2 ORDER BY position LIMIT $3)",
    )
    .bind(session_id.to_owned())
    .bind(then)
    .bind(limit)
    .execute(backend.writer(Durability::Relaxed))
    .await?;
    Ok(deleted.rows_affected())
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

fn read_rows(rows: &[AnyRow]) -> Result<Vec<Entry>, StoreError> {
    let mut entries = Vec::new();
    for row in rows {
        entries.extend(read_row(row)?);
    }
    Ok(entries)
}

/// Reads the entries of a row from the columns `at`, `kind` and `entry`.
fn read_row(row: &AnyRow) -> Result<Vec<Entry>, StoreError> {
    let (at, kind, text): (Millis, String, String) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    if kind == SEVERAL {
        return read_list(&text);
    }
    Ok(vec![Entry { at, kind: EntryKind::parse(&kind)?, entry: read_fields(&text)? }])
}

fn read_list(text: &str) -> Result<Vec<Entry>, StoreError> {
    let entries: Vec<(Millis, EntryKind, &RawValue)> =
        serde_json::from_str(text).map_err(|error| StoreError::Corrupt(format!("transcript entries: {error}")))?;
    let read =
        |(at, kind, fields): (Millis, EntryKind, &RawValue)| Ok(Entry { at, kind, entry: read_fields(fields.get())? });
    entries.into_iter().map(read).collect()
}

fn read_fields(text: &str) -> Result<Value, StoreError> {
    contract::json::read(text).map_err(|error| StoreError::Corrupt(error.to_string()))
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

    use super::{
        ENTRY_OVERHEAD, Entry, EntryKind, MAX_ROW_BYTES, MAX_ROW_ENTRIES, NewEntry, entries_of_row, list, read_list,
    };

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

    /// Returns how many of these entries each row contains. A number is the length of an entry in a row.
    fn rows(lengths: &[usize]) -> Vec<usize> {
        let entry = |length: &usize| NewEntry::from_json(1, EntryKind::Note, "x".repeat(length - ENTRY_OVERHEAD));
        let entries: Vec<NewEntry> = lengths.iter().map(entry).collect();
        let (mut rest, mut rows) = (entries.as_slice(), Vec::new());
        while !rest.is_empty() {
            let row = entries_of_row(rest);
            rows.push(row);
            rest = &rest[row..];
        }
        rows
    }

    #[test]
    fn rows_either_fit_into_a_page_or_fill_pages_of_their_own() {
        assert_eq!(rows(&[]), [0; 0]);
        assert_eq!(rows(&[100]), [1]);
        assert_eq!(rows(&[280, 280, 290]), [3], "850 bytes fit into a page");
        assert_eq!(rows(&[280, 280, 291]), [2, 1]);
        assert_eq!(rows(&[1_000, 100, 100]), [1, 2], "a long entry is in a row of its own");
        assert_eq!(rows(&[100, 1_000, 100]), [1, 1, 1]);
        assert_eq!(rows(&[1_000; 4]), [1; 4]);
        assert_eq!(rows(&[1_024; 4]), [4], "4 KiB fill a page");
        assert_eq!(rows(&[100; 50]), [50]);
    }

    #[test]
    fn rows_have_limited_sizes() {
        assert_eq!(rows(&[MAX_ROW_BYTES * 4, 50]), [1, 1], "an entry is never divided");
        assert_eq!(rows(&[MAX_ROW_BYTES / 2, MAX_ROW_BYTES / 2, 50]), [2, 1]);
        assert_eq!(rows(&[MAX_ROW_BYTES / 2, MAX_ROW_BYTES / 2 + 1, 50]), [1, 2]);
        assert_eq!(rows(&[100; MAX_ROW_ENTRIES + 1]), [MAX_ROW_ENTRIES, 1]);
    }

    #[test]
    fn the_overhead_of_an_entry_is_not_underestimated() {
        for kind in EntryKind::ALL {
            let entry = NewEntry::from_json(1_800_000_000_000, kind, "{}".to_owned());
            assert!(list(&[entry.clone(), entry]).len() <= 2 * ENTRY_OVERHEAD, "{kind:?}");
        }
    }

    #[test]
    fn a_row_with_several_entries_returns_what_each_contained() {
        let nested = format!("{}1{}", "[".repeat(150), "]".repeat(150));
        let entry = |(number, kind): (usize, EntryKind)| {
            let at = i64::try_from(number).unwrap() - 4;
            NewEntry::from_json(at, kind, format!("{{ \"deep\": {nested},\n\"text\": \"\\ud800]],\"}}"))
        };
        let entries: Vec<NewEntry> = EntryKind::ALL.into_iter().enumerate().map(entry).collect();
        let read = read_list(&list(&entries)).unwrap();
        let fields = json!({"deep": contract::json::read(&nested).unwrap(), "text": "\u{FFFD}]],"});
        let expected: Vec<Entry> = entries
            .iter()
            .map(|NewEntry { at, kind, .. }| Entry { at: *at, kind: *kind, entry: fields.clone() })
            .collect();
        assert_eq!(read, expected);
        for damaged in ["", "[", "[1]", r#"[[1,"unknown",{}]]"#, r#"[["1","note",{}]]"#, r#"[[1,"note"]]"#] {
            assert!(read_list(damaged).is_err(), "{damaged}");
        }
    }
}
