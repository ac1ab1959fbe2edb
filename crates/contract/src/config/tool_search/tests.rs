//! Reading `tools.toolSearch`: what enables it, the limits of its numbers, and errors.

use serde_json::{Value, json};

use super::{PartialConfig, Path, ToolSearch, ToolSearchMode};
use crate::config::SearchLimits;

/// Reads the configuration, and returns it with defaults applied, or the texts of all errors.
fn read(value: &Value) -> Result<ToolSearch, Vec<String>> {
    let mut errors = Vec::new();
    let given = PartialConfig::read(value, &Path::root("toolSearch"), &mut errors);
    if errors.is_empty() { Ok(given.resolve()) } else { Err(errors.iter().map(ToString::to_string).collect()) }
}

/// The configuration in which only `enabled` and `mode` may differ from the defaults.
fn defaults_with(enabled: bool, mode: ToolSearchMode) -> ToolSearch {
    ToolSearch { enabled, mode, code_timeout_ms: 10_000, search: SearchLimits { default: 8, max: 20 } }
}

#[test]
fn any_field_enables_tool_search_unless_enabled_is_false() {
    let cases = [
        (json!(true), true, ToolSearchMode::Code),
        (json!(false), false, ToolSearchMode::Code),
        (json!({}), false, ToolSearchMode::Code),
        (json!({"enabled": true}), true, ToolSearchMode::Code),
        (json!({"enabled": false}), false, ToolSearchMode::Code),
        (json!({"mode": "tools"}), true, ToolSearchMode::Tools),
        (json!({"mode": "code"}), true, ToolSearchMode::Code),
        (json!({"codeTimeoutMs": 10_000}), true, ToolSearchMode::Code),
        (json!({"searchDefaultLimit": 8}), true, ToolSearchMode::Code),
        (json!({"maxSearchLimit": 20}), true, ToolSearchMode::Code),
        (json!({"enabled": false, "mode": "tools", "maxSearchLimit": 20}), false, ToolSearchMode::Tools),
    ];
    for (value, enabled, mode) in cases {
        assert_eq!(read(&value), Ok(defaults_with(enabled, mode)), "{value}");
    }
    assert_eq!(PartialConfig::default().resolve(), defaults_with(false, ToolSearchMode::Code));
}

#[test]
fn every_number_has_its_default_and_is_clamped() {
    /// A key, its default, its least and largest value, and how to get it from the configuration.
    type Field = (&'static str, u64, u64, u64, fn(&ToolSearch) -> u64);
    let fields: [Field; 3] = [
        ("codeTimeoutMs", 10_000, 1_000, 60_000, |search| search.code_timeout_ms),
        ("searchDefaultLimit", 8, 1, 20, |search| search.search.default),
        ("maxSearchLimit", 20, 1, 50, |search| search.search.max),
    ];
    for (key, default, least, most, get) in fields {
        assert_eq!(get(&read(&json!({})).unwrap()), default, "{key}");
        for (given, expected) in [(0, least), (least - 1, least), (least, least), (most, most), (most + 1, most)] {
            assert_eq!(get(&read(&json!({ key: given })).unwrap()), expected, "{key}: {given}");
        }
        for value in [json!(-1), json!(0.5), json!("9")] {
            assert_eq!(read(&json!({ key: value })).unwrap_err().len(), 1, "{key}");
        }
    }
    let both = read(&json!({"searchDefaultLimit": 60, "maxSearchLimit": 50})).unwrap();
    assert_eq!(both.search, SearchLimits { default: 50, max: 50 });
    let narrow = read(&json!({"maxSearchLimit": 3})).unwrap();
    assert_eq!(narrow.search, SearchLimits { default: 3, max: 3 });
}

#[test]
fn wrong_values_and_keys_are_all_reported_at_once() {
    let cases = [
        (json!("code"), vec!["`toolSearch`: expected `true`, `false` or an object, found `\"code\"`"]),
        (Value::Null, vec!["`toolSearch`: expected `true`, `false` or an object, found `null`"]),
        (
            json!({"enabled": 1, "mode": "tool", "codeTimeoutMs": "1s", "timeoutMs": 1000, "sources": ["mcp"]}),
            vec![
                "`toolSearch.enabled`: expected `true` or `false`, found `1`",
                "`toolSearch.mode`: expected one of `code`, `tools`, found `\"tool\"`; did you mean `tools`?",
                "`toolSearch.codeTimeoutMs`: expected a whole number from 1000 to 60000, found `\"1s\"`",
                "`toolSearch.timeoutMs`: unknown key; did you mean `codeTimeoutMs`?",
                "`toolSearch.sources`: unknown key; known keys are `enabled`, `mode`, `codeTimeoutMs`, \
                 `searchDefaultLimit`, `maxSearchLimit`",
            ],
        ),
    ];
    for (value, errors) in cases {
        assert_eq!(read(&value), Err(errors.into_iter().map(str::to_owned).collect()), "{value}");
    }
}
