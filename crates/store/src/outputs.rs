//! Stored outputs: values, texts and tool results that are too large for a result, and images and sounds.
//!
//! An output is stored in pieces, so that any part of it is read without the rest.

use contract::ids::{CallId, OutputHandle, RunId};

use crate::Millis;
use crate::backend::Backend;
use crate::error::StoreError;
use crate::session_values::SessionKey;

/// What an output is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutputKind {
    Text,
    Json,
    Image,
    Audio,
    /// Other bytes.
    Binary,
}

/// An output that is written with a change of its run.
#[derive(Clone, Debug)]
pub struct NewOutput {
    /// The name within the run; see [`OutputHandle::of`].
    pub name: String,
    pub kind: OutputKind,
    pub mime_type: Option<String>,
    /// The call that returned it, and its tool. `None` for what the cell itself output.
    pub source: Option<(CallId, String)>,
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
    /// The number of lines of a text.
    pub lines: u64,
    pub created_at: Millis,
}

/// One piece of an output, and where it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputPiece {
    pub number: u64,
    pub start_byte: u64,
    pub start_unit: u64,
    /// The line in which the piece begins, counting from 0.
    pub start_line: u64,
    /// A piece of a text ends at a character boundary.
    pub data: Vec<u8>,
}

/// Where a reader begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputPosition {
    Byte(u64),
    Unit(u64),
    Line(u64),
}

/// Writes an output piece by piece, before the change that completes it. An output that no change completes is not
/// visible, and is deleted by a sweep.
#[derive(Debug)]
pub struct OutputWriter {
    _backend: Backend,
    _run: RunId,
}

impl OutputWriter {
    /// Appends data. It is written as soon as a piece is full.
    pub async fn write(&mut self, _data: &[u8]) -> Result<(), StoreError> {
        Err(not_built())
    }

    /// Writes the last piece. The output becomes visible with the change whose `finished_outputs` names it.
    pub async fn finish(self) -> Result<OutputRow, StoreError> {
        Err(not_built())
    }
}

pub(crate) async fn output(_backend: &Backend, _handle: &OutputHandle) -> Result<Option<OutputRow>, StoreError> {
    Err(not_built())
}

pub(crate) async fn outputs_of_run(_backend: &Backend, _run: &RunId) -> Result<Vec<OutputRow>, StoreError> {
    Err(not_built())
}

pub(crate) async fn outputs_of_session(
    _backend: &Backend,
    _session: &SessionKey,
    _limit: u32,
) -> Result<Vec<OutputRow>, StoreError> {
    Err(not_built())
}

pub(crate) async fn piece_at(
    _backend: &Backend,
    _handle: &OutputHandle,
    _position: OutputPosition,
) -> Result<Option<OutputPiece>, StoreError> {
    Err(not_built())
}

pub(crate) fn writer(
    backend: &Backend,
    run: &RunId,
    _output: &NewOutput,
    _now: Millis,
) -> Result<OutputWriter, StoreError> {
    Ok(OutputWriter { _backend: backend.clone(), _run: run.clone() })
}

fn not_built() -> StoreError {
    StoreError::Corrupt("outputs are not stored yet".to_owned())
}
