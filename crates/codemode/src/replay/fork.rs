//! What of a run another one begins with: its first legs, and the calls they made.

use std::collections::BTreeSet;

use contract::cell::{Durations, LimitFailures, Snapshots, Telemetry};
use contract::frame::Method;
use store::{CallRow, CallState, LegRow, Millis};

use super::record::{Record, Unreadable};

/// Why no run was begun from another's.
#[derive(Debug, thiserror::Error)]
pub enum ForkRefused {
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error("only cells of `exec` can be gone on with")]
    NotExec,
    #[error("the run has {legs} steps; give 1 to {legs}: so many of them are taken over from the record")]
    NoSuchStep { legs: usize },
    #[error("too many cells are waiting; finish some first")]
    Full,
    #[error("the system has no randomness to give: {0}")]
    Randomness(#[from] getrandom::Error),
    #[error("the new run could not be written: {0}")]
    Commit(#[from] store::CommitError),
}

/// The journal of a run that goes on from another's step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Forked {
    pub(crate) legs: Vec<LegRow>,
    pub(crate) calls: Vec<CallRow>,
    pub(crate) telemetry: Telemetry,
}

/// The first `at` legs, told what they were told, and what they asked for. A call that has an answer keeps it; one that
/// was being made is not made again, unless that does no harm; one that nobody has worked on is asked for anew, also of
/// the person who was asked before.
pub(crate) fn forked(record: &Record, at: usize, parent: &str, now: Millis) -> Result<Forked, ForkRefused> {
    let legs = record.legs.get(..at).filter(|legs| !legs.is_empty());
    let legs = legs.ok_or(ForkRefused::NoSuchStep { legs: record.legs.len() })?.to_vec();
    let last = legs.last().map_or(0, |leg| leg.leg);
    let answered: BTreeSet<u32> = legs.iter().flat_map(|leg| leg.replies.iter().copied()).collect();
    let made = record.calls.iter().filter(|row| row.leg <= last);
    let calls: Vec<CallRow> =
        made.map(|row| if answered.contains(&row.call) { delivered(row) } else { open(row, parent, now) }).collect();
    let telemetry = telemetry(record, &calls);
    Ok(Forked { legs, calls, telemetry })
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
        // Made for the other run, whose the ticket is: this one must neither follow it nor call it off.
        return CallRow { state: CallState::Dispatched, ticket: None, ..row };
    }
    // A timer that was cleared may have been so later on: whoever runs the legs again finds out.
    CallRow { state: CallState::Requested, tool_id: None, input: None, tool_hash: None, ..row }
}

/// Counted anew from the calls that were taken over.
fn telemetry(record: &Record, calls: &[CallRow]) -> Telemetry {
    let of_all: Telemetry = serde_json::from_str(&record.run.progress).unwrap_or_default();
    let count = |methods: &[Method]| {
        let counted = calls.iter().filter(|row| methods.iter().any(|method| method.as_str() == row.method));
        counted.count() as u64
    };
    let mut nested_tool_ids: Vec<String> = Vec::new();
    for id in calls.iter().filter_map(|row| row.tool_id.clone()) {
        if !nested_tool_ids.contains(&id) {
            nested_tool_ids.push(id);
        }
    }
    Telemetry {
        exec_count: 1,
        wait_count: 0,
        search_count: count(&[Method::Search]),
        describe_count: count(&[Method::Describe]),
        call_count: count(&[Method::Call, Method::Namespace]),
        nested_tool_ids,
        limit_failures: LimitFailures::default(),
        snapshots: Snapshots::default(),
        duration_ms: Durations::default(),
        ..of_all
    }
}

#[cfg(test)]
mod tests {
    use contract::scope::Scope;
    use store::{CallRow, CallState, LegRow, RunRow, RunState, StoredReply};

    use super::{ForkRefused, Record, forked};

    fn call(call: u32, leg: i64, state: CallState) -> CallRow {
        let row = CallRow::requested(call, "call", "a:b:c", "{}".to_owned(), "exec-1", 5);
        let attempt = i64::from(matches!(state, CallState::Delivered | CallState::Dispatched | CallState::Parked));
        CallRow { leg, state, attempt, tool_id: Some(format!("a:b:{call}")), ..row }
    }

    /// A call that was dispatched and whose tool asks a person.
    fn questions(row: CallRow) -> CallRow {
        CallRow { state: CallState::Approval, attempt: 1, ticket: Some("t".to_owned()), ..row }
    }

    fn answered(row: CallRow) -> CallRow {
        CallRow { reply: Some(StoredReply::Resolved("1".to_owned())), ..row }
    }

    fn record() -> Record {
        Record {
            run: RunRow {
                run_id: "cm_1".to_owned(),
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
            legs: vec![LegRow::begun(0, 1, vec![]), LegRow::begun(1, 2, vec![1]), LegRow::begun(2, 3, vec![2])],
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
    fn dispatched_calls_are_not_repeated_and_open_questions_are_asked_again() {
        let forked = forked(&record(), 2, "fork", 9).unwrap();
        assert_eq!(forked.legs, record().legs[..2]);
        let states: Vec<(u32, CallState)> = forked.calls.iter().map(|row| (row.call, row.state)).collect();
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
        assert_eq!(forked.calls[0], record().calls[0], "a call whose answer the cell has seen is unchanged");
        let telemetry = forked.telemetry;
        assert_eq!((telemetry.catalog_size, telemetry.call_count, telemetry.wait_count), (7, 6, 0));
        assert_eq!(telemetry.nested_tool_ids, ["a:b:1", "a:b:2", "a:b:4", "a:b:6"]);
    }

    #[test]
    fn only_recorded_steps_can_be_reused() {
        for at in [0, 4] {
            assert!(matches!(forked(&record(), at, "fork", 9), Err(ForkRefused::NoSuchStep { legs: 3 })), "{at}");
        }
        assert_eq!(forked(&record(), 3, "fork", 9).unwrap().calls.len(), 7);
    }
}
