//! The complete record of a run, loaded from the store to be inspected, replayed or forked.

use contract::cell::{CellResult, Language};
use contract::error::ErrorCode;
use contract::frame::{Leg, LegEnd, Reply};
use contract::ids::RunId;
use contract::limits::{Limits, MAX_CATALOG_BYTES};
use contract::tables::CatalogTables;
use store::{CallRow, LegRow, RunRow, Store, StoreError};

use super::compare::{Comparison, LegVerdict, has_same_value};
use super::divergence::{Divergence, cut, happened_end};
use super::walk::{LegStart, ReplayFailure, Walk};
use crate::definition::Definition;
use crate::failure::failure_text;
use crate::pool::Pool;
use crate::stored_result;

/// The time limit of a replay that a person started, for all legs together. The person can interrupt it earlier.
pub const MAX_MANUAL_REPLAY_MS: u64 = 10 * 60 * 1000;

/// The stored record of a run.
#[derive(Clone, Debug)]
pub struct Record {
    pub run: RunRow,
    pub legs: Vec<LegRow>,
    pub calls: Vec<CallRow>,
    /// `None` if the run is a direct call without a cell.
    pub(crate) definition: Option<Definition>,
    /// `None` if they were deleted, or never stored.
    pub(crate) tables: Option<CatalogTables>,
}

/// Why a run's record cannot be loaded or replayed.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("no such run")]
    NoSuchRun,
    #[error("the run is a direct call without a cell, so there is nothing to replay")]
    NoCell,
    #[error("the catalog of the run is no longer stored, so its cell cannot be run again")]
    NoCatalog,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A replayed leg.
#[derive(Clone, Debug)]
pub struct Step<'a> {
    pub recorded: &'a LegRow,
    /// The replies that were delivered to the leg.
    pub given: Vec<Reply>,
    pub ran: Leg,
    pub verdict: Result<LegVerdict, Divergence>,
}

impl Record {
    /// Returns the memory limit of the run's cell, in bytes.
    pub fn memory_limit_bytes(&self) -> u64 {
        self.definition.as_ref().map_or(0, |definition| definition.limits.memory_bytes)
    }

    pub async fn read(store: &Store, run_id: &RunId) -> Result<Self, RecordError> {
        let run = store.run(run_id).await?.ok_or(RecordError::NoSuchRun)?;
        // Legs are read before calls: calls that a running run writes in between belong to legs that are not read.
        let legs = store.legs(run_id).await?;
        let calls = store.calls(run_id).await?;
        let definition = Definition::from_json(&run.definition);
        let tables = store.tables(&run.catalog, MAX_CATALOG_BYTES).await?.map(CatalogTables::from_bytes);
        Ok(Self { run, legs, calls, definition, tables })
    }

    pub fn source(&self) -> Option<(&str, Language)> {
        self.definition.as_ref().map(|definition| (definition.source.as_str(), definition.language))
    }

    pub fn limits(&self) -> Option<Limits> {
        self.definition.as_ref().map(|definition| definition.limits)
    }

    /// Returns the final result that the model received.
    pub fn result(&self) -> Option<CellResult> {
        self.run.result.as_deref().and_then(stored_result::from_json)
    }

    /// Runs the cell again from the start, and passes every leg to `each`, up to the first that differs from the
    /// record.
    ///
    /// No tool is called and nothing is written. All legs together may take `allowed_ms`. Returns whether all legs
    /// match the record.
    pub async fn replay(
        &self,
        pool: &Pool,
        allowed_ms: u64,
        mut each: impl FnMut(&Step<'_>),
    ) -> Result<bool, ReplayError> {
        let definition = self.definition.as_ref().ok_or(RecordError::NoCell)?;
        let tables = self.tables.as_ref().ok_or(RecordError::NoCatalog)?;
        let comparison = Comparison::new(&self.legs, &self.calls, self.run.snapshot_leg);
        let mut walk = Walk::new(pool, tables, definition, comparison, (LegStart::Source, 0), allowed_ms);
        for row in &self.legs {
            let (given, ran) = walk.step(row, definition.limits.output_budget(0)).await?;
            let verdict =
                walk.compare_leg(row, &ran).and_then(|verdict| self.check_result(row, &ran).map(|()| verdict));
            let step = Step { recorded: row, given, ran, verdict };
            each(&step);
            if step.verdict.is_err() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Compares the end of the last leg with the recorded result.
    fn check_result(&self, row: &LegRow, ran: &Leg) -> Result<(), Divergence> {
        let last = self.legs.last().is_some_and(|last| last.leg == row.leg) && row.ended.is_some();
        let Some(result) = self.result().filter(|_| last) else { return Ok(()) };
        let recorded = match (&ran.end, &result) {
            (LegEnd::Completed { value }, CellResult::Completed { value: before, .. }) => {
                // A value of which something was stored has handles in the result. Its digest is in the journal.
                let is_stored = before.get().contains(&format!("\"out_{}_", self.run.run_id));
                let recorded = row.ended.as_ref().filter(|_| is_stored);
                let same = match recorded.and_then(|ended| has_same_value(ended, value)) {
                    Some(same) => same,
                    None => contract::json::read(value.get()).ok() == contract::json::read(before.get()).ok(),
                };
                (!same).then(|| format!("a return of {}", cut(before.get())))
            }
            // The message of a timeout contains the time that the cell took, which is never the same.
            (LegEnd::Failed(failure), CellResult::Failed { error, code, .. }) => {
                let same =
                    failure.code == *code && (*code == Some(ErrorCode::Timeout) || failure_text(failure) == *error);
                (!same).then(|| format!("a failure: {}", cut(error)))
            }
            // The host ended the run in another way.
            _ => None,
        };
        match recorded {
            None => Ok(()),
            Some(recorded) => Err(Divergence { leg: row.leg, call: None, recorded, happened: happened_end(&ran.end) }),
        }
    }
}

/// Why a replay stopped before the end of the journal.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Failed(#[from] ReplayFailure),
}
