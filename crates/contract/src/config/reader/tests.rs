//! The reader, field by field.

use serde_json::{Value, json};

use super::{ConfigError, ConfigReader, Path, entries, object};
use crate::limits::{Bound, TIMEOUT_MS};

/// Reads `value` as an object at the path `it`, and returns the result and the errors as texts.
fn check<T>(value: &Value, read: impl FnOnce(&mut ConfigReader<'_, '_>) -> T) -> (Option<T>, Vec<String>) {
    let mut errors = Vec::new();
    let read = object(value, &Path::root("it"), &mut errors, read);
    (read, errors.iter().map(ToString::to_string).collect())
}

#[test]
fn flags_are_true_or_false_and_nothing_else() {
    for (value, expected) in [(json!(true), Some(true)), (json!(false), Some(false))] {
        assert_eq!(check(&json!({ "on": value }), |reader| reader.flag("on")), (Some(expected), vec![]));
    }
    assert_eq!(check(&json!({}), |reader| reader.flag("on")), (Some(None), vec![]));
    for (value, found) in [(json!("auto"), "`\"auto\"`"), (json!(1), "`1`"), (Value::Null, "`null`")] {
        let (read, errors) = check(&json!({ "on": value }), |reader| reader.flag("on"));
        assert_eq!(read, Some(None));
        assert_eq!(errors, [format!("`it.on`: expected `true` or `false`, found {found}")]);
    }
}

#[test]
fn numbers_must_be_whole_and_are_clamped() {
    let cases = [
        (json!(100), 100),
        (json!(60_000), 60_000),
        (json!(0), 100),
        (json!(99), 100),
        (json!(60_001), 60_000),
        (json!(u64::MAX), 60_000),
        (json!(1e4), 10_000),
        (json!(1e300), 60_000),
        (json!(-0.0), 100),
    ];
    for (value, expected) in cases {
        let read = check(&json!({ "timeoutMs": value }), |reader| reader.number(&TIMEOUT_MS));
        assert_eq!(read, (Some(Some(expected)), vec![]), "{value}");
    }
    for (value, found) in [
        (json!(-1), "`-1`"),
        (json!(-1e300), "`-1e+300`"),
        (json!(100.5), "`100.5`"),
        (json!("100"), "`\"100\"`"),
        (json!([100]), "a list"),
        (json!(true), "`true`"),
        (Value::Null, "`null`"),
    ] {
        let (read, errors) = check(&json!({ "timeoutMs": value }), |reader| reader.number(&TIMEOUT_MS));
        assert_eq!(read, Some(None));
        assert_eq!(errors, [format!("`it.timeoutMs`: expected a whole number from 100 to 60000, found {found}")]);
    }
}

#[test]
fn choices_are_case_sensitive() {
    let words = [("code", 1), ("tools", 2)];
    let read = |value: Value| check(&json!({ "mode": value }), |reader| reader.choice("mode", &words));
    assert_eq!(read(json!("tools")), (Some(Some(2)), vec![]));
    let expected = "`it.mode`: expected one of `code`, `tools`, found";
    assert_eq!(read(json!("Code")).1, [format!("{expected} `\"Code\"`; did you mean `code`?")]);
    assert_eq!(read(json!(7)).1, [format!("{expected} `7`")]);
    let only = check(&json!({"mode": "all"}), |reader| reader.choice("mode", &[("only", ())]));
    assert_eq!(only.1, ["`it.mode`: expected `only`, found `\"all\"`"]);
}

#[test]
fn lists_report_each_wrong_item_with_its_index() {
    let text = |value: &Value, path: &Path| {
        value.as_str().map(str::to_owned).ok_or_else(|| ConfigError::wrong_value(path, value, "text"))
    };
    let (read, errors) = check(&json!({"names": ["a", 1, "b", {}]}), |reader| reader.list("names", text));
    assert_eq!(read, Some(Some(vec!["a".to_owned(), "b".to_owned()])));
    assert_eq!(errors, ["`it.names[1]`: expected text, found `1`", "`it.names[3]`: expected text, found an object"]);
    let (read, errors) = check(&json!({"names": "a"}), |reader| reader.list("names", text));
    assert_eq!((read, errors), (Some(None), vec!["`it.names`: expected a list, found `\"a\"`".to_owned()]));
}

#[test]
fn keys_that_are_not_read_are_reported_as_unknown() {
    let value = json!({"inner": {"on": 1, "of": true}, "iner": {}, "zebra": 1});
    let (read, errors) = check(&value, |reader| reader.object("inner", |inner| inner.flag("on")));
    assert_eq!(read, Some(Some(None)));
    assert_eq!(
        errors,
        [
            "`it.inner.on`: expected `true` or `false`, found `1`",
            "`it.inner.of`: unknown key; did you mean `on`?",
            "`it.iner`: unknown key; did you mean `inner`?",
            "`it.zebra`: unknown key; known keys are `inner`",
        ]
    );
    assert_eq!(check(&json!([]), |_| ()), (None, vec!["`it`: expected an object, found a list".to_owned()]));
}

#[test]
fn entries_may_have_any_key_that_is_not_blank() {
    let bound = Bound { key: "n", default: 1, range: 0..=9 };
    let mut errors = Vec::new();
    let value = json!({"b": {"n": 2}, "a": {"n": 1}, " ": {"n": 3}, "c": 1});
    let read = entries(&value, &Path::root("it"), &mut errors, |value, path, errors| {
        object(value, path, errors, |reader| reader.number(&bound)).flatten()
    });
    assert_eq!(read.into_iter().collect::<Vec<_>>(), [("a".to_owned(), 1), ("b".to_owned(), 2)]);
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        errors,
        ["`it`: expected keys that are not blank, found `\" \"`", "`it.c`: expected an object, found `1`"]
    );
}
