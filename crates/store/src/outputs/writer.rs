//! Writes an output piece by piece.

use std::time::Duration;

use contract::ids::{OutputHandle, RunId};
use contract::limits::{MAX_STORED_RESULT_BYTES, OUTPUT_PIECE_BYTES};
use sqlx::AnyConnection;
use tokio::time::Instant;

use super::pieces::{Input, Piece, PieceCutter};
use super::write::{PIECES_PER_STATEMENT, check_name, delete_pieces, insert_output, write_pieces};
use super::{NewOutput, OutputRow, signed};
use crate::Millis;
use crate::backend::{Backend, Durability};
use crate::error::StoreError;
use crate::locking::begin_write;
use crate::runs::FencedRun;
use crate::sql::is_transient;

/// How long a write is repeated while the server is unavailable.
const RETRY_TIMEOUT: Duration = Duration::from_secs(4);
const PAUSE: Duration = Duration::from_millis(50);

/// The most bytes that a writer has in memory.
const BUFFER_BYTES: usize = PIECES_PER_STATEMENT * OUTPUT_PIECE_BYTES;

/// Writes an output piece by piece, before the change that completes it. An output that no change completes is not
/// visible, and is deleted by a sweep.
///
/// Each portion is a short transaction of its own. It checks the fence that the output is written with, so that a
/// process that has lost the run cannot mix its pieces with those of the next holder.
#[derive(Debug)]
pub struct OutputWriter {
    backend: Backend,
    run_id: RunId,
    fence: i64,
    /// Without its data.
    output: NewOutput,
    created_at: Millis,
    cut: PieceCutter,
    is_begun: bool,
    buffer: Vec<u8>,
}

impl OutputWriter {
    pub(super) fn new(
        backend: &Backend,
        held: &FencedRun,
        output: &NewOutput,
        created_at: Millis,
    ) -> Result<Self, StoreError> {
        check_name(&output.name)?;
        Ok(Self {
            backend: backend.clone(),
            run_id: held.run_id.clone(),
            fence: held.fence,
            output: NewOutput {
                name: output.name.clone(),
                kind: output.kind,
                mime_type: output.mime_type.clone(),
                source: output.source.clone(),
                data: Vec::new(),
            },
            created_at,
            cut: PieceCutter::new(output.kind),
            is_begun: false,
            buffer: Vec::new(),
        })
    }

    /// Appends data, of at most [`MAX_STORED_RESULT_BYTES`] in all. It is written as soon as a few pieces are full.
    pub async fn write(&mut self, data: &[u8]) -> Result<(), StoreError> {
        let limit = MAX_STORED_RESULT_BYTES as u64;
        if self.cut.bytes + self.buffer.len() as u64 + data.len() as u64 > limit {
            return Err(StoreError::OutputTooLarge { limit });
        }
        let mut rest = data;
        while !rest.is_empty() {
            let (portion, later) = rest.split_at(rest.len().min(BUFFER_BYTES - self.buffer.len()));
            self.buffer.extend_from_slice(portion);
            rest = later;
            if self.buffer.len() == BUFFER_BYTES {
                self.flush(Input::Partial).await?;
            }
        }
        Ok(())
    }

    /// Writes the last piece. The output becomes visible with the change whose `finished_outputs` names it.
    pub async fn finish(mut self) -> Result<OutputRow, StoreError> {
        self.flush(Input::Last).await?;
        Ok(OutputRow {
            handle: OutputHandle::of(&self.run_id, &self.output.name),
            bytes: self.cut.bytes,
            units: self.cut.units(),
            lines: self.cut.lines(),
            kind: self.output.kind,
            mime_type: self.output.mime_type,
            source: self.output.source,
            created_at: self.created_at,
        })
    }

    /// Writes the pieces in the buffer. Repeating it writes the same rows.
    async fn flush(&mut self, input: Input) -> Result<(), StoreError> {
        let (mut cut, mut pieces, mut rest) = (self.cut, Vec::new(), self.buffer.as_slice());
        while let Some(piece) = cut.next(rest, input)? {
            rest = rest.split_at(piece.data.len()).1;
            pieces.push(piece);
        }
        let left = rest.len();
        let began = Instant::now();
        while let Err(error) = self.write_portion(cut, &pieces).await {
            match &error {
                StoreError::Sql(cause) if is_transient(cause) && began.elapsed() < RETRY_TIMEOUT => {
                    tokio::time::sleep(PAUSE).await;
                }
                _ => return Err(error),
            }
        }
        (self.cut, self.is_begun) = (cut, true);
        self.buffer.drain(..self.buffer.len() - left);
        fault::point("output.between_pieces")?;
        Ok(())
    }

    async fn write_portion(&self, cut: PieceCutter, pieces: &[Piece<'_>]) -> Result<(), StoreError> {
        let mut transaction = begin_write(&self.backend, Durability::Relaxed).await?;
        let is_ours = if self.is_begun {
            self.update_totals(&mut transaction, cut).await?
        } else {
            let is_ours =
                insert_output(&mut transaction, (&self.run_id, self.fence), &self.output, cut, self.created_at).await?;
            delete_pieces(&mut transaction, &self.run_id, &self.output.name).await?;
            is_ours
        };
        if !is_ours {
            return Err(StoreError::OutputLost);
        }
        write_pieces(&mut transaction, &self.run_id, &self.output.name, pieces).await?;
        transaction.commit().await?;
        Ok(())
    }

    async fn update_totals(&self, connection: &mut AnyConnection, cut: PieceCutter) -> Result<bool, sqlx::Error> {
        let updated = sqlx::query(
            "UPDATE outputs SET bytes = $1, units = $2, lines = $3 \
             WHERE run_id = $4 AND name = $5 AND fence = $6 AND complete = 0",
        )
        .bind(signed(cut.bytes))
        .bind(signed(cut.units()))
        .bind(signed(cut.lines()))
        .bind(self.run_id.to_string())
        .bind(self.output.name.clone())
        .bind(self.fence)
        .execute(connection)
        .await?;
        Ok(updated.rows_affected() == 1)
    }
}
