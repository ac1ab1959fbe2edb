//! Builds the journal of a fork: the first legs of another run, and the calls they made.

use std::collections::BTreeSet;

use contract::cell::{Durations, LimitFailures, Snapshots, StoredOutputs, Telemetry};
use contract::ids::CallId;
use store::{CallRow, CallState, LegRow, Millis};

use super::record::{Record, RecordError};
use crate::run_telemetry::of_calls;

/// Why a run could not be forked.
#[derive(Debug, thiserror::Error)]
pub enum ForkError {
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("only runs of `exec` can be forked")]
    NotExec,
    #[error("the run has {legs} steps; pass the number of steps to reuse from its record, 1 to {legs}")]
    NoSuchStep { legs: usize },
    #[error("too many cells are waiting; finish some first")]
    Full,
    #[error("cannot read system randomness: {0}")]
    Randomness(#[from] getrandom::Error),
    #[error("the new run could not be written: {0}")]
    Commit(#[from] store::CommitError),
}

/// The journal of a forked run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ForkedJournal {
    pub(crate) legs: Vec<LegRow>,
    pub(crate) calls: Vec<CallRow>,
    pub(crate) telemetry: Telemetry,
}

/// Copies the first `at` legs with their replies, and the calls that they made.
///
/// A settled call keeps its outcome. A call that was in progress is retried only if its tool may be called twice. A
/// call that was not dispatched is requested again, and so is its approval.
pub(crate) fn forked(record: &Record, at: usize, parent: &str, now: Millis) -> Result<ForkedJournal, ForkError> {
    let legs = record.legs.get(..at).filter(|legs| !legs.is_empty());
    let legs = legs.ok_or(ForkError::NoSuchStep { legs: record.legs.len() })?.to_vec();
    let last = legs.last().map_or(0, |leg| leg.leg);
    let answered: BTreeSet<CallId> = legs.iter().flat_map(|leg| leg.replies.iter().copied()).collect();
    let made = record.calls.iter().filter(|row| row.leg <= last);
    let calls: Vec<CallRow> =
        made.map(|row| if answered.contains(&row.call) { delivered(row) } else { open(row, parent, now) }).collect();
    let telemetry = telemetry(record, &calls);
    Ok(ForkedJournal { legs, calls, telemetry })
}

fn delivered(row: &CallRow) -> CallRow {
    CallRow { state: CallState::Delivered, ..row.clone() }
}

fn open(row: &CallRow, parent: &str, now: Millis) -> CallRow {
    let row = CallRow { parent: parent.to_owned(), since: now, ..row.clone() };
    let has_answer = row.reply.is_some() || row.outcome.is_some();
    if has_answer {
        return CallRow { state: CallState::Settled, ..row };
    }
    let with_others = matches!(row.state, CallState::Dispatched | CallState::Parked | CallState::Away);
    if with_others || row.attempt > 0 {
        // The ticket belongs to the original run: the fork must neither follow nor cancel that call.
        return CallRow { state: CallState::Dispatched, ticket: None, ..row };
    }
    // A cleared timer may have been cleared in a later leg. Replaying the legs tells.
    CallRow { state: CallState::Requested, tool_id: None, input: None, tool_hash: None, ..row }
}

/// Counts the telemetry again from the copied calls.
fn telemetry(record: &Record, calls: &[CallRow]) -> Telemetry {
    let of_all: Telemetry = serde_json::from_str(&record.run.progress).unwrap_or_default();
    let copied = of_calls(calls);
    Telemetry {
        exec_count: 1,
        wait_count: 0,
        search_count: copied.search_count,
        describe_count: copied.describe_count,
        call_count: copied.call_count,
        nested_tool_ids: copied.nested_tool_ids,
        limit_failures: LimitFailures::default(),
        snapshots: Snapshots::default(),
        duration_ms: Durations::default(),
        // The fork stores the output of the copied legs again, as its own.
        stored_outputs: StoredOutputs::default(),
        ..of_all
    }
}

#[cfg(test)]
mod tests {
    use contract::ids::CallId;
    use contract::scope::Scope;
    use store::{CallRow, CallState, LegRow, RunRow, RunState, StoredReply};

    use super::{ForkError, Record, forked};

    fn call(call: u32, leg: i64, state: CallState) -> CallRow {
        let row = CallRow::requested(CallId(call), "call", "a:b:c", "{}".to_owned(), "exec-1", 5);
        let attempt = i64::from(matches!(state, CallState::Delivered | CallState::Dispatched | CallState::Parked));
        CallRow { leg, state, attempt, tool_id: Some(format!("a:b:{call}")), ..row }
    }

    /// Returns a call that was dispatched and whose tool asks a person a question.
    fn questions(row: CallRow) -> CallRow {
        CallRow { state: CallState::Approval, attempt: 1, ticket: Some("t".to_owned()), ..row }
    }

    fn answered(row: CallRow) -> CallRow {
        CallRow { reply: Some(StoredReply::Resolved("1".to_owned())), ..row }
    }

    fn record() -> Record {
        Record {
            run: RunRow {
                run_id: "cm_1".into(),
                scope: Scope::default(),
                tool_call_id: "exec-1".to_owned(),
                state: RunState::Waiting,
                created_at: 0,
                expires_at: 0,
                catalog: String::new(),
                definition: String::new(),
                progress: r#"{"catalogSize": 7, "callCount": 99, "waitCount": 3}"#.to_owned(),
                snapshot_leg: None,
                snapshot: None,
                result: None,
            },
            legs: vec![
                LegRow::begun(0, 1, vec![]),
                LegRow::begun(1, 2, vec![CallId(1)]),
                LegRow::begun(2, 3, vec![CallId(2)]),
            ],
            calls: vec![
                answered(call(1, 0, CallState::Delivered)),
                answered(call(2, 0, CallState::Delivered)),
                call(3, 0, CallState::Approval),
                call(4, 1, CallState::Parked),
                call(5, 1, CallState::Cleared),
                questions(call(6, 1, CallState::Approval)),
                call(7, 2, CallState::Dispatched),
            ],
            definition: None,
            tables: None,
        }
    }

    #[test]
    fn a_dispatched_call_stays_dispatched_and_a_pending_approval_is_requested_again() {
        let forked = forked(&record(), 2, "fork", 9).unwrap();
        assert_eq!(forked.legs, record().legs[..2]);
        let states: Vec<(u32, CallState)> = forked.calls.iter().map(|row| (row.call.0, row.state)).collect();
        assert_eq!(
            states,
            [
                (1, CallState::Delivered),
                (2, CallState::Settled),
                (3, CallState::Requested),
                (4, CallState::Dispatched),
                (5, CallState::Requested),
                (6, CallState::Dispatched),
            ]
        );
        assert_eq!(forked.calls[5].ticket, None, "the question belongs to the original run");
        let asked = &forked.calls[2];
        assert_eq!((asked.attempt, &asked.tool_id, asked.parent.as_str(), asked.since), (0, &None, "fork", 9));
        assert_eq!(forked.calls[0], record().calls[0], "a delivered call is copied unchanged");
        let telemetry = forked.telemetry;
        assert_eq!((telemetry.catalog_size, telemetry.call_count, telemetry.wait_count), (7, 6, 0));
        assert_eq!(telemetry.nested_tool_ids, ["a:b:1", "a:b:2", "a:b:4", "a:b:6"]);
    }

    #[test]
    fn only_recorded_steps_can_be_reused() {
        for at in [0, 4] {
            assert!(matches!(forked(&record(), at, "fork", 9), Err(ForkError::NoSuchStep { legs: 3 })), "{at}");
        }
        assert_eq!(forked(&record(), 3, "fork", 9).unwrap().calls.len(), 7);
    }
}
