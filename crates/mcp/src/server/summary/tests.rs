use contract::limits::{
    HOST_STACK_BYTES, MAX_BRIDGE_VALUE_DEPTH, MAX_FORM_ARGUMENT_CHARS, MAX_JSON_VALUES, MAX_LISTED_ARGUMENT_CHARS,
    MAX_TERMINAL_ARGUMENT_CHARS,
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{Summary, summarize_arguments, summarize_in_line, whole_arguments};

fn form(value: &Value) -> Summary {
    let summary = summarize_arguments(value, MAX_FORM_ARGUMENT_CHARS);
    assert!(summary.text.chars().count() <= MAX_FORM_ARGUMENT_CHARS, "{}", summary.text);
    summary
}

#[test]
fn arguments_that_fit_are_shown_as_indented_json() {
    let value = json!({"to": "main", "list": [1, true, null], "none": {}, "in": {"a": -1.5}});
    let summary = form(&value);
    assert_eq!(summary.text, serde_json::to_string_pretty(&value).unwrap());
    assert!(!summary.is_cut);
    let line = summarize_in_line(&value, 200);
    assert_eq!(line.text, r#"{ "to": "main", "list": [ 1, true, null ], "none": {}, "in": { "a": -1.5 } }"#);
}

#[test]
fn a_long_value_is_cut_and_hides_no_other_whatever_the_order() {
    let long = "tidy up ".repeat(300);
    let cases = [
        json!({"note": long, "target": "/home/me/everything"}),
        json!({"target": "/home/me/everything", "note": long}),
        json!({"a": long, "b": long, "c": long, "target": "/home/me/everything", "d": long}),
        json!({"list": vec![long.as_str(); 100], "target": "/home/me/everything"}),
        json!({"nested": {"deep": {"note": long, "list": (0..5000).collect::<Vec<_>>()}}, "target": "/home/me/everything"}),
        json!({"options": {"note": long, "target": "/home/me/everything"}}),
        json!({"options": [{"note": long, "target": "/home/me/everything"}]}),
        json!({"note": "\u{202e}".repeat(5000), "target": "/home/me/everything"}),
        json!({"x".repeat(100_000): 1, "target": "/home/me/everything"}),
    ];
    for value in cases {
        let summary = form(&value);
        assert!(summary.text.contains(r#""target": "/home/me/everything""#), "{}", summary.text);
        assert!(summary.is_cut);
        let everything = whole_arguments(&value);
        assert!(everything.contains(r#""target": "/home/me/everything""#));
        assert!(!everything.contains("missing"), "{everything}");
    }
}

#[test]
fn a_cut_says_how_much_is_missing() {
    let text = summarize_arguments(&json!({"note": "0123456789".repeat(100)}), 100).text;
    let shown: String = text.split('"').skip(3).step_by(2).collect();
    let missing = format!(" … {} characters missing … ", 1000 - shown.len());
    assert!(text.contains(&missing) && text.ends_with("56789\"\n}"), "{text}");
    let list = form(&json!({"list": (0..1000).collect::<Vec<_>>()})).text;
    let shown = list.lines().filter(|line| line.trim_start().starts_with(|first: char| first.is_ascii_digit())).count();
    assert!(shown > 50 && list.contains(&format!("… {} more entries", 1000 - shown)), "{list}");
    let tight = summarize_arguments(&json!({"a": "x".repeat(500), "b": [1, 2, 3], "c": {"d": "x".repeat(500)}}), 90);
    assert!(tight.text.contains("\"a\": (text of 500 characters)"), "{}", tight.text);
}

#[test]
fn keys_that_do_not_fit_are_counted() {
    for number in [40, 200, 1_000, 50_000] {
        let fields: Map<String, Value> = (0..number).map(|key| (format!("k{key}"), json!("x".repeat(50)))).collect();
        let summary = form(&Value::Object(fields));
        let named = (0..number).filter(|key| summary.text.contains(&format!("\"k{key}\""))).count();
        assert!(summary.is_cut);
        if named < number {
            assert!(named > 200, "{}", summary.text);
            assert!(summary.text.contains(&format!("… {} more key", number - named)), "{}", summary.text);
        }
    }
}

#[test]
fn a_value_cannot_pretend_to_be_another_key_or_a_cut() {
    let summary =
        form(&json!({"a": "x\", \"target\": \"/tmp\n", "b\": 1, \"c": 2, "d": "\" … 5 characters missing … \""}));
    assert_eq!(
        summary.text,
        "{\n  \"a\": \"x\\\", \\\"target\\\": \\\"/tmp\\n\",\n  \"b\\\": 1, \\\"c\": 2,\n  \
         \"d\": \"\\\" … 5 characters missing … \\\"\"\n}"
    );
}

#[test]
fn invisible_characters_are_escaped() {
    for letter in
        ['\u{202e}', '\u{200b}', '\u{2066}', '\u{9b}', '\u{1b}', '\u{feff}', '\u{e0041}', '\u{a0}', '\u{3164}']
    {
        let value = json!({ format!("k{letter}"): format!("a{letter}b") });
        let escape = format!("\\u{{{:x}}}", u32::from(letter));
        let expected = format!("{{\n  \"k{escape}\": \"a{escape}b\"\n}}");
        assert_eq!((form(&value).text, whole_arguments(&value)), (expected.clone(), expected));
    }
    assert_eq!(whole_arguments(&json!("äß 日本")), "\"äß 日本\"");
}

/// Generates any JSON, often with long texts, long keys and many entries.
fn any_value() -> impl Strategy<Value = Value> {
    let text =
        prop_oneof![any::<String>(), "[a-z\u{202e}\u{200b}\" \\n]{0,40}", (0_usize..5000).prop_map(|n| "é".repeat(n))];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 300, 40, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..40).prop_map(Value::from),
            prop::collection::vec((text.clone(), inner), 0..40)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn a_summary_stays_within_its_budget_and_names_every_key_or_says_that_some_are_missing(
        value in any_value(),
        budget in prop_oneof![
            80_usize..4_000,
            Just(MAX_FORM_ARGUMENT_CHARS),
            Just(MAX_TERMINAL_ARGUMENT_CHARS),
            Just(MAX_LISTED_ARGUMENT_CHARS)
        ],
    ) {
        for summary in [summarize_arguments(&value, budget), summarize_in_line(&value, budget)] {
            prop_assert!(summary.text.chars().count() <= budget, "{} > {budget}: {}", summary.text.chars().count(), summary.text);
            let steers = |letter: char| (letter.is_control() && letter != '\n') || super::is_invisible(letter);
            prop_assert!(!summary.text.contains(steers), "{}", summary.text);
            if !summary.is_cut {
                prop_assert!(!summary.text.contains("(text of") || value.to_string().contains("(text of"));
            }
            let Some(fields) = value.as_object() else { continue };
            let unnamed = fields.keys().filter(|key| !summary.text.contains(&super::name(key, super::MAX_KEY_CHARS).0)).count();
            let counted = summary.text.contains("more key") || summary.text.starts_with("(object of");
            prop_assert!(unnamed == 0 || (summary.is_cut && counted), "{unnamed} unnamed: {}", summary.text);
        }
        let summary = summarize_arguments(&value, usize::MAX);
        prop_assert!(summary.is_cut || summary.text == whole_arguments(&value));
    }
}

#[test]
fn arguments_of_the_greatest_depth_and_size_are_shown_on_a_hosts_stack() {
    let deep = (0..MAX_BRIDGE_VALUE_DEPTH / 2).fold(json!("bottom"), |inner, _| json!({ "a": [inner] }));
    let wide =
        json!({"text": "\u{202e}é".repeat(1 << 20), "list": vec![json!([0]); MAX_JSON_VALUES / 2], "target": "t"});
    let show = move || {
        assert!(form(&deep).is_cut && whole_arguments(&deep).contains("\"bottom\""));
        assert!(form(&wide).text.contains("\"target\": \"t\""));
    };
    std::thread::Builder::new().stack_size(HOST_STACK_BYTES).spawn(show).unwrap().join().unwrap();
}
