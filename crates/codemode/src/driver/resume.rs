//! Resumes a stored run: from its last snapshot, or by running its legs again since the snapshot or from the start.

use contract::cell::PendingState;
use contract::frame::{Failure, HostCall, Leg, LegEnd, Method};
use contract::ids::CallId;
use executor::clock::now_ms;
use serde_json::json;
use store::{Approval, CallRow, CallState, EntryKind, LegRow, NewEntry, RunRow};

use super::location::CellLocation;
use super::{Driver, Run};
use crate::cell::{Cell, Event, ReopenedCall, ResumedFrom, SpentResources};
use crate::pool::Lease;
use crate::replay::{Comparison, LegStart, MAX_RESUMING_MS, ReplayFailure, Walk, to_journal_end};
use crate::run_telemetry;

/// Creates a driver for a stored run, and resumes the run's open calls.
pub(crate) async fn resumed(
    run: Run,
    row: &RunRow,
    snapshot: Option<Vec<u8>>,
    legs: &[LegRow],
    mut calls: Vec<CallRow>,
    approvals: &[Approval],
) -> Result<Driver, Failure> {
    let telemetry = run_telemetry::of_resumed_run(row, &calls, &run.executor, &run.mode);
    let last_leg = legs.iter().map(|leg| leg.leg).max().unwrap_or(0);
    let age_ms = u64::try_from(now_ms().saturating_sub(row.created_at)).unwrap_or(0);
    let has_snapshot = snapshot.is_some();
    let snapshot = snapshot.filter(|snapshot| run.pool.can_thaw(snapshot));
    if has_snapshot && snapshot.is_none() {
        let image = run.pool.image().to_string();
        let entry = json!({"note": "replayed", "runId": run.id, "legs": legs.len(), "image": image});
        run.journal.entry(NewEntry::new(now_ms(), EntryKind::Note, &entry));
    }

    let output_budget = run.definition.limits.output_budget(telemetry.stored_outputs.bytes);
    let (location, last) = match snapshot {
        Some(snapshot) if row.snapshot_leg == Some(last_leg) => {
            (CellLocation::Frozen { snapshot, is_stored: true }, None)
        }
        snapshot => {
            let replayed = replay_legs(&run, row.snapshot_leg, snapshot, legs, &calls, output_budget).await;
            let ReplayedCell { lease, leg, ended, cleared } = replayed.map_err(|failure| failure.failure())?;
            for call in calls.iter_mut().filter(|call| cleared.contains(&call.call)) {
                call.state = CallState::Cleared;
                run.journal.cleared(call.call);
            }
            (CellLocation::Live(lease), Some((leg, ended)))
        }
    };
    let now = now_ms();
    let decided = |call: CallId| {
        approvals.iter().rev().find(|approval| approval.call == call).is_some_and(|approval| !approval.is_open(now))
    };
    let reopened = |call: &CallRow| {
        let open = reopened(call, row.created_at)?;
        let decided = open.state == PendingState::Approval && decided(call.call);
        Some(ReopenedCall { decided, ..open })
    };
    let open = calls.iter().filter_map(reopened).collect();
    let spent = SpentResources {
        guest_us: telemetry.duration_ms.guest * 1000,
        snapshots: telemetry.snapshots,
        last_call: calls.iter().map(|call| call.call).max().unwrap_or_default(),
        stored_output_bytes: telemetry.stored_outputs.bytes,
    };
    let from = if last.is_none() { ResumedFrom::Snapshot } else { ResumedFrom::Replay };
    let cell = Cell::resumed(run.definition.limits, open, spent, from);
    let mut driver = Driver::around(run, cell, location, telemetry);
    driver.age_ms = age_ms;
    driver.leg = last_leg;
    driver.parent = row.tool_call_id.clone();
    if let Some((leg, ended)) = last {
        driver.begun = ended;
        // The leg's end is handled as an event like any other; the event carries the cell's location.
        let location = std::mem::replace(&mut driver.location, CellLocation::None);
        let event = Event::LegEnded(without(leg, &calls));
        driver.work = Some(Box::pin(std::future::ready((location, event))));
    }
    driver.span().in_scope(|| tracing::info!(legs = legs.len(), "run resumed"));
    resume_calls(&mut driver, calls);
    Ok(driver)
}

/// Resumes open calls: delivers stored replies, retries interrupted calls, follows parked ones, and sets timers.
fn resume_calls(driver: &mut Driver, mut calls: Vec<CallRow>) {
    calls.sort_by_key(|call| (call.settle_order.unwrap_or(i64::MAX), call.call));
    for row in calls {
        let call = row.call;
        match row.state {
            CallState::Settled => match row.reply.clone() {
                Some(reply) => driver.queue_reply(call, reply.into()),
                None => driver.fetch_outcome(call),
            },
            CallState::Dispatched => driver.retry(call),
            CallState::Away => driver.follow(call),
            CallState::Requested if row.method == Method::Timer.as_str() => {
                let left = row.due_at.unwrap_or(0).saturating_sub(now_ms());
                driver.set_timer(call, u64::try_from(left).unwrap_or(0));
            }
            CallState::Requested
            | CallState::Approval
            | CallState::Parked
            | CallState::Delivered
            | CallState::Cleared => {}
        }
    }
}

/// Returns the open call for a stored row. `None` if the cell has finished with it.
pub(crate) fn reopened(row: &CallRow, created_at: i64) -> Option<ReopenedCall> {
    let state = match row.state {
        CallState::Delivered | CallState::Cleared => return None,
        CallState::Requested => PendingState::Queued,
        CallState::Approval => PendingState::Approval,
        CallState::Parked => PendingState::Client,
        CallState::Dispatched | CallState::Away | CallState::Settled => PendingState::Running,
    };
    let method = Method::parse(&row.method)?;
    let timed = matches!(method, Method::Yield | Method::Timer);
    Some(ReopenedCall {
        call: HostCall { id: row.call, method, target: row.target.clone(), payload: row.payload.clone().into_bytes() },
        state: if timed { PendingState::Running } else { state },
        worked_on: !timed && matches!(row.state, CallState::Dispatched | CallState::Settled),
        decided: false,
        since: u64::try_from(row.since.saturating_sub(created_at)).unwrap_or(0),
    })
}

/// Removes from a leg's end the calls and cleared timers that the journal already has.
fn without(mut leg: Leg, known: &[CallRow]) -> Leg {
    if let LegEnd::Suspended { calls, cleared } = &mut leg.end {
        calls.retain(|call| !known.iter().any(|row| row.call == call.id));
        cleared.retain(|call| !known.iter().any(|row| row.call == *call && row.state == CallState::Cleared));
    }
    leg
}

/// A cell that was run again up to its last leg.
struct ReplayedCell {
    lease: Lease,
    /// The last leg, with all output that was not returned to the model yet.
    leg: Leg,
    /// The last leg's row for the journal, if the journal does not have its end yet.
    ended: Option<LegRow>,
    /// Timers that are no longer set.
    cleared: Vec<CallId>,
}

/// Runs the legs since the snapshot again, or all legs if no worker here can thaw the snapshot, as after an upgrade of
/// the guest image.
///
/// The legs must do what the journal has of them. Output up to leg `reported`, that of the snapshot, was already
/// returned to the model; the later legs may output `output_budget` bytes together.
async fn replay_legs(
    run: &Run,
    reported: Option<i64>,
    snapshot: Option<Vec<u8>>,
    legs: &[LegRow],
    calls: &[CallRow],
    output_budget: u64,
) -> Result<ReplayedCell, ReplayFailure> {
    let comparison = Comparison::new(legs, calls, reported);
    let (start, comparison, first) = match (snapshot, reported) {
        (Some(snapshot), Some(leg)) => (LegStart::Snapshot(snapshot), comparison.starting_after(leg), leg + 1),
        _ => (LegStart::Source, comparison, 0),
    };
    let from_source = matches!(start, LegStart::Source);
    let mut walk = Walk::new(&run.pool, &run.tables, &run.definition, comparison, (start, first), MAX_RESUMING_MS);
    let (mut last, mut ended, mut output, mut shown) = (None, None, Vec::new(), 0);
    for row in legs.iter().filter(|row| row.leg >= first) {
        let unreported = reported.is_none_or(|reported| row.leg > reported);
        let limits = run.definition.limits;
        let allowed = if unreported { output_budget.saturating_sub(shown) } else { limits.output_budget(0) };
        let (_, mut leg) = walk.step(row, allowed).await?;
        walk.compare_leg(row, &leg)?;
        if row.ended.is_none() {
            ended = Some(LegRow { ended: Some(to_journal_end(&leg)), ..row.clone() });
        } else {
            ended = None;
            // Its time was counted when it first ran. Only the time of a leg without a recorded end counts now.
            leg.run_us = 0;
        }
        if unreported {
            shown += leg.output.iter().map(|item| item.bytes() as u64).sum::<u64>();
            output.append(&mut leg.output);
        }
        last = Some(leg);
    }
    let timers = calls.iter().filter(|row| row.state == CallState::Requested && row.method == Method::Timer.as_str());
    let cleared = timers.map(|row| row.call).filter(|call| from_source && !walk.comparison.waits_for(*call)).collect();
    match (last, walk.into_lease()) {
        (Some(leg), Some(lease)) => Ok(ReplayedCell { lease, leg: Leg { output, ..leg }, ended, cleared }),
        _ => Err(ReplayFailure::Hole(first)),
    }
}
