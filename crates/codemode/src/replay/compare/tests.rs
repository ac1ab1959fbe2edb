use contract::cell::{Media, OutputItem};
use contract::error::ErrorCode;
use contract::frame::{Failure, HostCall, Leg, LegEnd, Method, Reply, ReplyValue};
use contract::ids::CallId;
use serde_json::value::RawValue;
use store::{CallRow, CallState, LegEndKind, LegRow, StoredLegEnd, StoredReply};

use super::{Comparison, LegVerdict, has_same_value, recorded_digest, to_journal_end};

fn row(call: u32, leg: i64, target: &str, payload: &str) -> CallRow {
    let reply = Some(StoredReply::Resolved(format!("\"reply {call}\"")));
    let row = CallRow::requested(CallId(call), "call", target, payload.to_owned(), "exec-1", 0);
    CallRow { leg, reply, state: CallState::Delivered, ..row }
}

fn call(id: u32, target: &str, payload: &str) -> HostCall {
    HostCall { id: CallId(id), method: Method::Call, target: target.to_owned(), payload: payload.as_bytes().to_vec() }
}

fn leg(end: LegEnd, texts: &[&str]) -> Leg {
    let output = texts.iter().map(|text| OutputItem::Text { text: (*text).to_owned() }).collect();
    Leg { end, output, run_us: 1, memory_bytes: 1 }
}

fn waits(calls: Vec<HostCall>) -> Leg {
    leg(LegEnd::Suspended { calls, cleared: Vec::new() }, &[])
}

fn returns(value: &str) -> Leg {
    leg(LegEnd::Completed { value: RawValue::from_string(value.to_owned()).unwrap() }, &[])
}

fn ended(leg: i64, replies: Vec<u32>, ran: &Leg) -> LegRow {
    LegRow { ended: Some(to_journal_end(ran)), ..LegRow::begun(leg, 0, replies.into_iter().map(CallId).collect()) }
}

/// Returns the message for a first leg that differs from its record.
fn divergence(before: &Leg, calls: &[CallRow], now: &Leg) -> String {
    let legs = [ended(0, vec![], before), LegRow::begun(1, 0, vec![])];
    Comparison::new(&legs, calls, None).compare_leg(&legs[0], now).unwrap_err().to_string()
}

#[test]
fn a_leg_that_does_the_same_is_the_same() {
    let calls = [row(1, 0, "a:b:c", "{}"), row(2, 0, "a:b:d", "{\"n\":1}"), row(3, 1, "a:b:c", "{}")];
    let first = waits(vec![call(1, "a:b:c", "{}"), call(2, "a:b:d", "{\"n\":1}")]);
    let second = waits(vec![call(3, "a:b:c", "{}")]);
    let legs = [ended(0, vec![], &first), ended(1, vec![2], &second), LegRow::begun(2, 0, vec![CallId(3), CallId(1)])];
    let mut comparison = Comparison::new(&legs, &calls, None);
    assert_eq!(comparison.compare_leg(&legs[0], &first), Ok(LegVerdict::Same));
    let reply =
        |call: u32| Reply { call: CallId(call), value: ReplyValue::Resolved(format!("\"reply {call}\"").into_bytes()) };
    assert_eq!(comparison.take_replies(&legs[1]), Ok(vec![reply(2)]));
    assert_eq!(comparison.compare_leg(&legs[1], &second), Ok(LegVerdict::Same));
    assert_eq!(comparison.take_replies(&legs[2]), Ok(vec![reply(3), reply(1)]));
    // The end of the last leg is not recorded, so it may end in any way.
    assert_eq!(comparison.compare_leg(&legs[2], &returns("1")), Ok(LegVerdict::Unrecorded));
}

#[test]
fn a_leg_that_differs_from_its_record_is_reported_with_leg_and_call() {
    let before = waits(vec![call(1, "a:b:c", "{\"n\":1}"), call(2, "a:b:d", "{}")]);
    let calls = [row(1, 0, "a:b:c", "{\"n\":1}"), row(2, 0, "a:b:d", "{}")];
    for (now, expected) in [
        (
            waits(vec![call(1, "a:b:x", "{\"n\":1}"), call(2, "a:b:d", "{}")]),
            "leg 0, call 1: expected `call` of `a:b:c` with {\"n\":1}, got `call` of `a:b:x` with {\"n\":1}",
        ),
        (
            waits(vec![call(1, "a:b:c", "{\"n\":2}"), call(2, "a:b:d", "{}")]),
            "leg 0, call 1: expected `call` of `a:b:c` with {\"n\":1}, got `call` of `a:b:c` with {\"n\":2}",
        ),
        (
            waits(vec![call(1, "a:b:d", "{}"), call(2, "a:b:c", "{\"n\":1}")]),
            "leg 0, call 1: expected `call` of `a:b:c` with {\"n\":1}, got `call` of `a:b:d` with {}",
        ),
        (waits(vec![call(1, "a:b:c", "{\"n\":1}")]), "leg 0, call 2: expected `call` of `a:b:d` with {}, got a wait"),
        (returns("[1]"), "leg 0, call 1: expected `call` of `a:b:c` with {\"n\":1}, got a return of [1]"),
        (
            waits(vec![call(1, "a:b:c", "{\"n\":1}"), call(2, "a:b:d", "{}"), call(3, "a:b:e", "[]")]),
            "leg 0, call 3: expected a wait without this call, got `call` of `a:b:e` with []",
        ),
    ] {
        assert_eq!(divergence(&before, &calls, &now), expected);
    }
    let failure = Failure { code: Some(ErrorCode::InvalidInput), message: "no".to_owned(), position: None };
    assert_eq!(
        divergence(&waits(vec![]), &[], &leg(LegEnd::Failed(failure), &[])),
        "leg 0: expected a wait, got a failure: no"
    );
}

#[test]
fn recorded_output_must_be_the_same() {
    let end = || LegEnd::Suspended { calls: Vec::new(), cleared: Vec::new() };
    let compare = |before: &[&str], now: &[&str]| divergence(&leg(end(), before), &[], &leg(end(), now));
    assert_eq!(
        compare(&["a", "b"], &["a", "c"]),
        "leg 0: expected an output of 2 items (sha256 8d127b590557), got an output of 2 items: \
         [{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"c\"}]"
    );
    assert!(compare(&["a"], &[]).ends_with(", got no output"));
    assert!(compare(&[], &["a"]).starts_with("leg 0: expected no output, got "));
}

#[test]
fn a_leg_that_is_known_to_have_waited_must_wait_even_if_its_end_is_not_written() {
    let legs = [LegRow::begun(0, 0, vec![]), LegRow::begun(1, 0, vec![])];
    let calls = [row(1, 0, "a:b:c", "{}"), row(2, 1, "a:b:c", "{}")];
    let compare_leg = |last_snapshot_leg: Option<i64>, number: usize, now: &Leg| {
        Comparison::new(&legs, &calls, last_snapshot_leg).compare_leg(&legs[number], now).is_ok()
    };
    let more = waits(vec![call(1, "a:b:c", "{}"), call(9, "a:b:c", "{}")]);
    assert!(!compare_leg(None, 0, &more), "a later leg shows that these were all its calls");
    let last = waits(vec![call(2, "a:b:c", "{}"), call(3, "a:b:c", "{}")]);
    assert!(compare_leg(None, 1, &last), "a crash may have come before the last calls were written");
    assert!(!compare_leg(Some(1), 1, &last), "its snapshot was taken after them");
}

#[test]
fn a_reply_goes_only_to_a_call_that_is_waited_for() {
    let cleared =
        leg(LegEnd::Suspended { calls: vec![call(1, "", "5"), call(2, "", "5")], cleared: vec![CallId(1)] }, &[]);
    let mut calls = [row(1, 0, "", "5"), row(2, 0, "", "5")];
    calls[1].reply = None;
    let legs = [ended(0, vec![], &cleared), LegRow::begun(1, 0, vec![CallId(1)]), LegRow::begun(2, 0, vec![CallId(2)])];
    let mut comparison = Comparison::new(&legs, &calls, None);
    assert_eq!(comparison.compare_leg(&legs[0], &cleared), Ok(LegVerdict::Same));
    assert!(!comparison.waits_for(CallId(1)) && comparison.waits_for(CallId(2)));
    let refused = comparison.take_replies(&legs[1]).unwrap_err();
    assert_eq!((refused.call, refused.happened.as_str()), (Some(CallId(1)), "a cell that does not wait for it"));
    let refused = comparison.take_replies(&legs[2]).unwrap_err();
    assert_eq!(refused.happened, "no reply in the journal");
    // A yield needs no recorded reply.
    calls[1].method = Method::Yield.as_str().to_owned();
    let mut comparison = Comparison::new(&legs, &calls, None).starting_after(0);
    let null = ReplyValue::Resolved(b"null".to_vec());
    assert_eq!(comparison.take_replies(&legs[2]), Ok(vec![Reply { call: CallId(2), value: null }]));
}

#[test]
fn a_timer_that_was_cleared_before_the_snapshot_is_not_open_after_it() {
    let calls = [row(1, 0, "", "5"), CallRow { state: CallState::Cleared, ..row(2, 0, "", "5") }];
    let legs = [LegRow::begun(0, 0, vec![]), LegRow::begun(1, 0, vec![CallId(2)])];
    let mut comparison = Comparison::new(&legs, &calls, Some(0)).starting_after(0);
    assert!(comparison.waits_for(CallId(1)) && !comparison.waits_for(CallId(2)));
    let refused = comparison.take_replies(&legs[1]).unwrap_err();
    assert_eq!((refused.call, refused.happened.as_str()), (Some(CallId(2)), "a cell that does not wait for it"));
}

#[test]
fn the_end_of_a_leg_is_recorded() {
    let ended = |kind| StoredLegEnd { kind, output_digest: String::new() };
    assert_eq!(to_journal_end(&waits(vec![])), ended(LegEndKind::Suspended));
    let returned = to_journal_end(&returns("1"));
    assert_eq!((returned.kind, recorded_digest(&returned)), (LegEndKind::Completed, ""));
}

#[test]
fn a_value_is_compared_by_its_digest_if_the_journal_has_one() {
    let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
    let recorded = to_journal_end(&leg(LegEnd::Completed { value: raw("[1]") }, &["a"]));
    assert_eq!(
        (has_same_value(&recorded, &raw("[1]")), has_same_value(&recorded, &raw("[2]"))),
        (Some(true), Some(false))
    );
    let older = StoredLegEnd { kind: LegEndKind::Completed, output_digest: recorded_digest(&recorded).to_owned() };
    assert_eq!(has_same_value(&older, &raw("[1]")), None);
    // The output of both is compared in the same way.
    for ended in [recorded, older] {
        let legs = [LegRow { ended: Some(ended), ..LegRow::begun(0, 0, vec![]) }];
        let same = Comparison::new(&legs, &[], None)
            .compare_leg(&legs[0], &leg(LegEnd::Completed { value: raw("[1]") }, &["a"]));
        assert_eq!(same, Ok(LegVerdict::Same));
    }
}

#[test]
fn the_data_of_an_image_is_part_of_the_digest() {
    let image = |data: &[u8]| {
        let media = Media { mime_type: "image/png".to_owned(), data: data.into(), handle: None };
        Leg { output: vec![OutputItem::Image(media)], ..returns("1") }
    };
    let message = divergence(&image(&[1]), &[], &image(&[2]));
    assert!(message.contains("an output of 1 items"), "{message}");
}
