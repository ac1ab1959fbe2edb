use proptest::prelude::*;
use serde_json::{Value, json};

use super::parse;

#[test]
fn all_of_json5_is_read() {
    let cases = [
        ("", json!({})),
        ("\u{feff} // nothing\n", json!({})),
        ("{}", json!({})),
        ("/*/ {} /*/ {a: 1} /***/", json!({"a": 1})),
        ("{ // a\n a: 1, /* b */ 'b': \"x\", $c_1: [1, 2,], }", json!({"a": 1, "b": "x", "$c_1": [1, 2]})),
        (r"{ ünï\u0063: true }", json!({"ünïc": true})),
        (
            "[+1, -2, .5, 5., 0x1F, -0x10, 1e3, Infinity, -Infinity, NaN]",
            json!([1, -2, 0.5, 5.0, 31, -16, 1000.0, null, null, null]),
        ),
        ("[18446744073709551615, -9223372036854775808]", json!([u64::MAX, i64::MIN])),
        (r#"['it\'s', "\x41\u00e9\ud83d\ude00\ud83d\0\v\q"]"#, json!(["it's", "Aé😀\u{fffd}\0\u{b}q"])),
        ("'one \\\nline, \\\r\nand more'", json!("one line, and more")),
        ("{a: 1, a: 2}", json!({"a": 2})),
        ("null", Value::Null),
    ];
    for (text, expected) in cases {
        assert_eq!(parse(text).unwrap().to_json(), expected, "{text}");
    }
}

#[test]
fn errors_give_the_position_and_not_the_text() {
    let deep = "[".repeat(101);
    let cases = [
        ("{\n  a: hunter2\n}", "line 2, column 6: expected a value; a string needs quotes"),
        ("{ a 1 }", "line 1, column 5: expected `:` after a key"),
        ("{ a: 1 b: 2 }", "line 1, column 8: expected `,` or `}` after a value"),
        ("[1 2]", "line 1, column 4: expected `,` or `]` after a value"),
        ("{ 1a: 2 }", "line 1, column 3: expected a key, in quotes or a plain name"),
        ("{ a: 'x\n' }", "line 1, column 6: this string has no closing quote on its line"),
        ("/* no end", "line 1, column 1: unterminated comment"),
        ("{", "line 1, column 2: expected a key, in quotes or a plain name"),
        ("[1e]", "line 1, column 2: this is not a number"),
        (r"'\1'", "line 1, column 4: unknown escape"),
        ("{} {}", "line 1, column 4: unexpected text after the end of the value"),
        (deep.as_str(), "line 1, column 101: nested deeper than 100 levels"),
    ];
    for (text, expected) in cases {
        assert_eq!(parse(text).unwrap_err().to_string(), expected, "{text}");
    }
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::hash_map(any::<String>(), inner, 0..5).prop_map(|map| json!(map)),
        ]
    })
}

proptest! {
    #[test]
    fn json_is_json5(value in values()) {
        prop_assert_eq!(parse(&value.to_string()).unwrap().to_json(), value.clone());
        let pretty = serde_json::to_string_pretty(&value).unwrap();
        prop_assert_eq!(parse(&pretty).unwrap().to_json(), value);
    }

    #[test]
    fn arbitrary_text_never_panics(text in any::<String>()) {
        drop(parse(&text));
    }

    #[test]
    fn nearly_valid_json5_never_panics(text in r#"[\{\}\[\]:,'"\\/*a0x.+\- \n]{0,40}"#) {
        if let Ok(tree) = parse(&text) {
            prop_assert!(tree.span.end <= text.len());
        }
    }
}
