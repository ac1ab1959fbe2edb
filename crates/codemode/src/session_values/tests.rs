use std::collections::BTreeMap;

use contract::frame::{HostCall, Method};
use contract::ids::{CallId, RunId};
use contract::limits::{MAX_STATE_BYTES, MAX_STATE_KEY_BYTES, MAX_STATE_KEYS, MAX_STATE_VALUE_BYTES};
use executor::UncommittedValue;
use serde_json::json;
use store::{ExpectedVersion, ValueWrite};

use super::{Decision, Freshness, Operation, Refusal, Sizes, conflict};

fn call(function: &str, payload: &str) -> HostCall {
    HostCall { id: CallId(7), method: Method::State, target: function.to_owned(), payload: payload.into() }
}

fn sizes(values: &[(&str, usize)]) -> Sizes {
    let mut sizes = Sizes::default();
    values.iter().for_each(|(key, bytes)| sizes.set(key, *bytes, "v"));
    sizes
}

/// Decides about a call, given uncommitted values (`None` for deleted keys) and the values of the session.
fn decide(
    function: &str,
    payload: &str,
    uncommitted: &[(&str, Option<&str>)],
    sizes: Option<(&Sizes, Freshness)>,
) -> Decision {
    let uncommitted: BTreeMap<&str, UncommittedValue> = uncommitted
        .iter()
        .map(|(key, value)| (*key, UncommittedValue { value: value.map(str::to_owned), version: "cm_1:2".to_owned() }))
        .collect();
    match Operation::read(&call(function, payload)) {
        Ok(operation) => {
            operation.decide(&RunId::new("cm_1"), CallId(7), |key: &str| uncommitted.get(key).cloned(), sizes)
        }
        Err(refusal) => Decision::Refuse(refusal),
    }
}

fn write(key: &str, value: Option<&str>, expected: Option<ExpectedVersion>) -> ValueWrite {
    ValueWrite { key: key.to_owned(), value: value.map(str::to_owned), version: "cm_1:7".to_owned(), expected }
}

#[test]
fn a_value_is_stored_as_the_text_that_the_cell_sent() {
    let known = sizes(&[]);
    // A parsed number would lose its last digits.
    let value = r#"{"n": 12345678901234567890.10, "h": "out_cm_1_l0n0"}"#;
    let decision = decide("store", &format!(r#"["a", {value}]"#), &[], Some((&known, Freshness::Earlier)));
    let reply = r#"{"version":"cm_1:7"}"#.to_owned();
    assert_eq!(decision, Decision::Write { write: write("a", Some(value), None), reply });
}

#[test]
fn a_condition_is_a_version_or_absence_and_is_written_at_once() {
    let known = sizes(&[]);
    let decided =
        |options: &str| decide("store", &format!(r#"["a",1,{options}]"#), &[], Some((&known, Freshness::Earlier)));
    let reply = || r#"{"version":"cm_1:7"}"#.to_owned();
    let version = Some(ExpectedVersion::Version("cm_0:1".to_owned()));
    assert_eq!(
        decided(r#"{"ifVersion":"cm_0:1"}"#),
        Decision::WriteIf { write: write("a", Some("1"), version.clone()), reply: reply() }
    );
    let absent = Some(ExpectedVersion::Absent);
    assert_eq!(
        decided(r#"{"ifVersion":null}"#),
        Decision::WriteIf { write: write("a", Some("1"), absent.clone()), reply: reply() }
    );
    for options in ["{}", "null"] {
        assert_eq!(
            decided(options),
            Decision::Write { write: write("a", Some("1"), None), reply: reply() },
            "{options}"
        );
    }
    for options in [r#"{"ifVersion":1}"#, r#"{"if_version":"cm_0:1"}"#, "1", r#""cm_0:1""#] {
        assert_eq!(decided(options), Decision::Refuse(Refusal::Options), "{options}");
    }
    let forgotten = |options: &str| decide("forget", &format!(r#"["a",{options}]"#), &[], None);
    assert_eq!(
        forgotten(r#"{"ifVersion":"cm_0:1"}"#),
        Decision::WriteIf { write: write("a", None, version), reply: "true".to_owned() }
    );
    assert_eq!(
        forgotten(r#"{"ifVersion":null}"#),
        Decision::WriteIf { write: write("a", None, absent), reply: "false".to_owned() }
    );
}

#[test]
fn a_run_reads_its_own_uncommitted_values_without_the_store() {
    let uncommitted = [("a", Some("[1]")), ("gone", None)];
    let load = |key: &str| decide("load", &json!([key]).to_string(), &uncommitted, None);
    assert_eq!(load("a"), Decision::Reply(r#"{"value":[1],"version":"cm_1:2"}"#.to_owned()));
    assert_eq!(load("gone"), Decision::Reply("null".to_owned()));
    assert_eq!(load("b"), Decision::Load("b".to_owned()));
    let forget = |key: &str| decide("forget", &json!([key]).to_string(), &uncommitted, None);
    assert_eq!(forget("a"), Decision::Write { write: write("a", None, None), reply: "true".to_owned() });
    assert_eq!(forget("gone"), Decision::Reply("false".to_owned()));
}

#[test]
fn keys_and_forget_use_only_what_was_just_read() {
    let known = sizes(&[("b", 2), ("a", 1)]);
    for function in ["keys", "forget"] {
        let payload = r#"["a"]"#;
        assert_eq!(decide(function, payload, &[], Some((&known, Freshness::Earlier))), Decision::Read, "{function}");
        assert_eq!(decide(function, payload, &[], None), Decision::Read, "{function}");
    }
    let fresh = Some((&known, Freshness::Fresh));
    let Decision::Reply(listed) = decide("keys", "[]", &[], fresh) else { panic!("the keys are known") };
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let entry = |key: &str, bytes: usize| json!({"key": key, "version": "v", "bytes": bytes});
    assert_eq!(listed, json!([entry("a", 1), entry("b", 2)]));
    let forgotten = Decision::Write { write: write("a", None, None), reply: "true".to_owned() };
    assert_eq!(decide("forget", r#"["a"]"#, &[], fresh), forgotten);
    assert_eq!(decide("forget", r#"["c"]"#, &[], fresh), Decision::Reply("false".to_owned()));
}

#[test]
fn a_store_beyond_a_limit_of_the_session_is_refused_only_by_what_was_just_read() {
    let names: Vec<String> = (0..MAX_STATE_KEYS).map(|n| format!("k{n}")).collect();
    let full: Vec<(&str, usize)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let full = sizes(&full);
    assert_eq!(decide("store", r#"["new",1]"#, &[], None), Decision::Read);
    assert_eq!(decide("store", r#"["new",1]"#, &[], Some((&full, Freshness::Earlier))), Decision::Read);
    let refused = decide("store", r#"["new",1]"#, &[], Some((&full, Freshness::Fresh)));
    assert_eq!(refused, Decision::Refuse(Refusal::Keys));
    assert!(matches!(decide("store", r#"["k3",1]"#, &[], Some((&full, Freshness::Fresh))), Decision::Write { .. }));

    let heavy = sizes(&[("a", MAX_STATE_BYTES - 10), ("b", 4)]);
    let fresh = Some((&heavy, Freshness::Fresh));
    let refused = decide("store", r#"["c","12345"]"#, &[], fresh);
    assert_eq!(refused, Decision::Refuse(Refusal::SessionBytes { total: MAX_STATE_BYTES + 1 }));
    assert!(matches!(decide("store", r#"["c","1234"]"#, &[], fresh), Decision::Write { .. }));
    // The value that is replaced no longer counts.
    assert!(matches!(decide("store", r#"["b","12345678"]"#, &[], fresh), Decision::Write { .. }));
}

#[test]
fn sizes_follow_writes_and_removals() {
    let mut sizes = sizes(&[("a", 5), ("b", 7)]);
    sizes.set("a", 2, "w");
    assert_eq!((sizes.bytes, sizes.by_key.len()), (9, 2));
    sizes.remove("b");
    sizes.remove("b");
    assert_eq!((sizes.bytes, sizes.by_key.len()), (2, 1));
}

#[test]
fn arguments_that_cannot_be_used_are_refused_with_a_code() {
    let long_key = "k".repeat(MAX_STATE_KEY_BYTES + 1);
    let long_value = "v".repeat(MAX_STATE_VALUE_BYTES - 1);
    let cases = [
        ("store", "[]".to_owned(), "invalid_input"),
        ("store", "not JSON".to_owned(), "invalid_input"),
        ("store", "[1,2]".to_owned(), "invalid_input"),
        ("store", r#"["",2]"#.to_owned(), "invalid_input"),
        ("store", r#"["a\u0000b",2]"#.to_owned(), "invalid_input"),
        ("store", r#"["a\ud800",2]"#.to_owned(), "invalid_input"),
        ("store", r#"["a"]"#.to_owned(), "invalid_input"),
        ("store", json!([long_key, 1]).to_string(), "value_too_large"),
        ("store", json!(["k".repeat(1 << 20), 1]).to_string(), "value_too_large"),
        ("store", json!(["a", long_value]).to_string(), "value_too_large"),
        ("load", "[null]".to_owned(), "invalid_input"),
        ("load", json!([long_key]).to_string(), "value_too_large"),
        ("forget", "[]".to_owned(), "invalid_input"),
        ("clear", "[]".to_owned(), "invalid_input"),
    ];
    for (function, payload, code) in cases {
        let refusal = Operation::read(&call(function, &payload)).unwrap_err();
        assert_eq!(refusal.code(), code, "{function} {refusal}");
    }
    assert_eq!((Refusal::ToolSearch.code(), Refusal::Keys.code()), ("invalid_input", "too_many_keys"));
    let largest = json!(["k".repeat(MAX_STATE_KEY_BYTES), "v".repeat(MAX_STATE_VALUE_BYTES - 2)]).to_string();
    assert!(Operation::read(&call("store", &largest)).is_ok());
}

#[test]
fn a_conflict_names_the_key_and_has_a_code() {
    let reply = conflict(&write("a\"b", Some("1"), Some(ExpectedVersion::Absent)));
    let contract::frame::ReplyValue::Rejected(text) = reply else { panic!("{reply:?}") };
    let error: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!((&error["code"], &error["tool"]), (&json!("version_conflict"), &json!("store")));
    assert_eq!(error["message"], r#"the key "a\"b" exists; load it and decide again"#);
}
