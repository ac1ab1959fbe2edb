//! Wakes a stored run: takes its lease, rebuilds its driver and starts it.

use std::sync::Arc;

use contract::cell::{CellResult, WaitingReason};
use contract::config;
use contract::error::ErrorCode;
use contract::frame::Failure;
use contract::limits::MAX_CATALOG_BYTES;
use contract::tables::CatalogTables;
use executor::clock::now_ms;
use executor::{Executor, Journal};
use store::{FencedRun, LeaseError, RunRow, SealError, StoreError};

use super::inner::RunRegistry;
use super::said::{internal, locked, unreadable};
use crate::definition::Definition;
use crate::driver::{Command, Driver, failed, failed_with, reopened, resumed};

/// Why a stored run cannot be resumed.
pub(super) enum WakeError {
    /// Another process holds the run.
    HeldElsewhere,
    /// The key of its snapshot is not here. A process that has the key can resume the run.
    Locked(Failure),
    Failed(Failure),
}

impl From<StoreError> for WakeError {
    fn from(error: StoreError) -> Self {
        Self::Failed(internal(&error.to_string()))
    }
}

impl From<Failure> for WakeError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl RunRegistry {
    /// Takes over a stored run and starts a driver for it, with `first` as its first command.
    pub(super) async fn awaken(
        self: &Arc<Self>,
        executor: &Executor,
        config: &config::CodeMode,
        row: &RunRow,
        first: Command,
    ) -> Result<(), WakeError> {
        let now = self.lease.now_ms();
        let _claim = self.claim(&row.run_id);
        let held = match self.store.take(&row.run_id, &self.holder, now, self.lease_until()).await {
            Ok(held) => held,
            Err(LeaseError::HeldElsewhere { .. } | LeaseError::Unknown) => return Err(WakeError::HeldElsewhere),
            Err(LeaseError::Store(error)) => return Err(error.into()),
        };
        match self.driver(executor, config, &row.run_id, held.clone()).await {
            Ok(driver) => {
                self.launch(row.run_id.clone(), driver, Some(first));
                Ok(())
            }
            Err(error) => {
                // Another process may be able to resume the run, or this one later.
                drop(self.store.release_run(&held).await);
                Err(error)
            }
        }
    }

    async fn driver(
        &self,
        executor: &Executor,
        config: &config::CodeMode,
        run_id: &str,
        held: FencedRun,
    ) -> Result<Driver, WakeError> {
        // The row that the caller read before the lease was taken may be outdated.
        let row = self.store.run(run_id).await?.ok_or(WakeError::HeldElsewhere)?;
        let definition =
            Definition::from_json(&row.definition).ok_or_else(|| unreadable("its definition is unreadable"))?;
        let snapshot = self.store.open_snapshot(&held, &row).map_err(|error| match error {
            SealError::UnknownKey { id } => WakeError::Locked(locked(id)),
            SealError::Damaged | SealError::NoRandomness => unreadable(&error.to_string()).into(),
        })?;
        let (tables, legs, totals, approvals) = tokio::try_join!(
            self.store.tables(&row.catalog, MAX_CATALOG_BYTES),
            self.store.legs(run_id),
            self.store.journal_totals(run_id),
            self.store.approvals_of_run(run_id),
        )?;
        let tables = CatalogTables::from_bytes(tables.ok_or_else(|| unreadable("its catalog is no longer stored"))?);
        let last_leg = legs.iter().map(|leg| leg.leg).max();
        let is_thawed = snapshot.as_ref().is_some_and(|snapshot| self.pool.can_thaw(snapshot));
        // Calls that the cell has finished with are needed only to run legs again.
        let calls = if is_thawed && row.snapshot_leg == last_leg {
            self.store.open_calls(run_id).await?
        } else {
            self.store.calls(run_id).await?
        };
        let journal = Journal::resumed(self.store.clone(), held, &calls, totals).with_lease(self.lease.clone());
        let run = self.run(run_id.to_owned(), definition, config.search, executor, tables, journal);
        let driver = resumed(run, &row, snapshot, &legs, calls, &approvals).await?;
        fault::point("wait.after_restore").map_err(StoreError::from)?;
        Ok(driver)
    }

    /// Returns the `waiting` result of a run that another process holds. The model calls `wait` again, and its results
    /// arrive through the store.
    pub(super) async fn held_elsewhere(&self, row: &RunRow) -> CellResult {
        let calls = self.store.open_calls(&row.run_id).await.unwrap_or_default();
        let now = u64::try_from(now_ms().saturating_sub(row.created_at)).unwrap_or(0);
        let open = calls.iter().filter_map(|call| reopened(call, row.created_at));
        CellResult::Waiting {
            run_id: row.run_id.clone(),
            reason: WaitingReason::PendingTools,
            pending_tool_calls: open.map(|call| call.pending(now)).collect(),
            output: Vec::new(),
            telemetry: serde_json::from_str(&row.progress).unwrap_or_default(),
        }
    }

    /// Returns the result for a run that could not be resumed. A snapshot that cannot be restored ends the run; after a
    /// temporary failure, such as a busy pool or an unreachable store, the run stays as it is.
    pub(super) async fn wake_failed(&self, row: &RunRow, failure: &Failure) -> CellResult {
        if failure.code == Some(ErrorCode::SnapshotRestoreFailed) {
            let _alone = self.lock_run(&row.run_id).await;
            self.finalize_stored_run(row, failure).await.unwrap_or_else(|error| {
                failed(
                    ErrorCode::InternalError,
                    &format!("the suspended cell can be neither resumed nor ended: {error}"),
                )
            })
        } else {
            failed_with(failure)
        }
    }
}
