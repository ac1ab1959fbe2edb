//! Wakes a stored run: takes its lease, rebuilds its driver and starts it.

use std::sync::Arc;

use contract::config;
use contract::error::ErrorCode;
use contract::frame::Failure;
use contract::ids::RunId;
use contract::limits::MAX_CATALOG_BYTES;
use contract::tables::CatalogTables;
use executor::{Executor, Journal};
use store::{FencedRun, LeaseError, RunRow, SealError, StoreError};
use telemetry::LogIgnored;

use super::RunRegistry;
use crate::definition::Definition;
use crate::driver::{Command, Driver, Run, resumed};
use crate::failure::{key_missing, not_resumable, over_lowered_limit, store_unavailable};

/// Why a stored run cannot be resumed.
pub(crate) enum WakeError {
    /// The run is held by another process.
    HeldElsewhere,
    /// The run cannot be resumed by this process now, and stays as it is: the key of its snapshot is not here, or the
    /// configuration was changed so that it does not allow what the run needs.
    Kept(Failure),
    Failed(Failure),
}

impl From<StoreError> for WakeError {
    fn from(error: StoreError) -> Self {
        Self::Failed(store_unavailable("resume a run", &error))
    }
}

impl From<Failure> for WakeError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Takes over a stored run and starts a driver for it, with `first` as its first command.
pub(super) async fn wake(
    registry: &Arc<RunRegistry>,
    executor: &Executor,
    config: &config::CodeMode,
    row: &RunRow,
    first: Command,
) -> Result<(), WakeError> {
    let now = registry.lease.now_ms();
    let _claim = registry.claim(&row.run_id);
    let held = match registry.store.take(&row.run_id, &registry.holder, now, registry.lease_until()).await {
        Ok(held) => held,
        Err(LeaseError::HeldElsewhere { .. } | LeaseError::Unknown) => return Err(WakeError::HeldElsewhere),
        Err(LeaseError::Store(error)) => return Err(error.into()),
    };
    match driver(registry, executor, config, &row.run_id, held.clone()).await {
        Ok(driver) => {
            registry.launch(row.run_id.clone(), driver, Some(first));
            Ok(())
        }
        Err(error) => {
            if let WakeError::Kept(failure) | WakeError::Failed(failure) = &error {
                let code = failure.code.map_or("none", ErrorCode::as_str);
                tracing::warn!(run = row.run_id.as_str(), code, "run could not be resumed");
            }
            // Another process may be able to resume the run, or this one later.
            registry.store.release_run(&held).await.log_ignored("release a run that was not resumed");
            Err(error)
        }
    }
}

async fn driver(
    registry: &RunRegistry,
    executor: &Executor,
    config: &config::CodeMode,
    run_id: &RunId,
    held: FencedRun,
) -> Result<Driver, WakeError> {
    // The row that the caller read before the lease was taken may be outdated.
    let row = registry.store.run(run_id).await?.ok_or(WakeError::HeldElsewhere)?;
    let definition =
        Definition::from_json(&row.definition).ok_or_else(|| not_resumable("its definition is unreadable"))?;
    let snapshot = registry.store.open_snapshot(&held, &row).map_err(|error| match error {
        SealError::UnknownKey { id } => WakeError::Kept(key_missing(id)),
        SealError::Damaged | SealError::NoRandomness => not_resumable(&error.to_string()).into(),
    })?;
    within_limits(registry, config, &definition, snapshot.as_deref()).map_err(WakeError::Kept)?;
    let (tables, legs, totals, approvals) = tokio::try_join!(
        registry.store.tables(&row.catalog, MAX_CATALOG_BYTES),
        registry.store.legs(run_id),
        registry.store.journal_totals(run_id),
        registry.store.approvals_of_run(run_id),
    )?;
    let tables = CatalogTables::from_bytes(tables.ok_or_else(|| not_resumable("its catalog is no longer stored"))?);
    let last_leg = legs.iter().map(|leg| leg.leg).max();
    let is_thawed = snapshot.as_ref().is_some_and(|snapshot| registry.pool.can_thaw(snapshot));
    // Calls that the cell has finished with are needed only to run legs again.
    let calls = if is_thawed && row.snapshot_leg == last_leg {
        registry.store.open_calls(run_id).await?
    } else {
        registry.store.calls(run_id).await?
    };
    let journal = Journal::resumed(registry.store.clone(), held, &calls, totals).with_lease(registry.lease.clone());
    let run = registry.run(run_id.clone(), definition, config.search, executor, tables, journal);
    let run = Run { max_heap_bytes: config.limits.clamped().memory_bytes, ..run };
    let driver = resumed(run, &row, snapshot, &legs, calls, &approvals).await?;
    fault::point("wait.after_restore").map_err(StoreError::from)?;
    Ok(driver)
}

/// Checks that restoring the cell does not exceed the current configuration, which may be stricter than the one that the
/// run was started with.
fn within_limits(
    registry: &RunRegistry,
    config: &config::CodeMode,
    definition: &Definition,
    snapshot: Option<&[u8]>,
) -> Result<(), Failure> {
    let limits = config.limits.clamped();
    if !config.languages.allow(definition.language) {
        let what = format!("the suspended cell is written in {}, which is not allowed", definition.language.as_str());
        return Err(over_lowered_limit(ErrorCode::UnsupportedLanguage, &what, "languages"));
    }
    let Some(snapshot) = snapshot else { return Ok(()) };
    let bytes = snapshot.len() as u64;
    if bytes > limits.snapshot_bytes {
        let what = format!("the suspended cell takes {bytes} bytes, the limit is {}", limits.snapshot_bytes);
        return Err(over_lowered_limit(ErrorCode::SnapshotLimitExceeded, &what, "maxSnapshotBytes"));
    }
    match registry.pool.heap_of(snapshot) {
        Some(heap) if heap > limits.memory_bytes => {
            let what = format!("the suspended cell needs {heap} bytes of memory, the limit is {}", limits.memory_bytes);
            Err(over_lowered_limit(ErrorCode::MemoryLimitExceeded, &what, "memoryLimitBytes"))
        }
        _ => Ok(()),
    }
}
