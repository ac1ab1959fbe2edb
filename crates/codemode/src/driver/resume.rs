//! A run out of the store: put back where it was, or run again to there, from its last snapshot or from its beginning.

use contract::cell::{PendingState, Telemetry};
use contract::frame::{Failure, HostCall, Leg, LegEnd, Method};
use contract::ids::CallId;
use executor::clock::now_ms;
use serde_json::json;
use store::{Approval, CallRow, CallState, Entry, EntryKind, LegRow, RunRow};

use super::places::CellLocation;
use super::{Driver, Run};
use crate::cell::{Cell, Event, Reopened, Spent};
use crate::pool::Lease;
use crate::replay::{Comparison, MAX_RESUMING_MS, Start, Stumble, Walk, ended_of};

/// A driver for a stored run, and the calls it must see to before anything else.
pub(crate) async fn resumed(
    run: Run,
    row: &RunRow,
    snapshot: Option<Vec<u8>>,
    legs: &[LegRow],
    mut calls: Vec<CallRow>,
    approvals: &[Approval],
) -> Result<Driver, Failure> {
    let telemetry: Telemetry = serde_json::from_str(&row.progress).unwrap_or_default();
    let last_leg = legs.iter().map(|leg| leg.leg).max().unwrap_or(0);
    let age_ms = u64::try_from(now_ms().saturating_sub(row.created_at)).unwrap_or(0);
    let frozen = snapshot.is_some();
    let snapshot = snapshot.filter(|snapshot| run.pool.can_thaw(snapshot));
    if frozen && snapshot.is_none() {
        let image = run.pool.image().to_string();
        let entry = json!({"note": "replayed", "runId": run.id, "legs": legs.len(), "image": image});
        run.journal.entry(Entry { at: now_ms(), kind: EntryKind::Note, entry });
    }

    let (whereabouts, last) = match snapshot {
        Some(snapshot) if row.snapshot_leg == Some(last_leg) => (CellLocation::Frozen { snapshot, saved: true }, None),
        snapshot => {
            let again = run_again(&run, row.snapshot_leg, snapshot, legs, &calls).await;
            let Returned { place, leg, ended, cleared } = again.map_err(|stumble| stumble.failure())?;
            for call in calls.iter_mut().filter(|call| cleared.contains(&call.call)) {
                call.state = CallState::Cleared;
                run.journal.cleared(call.call);
            }
            (CellLocation::Live(place), Some((leg, ended)))
        }
    };
    let now = now_ms();
    let decided = |call: u32| approvals.iter().rev().find(|one| one.call == call).is_some_and(|one| !one.is_open(now));
    let reopened = |call: &CallRow| {
        let open = reopened(call, row.created_at)?;
        let decided = open.state == PendingState::Approval && decided(call.call);
        Some(Reopened { decided, ..open })
    };
    let open = calls.iter().filter_map(reopened).collect();
    let spent = Spent {
        guest_us: telemetry.duration_ms.guest * 1000,
        snapshots: telemetry.snapshots,
        last_call: calls.iter().map(|call| call.call).max().unwrap_or(0),
    };
    let cell = Cell::resumed(run.definition.limits, open, spent, last.is_none());
    let mut driver = Driver::around(run, cell, whereabouts, telemetry);
    driver.age_ms = age_ms;
    driver.leg = last_leg;
    driver.parent = row.tool_call_id.clone();
    if let Some((leg, ended)) = last {
        driver.begun = ended;
        // The leg's end is an event like any other, and brings the cell's place along.
        let place = std::mem::replace(&mut driver.whereabouts, CellLocation::Nowhere);
        let event = Event::LegEnded(without(leg, &calls));
        driver.work = Some(Box::pin(std::future::ready((place, event))));
    }
    driver.see_to(calls);
    Ok(driver)
}

impl Driver {
    /// What a crash, a person or a tool has left to do.
    fn see_to(&mut self, mut calls: Vec<CallRow>) {
        calls.sort_by_key(|call| (call.settle_order.unwrap_or(i64::MAX), call.call));
        for row in calls {
            let call = CallId(row.call);
            match row.state {
                CallState::Settled => match row.reply.clone() {
                    Some(reply) => self.bring(call, reply.into()),
                    None => self.fetch_outcome(call),
                },
                CallState::Dispatched => self.repeat(call),
                CallState::Away => self.follow(call),
                CallState::Requested if row.method == Method::Timer.as_str() => {
                    let left = row.due_at.unwrap_or(0).saturating_sub(now_ms());
                    self.set_timer(call, u64::try_from(left).unwrap_or(0));
                }
                CallState::Requested
                | CallState::Approval
                | CallState::Parked
                | CallState::Delivered
                | CallState::Cleared => {}
            }
        }
    }
}

/// What of a call is still open for its cell.
pub(crate) fn reopened(row: &CallRow, created_at: i64) -> Option<Reopened> {
    let state = match row.state {
        CallState::Delivered | CallState::Cleared => return None,
        CallState::Requested => PendingState::Queued,
        CallState::Approval => PendingState::Approval,
        CallState::Parked => PendingState::Client,
        CallState::Dispatched | CallState::Away | CallState::Settled => PendingState::Running,
    };
    let method = Method::parse(&row.method)?;
    let timed = matches!(method, Method::Yield | Method::Timer);
    Some(Reopened {
        call: HostCall {
            id: CallId(row.call),
            method,
            target: row.target.clone(),
            payload: row.payload.clone().into_bytes(),
        },
        state: if timed { PendingState::Running } else { state },
        worked_on: !timed && matches!(row.state, CallState::Dispatched | CallState::Settled),
        decided: false,
        since: u64::try_from(row.since.saturating_sub(created_at)).unwrap_or(0),
    })
}

/// The leg's end, without calls and cleared timers that the journal has already.
fn without(mut leg: Leg, known: &[CallRow]) -> Leg {
    if let LegEnd::Suspended { calls, cleared } = &mut leg.end {
        calls.retain(|call| !known.iter().any(|row| row.call == call.id.0));
        cleared.retain(|call| !known.iter().any(|row| row.call == call.0 && row.state == CallState::Cleared));
    }
    leg
}

/// A cell that was run again to where it was.
struct Returned {
    place: Lease,
    /// Its last leg, with the output that nobody was told yet.
    leg: Leg,
    /// The same for the journal, where it has no end of it.
    ended: Option<LegRow>,
    /// Timers that are not set any more.
    cleared: Vec<u32>,
}

/// Runs the legs since the snapshot again, or all of them where there is none that a worker here could take: the image
/// is another after an upgrade. What they did must be what they do; what they showed before the snapshot was told.
async fn run_again(
    run: &Run,
    told: Option<i64>,
    snapshot: Option<Vec<u8>>,
    legs: &[LegRow],
    calls: &[CallRow],
) -> Result<Returned, Stumble> {
    let comparison = Comparison::new(legs, calls, told);
    let (start, comparison, first) = match (snapshot, told) {
        (Some(snapshot), Some(leg)) => (Start::Snapshot(snapshot), comparison.behind(leg), leg + 1),
        _ => (Start::Source, comparison, 0),
    };
    let from_source = matches!(start, Start::Source);
    let mut walk = Walk::new(&run.pool, &run.tables, &run.definition, comparison, (start, first), MAX_RESUMING_MS);
    let (mut last, mut ended, mut output, mut shown) = (None, None, Vec::new(), 0);
    for row in legs.iter().filter(|row| row.leg >= first) {
        let untold = told.is_none_or(|told| row.leg > told);
        let limit = run.definition.limits.output_bytes;
        let allowed = if untold { limit.saturating_sub(shown) } else { limit };
        let (_, mut leg) = walk.step(row, allowed).await?;
        walk.judge(row, &leg)?;
        if row.ended.is_none() {
            ended = Some(LegRow { ended: Some(ended_of(&leg)), ..row.clone() });
        } else {
            ended = None;
            // Its time was counted when it ran first; only a leg whose end nobody saw runs on its own account.
            leg.run_us = 0;
        }
        if untold {
            shown += leg.output.iter().map(|item| item.bytes() as u64).sum::<u64>();
            output.append(&mut leg.output);
        }
        last = Some(leg);
    }
    let timers = calls.iter().filter(|row| row.state == CallState::Requested && row.method == Method::Timer.as_str());
    let cleared = timers.map(|row| row.call).filter(|call| from_source && !walk.comparison.waits_for(*call)).collect();
    match (last, walk.into_place()) {
        (Some(leg), Some(place)) => Ok(Returned { place, leg: Leg { output, ..leg }, ended, cleared }),
        _ => Err(Stumble::Hole(first)),
    }
}
