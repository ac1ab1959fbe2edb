//! Replays a run's legs in a worker, one by one.

use contract::error::ErrorCode;
use contract::frame::{self, Budget, Deliver, Failure, Leg, LegEnd, Reply};
use contract::tables::CatalogTables;
use store::{LegEndKind, LegRow};

use super::compare::{Comparison, LegVerdict};
use super::divergence::Divergence;
use crate::definition::Definition;
use crate::failure::failure;
use crate::pool::{Lease, Pool, PoolError};

/// The time limit for replaying all legs when a run is resumed: the maximum of one turn. The time does not count
/// against the cell's budget.
pub const MAX_RESUMING_MS: u64 = 60_000;

/// Why a run could not be replayed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReplayFailure {
    #[error("the cell was run again and did not match its record: {0}")]
    Diverged(Divergence),
    #[error("running the cell again took longer than {allowed_ms} ms; it was stopped in leg {leg}")]
    TooLong { leg: i64, allowed_ms: u64 },
    #[error("the journal has no leg {0}, so the cell cannot be run again")]
    Hole(i64),
    #[error(transparent)]
    Pool(#[from] PoolError),
}

impl From<Divergence> for ReplayFailure {
    fn from(divergence: Divergence) -> Self {
        Self::Diverged(divergence)
    }
}

/// Where the next leg starts from.
pub(crate) enum LegStart {
    /// The cell's source.
    Source,
    /// A snapshot that was taken after the previous leg.
    Snapshot(Vec<u8>),
    /// A worker in which the previous leg was replayed.
    Live(Lease),
}

/// A replay in progress.
pub(crate) struct Walk<'a> {
    pool: &'a Pool,
    tables: &'a CatalogTables,
    definition: &'a Definition,
    pub(crate) comparison: Comparison<'a>,
    /// Where the next leg starts from; `None` while a leg runs, and after one failed to run.
    next_start: Option<LegStart>,
    next: i64,
    allowed_ms: u64,
    ran_us: u64,
}

impl<'a> Walk<'a> {
    /// Creates a replay. `first` is the first leg to run: 0 from the source, else the leg after the snapshot.
    pub(crate) fn new(
        pool: &'a Pool,
        tables: &'a CatalogTables,
        definition: &'a Definition,
        comparison: Comparison<'a>,
        (start, first): (LegStart, i64),
        allowed_ms: u64,
    ) -> Self {
        Self { pool, tables, definition, comparison, next_start: Some(start), next: first, allowed_ms, ran_us: 0 }
    }

    /// Runs the next leg with its recorded replies, and returns them with the leg. `output_bytes` is its output limit.
    pub(crate) async fn step(&mut self, row: &LegRow, output_bytes: u64) -> Result<(Vec<Reply>, Leg), ReplayFailure> {
        if row.leg != self.next {
            return Err(ReplayFailure::Hole(self.next));
        }
        let replies = self.comparison.take_replies(row)?;
        let left_ms = self.allowed_ms.saturating_sub(self.ran_us / 1000);
        let limits = self.definition.limits;
        // A leg that is known to have finished in time gets all the time that is left: this machine may be busier now.
        let was_in_time = matches!(self.comparison.ended(row), Some(LegEndKind::Suspended | LegEndKind::Completed));
        let budget = Budget {
            run_ms: if was_in_time { left_ms } else { limits.timeout_ms.min(left_ms) },
            memory_bytes: limits.memory_bytes,
            output_bytes,
            clock_us: row.clock_us,
        };
        let too_long = ReplayFailure::TooLong { leg: row.leg, allowed_ms: self.allowed_ms };
        if budget.run_ms == 0 {
            return Err(too_long);
        }
        let (lease, leg) = self.run(budget, replies.clone()).await?;
        self.ran_us += leg.run_us;
        let out_of_time = matches!(&leg.end, LegEnd::Failed(failure) if failure.code == Some(ErrorCode::Timeout));
        if out_of_time && (was_in_time || budget.run_ms < limits.timeout_ms) {
            return Err(too_long);
        }
        self.next_start = Some(LegStart::Live(lease));
        self.next += 1;
        Ok((replies, leg))
    }

    pub(crate) fn compare_leg(&mut self, row: &LegRow, ran: &Leg) -> Result<LegVerdict, Divergence> {
        self.comparison.compare_leg(row, ran)
    }

    /// Returns the cell's slot in a worker, if a leg was run.
    pub(crate) fn into_lease(self) -> Option<Lease> {
        match self.next_start {
            Some(LegStart::Live(lease)) => Some(lease),
            Some(LegStart::Source | LegStart::Snapshot(_)) | None => None,
        }
    }

    async fn run(&mut self, budget: Budget, replies: Vec<Reply>) -> Result<(Lease, Leg), ReplayFailure> {
        let ran = match self.next_start.take() {
            Some(LegStart::Source) => self.pool.start_cell(self.tables, self.start(budget)).await?,
            Some(LegStart::Snapshot(snapshot)) => {
                self.pool.thaw_cell(self.tables, snapshot, Deliver { budget, replies }).await?
            }
            Some(LegStart::Live(mut lease)) => {
                let leg = lease.deliver(budget, replies).await?;
                (lease, leg)
            }
            None => return Err(ReplayFailure::Hole(self.next)),
        };
        Ok(ran)
    }

    fn start(&self, budget: Budget) -> frame::Start {
        frame::Start {
            budget,
            catalog: self.tables.hash(),
            seed: self.definition.seed,
            language: self.definition.language,
            languages: self.definition.languages,
            source: self.definition.source.clone(),
        }
    }
}

impl ReplayFailure {
    /// Returns the failure of the run. The code of a temporary failure does not end the run.
    pub(crate) fn failure(&self) -> Failure {
        match self {
            Self::Diverged(_) | Self::TooLong { .. } | Self::Hole(_) => {
                failure(ErrorCode::SnapshotRestoreFailed, self.to_string())
            }
            Self::Pool(error) => error.failure(),
        }
    }
}
