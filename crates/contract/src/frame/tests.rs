//! Frames round-trip, and invalid frames are rejected.

use proptest::prelude::*;
use serde_json::value::RawValue;

use super::*;
use crate::cell::{Language, Media, OutputItem};
use crate::config::Languages;
use crate::error::ErrorCode;
use crate::ids::{CallId, CatalogHash, CellId, ImageId, OutputHandle};
use crate::limits::{MAX_LEG_MEDIA_BLOCKS, MAX_LEG_MEDIA_BYTES};

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..200)
}

fn budget() -> impl Strategy<Value = Budget> {
    any::<(u64, u64, u64, u64)>().prop_map(|(run_ms, memory_bytes, output_bytes, clock_us)| Budget {
        run_ms,
        memory_bytes,
        output_bytes,
        clock_us,
    })
}

fn deliver() -> impl Strategy<Value = Deliver> {
    let reply = (any::<u32>(), any::<bool>(), bytes()).prop_map(|(call, rejected, json)| Reply {
        call: CallId(call),
        value: if rejected { ReplyValue::Rejected(json) } else { ReplyValue::Resolved(json) },
    });
    (budget(), prop::collection::vec(reply, 0..5)).prop_map(|(budget, replies)| Deliver { budget, replies })
}

fn to_worker() -> impl Strategy<Value = ToWorker> {
    let cell = any::<u64>().prop_map(CellId);
    let hash = any::<[u8; 32]>().prop_map(CatalogHash);
    prop_oneof![
        (hash.clone(), bytes()).prop_map(|(hash, tables)| ToWorker::Catalog { hash, tables }),
        hash.clone().prop_map(|hash| ToWorker::Forget { hash }),
        (cell.clone(), budget(), hash.clone(), any::<u64>(), any::<bool>(), ".{0,50}").prop_map(
            |(cell, budget, catalog, seed, typed, source)| {
                let language = if typed { Language::TypeScript } else { Language::JavaScript };
                let languages = Languages::of(&[language]).unwrap();
                ToWorker::Start(cell, Start { budget, catalog, seed, language, languages, source })
            }
        ),
        (cell.clone(), deliver()).prop_map(|(cell, deliver)| ToWorker::Deliver(cell, deliver)),
        (cell.clone(), any::<u64>()).prop_map(|(cell, max_bytes)| ToWorker::Freeze { cell, max_bytes }),
        (cell.clone(), hash, bytes(), deliver()).prop_map(|(cell, catalog, snapshot, deliver)| {
            ToWorker::Thaw(cell, Thaw { catalog, snapshot, deliver })
        }),
        cell.prop_map(ToWorker::Drop),
    ]
}

fn leg_end() -> impl Strategy<Value = LegEnd> {
    let method = prop::sample::select(&Method::ALL[..]);
    let call = (any::<u32>(), method, ".{0,20}", bytes()).prop_map(|(id, method, target, payload)| HostCall {
        id: CallId(id),
        method,
        target,
        payload,
    });
    let failure =
        (prop::option::of(0..16_usize), ".{0,50}", any::<bool>()).prop_map(|(code, message, has_position)| Failure {
            code: code.map(|code| ErrorCode::ALL[code]),
            message,
            position: has_position.then_some(SourcePosition { line: 3, column: 9 }),
        });
    prop_oneof![
        any::<i64>().prop_map(|number| LegEnd::Completed { value: json(&number.to_string()) }),
        (prop::collection::vec(call, 0..4), prop::collection::vec(any::<u32>().prop_map(CallId), 0..4))
            .prop_map(|(calls, cleared)| LegEnd::Suspended { calls, cleared }),
        failure.prop_map(LegEnd::Failed),
    ]
}

fn json(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

fn media(mime_type: &str, data: &[u8]) -> Media {
    Media { mime_type: mime_type.to_owned(), data: data.into(), handle: None }
}

/// Sends a leg with this output.
fn decoded(output: Vec<OutputItem>) -> Result<FromWorker, BadFrame> {
    let end = LegEnd::Completed { value: json("1") };
    FromWorker::decode(&FromWorker::Leg(CellId(1), Leg { end, output, run_us: 1, memory_bytes: 1 }).encode()[4..])
}

#[test]
fn media_that_a_worker_must_not_send_are_rejected() {
    let reference = |handle: &str| Media::reference(OutputHandle::new(handle));
    let (handle, long) = ("out_cm_1_l0n0", format!("out_{}_l0n0", "x".repeat(300)));
    assert!(decoded(vec![OutputItem::Image(media("image/png", b"x")), OutputItem::Image(reference(handle))]).is_ok());
    let rejected = [
        OutputItem::Image(media("image/png", b"")),
        OutputItem::Image(media("", b"x")),
        OutputItem::Image(media("audio/wav", b"x")),
        OutputItem::Audio(media("image/png", b"x")),
        OutputItem::Image(media("image/png; a", b"x")),
        OutputItem::Image(reference("cm_1")),
        OutputItem::Image(reference(&long)),
        OutputItem::Image(Media { data: (*b"x").into(), ..reference(handle) }),
        OutputItem::Image(Media { mime_type: "image/png".to_owned(), ..reference(handle) }),
    ];
    for item in rejected {
        assert!(matches!(decoded(vec![item.clone()]), Err(BadFrame::Invalid(_))), "{item:?}");
    }
}

#[test]
fn a_leg_with_too_many_media_or_too_much_of_their_data_is_rejected() {
    let small = OutputItem::Image(media("image/png", b"x"));
    assert!(decoded(vec![small.clone(); MAX_LEG_MEDIA_BLOCKS]).is_ok());
    assert!(decoded(vec![small; MAX_LEG_MEDIA_BLOCKS + 1]).is_err());
    let half = OutputItem::Audio(media("audio/wav", &vec![0; MAX_LEG_MEDIA_BYTES / 2]));
    assert!(decoded(vec![half.clone(), half.clone()]).is_ok());
    assert!(decoded(vec![half.clone(), half, OutputItem::Audio(media("audio/wav", b"x"))]).is_err());
}

proptest! {
    #[test]
    fn frames_to_a_worker_round_trip(frame in to_worker()) {
        prop_assert_eq!(ToWorker::decode(&frame.encode()[4..]), Ok(frame));
    }

    #[test]
    fn leg_frames_round_trip(cell in any::<u64>(), end in leg_end(), text in ".{0,50}", run_us in any::<u64>()) {
        let output = vec![
            OutputItem::Text { text },
            OutputItem::Json { value: json("[1, 2]") },
            OutputItem::Image(media("image/png", &[1, 2])),
            OutputItem::Audio(Media::reference(OutputHandle::new("out_cm_1_l0n0"))),
        ];
        let frame = FromWorker::Leg(CellId(cell), Leg { end, output, run_us, memory_bytes: 1 });
        let encoded = frame.encode();
        let decoded = FromWorker::decode(&encoded[4..]).unwrap();
        prop_assert_eq!(format!("{decoded:?}"), format!("{frame:?}"));
        prop_assert_eq!(decoded.encode(), encoded);
    }

    #[test]
    fn a_truncated_frame_is_rejected(frame in to_worker(), at in any::<prop::sample::Index>()) {
        let encoded = frame.encode();
        let cut = at.index(encoded.len() - 4);
        prop_assert!(ToWorker::decode(&encoded[4..4 + cut]).is_err());
    }

    #[test]
    fn decoding_arbitrary_bytes_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        drop(ToWorker::decode(&bytes));
        drop(FromWorker::decode(&bytes));
    }
}

#[test]
fn other_frames_from_a_worker_round_trip() {
    let hello =
        Hello { image: ImageId([3; 32]), image_bytes: 1 << 20, jail: Jail::Seccomp, slots: 64, page_scan: true };
    let cell = CellId(5);
    let failure = Failure { code: Some(ErrorCode::SnapshotLimitExceeded), message: "x".to_owned(), position: None };
    for frame in [
        FromWorker::Hello(hello),
        FromWorker::Unfit { reason: "no jail".to_owned() },
        FromWorker::Frozen { cell, snapshot: vec![1, 2] },
        FromWorker::NotFrozen { cell, failure },
    ] {
        let decoded = FromWorker::decode(&frame.encode()[4..]).unwrap();
        assert_eq!(format!("{decoded:?}"), format!("{frame:?}"));
    }
}

#[test]
fn a_frame_with_trailing_bytes_is_rejected() {
    let mut encoded = ToWorker::Drop(CellId(1)).encode();
    encoded.push(0);
    assert_eq!(ToWorker::decode(&encoded[4..]), Err(BadFrame::Trailing(1)));
}

#[test]
fn a_false_length_allocates_nothing() {
    let mut buffer = FrameBuffer::default();
    buffer.extend(&u32::try_from(MAX_FRAME_BYTES + 1).unwrap().to_le_bytes());
    assert_eq!(buffer.next_frame(), Err(BadFrame::TooLong(MAX_FRAME_BYTES + 1)));
    let mut buffer = FrameBuffer::default();
    buffer.extend(&u32::try_from(MAX_FRAME_BYTES).unwrap().to_le_bytes());
    assert_eq!(buffer.next_frame(), Ok(None));
}

/// Found by the fuzzer: these frames do not belong to a cell, so their cell id must be 0.
#[test]
fn a_frame_that_belongs_to_no_cell_but_has_a_cell_id_is_rejected() {
    let forget = ToWorker::Forget { hash: CatalogHash([0; 32]) };
    let unfit = FromWorker::Unfit { reason: String::new() };
    for (mut frame, to_worker) in [(forget.encode(), true), (unfit.encode(), false)] {
        frame[5] = 1;
        let refused =
            if to_worker { ToWorker::decode(&frame[4..]).map(drop) } else { FromWorker::decode(&frame[4..]).map(drop) };
        assert_eq!(refused, Err(BadFrame::Invalid("cell")));
    }
}
