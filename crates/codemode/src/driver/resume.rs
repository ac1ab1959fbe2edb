//! A run out of the store: put back where it was, or run again to there from its last snapshot.

use std::sync::Arc;

use contract::cell::{PendingState, Telemetry};
use contract::error::ErrorCode;
use contract::frame::{Budget, Deliver, Failure, HostCall, Leg, LegEnd, Method, Reply, ReplyValue, Start};
use contract::ids::CallId;
use contract::tool::InputHash;
use executor::clock::now_ms;
use store::{Approval, CallRow, CallState, LegRow, RunRow};

use super::places::{Whereabouts, pool_failure};
use super::{Driver, Run};
use crate::cell::{Cell, Event, Reopened, Spent};
use crate::pool::Lease;

/// A driver for a stored run, and the calls it must see to before anything else.
pub(crate) async fn resumed(
    run: Run,
    row: &RunRow,
    snapshot: Option<Vec<u8>>,
    legs: &[LegRow],
    calls: Vec<CallRow>,
    approvals: &[Approval],
) -> Result<Driver, Failure> {
    let telemetry: Telemetry = serde_json::from_str(&row.progress).unwrap_or_default();
    let later: Vec<&LegRow> = legs.iter().filter(|leg| row.snapshot_leg.is_none_or(|taken| leg.leg > taken)).collect();
    let last_leg = legs.iter().map(|leg| leg.leg).max().unwrap_or(0);
    let age_ms = u64::try_from(now_ms().saturating_sub(row.created_at)).unwrap_or(0);

    let (whereabouts, last) = match snapshot {
        Some(snapshot) if later.is_empty() => (Whereabouts::Frozen { snapshot, saved: true }, None),
        snapshot => {
            let (lease, leg) = Replay { run: &run, calls: &calls }.run(snapshot, &later).await?;
            (Whereabouts::Live(lease), Some(leg))
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
    let spent = Spent { guest_us: telemetry.duration_ms.guest * 1000, snapshots: telemetry.snapshots };
    let cell = Cell::resumed(run.definition.limits, open, spent, last.is_none());
    let mut driver = Driver::around(run, cell, whereabouts, telemetry);
    driver.age_ms = age_ms;
    driver.leg = last_leg;
    driver.parent = row.tool_call_id.clone();
    if let Some(leg) = last {
        // The leg's end is an event like any other, and brings the cell's place along.
        let place = std::mem::replace(&mut driver.whereabouts, Whereabouts::Nowhere);
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
                    Some(reply) => self.bring(call, reply.into(), row.outcome.clone()),
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

/// The leg's end, without calls that the journal has already.
fn without(mut leg: Leg, known: &[CallRow]) -> Leg {
    if let LegEnd::Suspended { calls, .. } = &mut leg.end {
        calls.retain(|call| !known.iter().any(|row| row.call == call.id.0));
    }
    leg
}

/// Runs legs again as they were run: the same clock, the same replies in the same order. What the cell does
/// must be what it did.
struct Replay<'a> {
    run: &'a Run,
    calls: &'a [CallRow],
}

impl Replay<'_> {
    async fn run(&self, snapshot: Option<Vec<u8>>, legs: &[&LegRow]) -> Result<(Lease, Leg), Failure> {
        let mut legs = legs.iter();
        let first = legs.next().ok_or_else(|| diverged("the journal has no leg to run"))?;
        let (mut lease, mut leg) = match snapshot {
            Some(snapshot) => {
                let deliver = Deliver { budget: self.budget(first), replies: self.replies(first)? };
                self.run.pool.thaw_cell(&self.run.tables, snapshot, deliver).await
            }
            None => self.run.pool.start_cell(&self.run.tables, self.start(first)).await,
        }
        .map_err(|error| pool_failure(&error))?;
        self.check(first, &leg)?;
        let mut output = std::mem::take(&mut leg.output);
        for next in legs {
            leg = lease.deliver(self.budget(next), self.replies(next)?).await.map_err(|error| pool_failure(&error))?;
            self.check(next, &leg)?;
            output.append(&mut leg.output);
        }
        leg.output = output;
        Ok((lease, leg))
    }

    fn start(&self, leg: &LegRow) -> Start {
        let definition: &Arc<_> = &self.run.definition;
        Start {
            budget: self.budget(leg),
            catalog: self.run.tables.hash(),
            seed: definition.seed,
            language: definition.language,
            source: definition.source.clone(),
        }
    }

    fn budget(&self, leg: &LegRow) -> Budget {
        let limits = self.run.definition.limits;
        Budget {
            run_ms: limits.timeout_ms,
            memory_bytes: limits.memory_bytes,
            output_bytes: limits.output_bytes,
            clock_us: leg.clock_us,
        }
    }

    fn replies(&self, leg: &LegRow) -> Result<Vec<Reply>, Failure> {
        let reply = |call: &u32| {
            let row = self.calls.iter().find(|row| row.call == *call);
            let reply = row.and_then(|row| row.reply.clone()).map(ReplyValue::from);
            // A yield resolves to nothing, whoever asks.
            let reply = reply.or_else(|| row.map(|_| ReplyValue::Resolved(b"null".to_vec())));
            reply
                .map(|value| Reply { call: CallId(*call), value })
                .ok_or_else(|| diverged(&format!("the reply to call {call} is missing")))
        };
        leg.replies.iter().map(reply).collect()
    }

    /// Every call the journal has of this leg must be made again, and be the same.
    fn check(&self, leg: &LegRow, ran: &Leg) -> Result<(), Failure> {
        let empty = Vec::new();
        let made = match &ran.end {
            LegEnd::Suspended { calls, .. } => calls,
            LegEnd::Completed { .. } | LegEnd::Failed(_) => &empty,
        };
        for row in self.calls.iter().filter(|row| row.leg == leg.leg) {
            let same = made.iter().any(|call| {
                call.id.0 == row.call
                    && call.method.as_str() == row.method
                    && call.target == row.target
                    && InputHash::of(&call.payload).to_string() == row.input_hash
            });
            if !same {
                return Err(diverged(&format!("leg {} did not make call {} again", leg.leg, row.call)));
            }
        }
        Ok(())
    }
}

fn diverged(what: &str) -> Failure {
    Failure {
        code: Some(ErrorCode::SnapshotRestoreFailed),
        message: format!("the cell was run again and did something else: {what}"),
        place: None,
    }
}
