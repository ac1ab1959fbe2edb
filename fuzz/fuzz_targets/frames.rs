//! Fuzzes the decoding of frames: a frame that decodes encodes to the same bytes, and nothing panics.
#![no_main]

use contract::frame::{FrameBuffer, FromWorker, ToWorker};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // As one frame, in both directions.
    if let Ok(frame) = ToWorker::decode(bytes) {
        assert_eq!(&frame.encode()[4..], bytes);
    }
    if let Ok(frame) = FromWorker::decode(bytes) {
        // The input's JSON may have other white space, so compare after encoding once.
        let again = frame.encode();
        let twice = FromWorker::decode(&again[4..]).map(|frame| frame.encode());
        assert_eq!(twice.ok(), Some(again));
    }
    // As a stream, in one piece and in chunks.
    let mut whole = FrameBuffer::default();
    whole.extend(bytes);
    let mut cut = FrameBuffer::default();
    let (mut from_whole, mut from_cut) = (Vec::new(), Vec::new());
    while let Ok(Some(frame)) = whole.next_frame() {
        from_whole.push(frame.to_vec());
    }
    for chunk in bytes.chunks(7) {
        cut.extend(chunk);
        while let Ok(Some(frame)) = cut.next_frame() {
            from_cut.push(frame.to_vec());
        }
    }
    assert_eq!(from_whole, from_cut);
});
