//! Stored outputs: values, texts and tool results that are too large for a result, and images and sounds.
//!
//! An output is stored in pieces, so that any part of it is read without the rest.

mod pieces;
mod write;
mod writer;

use contract::ids::{CallId, OutputHandle, RunId};
use sqlx::Row;
use sqlx::any::AnyRow;

use crate::Millis;
use crate::backend::Backend;
use crate::error::StoreError;
use crate::runs::FencedRun;
use crate::session_values::SessionKey;

pub(crate) use write::{stored_bytes, write};
pub use writer::OutputWriter;

/// What an output is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutputKind {
    Text,
    Json,
    Image,
    Audio,
    /// Bytes of any other kind.
    Binary,
}

impl OutputKind {
    pub const ALL: [Self; 5] = [Self::Text, Self::Json, Self::Image, Self::Audio, Self::Binary];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
            Self::Image => "image",
            Self::Audio => "audio",
            Self::Binary => "binary",
        }
    }

    /// Whether the data is UTF-8, so that it has characters and lines.
    pub fn is_text(self) -> bool {
        matches!(self, Self::Text | Self::Json)
    }

    pub(crate) fn parse(text: &str) -> Result<Self, StoreError> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or_else(|| StoreError::Corrupt(format!("output kind `{text}`")))
    }
}

/// An output that is written with a change of its run.
#[derive(Clone, Debug)]
pub struct NewOutput {
    /// The name within the run; see [`OutputHandle::of`]. An output that is stored again under its name replaces the
    /// stored one.
    pub name: String,
    pub kind: OutputKind,
    pub mime_type: Option<String>,
    /// The call that returned it, and its tool. `None` for what the cell itself output.
    pub source: Option<(CallId, String)>,
    /// At most [`MAX_STORED_RESULT_BYTES`](contract::limits::MAX_STORED_RESULT_BYTES). Text and JSON must be UTF-8.
    pub data: Vec<u8>,
}

/// A stored output without its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputRow {
    pub handle: OutputHandle,
    pub kind: OutputKind,
    pub mime_type: Option<String>,
    pub source: Option<(CallId, String)>,
    pub bytes: u64,
    /// The length of a text in UTF-16 code units, as JavaScript counts. For other data, the bytes.
    pub units: u64,
    /// The number of lines of a text. A line end at the end of the text begins no further line. 0 for other data.
    pub lines: u64,
    pub created_at: Millis,
}

/// A piece of an output, and where it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputPiece {
    pub number: u64,
    pub start_byte: u64,
    pub start_unit: u64,
    /// The line in which the piece begins, counting from 0. The line itself may begin in an earlier piece.
    pub start_line: u64,
    /// A piece of a text ends at a character boundary.
    pub data: Vec<u8>,
}

/// Where a reader begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputPosition {
    Byte(u64),
    Unit(u64),
    /// The beginning of a line, counting from 0.
    Line(u64),
}

const COLUMNS: &str = "outputs.run_id, outputs.name, outputs.kind, outputs.mime_type, outputs.call, outputs.tool_id, \
                       outputs.bytes, outputs.units, outputs.lines, outputs.created_at";

pub(crate) async fn output(backend: &Backend, handle: &OutputHandle) -> Result<Option<OutputRow>, StoreError> {
    let Some((run_id, name)) = handle.parts() else { return Ok(None) };
    let row = sqlx::query(&format!("SELECT {COLUMNS} FROM outputs WHERE run_id = $1 AND name = $2 AND complete = 1"))
        .bind(run_id.to_string())
        .bind(name.to_owned())
        .fetch_optional(backend.reader())
        .await?;
    row.map(|row| read_output(&row)).transpose()
}

pub(crate) async fn outputs_of_run(backend: &Backend, run: &RunId) -> Result<Vec<OutputRow>, StoreError> {
    // Names of one change have the same time and differ in their numbers, so the shorter one is the earlier one.
    let sql = format!(
        "SELECT {COLUMNS} FROM outputs WHERE run_id = $1 AND complete = 1 ORDER BY created_at, length(name), name"
    );
    let rows = sqlx::query(&sql).bind(run.to_string()).fetch_all(backend.reader()).await?;
    rows.iter().map(read_output).collect()
}

pub(crate) async fn outputs_of_session(
    backend: &Backend,
    session: &SessionKey,
    limit: u32,
) -> Result<Vec<OutputRow>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM runs JOIN outputs ON outputs.run_id = runs.run_id WHERE runs.session_id = $1 \
         AND runs.agent_id = $2 AND runs.client = $3 AND outputs.complete = 1 ORDER BY outputs.created_at DESC, \
         outputs.run_id DESC, length(outputs.name) DESC, outputs.name DESC LIMIT $4"
    );
    let rows = sqlx::query(&sql)
        .bind(session.session_id.clone())
        .bind(session.agent_id.clone())
        .bind(session.client.clone())
        .bind(i64::from(limit))
        .fetch_all(backend.reader())
        .await?;
    rows.iter().map(read_output).collect()
}

pub(crate) async fn piece_at(
    backend: &Backend,
    handle: &OutputHandle,
    position: OutputPosition,
) -> Result<Option<OutputPiece>, StoreError> {
    let Some((run_id, name)) = handle.parts() else { return Ok(None) };
    let (start, total, position) = match position {
        OutputPosition::Byte(byte) => ("start_byte", "bytes", byte),
        OutputPosition::Unit(unit) => ("start_unit", "units", unit),
        OutputPosition::Line(line) => ("next_line", "lines", line),
    };
    // Each of these columns has an index. Pieces without the beginning of a line have the number of the same next line.
    let sql = format!(
        "SELECT piece, start_byte, start_unit, start_line, data FROM output_pieces WHERE run_id = $1 AND name = $2 \
         AND {start} <= $3 AND EXISTS (SELECT 1 FROM outputs WHERE run_id = $1 AND name = $2 AND complete = 1 \
         AND {total} > $3) ORDER BY {start} DESC, piece DESC LIMIT 1"
    );
    let row = sqlx::query(&sql)
        .bind(run_id.to_string())
        .bind(name.to_owned())
        .bind(signed(position))
        .fetch_optional(backend.reader())
        .await?;
    row.map(|row| {
        Ok(OutputPiece {
            number: unsigned(&row, 0)?,
            start_byte: unsigned(&row, 1)?,
            start_unit: unsigned(&row, 2)?,
            start_line: unsigned(&row, 3)?,
            data: row.try_get(4)?,
        })
    })
    .transpose()
}

pub(crate) fn writer(
    backend: &Backend,
    held: &FencedRun,
    output: &NewOutput,
    now: Millis,
) -> Result<OutputWriter, StoreError> {
    OutputWriter::new(backend, held, output, now)
}

fn read_output(row: &AnyRow) -> Result<OutputRow, StoreError> {
    let (run_id, name): (String, String) = (row.try_get(0)?, row.try_get(1)?);
    let call = row.try_get::<Option<i64>, _>(4)?.map(u32::try_from).transpose();
    let call = call.map_err(|_| StoreError::Corrupt("the call of an output".to_owned()))?;
    Ok(OutputRow {
        handle: OutputHandle::of(&RunId::new(run_id), &name),
        kind: OutputKind::parse(&row.try_get::<String, _>(2)?)?,
        mime_type: row.try_get(3)?,
        source: call.map(CallId).zip(row.try_get::<Option<String>, _>(5)?),
        bytes: unsigned(row, 6)?,
        units: unsigned(row, 7)?,
        lines: unsigned(row, 8)?,
        created_at: row.try_get(9)?,
    })
}

fn unsigned(row: &AnyRow, column: usize) -> Result<u64, StoreError> {
    let number: i64 = row.try_get(column)?;
    u64::try_from(number).map_err(|_| StoreError::Corrupt("a negative position of an output".to_owned()))
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
