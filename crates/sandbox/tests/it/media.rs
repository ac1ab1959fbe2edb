//! `image`, `audio` and `bytes`: valid ones reach the host decoded, all others are errors that the cell can catch.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use contract::cell::{Language, OutputItem};
use contract::frame::{Budget, Deliver, FromWorker, LegEnd, ToWorker};
use contract::limits::MAX_LEG_MEDIA_BLOCKS;
use serde_json::{Value, json};

use crate::lab::{End, Lab, budget, resolve};

fn run(source: &str) -> (End, Vec<String>) {
    run_with(source, budget())
}

fn run_with(source: &str, budget: Budget) -> (End, Vec<String>) {
    let (end, output) = Lab::shared().run_with(source, Language::JavaScript, budget);
    let shown = output.iter().map(|item| match item {
        OutputItem::Image(media) | OutputItem::Audio(media) if media.is_reference() => {
            format!("reference {}", media.handle.as_ref().unwrap())
        }
        OutputItem::Image(media) => format!("image {} {:?}", media.mime_type, media.data),
        OutputItem::Audio(media) => format!("audio {} {:?}", media.mime_type, media.data),
        OutputItem::Text { text } => text.clone(),
        other => panic!("{other:?}"),
    });
    (end, shown.collect())
}

#[test]
fn blocks_data_urls_and_handles_are_output_in_order() {
    let source = "text('a');
        image({ type: 'image', data: 'AQID', mimeType: 'image/png' });
        audio({ data: 'AQI', mimeType: 'audio/wav' });
        image('data:image/gif;base64,/w==');
        image({ type: 'resource', resource: { uri: 'a:b', blob: 'AQ==', mimeType: 'image/webp' } });
        image({ data: new Uint8Array([7, 8]), mimeType: 'image/jpeg' });
        image('out_cm_1_l0n0');
        audio({ type: 'audio', mimeType: 'audio/wav', bytes: 3, handle: 'out_cm_1_c2n0' });
        text('b');
        return image({ data: 'AQID', mimeType: 'image/png' })";
    let (end, shown) = run(source);
    assert_eq!(end, End::Value(json!(null)));
    let expected = [
        "a",
        "image image/png [1, 2, 3]",
        "audio audio/wav [1, 2]",
        "image image/gif [255]",
        "image image/webp [1]",
        "image image/jpeg [7, 8]",
        "reference out_cm_1_l0n0",
        "reference out_cm_1_c2n0",
        "b",
        "image image/png [1, 2, 3]",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn what_is_not_an_image_is_a_type_error_that_the_cell_can_catch() {
    let cases = [
        ("image()", "image() takes a content block"),
        ("image(null)", "image() takes a content block"),
        ("image('AQID')", "image() takes a content block"),
        ("image('data:image/png,x')", "image() takes a content block"),
        ("audio({ type: 'text', text: 'x' })", "audio() takes a content block"),
        (
            "image({ data: 'AQID' })",
            "image() needs the media type of the data in `mimeType`, such as image/png; it is ``",
        ),
        ("image({ data: 'AQID', mimeType: 'audio/wav' })", "image() needs the media type"),
        (
            "audio({ data: 'AQID', mimeType: 'image/png' })",
            "audio() needs the media type of the data in `mimeType`, such as audio/wav",
        ),
        ("image({ data: 'AQID', mimeType: 'image/' + 'x'.repeat(1e6) })", "image() needs the media type"),
        ("image({ data: 'AQID', mimeType: 'image/png\\n' })", "image() needs the media type"),
        ("image({ data: '', mimeType: 'image/png' })", "image() needs data"),
        ("image({ data: 'A', mimeType: 'image/png' })", "the data of image() is not base64"),
        ("image({ data: 'AQ ID', mimeType: 'image/png' })", "the data of image() is not base64"),
        ("image({ data: 'AQI\\ud800', mimeType: 'image/png' })", "the data of image() is not base64"),
        ("image({ data: '\\0'.repeat(8), mimeType: 'image/png' })", "the data of image() is not base64"),
        ("image('out_')", "`out_` is not a handle"),
        ("image('out_' + 'x'.repeat(1e6))", "`out_xxx"),
        ("bytes()", "bytes() takes a content block"),
        ("bytes('out_cm_1_l0n0')", "bytes() takes a content block"),
        ("bytes('???')", "bytes() takes base64"),
    ];
    for (call, expected) in cases {
        let source = format!("try {{ {call}; return 'accepted' }} catch (e) {{ return [e.name, e.code, e.message] }}");
        let (end, shown) = run(&source);
        let End::Value(Value::Array(error)) = &end else { panic!("{call}: {end:?}") };
        assert_eq!((&error[0], &error[1]), (&json!("TypeError"), &json!("invalid_input")), "{call}");
        let message = error[2].as_str().unwrap();
        assert!(message.starts_with(expected) && message.len() < 400, "{call}: {message}");
        assert!(shown.is_empty(), "{call}");
    }
    let (end, _) = run("image({ data: '?', mimeType: 'image/png' })");
    assert!(matches!(end, End::Failed(None, text) if text.starts_with("TypeError: the data of image() is not base64")));
}

#[test]
fn a_flood_of_media_is_refused_and_the_cell_goes_on() {
    let flood = |make: &str| {
        format!("let n = 0; try {{ for (;;) {{ {make}; n++ }} }} catch (e) {{ return [n, e.name, e.code, e.message] }}")
    };
    let (end, shown) = run(&flood("image({ data: 'AQID', mimeType: 'image/png' })"));
    let message = "a cell can output at most 256 images and sounds at a time; choose the most useful ones";
    assert_eq!(end, End::Value(json!([MAX_LEG_MEDIA_BLOCKS, "RangeError", "value_too_large", message])));
    assert_eq!(shown.len(), MAX_LEG_MEDIA_BLOCKS);
    let (end, shown) = run(&flood("image('out_cm_1_l0n0')"));
    assert!(matches!(end, End::Value(_)) && shown.len() == MAX_LEG_MEDIA_BLOCKS);

    // The data is bounded by the budget for stored output, not by memory.
    let budget = Budget { output_bytes: 4 << 20, ..budget() };
    let (end, shown) = run_with(
        &format!("const data = 'A'.repeat(4 << 18); {}", flood("audio({ data, mimeType: 'audio/wav' })")),
        budget,
    );
    let message = "the cell's images and sounds take 4718592 bytes, the limit is 4194304; choose fewer or smaller ones";
    assert_eq!(end, End::Value(json!([5, "RangeError", "value_too_large", message])));
    assert_eq!(shown.len(), 5);
    // One that alone exceeds it is not decoded.
    let (end, shown) = run_with("image({ data: 'A'.repeat(8 << 20), mimeType: 'image/png' })", budget);
    assert!(matches!(end, End::Failed(None, text) if text.contains("the limit is 4194304")));
    assert!(shown.is_empty());
}

#[test]
fn bytes_decodes_blocks_and_text() {
    let source = "const b = bytes({ type: 'image', data: 'AQID', mimeType: 'image/png' });
        return [b instanceof Uint8Array, [...b], [...bytes('AQI')], [...bytes('data:a/b;base64,/w==')], [...bytes({ blob: 'AQ==' })],
                bytes(b) === b, bytes(btoa('x'.repeat(3e6))).length]";
    assert_eq!(run(source).0, End::Value(json!([true, [1, 2, 3], [1, 2], [255], [1], true, 3_000_000])));
}

/// Runs a cell that gets an image of 4 MiB as an MCP content block, and returns by how many bytes its heap has grown.
fn heap_growth(lab: &Lab, block: &Value, then: &str) -> u64 {
    let cell = lab.new_cell();
    let budget = Budget { output_bytes: 8 << 20, ..budget() };
    let source = format!("const block = await tools.call('a:b:c'); {then}; await tools.call('a:b:c')");
    let started = lab.start_with(cell, &source, Language::JavaScript, budget);
    let LegEnd::Suspended { calls, .. } = &started.end else { panic!("{:?}", started.end) };
    let replies = vec![resolve(calls[0].id, block)];
    let resumed = lab.handle(ToWorker::Deliver(cell, Deliver { budget, replies }));
    let Some(FromWorker::Leg(_, resumed)) = resumed else { panic!("{resumed:?}") };
    assert!(matches!(resumed.end, LegEnd::Suspended { .. }), "{then}: {:?}", resumed.end);
    resumed.memory_bytes - started.memory_bytes
}

#[test]
fn an_image_takes_less_memory_as_base64_than_if_its_bytes_are_kept_instead() {
    let data = BASE64_STANDARD.encode(vec![7; 4 << 20]);
    let block = json!({"type": "image", "data": data, "mimeType": "image/png"});
    let growth = |then: &str| heap_growth(&Lab::new(2), &block, then);
    let unread = growth("");
    // The reply and the text that is parsed from it. Output copies no more into the heap.
    assert!(unread < 11 << 20, "{unread}");
    assert_eq!((growth("block.data.length"), growth("image(block)")), (unread, unread));
    // What a block that encodes its data when it is read would have to keep.
    let as_bytes = growth("globalThis.kept = bytes(block); delete block.data");
    assert!(as_bytes >= unread + (4 << 20), "{as_bytes} {unread}");
}
