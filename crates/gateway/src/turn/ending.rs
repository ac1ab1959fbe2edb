//! Ends turns that no driver runs: those that wait for their clients, and those whose process has ended.

use codemode::CodeMode;
use executor::clock::now_ms;
use serde_json::json;
use store::{CommitError, Durability, Entry, EntryKind, HeldTurn, NewStep, StoreError, TurnChange, TurnState};

use super::answers::settle_answers;
use super::record::{Step, TurnEnd, TurnRecord};

/// Ends a turn as aborted, and its runs. The caller has taken the turn, so that no process continues it meanwhile. If this
/// process ends in between, the turn has not ended, and can be ended again.
pub(crate) async fn abort_held(
    code_mode: &CodeMode,
    held: &mut HeldTurn,
    record: &TurnRecord,
    reason: &str,
) -> Result<(), CommitError> {
    // Also for calls of runs that outlive the turn: without its result, a later turn would wait for such a call in vain.
    settle_answers(code_mode, record).await?;
    let store = code_mode.store();
    // No request can answer these calls after the end of the turn.
    let mut runs: Vec<_> = record.unanswered().into_iter().map(|call| call.run_id).collect();
    for run_id in store.runs_of_session(&held.session_id).await? {
        let run = store.run(&run_id).await?;
        if run.is_some_and(|run| run.scope.agent_run_id == held.turn_id.as_str()) && !runs.contains(&run_id) {
            runs.push(run_id);
        }
    }
    for run_id in &runs {
        code_mode.abort(run_id).await;
    }
    let (end, now) = (TurnEnd::Aborted { reason: reason.to_owned() }, now_ms());
    let entry = json!({"turnId": held.turn_id, "end": end});
    let step = Step::Ended(end);
    let body = serde_json::to_string(&step).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    let change = TurnChange {
        steps: vec![NewStep { kind: step.kind().to_owned(), body }],
        state: Some(TurnState::Aborted),
        transcript: vec![Entry { at: now, kind: EntryKind::TurnNote, entry }],
        ..TurnChange::default()
    };
    store.commit_turn(held, &change, Durability::Synced, now).await
}
