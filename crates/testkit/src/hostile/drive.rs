//! Drives a cell like a model that gives up on cells that make no progress, and denies every approval.

use contract::cell::{CellResult, PendingState, WaitingReason};
use contract::ids::RunId;
use serde_json::json;
use store::Decision;

use super::index::{Cell, Driver};
use super::lab::{Lab, PreparedSession};

const MAX_WAITS: usize = 200;
const MAX_IDLE_WAITS: usize = 3;

/// All results of a cell in order, as text, and the last one as a value.
#[derive(Debug)]
pub(super) struct Outcome {
    pub results: Vec<String>,
    pub last: CellResult,
}

pub(super) async fn drive(lab: &Lab, prepared: &PreparedSession, cell: &Cell) -> Outcome {
    let PreparedSession { executor, config, .. } = prepared;
    let input = json!({"code": cell.source, "language": cell.language});
    let mut last = lab.code_mode.exec(executor, config, "exec-1", &input).await;
    let mut results = vec![to_text(&last)];
    let mut idle = 0;
    for wait in 1..=MAX_WAITS {
        let CellResult::Waiting { run_id, .. } = &last else { break };
        if cell.driver == Driver::ExecOnly || idle == MAX_IDLE_WAITS {
            break;
        }
        let run_id = run_id.clone();
        deny_all(lab, &run_id).await;
        let input = json!({"runId": run_id});
        let next = lab.code_mode.wait_json(executor, config, &format!("wait-{wait}"), &input).await;
        idle = if made_progress(&last, &next) { 0 } else { idle + 1 };
        results.push(to_text(&next));
        last = next;
    }
    Outcome { results, last }
}

/// Denies every approval of the run.
async fn deny_all(lab: &Lab, run_id: &RunId) {
    let approvals = lab.code_mode.store().approvals_of_run(run_id).await.unwrap_or_default();
    for approval in approvals {
        let decision = Decision::Deny { note: String::new() };
        // Approvals that are decided already return an error.
        drop(lab.code_mode.decide(&approval.approval_id, &decision, "the driver").await);
    }
}

/// Whether a `wait` made progress: it ended the cell or a yield, produced output, or changed the pending calls.
fn made_progress(before: &CellResult, after: &CellResult) -> bool {
    match (before, after) {
        (CellResult::Waiting { reason: WaitingReason::Yield, .. }, _) => true,
        (CellResult::Waiting { .. }, CellResult::Waiting { output, .. }) => {
            !output.is_empty() || pending(before) != pending(after)
        }
        _ => true,
    }
}

fn pending(result: &CellResult) -> Vec<(&str, PendingState)> {
    match result {
        CellResult::Waiting { pending_tool_calls, .. } => {
            pending_tool_calls.iter().map(|call| (call.id.as_str(), call.state)).collect()
        }
        CellResult::Completed { .. } | CellResult::Failed { .. } => Vec::new(),
    }
}

fn to_text(result: &CellResult) -> String {
    serde_json::to_string(result).unwrap_or_else(|error| format!("cannot serialize the result: {error}"))
}
