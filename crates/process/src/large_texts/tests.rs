use proptest::prelude::*;
use serde_json::{Value, json};

use super::{LargeTexts, ScanLimits, SkeletonTooLong, TextSink, marker};

/// Large texts in tests have more than eight bytes.
const LIMITS: ScanLimits = ScanLimits { text: 8, skeleton: 4_096 };

#[derive(Debug, Default, PartialEq, Eq)]
struct Collected {
    texts: Vec<Vec<u8>>,
    escaped: Vec<u64>,
}

impl TextSink for Collected {
    fn begin(&mut self) {
        self.texts.push(Vec::new());
    }

    fn text(&mut self, part: &[u8]) {
        assert!(std::str::from_utf8(part).is_ok());
        self.texts.last_mut().unwrap().extend_from_slice(part);
    }

    fn end(&mut self, escaped: u64) {
        self.escaped.push(escaped);
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Scanned {
    skeleton: String,
    is_valid: bool,
    texts: Vec<String>,
    escaped: Vec<u64>,
}

fn scan<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Result<Scanned, SkeletonTooLong> {
    let mut scanner = LargeTexts::new("marker".to_owned(), LIMITS);
    let mut sink = Collected::default();
    for chunk in chunks {
        scanner.push(chunk, &mut sink)?;
        assert!(scanner.held() <= LIMITS.skeleton);
    }
    let (skeleton, is_valid) = scanner.finish();
    Ok(Scanned {
        skeleton: String::from_utf8_lossy(&skeleton).into_owned(),
        is_valid,
        texts: sink.texts.into_iter().map(|text| String::from_utf8(text).unwrap()).collect(),
        escaped: sink.escaped,
    })
}

fn scan_whole(text: &str) -> Scanned {
    scan([text.as_bytes()]).unwrap()
}

/// Puts the texts back in the places of their markers.
fn put_back(value: &mut Value, texts: &[String]) {
    match value {
        Value::String(text) => {
            if let Some(index) = (0..texts.len()).find(|index| marker("marker", *index) == *text) {
                texts[index].clone_into(text);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| put_back(item, texts)),
        Value::Object(fields) => fields.values_mut().for_each(|field| put_back(field, texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[test]
fn values_are_taken_out_and_keys_and_short_texts_stay() {
    let text = r#"{"a long key":"a long text","b":["12345678","123456789",{"c":"\u0041\n\t"}],"d":1}"#;
    let scanned = scan_whole(text);
    assert_eq!(scanned.skeleton, r#"{"a long key":"marker:0","b":["12345678","marker:1",{"c":"marker:2"}],"d":1}"#);
    assert_eq!(scanned.texts, ["a long text", "123456789", "A\n\t"]);
    assert_eq!((scanned.escaped, scanned.is_valid), (vec![0, 0, 2], true));
}

#[test]
fn every_split_position_gives_the_same_result() {
    let text = r#"{"id":1,"x":["ä€🦀 plain","\ud83e\udd80\u00e4\"\\\/\b\f\n\r\t","\ud83e x \udd80\ud83e\ud83e\udd80 \ud800"],"y":{}}"#;
    let whole = scan_whole(text);
    assert_eq!(
        whole.texts,
        ["ä€🦀 plain", "🦀ä\"\\/\u{8}\u{c}\n\r\t", "\u{fffd} x \u{fffd}\u{fffd}🦀 \u{fffd}"],
        "surrogates without a partner are replaced"
    );
    assert!(whole.is_valid && serde_json::from_str::<Value>(&whole.skeleton).is_ok());
    for first in 0..=text.len() {
        let (before, after) = text.as_bytes().split_at(first);
        assert_eq!(scan([before, after]).unwrap(), whole, "split at {first}");
        for second in 0..=after.len() {
            let (middle, after) = after.split_at(second);
            assert_eq!(scan([before, middle, after]).unwrap(), whole, "split at {first} and {second}");
        }
    }
    assert_eq!(scan(text.as_bytes().chunks(1)).unwrap(), whole);
}

#[test]
fn a_long_text_that_is_not_valid_json_is_recognized_and_its_end_is_found() {
    let invalid: [&[u8]; 8] = [
        b"0123456789\x00",
        b"0123456789\n",
        b"0123456789\xff",
        b"0123456789\xf0\x9f",
        b"0123456789\xe4\\n",
        br"0123456789\x",
        br"0123456789\u12",
        br"0123456789\u00zz",
    ];
    for inside in invalid {
        let text = [b"{\"a\":\"".as_slice(), inside, b"\",\"id\":1}"].concat();
        for size in [1, 2, 5, text.len()] {
            let scanned = scan(text.chunks(size)).unwrap();
            assert_eq!(
                (scanned.skeleton.as_str(), scanned.is_valid),
                (r#"{"a":"marker:0","id":1}"#, false),
                "{inside:?}"
            );
        }
    }
    assert!(!scan([br#"{"a":"0123456789"#.as_slice()]).unwrap().is_valid, "it has not ended");
}

#[test]
fn escaped_nuls_and_quotation_marks_count_as_json_counts_them() {
    let value = Value::from("\0\u{1}\"\\\n\u{7f}/ä".repeat(3));
    let scanned = scan_whole(&json!([value]).to_string());
    let text = &scanned.texts[0];
    assert_eq!(Some(text.as_str()), value.as_str());
    assert_eq!(text.len() as u64 + scanned.escaped[0], value.to_string().len() as u64 - 2);
}

#[test]
fn the_skeleton_is_limited_whatever_it_is_made_of() {
    let over = LIMITS.skeleton + 1;
    let hostile = [
        "[".repeat(over),
        "{".repeat(over),
        "x".repeat(over),
        " ".repeat(over),
        format!(r#"{{"{}":1}}"#, "k".repeat(over)),
        // Texts that are just short enough to stay.
        format!("[{}", r#""12345678","#.repeat(over / 10)),
        // Markers of texts that are just long enough to be taken out.
        format!("[{}", r#""123456789","#.repeat(over / 10)),
    ];
    for text in hostile {
        for size in [1, 1_000, text.len()] {
            assert_eq!(scan(text.as_bytes().chunks(size)), Err(SkeletonTooLong), "{}", &text[..20]);
        }
    }
    let endless = std::iter::once(b"[\"".as_slice()).chain(std::iter::repeat_n(b"xxxxxxxxxxxxxxxx".as_slice(), 10_000));
    let scanned = scan(endless).unwrap();
    assert_eq!((scanned.skeleton.len(), scanned.texts[0].len()), (11, 160_000), "only its sink limits one text");
}

fn json_value() -> impl Strategy<Value = Value> {
    let text = prop_oneof![".{0,12}", "[\\x00-\\x1f\"\\\\/a-z\u{80}-\u{10ffff}]{0,40}"];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        text.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((text.clone(), inner), 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// Writes JSON with some characters escaped that need not be.
fn written(value: &Value, escapes: bool) -> String {
    let text = value.to_string();
    if !escapes {
        return text;
    }
    let escape = |unit: &u16| format!("\\u{unit:04x}");
    let write = |character: char| match character {
        ' '..='~' => character.to_string(),
        _ => character.encode_utf16(&mut [0; 2]).iter().map(escape).collect(),
    };
    text.chars().map(write).collect()
}

proptest! {
    #[test]
    fn any_json_in_any_chunks_is_the_same_json_after_its_texts_are_put_back(
        value in json_value(),
        escapes in any::<bool>(),
        sizes in prop::collection::vec(1_usize..50, 1..10),
    ) {
        let text = written(&value, escapes);
        let mut rest = text.as_bytes();
        let mut sizes = sizes.into_iter().cycle();
        let chunks = std::iter::from_fn(|| {
            let (chunk, later) = rest.split_at(sizes.next().unwrap().min(rest.len()));
            rest = later;
            (!chunk.is_empty()).then_some(chunk)
        });
        let Ok(scanned) = scan(chunks) else { return Ok(()) };
        prop_assert!(scanned.is_valid);
        prop_assert!(scanned.texts.iter().all(|text| !text.is_empty()));
        let mut parsed: Value = serde_json::from_str(&scanned.skeleton).unwrap();
        put_back(&mut parsed, &scanned.texts);
        prop_assert_eq!(parsed, value);
    }
}
