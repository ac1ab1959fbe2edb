//! Waiting for approvals. A `wait` on a run that is blocked only by approvals stays open for a while and polls the
//! store, because a person may decide in another process.

use std::time::Duration;

use contract::cell::{CellResult, PendingState, WaitingReason};
use executor::clock::now_ms;
use store::Approval;
use tokio::time::Instant;

use super::frontend::McpService;
use super::principal::Principal;

/// How often the store is polled for decisions made in another process.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Returns the run's id if all of its pending calls wait for a person.
pub(crate) fn waits_for_people(result: &CellResult) -> Option<&str> {
    match result {
        CellResult::Waiting { run_id, reason: WaitingReason::PendingTools, pending_tool_calls, .. } => {
            let only_people = pending_tool_calls.iter().all(|call| call.state == PendingState::Approval);
            (only_people && !pending_tool_calls.is_empty()).then_some(run_id)
        }
        CellResult::Waiting { .. } | CellResult::Completed { .. } | CellResult::Failed { .. } => None,
    }
}

impl McpService {
    /// Returns the open approvals of a waiting run.
    pub(crate) async fn open_approvals(&self, principal: &Principal, result: &CellResult) -> Vec<Approval> {
        let CellResult::Waiting { run_id, .. } = result else { return Vec::new() };
        let scope = principal.scope();
        let mut approvals = self.code_mode().store().approvals_of_run(run_id).await.unwrap_or_default();
        let now = now_ms();
        approvals
            .retain(|one| one.is_open(now) && one.agent_id == scope.agent_id && one.session_id == scope.session_id);
        approvals
    }

    /// Waits until one of these approvals is decided or expires. Returns false if that does not happen before `until`.
    pub(crate) async fn wait_for_decision(&self, approvals: &[Approval], until: Instant) -> bool {
        let Some(run_id) = approvals.first().map(|approval| approval.run_id.clone()) else { return false };
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.is_leaving() {
                return false;
            }
            tokio::time::sleep(POLL_INTERVAL.min(left)).await;
            let Ok(current) = self.code_mode().store().approvals_of_run(&run_id).await else { continue };
            let now = now_ms();
            let open = |id: &str| current.iter().any(|one| one.approval_id == id && one.is_open(now));
            if approvals.iter().any(|approval| !open(&approval.approval_id)) {
                return true;
            }
        }
    }
}
