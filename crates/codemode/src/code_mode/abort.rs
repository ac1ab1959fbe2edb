//! Aborts runs: one run, in any state and in any process, or all runs of a session.

use catalog::Catalog;
use contract::ids::RunId;
use executor::Executor;
use store::RunState;
use tokio::sync::oneshot;

use crate::driver::Command;
use crate::failure::aborted;
use crate::registry::RunRegistry;

/// How often an abort is tried. The run may be suspended or woken in the meantime, and must then be found again.
const ATTEMPTS: usize = 8;

/// Where a run was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AbortedBy {
    /// By its driver in this process, which has cancelled its calls.
    Driver,
    /// In the store: it had no driver in this process.
    Store,
}

/// Aborts a run. `None` if there was no run to abort.
///
/// The result lists the calls that may have had an effect. `catalog` tells which tools only read; without it they are
/// listed, too.
pub(super) async fn abort(registry: &RunRegistry, catalog: Option<&Catalog>, run_id: &RunId) -> Option<AbortedBy> {
    for _ in 0..ATTEMPTS {
        let (done, ended) = oneshot::channel();
        let lock = registry.lock_run(run_id).await;
        let has_driver = registry.send(run_id, Command::Abort(done)).await.is_ok();
        if has_driver {
            drop(lock);
            // An error means that the driver dropped the sender: the run is over here.
            drop(ended.await);
        }
        let row = match registry.store.run(run_id).await {
            Ok(row) => row?,
            Err(error) => {
                tracing::warn!(%error, run = run_id.as_str(), "cannot load a run that is to be aborted");
                return None;
            }
        };
        if row.state.is_over() {
            return (has_driver && row.state == RunState::Aborted).then_some(AbortedBy::Driver);
        }
        if !has_driver {
            match registry.finalize_stored_run(&row, &aborted(), catalog).await {
                Ok(_) => {
                    tracing::info!(run = run_id.as_str(), "run cancelled");
                    return Some(AbortedBy::Store);
                }
                // The run has ended in the meantime, or the write failed: the next attempt tells which.
                Err(error) => tracing::debug!(%error, run = run_id.as_str(), "an attempt to abort a run failed"),
            }
        }
    }
    None
}

/// Aborts a run, and cancels calls that were left running when another process ended.
pub(super) async fn abort_with_calls(registry: &RunRegistry, executor: &Executor, run_id: &RunId) -> Option<AbortedBy> {
    let ended = abort(registry, Some(executor.catalog()), run_id).await;
    if ended == Some(AbortedBy::Store) {
        match registry.store.open_calls(run_id).await {
            Ok(calls) => executor.cancel(run_id, &calls),
            Err(error) => tracing::warn!(%error, run = run_id.as_str(), "cannot cancel the calls of an aborted run"),
        }
    }
    ended
}

/// Aborts every run of a session. Returns how many were aborted.
pub(super) async fn end_session(registry: &RunRegistry, session_id: &str) -> usize {
    let mut runs = registry.store.runs_of_session(session_id).await.unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot list the runs of a session that ends");
        Vec::new()
    });
    // A run that is not written yet is only in this process.
    runs.extend(registry.live_runs_of_session(session_id));
    runs.sort_unstable();
    runs.dedup();
    let mut ended = 0;
    for run_id in &runs {
        ended += usize::from(abort(registry, None, run_id).await.is_some());
    }
    ended
}
