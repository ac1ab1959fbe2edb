//! The rows of outputs: those that a change writes whole, and those that it completes.

use contract::ids::{OutputHandle, RunId};
use contract::limits::MAX_STORED_RESULT_BYTES;
use sqlx::{AnyConnection, Row};

use super::pieces::{Input, Piece, PieceCutter};
use super::{NewOutput, signed};
use crate::Millis;
use crate::backend::Backend;
use crate::error::StoreError;
use crate::runs::FencedRun;
use crate::sql::{placeholders, row_placeholders};

/// The most pieces that one statement inserts, and that a writer has in memory: 1 MiB.
pub(super) const PIECES_PER_STATEMENT: usize = 4;

/// Writes a change's outputs, and makes those visible that a writer has finished.
pub(crate) async fn write(
    connection: &mut AnyConnection,
    held: &FencedRun,
    outputs: &[NewOutput],
    finished: &[String],
    now: Millis,
) -> Result<(), StoreError> {
    if outputs.is_empty() && finished.is_empty() {
        return Ok(());
    }
    for output in outputs {
        write_whole(connection, held, output, now).await?;
    }
    for name in finished {
        complete(connection, held, name).await?;
    }
    sqlx::query(
        "UPDATE runs SET output_bytes = (SELECT CAST(COALESCE(SUM(bytes), 0) AS BIGINT) FROM outputs \
         WHERE run_id = $1 AND complete = 1) WHERE run_id = $1",
    )
    .bind(held.run_id.to_string())
    .execute(connection)
    .await?;
    Ok(())
}

/// Writes an output whole. If it is already stored, because the change is repeated after a crash, it is replaced.
async fn write_whole(
    connection: &mut AnyConnection,
    held: &FencedRun,
    output: &NewOutput,
    now: Millis,
) -> Result<(), StoreError> {
    let limit = MAX_STORED_RESULT_BYTES as u64;
    if output.data.len() as u64 > limit {
        return Err(StoreError::OutputTooLarge { limit });
    }
    check_name(&output.name)?;
    let (mut cut, mut pieces, mut rest) = (PieceCutter::new(output.kind), Vec::new(), output.data.as_slice());
    while let Some(piece) = cut.next(rest, Input::Last)? {
        rest = rest.split_at(piece.data.len()).1;
        pieces.push(piece);
    }
    // Every transaction writes the output's row before its pieces: the same lock order everywhere prevents deadlocks.
    insert_output(connection, (&held.run_id, held.fence), output, cut, now).await?;
    delete_pieces(connection, &held.run_id, &output.name).await?;
    for batch in pieces.chunks(PIECES_PER_STATEMENT) {
        write_pieces(connection, &held.run_id, &output.name, batch).await?;
        fault::point("output.between_pieces")?;
    }
    complete(connection, held, &output.name).await
}

/// Makes an output visible that this holder of the run wrote, or this process when it held the run before. A sweep that
/// deletes an output sets its fence to -1.
async fn complete(connection: &mut AnyConnection, held: &FencedRun, name: &str) -> Result<(), StoreError> {
    let completed = sqlx::query(
        "UPDATE outputs SET complete = 1 WHERE run_id = $1 AND name = $2 AND (complete = 1 OR fence BETWEEN 0 AND $3)",
    )
    .bind(held.run_id.to_string())
    .bind(name.to_owned())
    .bind(held.fence)
    .execute(connection)
    .await?;
    if completed.rows_affected() == 1 { Ok(()) } else { Err(StoreError::OutputLost) }
}

/// Returns the bytes of a run's outputs with these names, complete or not.
pub(crate) async fn stored_bytes(backend: &Backend, run_id: &RunId, names: &[String]) -> Result<i64, StoreError> {
    if names.is_empty() {
        return Ok(0);
    }
    let sql = format!(
        "SELECT CAST(COALESCE(SUM(bytes), 0) AS BIGINT) FROM outputs WHERE run_id = $1 AND name IN ({})",
        placeholders(2, names.len())
    );
    let query = sqlx::query(&sql).bind(run_id.to_string());
    let query = names.iter().fold(query, |query, name| query.bind(name.clone()));
    Ok(query.fetch_one(backend.reader()).await?.try_get(0)?)
}

/// Inserts the row of an output that is not complete. Returns `false` if a process with a higher fence has written it.
pub(super) async fn insert_output(
    connection: &mut AnyConnection,
    (run_id, fence): (&RunId, i64),
    output: &NewOutput,
    cut: PieceCutter,
    created_at: Millis,
) -> Result<bool, sqlx::Error> {
    let (call, tool_id) = output.source.clone().unzip();
    let inserted = sqlx::query(
        "INSERT INTO outputs (run_id, name, kind, mime_type, call, tool_id, bytes, units, lines, created_at, fence, \
         complete) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 0) ON CONFLICT (run_id, name) DO UPDATE SET \
         kind = excluded.kind, mime_type = excluded.mime_type, call = excluded.call, tool_id = excluded.tool_id, \
         bytes = excluded.bytes, units = excluded.units, lines = excluded.lines, created_at = excluded.created_at, \
         fence = excluded.fence, complete = 0 WHERE outputs.fence <= excluded.fence",
    )
    .bind(run_id.to_string())
    .bind(output.name.clone())
    .bind(output.kind.as_str())
    .bind(output.mime_type.clone())
    .bind(call.map(|call| i64::from(call.0)))
    .bind(tool_id)
    .bind(signed(cut.bytes))
    .bind(signed(cut.units()))
    .bind(signed(cut.lines()))
    .bind(created_at)
    .bind(fence)
    .execute(connection)
    .await?;
    Ok(inserted.rows_affected() == 1)
}

pub(super) async fn delete_pieces(
    connection: &mut AnyConnection,
    run_id: &RunId,
    name: &str,
) -> Result<(), sqlx::Error> {
    sqlx::query("DELETE FROM output_pieces WHERE run_id = $1 AND name = $2")
        .bind(run_id.to_string())
        .bind(name.to_owned())
        .execute(connection)
        .await?;
    Ok(())
}

/// Inserts pieces, [`PIECES_PER_STATEMENT`] at once. A piece that is already stored is replaced.
pub(super) async fn write_pieces(
    connection: &mut AnyConnection,
    run_id: &RunId,
    name: &str,
    pieces: &[Piece<'_>],
) -> Result<(), sqlx::Error> {
    for batch in pieces.chunks(PIECES_PER_STATEMENT) {
        let sql = format!(
            "INSERT INTO output_pieces (run_id, name, piece, start_byte, start_unit, start_line, next_line, data) \
             VALUES {} ON CONFLICT (run_id, name, piece) DO UPDATE SET start_byte = excluded.start_byte, \
             start_unit = excluded.start_unit, start_line = excluded.start_line, next_line = excluded.next_line, \
             data = excluded.data",
            row_placeholders(batch.len(), 8)
        );
        let mut query = sqlx::query(&sql);
        for piece in batch {
            query = query
                .bind(run_id.to_string())
                .bind(name.to_owned())
                .bind(signed(piece.number))
                .bind(signed(piece.start_byte))
                .bind(signed(piece.start_unit))
                .bind(signed(piece.start_line))
                .bind(signed(piece.next_line))
                .bind(piece.data);
        }
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

/// Checks that the name can be part of a handle; no output with another name could be read.
pub(super) fn check_name(name: &str) -> Result<(), StoreError> {
    match OutputHandle::of(&RunId::new("run"), name).parts() {
        Some((_, found)) if found == name => Ok(()),
        _ => Err(StoreError::Corrupt(format!("the name `{name}` of an output"))),
    }
}
