//! Tests of the state machine, event by event. Time is a number; nothing waits.

use contract::cell::{OutputItem, PendingState, WaitingReason};
use contract::error::ErrorCode;
use contract::frame::{Failure, HostCall, Leg, LegEnd, Method, ReplyValue};
use contract::ids::CallId;
use contract::limits::{Limits, MAX_YIELD_REASON_CHARS};
use serde_json::value::RawValue;

use super::{Action, Answer, Cell, Event, KEEP_LIVE_MS, ReopenedCall, ResumedFrom, SpentResources};

fn limits() -> Limits {
    Limits { timeout_ms: 1000, max_wait_ms: 5000, pending_calls: 2, ..Limits::DEFAULT }
}

fn call(id: u32, method: Method) -> HostCall {
    HostCall { id: CallId(id), method, target: "openclaw:a:b".to_owned(), payload: b"40".to_vec() }
}

fn leg(end: LegEnd) -> Event {
    Event::LegEnded(Leg { end, output: Vec::new(), run_us: 5_000, memory_bytes: 0 })
}

fn suspended(calls: Vec<HostCall>) -> Event {
    leg(LegEnd::Suspended { calls, cleared: Vec::new() })
}

fn completed() -> Event {
    leg(LegEnd::Completed { value: RawValue::from_string("1".to_owned()).unwrap() })
}

fn settled(id: u32) -> Event {
    Event::Settled(CallId(id), ReplyValue::Resolved(b"1".to_vec()))
}

/// Describes actions in words, so that a whole list can be compared.
fn words(actions: &[Action]) -> Vec<String> {
    actions
        .iter()
        .map(|action| match action {
            Action::Dispatch(call) => format!("dispatch {}", call.id.0),
            Action::ResumeDecided(call) => format!("resume {}", call.0),
            Action::SetTimer { call, after_ms } => format!("timer {} in {after_ms}", call.0),
            Action::CancelTimer(call) => format!("cancel {}", call.0),
            Action::Deliver { replies, run_ms, .. } => {
                let ids: Vec<u32> = replies.iter().map(|reply| reply.call.0).collect();
                format!("deliver {ids:?} for {run_ms}")
            }
            Action::Freeze => "freeze".to_owned(),
            Action::WakeAt(at) => format!("wake at {at}"),
            Action::Answer(Answer::Completed { .. }) => "completed".to_owned(),
            Action::Answer(Answer::Waiting { reason, pending, .. }) => format!("waiting {reason:?} {}", pending.len()),
            Action::Answer(Answer::Failed { failure, .. }) => format!("failed {:?}", failure.code),
            Action::Close => "close".to_owned(),
        })
        .collect()
}

/// Feeds events at their times and compares the actions of each.
fn check(script: Vec<(u64, Event, &[&str])>) -> Cell {
    let mut cell = Cell::started(limits(), 0);
    for (step, (now, event, expected)) in script.into_iter().enumerate() {
        let shown = format!("step {step}: {event:?}");
        assert_eq!(words(&cell.on(event, now)), expected, "{shown}");
    }
    cell
}

#[test]
fn a_cell_that_completes_in_its_first_leg_ends() {
    let cell = check(vec![(3, completed(), &["completed", "close"])]);
    assert!(cell.is_over());
}

#[test]
fn a_settled_call_resumes_the_guest_at_once() {
    check(vec![
        (5, suspended(vec![call(1, Method::Call)]), &["dispatch 1", "wake at 30"]),
        (9, settled(1), &["deliver [1] for 991"]),
        (20, suspended(vec![call(2, Method::Call)]), &["dispatch 2", "wake at 45"]),
        (25, settled(2), &["deliver [2] for 975"]),
        (30, completed(), &["completed", "close"]),
    ]);
}

#[test]
fn a_timeout_names_the_whole_budget_although_the_worker_had_only_the_rest_of_it() {
    let mut cell = Cell::started(limits(), 0);
    cell.on(suspended(vec![call(1, Method::Call)]), 5);
    assert_eq!(words(&cell.on(settled(1), 400)), ["deliver [1] for 600"]);
    let message = "the cell ran for its whole budget of 600 ms".to_owned();
    let actions =
        cell.on(leg(LegEnd::Failed(Failure { code: Some(ErrorCode::Timeout), message, position: None })), 1000);
    let [Action::Answer(Answer::Failed { failure, .. }), Action::Close] = actions.as_slice() else {
        panic!("{actions:?}")
    };
    assert!(failure.message.contains("whole budget of 1000 ms"), "{}", failure.message);
}

#[test]
fn calls_beyond_the_cap_queue_in_order() {
    let calls = (1..=4).map(|id| call(id, Method::Call)).collect();
    check(vec![
        (0, suspended(calls), &["dispatch 1", "dispatch 2", "wake at 25"]),
        (1, settled(2), &["dispatch 3", "deliver [2] for 995"]),
        // Calls continue while a leg runs.
        (2, settled(1), &["dispatch 4"]),
        (3, suspended(vec![]), &["deliver [1] for 990"]),
    ]);
}

#[test]
fn a_cell_that_waits_long_is_frozen_and_thawed_by_a_reply() {
    let cell = check(vec![
        (0, suspended(vec![call(1, Method::Call)]), &["dispatch 1", "wake at 25"]),
        (KEEP_LIVE_MS, Event::Woke, &["freeze"]),
        (26, Event::Froze { bytes: 3000 }, &["wake at 1000"]),
        (90, settled(1), &["deliver [1] for 910"]),
        (95, completed(), &["completed", "close"]),
    ]);
    assert_eq!((cell.snapshots().taken, cell.snapshots().restored), (1, 1));
}

#[test]
fn a_reply_that_comes_while_freezing_is_delivered_after_it() {
    check(vec![
        (0, suspended(vec![call(1, Method::Call)]), &["dispatch 1", "wake at 25"]),
        (25, Event::Woke, &["freeze"]),
        (26, settled(1), &[]),
        (27, Event::Froze { bytes: 1 }, &["deliver [1] for 973"]),
    ]);
}

#[test]
fn exec_answers_waiting_when_its_time_is_over_and_wait_resumes_the_cell() {
    check(vec![
        (0, suspended(vec![call(1, Method::Call)]), &["dispatch 1", "wake at 25"]),
        (25, Event::Woke, &["freeze"]),
        (26, Event::Froze { bytes: 1 }, &["wake at 1000"]),
        (1000, Event::Woke, &["waiting PendingTools 1"]),
        // Between turns results are kept, and nothing runs.
        (1500, settled(1), &[]),
        (2000, Event::Wait, &["deliver [1] for 1000"]),
        (2010, suspended(vec![call(2, Method::Call)]), &["dispatch 2", "wake at 2035"]),
        (2035, Event::Woke, &["freeze"]),
        (2036, Event::Froze { bytes: 1 }, &["wake at 7000"]),
        (7000, Event::Woke, &["waiting PendingTools 1"]),
    ]);
}

#[test]
fn a_yield_ends_the_turn_and_the_next_wait_resolves_it() {
    check(vec![
        (0, suspended(vec![call(1, Method::Yield), call(2, Method::Call)]), &["dispatch 2", "freeze"]),
        (1, settled(2), &[]),
        // The answer comes only after the cell is frozen.
        (2, Event::Froze { bytes: 1 }, &["waiting Yield 1"]),
        (50, Event::Wait, &["deliver [1, 2] for 1000"]),
        (55, suspended(vec![call(3, Method::Yield)]), &["freeze"]),
        (56, Event::Froze { bytes: 1 }, &["waiting Yield 1"]),
        (60, Event::Wait, &["deliver [3] for 1000"]),
        (61, completed(), &["completed", "close"]),
    ]);
}

#[test]
fn timers_are_not_tool_calls() {
    let cleared = leg(LegEnd::Suspended { calls: vec![], cleared: vec![CallId(2)] });
    check(vec![
        (
            0,
            suspended(vec![
                call(1, Method::Timer),
                call(2, Method::Timer),
                call(3, Method::Call),
                call(4, Method::Call),
            ]),
            &["timer 1 in 40", "timer 2 in 40", "dispatch 3", "dispatch 4", "wake at 25"],
        ),
        (10, settled(1), &["deliver [1] for 990"]),
        (11, cleared, &["cancel 2", "wake at 36"]),
        (12, settled(2), &["wake at 36"]),
        (13, settled(3), &["deliver [3] for 987"]),
    ]);
}

#[test]
fn a_turn_ends_when_the_cell_waits_only_for_people_and_clients() {
    let cell = check(vec![
        (0, suspended(vec![call(1, Method::Call), call(2, Method::Call)]), &["dispatch 1", "dispatch 2", "wake at 25"]),
        (5, Event::Parked(CallId(1), PendingState::Approval), &["wake at 25"]),
        (6, Event::Parked(CallId(2), PendingState::Client), &["freeze"]),
        (7, Event::Froze { bytes: 1 }, &["waiting PendingTools 2"]),
    ]);
    assert!(!cell.is_over() && !cell.in_turn() && cell.is_dormant());
}

#[test]
fn calls_of_the_client_go_out_beside_slow_calls_after_their_wait() {
    let mut cell = Cell::started(limits(), 0);
    cell.set_client_wait(Some(200));
    let three = vec![call(1, Method::Call), call(2, Method::Call), call(3, Method::Call)];
    for (now, event, expected) in [
        (0, suspended(three), vec!["dispatch 1", "dispatch 2", "wake at 25"]),
        (5, Event::Parked(CallId(1), PendingState::Client), vec!["dispatch 3", "wake at 25"]),
        (25, Event::Woke, vec!["freeze"]),
        (26, Event::Froze { bytes: 1 }, vec!["wake at 205"]),
        // A later call of the client begins the wait again.
        (100, Event::Parked(CallId(3), PendingState::Client), vec!["wake at 300"]),
        // A call that settles before the freeze resumes the guest first.
        (299, settled(2), vec!["deliver [2] for 701"]),
        (310, suspended(vec![call(4, Method::Call)]), vec!["dispatch 4", "freeze"]),
        (311, Event::Froze { bytes: 1 }, vec!["waiting PendingTools 3"]),
        // The client's results arrive just after the next turn has begun.
        (9_000, Event::Wait, vec!["wake at 9200"]),
        (9_010, settled(1), vec!["deliver [1] for 1000"]),
    ] {
        assert_eq!(words(&cell.on(event, now)), expected, "at {now}");
    }
}

#[test]
fn a_call_that_waits_for_a_person_frees_its_slot_and_is_queued_again_when_decided() {
    let calls = (1..=4).map(|id| call(id, Method::Call)).collect();
    check(vec![
        (0, suspended(calls), &["dispatch 1", "dispatch 2", "wake at 25"]),
        (1, Event::Parked(CallId(1), PendingState::Approval), &["dispatch 3", "wake at 25"]),
        (2, Event::Decided(CallId(1)), &["wake at 25"]),
        (3, settled(2), &["dispatch 4", "deliver [2] for 995"]),
        (4, settled(3), &["resume 1"]),
        // A second decision changes nothing.
        (5, Event::Decided(CallId(1)), &[]),
        (6, settled(1), &[]),
        (7, suspended(vec![]), &["deliver [3, 1] for 990"]),
    ]);
}

#[test]
fn a_cell_whose_time_is_over_answers_only_after_it_is_frozen() {
    check(vec![
        (990, suspended(vec![call(1, Method::Call)]), &["dispatch 1", "wake at 1000"]),
        (1000, Event::Woke, &["freeze"]),
        (1001, Event::Froze { bytes: 1 }, &["waiting PendingTools 1"]),
    ]);
}

#[test]
fn a_cell_from_the_store_continues_where_it_was() {
    let reopened = |id, method, state, worked_on| ReopenedCall {
        call: call(id, method),
        state,
        worked_on,
        decided: false,
        since: 0,
    };
    let open = vec![
        reopened(1, Method::Call, PendingState::Running, true),
        reopened(2, Method::Call, PendingState::Approval, false),
        reopened(3, Method::Call, PendingState::Queued, false),
        reopened(4, Method::Yield, PendingState::Running, false),
    ];
    let mut cell = Cell::resumed(limits(), open, SpentResources::default(), ResumedFrom::Snapshot);
    assert!(!cell.is_dormant());
    for (now, event, expected) in [
        (9000, settled(1), vec!["dispatch 3"]),
        (9001, Event::Wait, vec!["deliver [4, 1] for 1000"]),
        (9002, suspended(vec![]), vec!["wake at 9027"]),
        (9003, settled(3), vec!["deliver [3] for 995"]),
        (9004, suspended(vec![]), vec!["freeze"]),
        (9005, Event::Froze { bytes: 1 }, vec!["waiting PendingTools 1"]),
    ] {
        assert_eq!(words(&cell.on(event, now)), expected, "at {now}");
    }
    assert!(cell.is_dormant());
}

#[test]
fn a_call_that_was_decided_while_its_run_was_suspended_is_resumed_at_once() {
    let asked = |id, decided| ReopenedCall {
        call: call(id, Method::Call),
        state: PendingState::Approval,
        worked_on: false,
        decided,
        since: 0,
    };
    let mut cell = Cell::resumed(
        limits(),
        vec![asked(1, true), asked(2, false)],
        SpentResources::default(),
        ResumedFrom::Snapshot,
    );
    assert!(!cell.is_dormant(), "there is something to do");
    // The turn does not end: one of the two decisions has been made.
    assert_eq!(words(&cell.on(Event::Wait, 9000)), ["resume 1", "wake at 14000"]);
    assert_eq!(words(&cell.on(settled(1), 9001)), ["deliver [1] for 1000"]);
}

#[test]
fn guest_time_is_counted_over_all_legs_of_a_turn() {
    let long = |calls| {
        Event::LegEnded(Leg {
            end: LegEnd::Suspended { calls, cleared: vec![] },
            output: vec![],
            run_us: 600_000,
            memory_bytes: 0,
        })
    };
    let mut cell = Cell::started(limits(), 0);
    cell.on(long(vec![call(1, Method::Call)]), 600);
    // A wait may last longer than `timeoutMs`, but not run longer.
    assert_eq!(words(&cell.on(Event::Woke, 1000)), ["freeze"]);
    assert_eq!(words(&cell.on(Event::Froze { bytes: 1 }, 1001)), ["waiting PendingTools 1"]);
    assert_eq!(words(&cell.on(settled(1), 1002)), [""; 0]);
    assert_eq!(words(&cell.on(Event::Wait, 2000)), ["deliver [1] for 1000"]);
    cell.on(long(vec![call(2, Method::Call)]), 2600);
    assert_eq!(words(&cell.on(settled(2), 2610)), ["deliver [2] for 400"]);
    cell.on(long(vec![call(3, Method::Call)]), 3210);
    assert_eq!(words(&cell.on(settled(3), 3211)), ["failed Some(Timeout)", "close"]);
}

#[test]
fn a_second_wait_joins_the_first() {
    check(vec![
        (0, suspended(vec![call(1, Method::Yield)]), &["freeze"]),
        (1, Event::Froze { bytes: 1 }, &["waiting Yield 1"]),
        (2, Event::Wait, &["deliver [1] for 1000"]),
        (3, Event::Wait, &[]),
        (4, completed(), &["completed", "close"]),
    ]);
}

#[test]
fn abort_and_loss_end_a_cell_in_every_state() {
    let lost = || Event::Lost(Failure { code: Some(ErrorCode::InternalError), message: String::new(), position: None });
    let before: [Vec<(u64, Event)>; 4] = [
        vec![],
        vec![(0, suspended(vec![call(1, Method::Call)]))],
        vec![(0, suspended(vec![call(1, Method::Call)])), (25, Event::Woke)],
        vec![(0, suspended(vec![call(1, Method::Yield)])), (1, Event::Froze { bytes: 1 })],
    ];
    for (number, script) in before.into_iter().enumerate() {
        let mut cell = Cell::started(limits(), 0);
        for (now, event) in script {
            cell.on(event, now);
        }
        let ended = if number % 2 == 0 { cell.on(Event::Abort, 50) } else { cell.on(lost(), 50) };
        let code = if number % 2 == 0 { "failed Some(Aborted)" } else { "failed Some(InternalError)" };
        assert_eq!(words(&ended), [code, "close"], "state {number}");
        // Late events change nothing.
        for late in [settled(1), Event::Woke, Event::Wait, Event::Abort, Event::Froze { bytes: 1 }] {
            let shown = format!("{late:?}");
            assert_eq!(words(&cell.on(late, 60)), [""; 0], "{shown}");
            assert!(cell.is_over(), "{shown}");
        }
    }
}

#[test]
fn a_cell_of_one_turn_waits_for_people_and_its_timeout_names_the_open_calls() {
    let mut cell = Cell::started_for_one_turn(limits(), 0);
    let calls = vec![call(1, Method::Yield), call(2, Method::Call), call(3, Method::Call)];
    for (now, event, expected) in [
        // A yield resolves at once.
        (0, suspended(calls), vec!["dispatch 2", "dispatch 3", "deliver [1] for 995"]),
        (1, Event::Parked(CallId(2), PendingState::Approval), vec![]),
        (2, suspended(vec![]), vec!["wake at 27"]),
        (3, Event::Parked(CallId(3), PendingState::Client), vec!["wake at 27"]),
        (27, Event::Woke, vec!["freeze"]),
        (28, Event::Froze { bytes: 1 }, vec!["wake at 1000"]),
        (400, settled(3), vec!["deliver [3] for 600"]),
        (401, suspended(vec![call(4, Method::Timer)]), vec!["timer 4 in 40", "wake at 426"]),
    ] {
        assert_eq!(words(&cell.on(event, now)), expected, "at {now}");
    }
    let actions = cell.on(Event::Woke, 1000);
    let [Action::Answer(Answer::Failed { failure, .. }), Action::Close] = actions.as_slice() else { panic!() };
    assert_eq!(failure.code, Some(ErrorCode::Timeout));
    let expected = "timed out after 1000 ms: a person has not approved `openclaw:a:b`; a timer has not fired";
    assert_eq!(failure.message, expected);
}

#[test]
fn a_call_that_settles_too_late_does_not_save_a_cell_of_one_turn() {
    let mut cell = Cell::started_for_one_turn(limits(), 0);
    cell.on(suspended(vec![call(1, Method::Call)]), 5);
    assert_eq!(words(&cell.on(settled(1), 1000)), ["failed Some(Timeout)", "close"]);
}

#[test]
fn waiting_lists_what_is_pending() {
    let mut cell = Cell::started(limits(), 0);
    cell.on(suspended((1..=3).map(|id| call(id, Method::Call)).collect()), 10);
    cell.on(Event::Woke, 999);
    let actions = cell.on(Event::Froze { bytes: 1 }, 1000);
    let Some(Action::Answer(Answer::Waiting { reason, pending, .. })) = actions.into_iter().next() else { panic!() };
    assert_eq!(reason, WaitingReason::PendingTools);
    let listed: Vec<_> = pending
        .iter()
        .map(|(_, call)| (call.id.as_str(), call.state, call.since_ms, call.tool_id.as_deref()))
        .collect();
    assert_eq!(
        listed,
        [
            ("bridge:call:1", PendingState::Running, 990, Some("openclaw:a:b")),
            ("bridge:call:2", PendingState::Running, 990, Some("openclaw:a:b")),
            ("bridge:call:3", PendingState::Queued, 990, Some("openclaw:a:b")),
        ]
    );
}

#[test]
fn a_yield_carries_its_reason_bounded() {
    let yields = |payload: &str| HostCall { payload: payload.as_bytes().to_vec(), ..call(1, Method::Yield) };
    let reason = |payload: &str| {
        let mut cell = Cell::started(limits(), 0);
        cell.on(suspended(vec![yields(payload)]), 10);
        let actions = cell.on(Event::Froze { bytes: 1 }, 11);
        let Some(Action::Answer(Answer::Waiting { reason, pending, .. })) = actions.into_iter().next() else {
            panic!()
        };
        assert_eq!(reason, WaitingReason::Yield);
        pending[0].1.reason.clone()
    };
    assert_eq!(reason("\"phase 0 done\"").as_deref(), Some("phase 0 done"));
    for nothing in ["null", "\"\"", "\" \"", "7", "not JSON"] {
        assert_eq!(reason(nothing), None, "{nothing}");
    }
    let long = reason(&format!("\"{}\"", "é".repeat(MAX_YIELD_REASON_CHARS + 1))).unwrap();
    assert_eq!(long.chars().count(), MAX_YIELD_REASON_CHARS + 1);
    assert!(long.ends_with('…'));
}

#[test]
fn a_held_first_turn_waits_longer_for_calls_and_gives_guest_code_its_own_time() {
    let mut cell = Cell::started(limits(), 0).holding_first_turn(4000);
    cell.on(suspended(vec![call(1, Method::Call)]), 5);
    assert_eq!(words(&cell.on(Event::Woke, 5 + KEEP_LIVE_MS)), ["freeze"]);
    assert_eq!(words(&cell.on(Event::Froze { bytes: 1 }, 100)), ["wake at 4000"]);
    // 5 ms of the budget of 1000 ms are spent, whatever the time.
    assert_eq!(words(&cell.on(settled(1), 3900)), ["deliver [1] for 995"]);
    cell.on(suspended(vec![call(2, Method::Call)]), 3910);
    assert_eq!(words(&cell.on(Event::Woke, 4000)), ["freeze"]);
    assert_eq!(words(&cell.on(Event::Froze { bytes: 1 }, 4010)), ["waiting PendingTools 1"]);
}

fn cleared(ids: &[u32]) -> Event {
    leg(LegEnd::Suspended { calls: Vec::new(), cleared: ids.iter().map(|id| CallId(*id)).collect() })
}

#[test]
fn a_leg_that_clears_what_is_not_a_set_timer_fails_the_run() {
    // 1 is a timer; of the calls 2 has settled, 3 waits for a person, 4 and 5 are running, 6 is queued.
    let methods = [Method::Timer, Method::Call, Method::Call, Method::Call, Method::Call, Method::Call];
    let begun = || {
        let mut cell = Cell::started(limits(), 0);
        let calls = (1..).zip(methods).map(|(id, method)| call(id, method)).collect();
        assert_eq!(words(&cell.on(suspended(calls), 0)), ["timer 1 in 40", "dispatch 2", "dispatch 3", "wake at 25"]);
        cell.on(Event::Parked(CallId(3), PendingState::Approval), 1);
        assert_eq!(words(&cell.on(settled(2), 2)), ["dispatch 5", "deliver [2] for 995"]);
        cell
    };
    for ids in [&[2][..], &[3], &[4], &[5], &[6], &[9], &[0], &[1, 1], &[1, 5], &[u32::MAX]] {
        let mut cell = begun();
        let actions = cell.on(cleared(ids), 3);
        let [Action::Answer(Answer::Failed { failure, .. }), Action::Close] = actions.as_slice() else {
            panic!("{ids:?}: {actions:?}")
        };
        assert_eq!(failure.code, Some(ErrorCode::InternalError));
        assert!(failure.message.ends_with("broke the protocol: a call cleared that is not a timer"), "{failure:?}");
    }
    assert_eq!(words(&begun().on(cleared(&[1]), 3)), ["cancel 1", "wake at 28"]);
}

#[test]
fn a_timer_that_fires_while_a_leg_clears_it_is_not_delivered() {
    check(vec![
        (
            0,
            suspended(vec![call(1, Method::Timer), call(2, Method::Call), call(3, Method::Call)]),
            &["timer 1 in 40", "dispatch 2", "dispatch 3", "wake at 25"],
        ),
        (1, settled(2), &["deliver [2] for 995"]),
        (2, settled(1), &[]),
        (3, cleared(&[1]), &["cancel 1", "wake at 28"]),
    ]);
}

#[test]
fn an_id_that_is_used_again_fails_the_run() {
    let again = |ids: &[u32]| suspended(ids.iter().map(|id| call(*id, Method::Call)).collect());
    for ids in [&[1][..], &[2], &[3], &[5, 5], &[6, 5]] {
        let mut cell = Cell::started(limits(), 0);
        cell.on(suspended(vec![call(1, Method::Call), call(3, Method::Call)]), 0);
        cell.on(settled(1), 1);
        assert_eq!(words(&cell.on(again(ids), 2)), ["failed Some(InternalError)", "close"], "{ids:?}");
    }
    // A resumed run knows the ids of calls that settled earlier.
    let spent = || SpentResources { last_call: CallId(7), ..SpentResources::default() };
    for (id, expected) in [(7, "failed Some(InternalError)"), (8, "dispatch 8")] {
        let mut cell = Cell::resumed(limits(), vec![], spent(), ResumedFrom::Replay);
        cell.on(Event::Wait, 0);
        assert_eq!(words(&cell.on(again(&[id]), 1)).first().map(String::as_str), Some(expected));
    }
}

#[test]
fn a_leg_that_exceeds_what_may_be_outstanding_fails_the_run() {
    let large = |id| HostCall { payload: vec![b' '; 15 << 20], ..call(id, Method::Call) };
    let mut cell = Cell::started(limits(), 0);
    cell.on(suspended(vec![large(1), large(2), call(3, Method::Call)]), 0);
    cell.on(settled(2), 1);
    let third = Leg {
        end: LegEnd::Suspended { calls: vec![large(4), large(5)], cleared: vec![] },
        output: vec![],
        run_us: 0,
        memory_bytes: 0,
    };
    assert_eq!(cell.vet(&third), Err("more bytes of calls than a cell may have"));
    let many = suspended((4..1100).map(|id| call(id, Method::Call)).collect());
    assert_eq!(words(&cell.on(many, 2)), ["failed Some(InternalError)", "close"]);
}

#[test]
fn a_cell_that_waits_with_nothing_pending_fails() {
    let nothing = |actions: &[Action]| match actions {
        [.., Action::Answer(Answer::Failed { failure, .. }), Action::Close] => {
            failure.code.is_none() && failure.message.contains("no tool call and no timer")
        }
        _ => false,
    };
    assert!(nothing(&Cell::started(limits(), 0).on(suspended(vec![]), 1)));
    // Its only timer is cleared.
    let mut cell = Cell::started(limits(), 0);
    cell.on(suspended(vec![call(1, Method::Timer), call(2, Method::Call)]), 0);
    cell.on(settled(2), 1);
    assert!(nothing(&cell.on(cleared(&[1]), 2)));
    // It is resumed from the store with nothing open.
    assert!(nothing(
        &Cell::resumed(limits(), vec![], SpentResources::default(), ResumedFrom::Snapshot).on(Event::Wait, 1)
    ));
    // A cell of one turn fails, too.
    assert!(nothing(&Cell::started_for_one_turn(limits(), 0).on(suspended(vec![]), 1)));
}

#[test]
fn a_queued_call_that_was_settled_elsewhere_is_not_dispatched_and_takes_no_slot() {
    let calls = (1..=5).map(|id| call(id, Method::Call)).collect();
    check(vec![
        (0, suspended(calls), &["dispatch 1", "dispatch 2", "wake at 25"]),
        (1, settled(3), &["deliver [3] for 995"]),
        (2, settled(1), &["dispatch 4"]),
        (3, settled(2), &["dispatch 5"]),
    ]);
}

#[test]
fn a_leg_may_output_what_is_left_of_the_stored_budget_and_always_what_a_result_shows() {
    let limits = Limits { output_bytes: 1_000, stored_output_bytes: 100_000, ..limits() };
    let output_of = |stored: u64, shown: &[usize]| {
        let mut cell = Cell::resumed(
            limits,
            Vec::new(),
            SpentResources { stored_output_bytes: stored, ..SpentResources::default() },
            ResumedFrom::Replay,
        );
        cell.on(Event::Wait, 0);
        let mut budgets = Vec::new();
        for (id, bytes) in (1..).zip(shown) {
            let output = vec![OutputItem::Text { text: "x".repeat(bytes - 16) }];
            let end = LegEnd::Suspended { calls: vec![call(id, Method::Call)], cleared: Vec::new() };
            cell.on(Event::LegEnded(Leg { end, output, run_us: 0, memory_bytes: 0 }), 0);
            for action in cell.on(settled(id), 0) {
                if let Action::Deliver { output_bytes, .. } = action {
                    budgets.push(output_bytes);
                }
            }
        }
        budgets
    };
    assert_eq!(output_of(0, &[100, 50_000, 49_900]), [99_900, 49_900, 0]);
    assert_eq!(output_of(40_000, &[100]), [59_900]);
    assert_eq!(output_of(99_500, &[100]), [900]);
    assert_eq!(output_of(500_000, &[100, 900]), [900, 0]);
}
