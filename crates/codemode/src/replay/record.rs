//! All that is written of one run, read back to be looked at, gone through again, or gone on from.

use contract::cell::{CellResult, Language};
use contract::error::ErrorCode;
use contract::frame::{Leg, LegEnd, Reply};
use contract::limits::{Limits, MAX_CATALOG_BYTES};
use contract::tables::CatalogTables;
use store::{CallRow, LegRow, RunRow, Store, StoreError};

use super::compare::{Comparison, Verdict};
use super::divergence::{Divergence, cut, happened_end};
use super::walk::{Start, Stumble, Walk};
use crate::definition::Definition;
use crate::driver::failure_text;
use crate::pool::Pool;
use crate::recorded;

/// Legs that a person has run again may take this long together. Whoever has seen enough interrupts them.
pub const MAX_BY_HAND_MS: u64 = 10 * 60 * 1000;

/// A run as the store has it.
#[derive(Clone, Debug)]
pub struct Record {
    pub run: RunRow,
    pub legs: Vec<LegRow>,
    pub calls: Vec<CallRow>,
    /// None where the run is one call without a cell.
    pub(crate) definition: Option<Definition>,
    /// None where they are gone, or were never kept.
    pub(crate) tables: Option<CatalogTables>,
}

/// Why a run cannot be gone through again.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error("no run is called that")]
    NoSuchRun,
    #[error("the run is one call without a cell, so there is nothing to run again")]
    NoCell,
    #[error("what its cell could read of its catalog was not kept, so the cell cannot be run again")]
    NoCatalog,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// One leg, run again.
#[derive(Clone, Debug)]
pub struct Step<'a> {
    pub recorded: &'a LegRow,
    /// What the leg was told.
    pub given: Vec<Reply>,
    pub ran: Leg,
    pub verdict: Result<Verdict, Divergence>,
}

impl Record {
    /// The memory limit of the run's cell, in bytes.
    pub fn memory_limit_bytes(&self) -> u64 {
        self.definition.as_ref().map_or(0, |definition| definition.limits.memory_bytes)
    }

    pub async fn read(store: &Store, run_id: &str) -> Result<Self, Unreadable> {
        let run = store.run(run_id).await?.ok_or(Unreadable::NoSuchRun)?;
        // Legs before calls: what a run under way writes in between belongs to legs that are not read.
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

    /// What the model was told in the end.
    pub fn result(&self) -> Option<CellResult> {
        self.run.result.as_deref().and_then(recorded::from_json)
    }

    /// Runs the cell again from its beginning, and shows every leg of it up to the first that does something else. No
    /// tool is called and nothing is written. All of it may take `allowed_ms`. Whether all did what is recorded.
    pub async fn replay(
        &self,
        pool: &Pool,
        allowed_ms: u64,
        mut each: impl FnMut(&Step<'_>),
    ) -> Result<bool, Unplayable> {
        let definition = self.definition.as_ref().ok_or(Unreadable::NoCell)?;
        let tables = self.tables.as_ref().ok_or(Unreadable::NoCatalog)?;
        let comparison = Comparison::new(&self.legs, &self.calls, self.run.snapshot_leg);
        let mut walk = Walk::new(pool, tables, definition, comparison, (Start::Source, 0), allowed_ms);
        for row in &self.legs {
            let (given, ran) = walk.step(row, definition.limits.output_bytes).await?;
            let verdict = walk.judge(row, &ran).and_then(|verdict| self.held_to_its_end(row, &ran).map(|()| verdict));
            let step = Step { recorded: row, given, ran, verdict };
            each(&step);
            if step.verdict.is_err() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What the cell ended with, where it is the last leg that ended it.
    fn held_to_its_end(&self, row: &LegRow, ran: &Leg) -> Result<(), Divergence> {
        let last = self.legs.last().is_some_and(|last| last.leg == row.leg) && row.ended.is_some();
        let Some(result) = self.result().filter(|_| last) else { return Ok(()) };
        let recorded = match (&ran.end, &result) {
            (LegEnd::Completed { value }, CellResult::Completed { value: before, .. }) => {
                let same = contract::json::read(value.get()).ok() == contract::json::read(before.get()).ok();
                (!same).then(|| format!("that the cell returned {}", cut(before.get())))
            }
            // How long it took is told, and is never the same.
            (LegEnd::Failed(failure), CellResult::Failed { error, code, .. }) => {
                let same =
                    failure.code == *code && (*code == Some(ErrorCode::Timeout) || failure_text(failure) == *error);
                (!same).then(|| format!("that the cell failed: {}", cut(error)))
            }
            // Its host ended it otherwise.
            _ => None,
        };
        match recorded {
            None => Ok(()),
            Some(recorded) => Err(Divergence { leg: row.leg, call: None, recorded, happened: happened_end(&ran.end) }),
        }
    }
}

/// Why a run was not gone through to where its journal ends.
#[derive(Debug, thiserror::Error)]
pub enum Unplayable {
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error(transparent)]
    Stumble(#[from] Stumble),
}
