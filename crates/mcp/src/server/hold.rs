//! A `wait` for which only people are awaited holds on for a while: somebody may decide elsewhere, and the store is
//! where that shows.

use std::time::Duration;

use contract::cell::{CellResult, PendingState, WaitingReason};
use executor::clock::now_ms;
use store::Approval;
use tokio::time::Instant;

use super::frontend::McpService;
use super::principal::Principal;

/// How soon a word given in another process is noticed.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The run of a result that says: nothing goes on before a person has spoken.
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
    /// What a person can still say something about, of a run that waits.
    pub(crate) async fn asked(&self, principal: &Principal, result: &CellResult) -> Vec<Approval> {
        let CellResult::Waiting { run_id, .. } = result else { return Vec::new() };
        let scope = principal.scope();
        let mut asked = self.code_mode().store().approvals_of_run(run_id).await.unwrap_or_default();
        let now = now_ms();
        asked.retain(|one| one.is_open(now) && one.agent_id == scope.agent_id && one.session_id == scope.session_id);
        asked
    }

    /// Waits until one of these is decided, or its time is over; whether that happened before then.
    pub(crate) async fn decided(&self, asked: &[Approval], until: Instant) -> bool {
        let Some(run_id) = asked.first().map(|approval| approval.run_id.clone()) else { return false };
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.is_leaving() {
                return false;
            }
            tokio::time::sleep(LOOK_EVERY.min(left)).await;
            let Ok(now_asked) = self.code_mode().store().approvals_of_run(&run_id).await else { continue };
            let now = now_ms();
            let open = |id: &str| now_asked.iter().any(|one| one.approval_id == id && one.is_open(now));
            if asked.iter().any(|approval| !open(&approval.approval_id)) {
                return true;
            }
        }
    }
}
