use contract::cell::OutputItem;
use contract::frame::{Method, Reader};
use contract::ids::CallId;
use contract::limits::{
    MAX_BRIDGE_VALUE_BYTES, MAX_BRIDGE_VALUE_DEPTH, MAX_JSON_VALUES, MAX_OUTSTANDING_BYTES, MAX_OUTSTANDING_CALLS,
    MAX_TARGET_BYTES,
};

use super::{CLEAR_TIMER, CellHost, EMPTY_ITEM_BYTES, OutstandingCalls, Refusal, Stop, text_of};

/// The numbers of `Method::Call` and `Method::Timer`.
const CALL: i32 = 2;
const TIMER: i32 = 5;

fn violation(result: wasmtime::Result<Option<Refusal>>) -> &'static str {
    match result.unwrap_err().downcast_ref::<Stop>() {
        Some(Stop::ProtocolViolation(what)) => what,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_lone_surrogate_becomes_one_replacement_character() {
    for (bytes, text) in [
        (&b"plain"[..], "plain"),
        (b"a\xED\xA0\x80b\xED\xBF\xBF", "a\u{fffd}b\u{fffd}"),
        (b"\xED\x9F\xBF\xED\xA0\x80", "\u{d7ff}\u{fffd}"),
        (b"cut \xED\xA0", "cut \u{fffd}"),
    ] {
        assert_eq!(text_of(bytes), text);
    }
}

#[test]
fn a_call_is_refused_for_the_limit_it_exceeds() {
    let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
    let values = |count: usize| format!("[{}0]", "0,".repeat(count - 2));
    let cases = [
        (MAX_TARGET_BYTES, "null".to_owned(), None),
        (MAX_TARGET_BYTES + 1, "null".to_owned(), Some(Refusal::TargetBytes)),
        (16 << 20, "null".to_owned(), Some(Refusal::TargetBytes)),
        (1, " ".repeat(MAX_BRIDGE_VALUE_BYTES), None),
        (1, " ".repeat(MAX_BRIDGE_VALUE_BYTES + 1), Some(Refusal::PayloadBytes)),
        (1, nested(MAX_BRIDGE_VALUE_DEPTH), None),
        (1, nested(MAX_BRIDGE_VALUE_DEPTH + 1), Some(Refusal::Depth)),
        (1, values(MAX_JSON_VALUES), None),
        (1, values(MAX_JSON_VALUES + 1), Some(Refusal::Values)),
    ];
    for (target, payload, expected) in cases {
        let mut host = CellHost::idle();
        let refused = host.accept(1, CALL, &vec![b'a'; target], payload.as_bytes()).unwrap();
        assert_eq!(refused, expected, "a target of {target} bytes, a payload of {}", payload.len());
        assert_eq!(host.calls.len(), usize::from(expected.is_none()));
    }
}

#[test]
fn discarded_output_counts_as_many_bytes_as_output_that_is_kept() {
    assert_eq!(OutputItem::Text { text: String::new() }.bytes(), EMPTY_ITEM_BYTES);
}

#[test]
fn a_target_is_measured_after_conversion_to_text() {
    let mut host = CellHost::idle();
    let target = vec![0xFF; MAX_TARGET_BYTES];
    assert_eq!(host.accept(1, CALL, &target, b"null").unwrap(), Some(Refusal::TargetBytes));
}

#[test]
fn outstanding_bytes_are_released_with_the_reply_and_with_a_cleared_timer() {
    let mut host = CellHost::idle();
    let half = " ".repeat(MAX_OUTSTANDING_BYTES / 2 - 1);
    assert_eq!(host.accept(1, CALL, b"a", half.as_bytes()).unwrap(), None);
    assert_eq!(host.accept(2, TIMER, b"a", half.as_bytes()).unwrap(), None);
    assert_eq!(host.accept(3, CALL, b"", b"0").unwrap(), Some(Refusal::OutstandingBytes));
    assert_eq!(host.accept(4, CLEAR_TIMER, b"", b"").unwrap(), None);
    assert_eq!(host.accept(2, CLEAR_TIMER, b"", b"").unwrap(), None);
    assert_eq!(host.accept(5, CALL, b"", half.as_bytes()).unwrap(), None);
    // At the end of a leg the host takes the calls. They count as outstanding until they have a reply.
    host.calls.clear();
    assert_eq!(host.accept(6, CALL, b"", b"too much").unwrap(), Some(Refusal::OutstandingBytes));
    assert!(host.outstanding.remove(1) && !host.outstanding.remove(1));
    assert_eq!(host.accept(7, CALL, b"", b"0").unwrap(), None);
}

#[test]
fn one_call_too_many_is_refused() {
    let mut host = CellHost::idle();
    for id in 1..=MAX_OUTSTANDING_CALLS {
        assert_eq!(host.accept(u32::try_from(id).unwrap(), CALL, b"", b"0").unwrap(), None);
    }
    assert_eq!(host.accept(5000, TIMER, b"", b"0").unwrap(), Some(Refusal::Calls));
}

#[test]
fn a_reused_call_id_stops_the_cell() {
    for reused in [1, 2, 3] {
        let mut host = CellHost::idle();
        host.accept(1, CALL, b"", b"0").unwrap();
        host.accept(3, CALL, b"", b"0").unwrap();
        host.outstanding.remove(3);
        assert_eq!(violation(host.accept(reused, CALL, b"", b"0")), "a call id was reused");
    }
}

#[test]
fn only_a_timer_can_be_cleared() {
    for method in Method::ALL {
        let mut host = CellHost::idle();
        host.accept(1, i32::from(method.number()), b"", b"0").unwrap();
        host.calls.clear();
        let cleared = host.accept(1, CLEAR_TIMER, b"", b"");
        if method == Method::Timer {
            assert_eq!(cleared.unwrap(), None);
            assert_eq!((host.cleared.as_slice(), host.outstanding.calls.len()), (&[CallId(1)][..], 0));
        } else {
            assert_eq!(violation(cleared), "a cleared call is not a timer");
            assert_eq!((host.cleared.len(), host.outstanding.calls.len()), (0, 1), "{method:?}");
        }
    }
}

#[test]
fn outstanding_calls_survive_a_snapshot_and_invalid_ones_are_rejected() {
    let mut outstanding = OutstandingCalls::default();
    for (id, method) in (1..).zip(Method::ALL) {
        outstanding.insert(id, method, 100 * id as usize).unwrap();
    }
    outstanding.remove(6);
    let mut encoded = Vec::new();
    outstanding.write(&mut encoded);
    assert_eq!(OutstandingCalls::read(&mut Reader::new(&encoded)).unwrap(), outstanding);

    let record = |id: u32, method: u8, bytes: u32| [&id.to_le_bytes()[..], &[method], &bytes.to_le_bytes()].concat();
    let is_rejected = |last_id: u32, records: &[Vec<u8>]| {
        let count = u32::try_from(records.len()).unwrap();
        let encoded = [&last_id.to_le_bytes()[..], &count.to_le_bytes(), &records.concat()].concat();
        OutstandingCalls::read(&mut Reader::new(&encoded)).is_err()
    };
    assert!(!is_rejected(2, &[record(1, 2, 5), record(2, 5, 0)]));
    assert!(is_rejected(2, &[record(2, 2, 5), record(1, 5, 0)]), "out of order");
    assert!(is_rejected(1, &[record(2, 2, 5)]), "an id above the highest");
    assert!(is_rejected(2, &[record(1, 9, 5)]), "no such method");
    assert!(is_rejected(1, &[record(1, 2, u32::MAX)]), "more bytes than may be outstanding");
    let many: Vec<_> = (1..=1025).map(|id| record(id, 2, 0)).collect();
    assert!(is_rejected(2000, &many), "more calls than may be outstanding");
}
