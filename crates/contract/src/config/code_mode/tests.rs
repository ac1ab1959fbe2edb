//! `tools.codeMode`, field by field.

use serde_json::{Value, json};

use super::{CodeMode, Languages, NUMBERS, PartialConfig, Path};
use crate::cell::Language;
use crate::config::SearchLimits;
use crate::limits::Limits;

fn read(value: &Value) -> Result<CodeMode, Vec<String>> {
    let mut errors = Vec::new();
    let given = PartialConfig::read(value, &Path::root("codeMode"), &mut errors);
    if errors.is_empty() { Ok(given.resolve()) } else { Err(errors.iter().map(ToString::to_string).collect()) }
}

fn defaults(switch: Option<bool>) -> CodeMode {
    CodeMode {
        enabled: switch == Some(true),
        switch,
        languages: Languages::ALL,
        limits: Limits {
            timeout_ms: 10_000,
            max_wait_ms: 45_000,
            memory_bytes: 67_108_864,
            output_bytes: 65_536,
            snapshot_bytes: 10_485_760,
            pending_calls: 16,
            stored_output_bytes: 16_777_216,
            media_blocks: 8,
            media_bytes: 5_242_880,
        },
        has_own_timeout: false,
        search: SearchLimits { default: 8, max: 50 },
        snapshot_ttl_seconds: 900,
        max_live_runs: 10_000,
    }
}

#[test]
fn only_enabled_true_switches_code_mode_on() {
    let cases = [
        (json!(true), Some(true)),
        (json!(false), Some(false)),
        (json!({}), None),
        (json!({"enabled": true}), Some(true)),
        (json!({"enabled": false}), Some(false)),
        (json!({"runtime": "quickjs-wasi"}), None),
        (json!({"mode": "only", "maxWaitMs": 45_000}), None),
        (json!({"enabled": true, "runtime": "quickjs-wasi", "mode": "only"}), Some(true)),
    ];
    for (value, switch) in cases {
        assert_eq!(read(&value), Ok(defaults(switch)), "{value}");
    }
    assert_eq!(PartialConfig::default().resolve(), defaults(None));
}

#[test]
fn an_agents_switch_replaces_the_global_one_and_an_object_without_it_keeps_it() {
    let given = |value: Value| PartialConfig::read(&value, &Path::root("codeMode"), &mut Vec::new());
    for (agent, global, switch) in [
        (json!(true), json!(false), Some(true)),
        (json!({"timeoutMs": 500}), json!(false), Some(false)),
        (json!({"timeoutMs": 500}), json!({}), None),
    ] {
        assert_eq!(given(agent).merged_over(&given(global)).resolve().switch, switch);
    }
}

#[test]
fn a_configured_timeout_is_told_from_the_default() {
    for (value, is_own) in [(json!(true), false), (json!({"timeoutMs": 10_000}), true)] {
        assert_eq!(read(&value).map(|mode| mode.has_own_timeout), Ok(is_own), "{value}");
    }
}

/// Key, default, minimum, maximum, and the field that the number is stored in.
type Field = (&'static str, u64, u64, u64, fn(&CodeMode) -> u64);

const FIELDS: [Field; 13] = [
    ("timeoutMs", 10_000, 100, 60_000, |mode| mode.limits.timeout_ms),
    ("maxWaitMs", 45_000, 100, 600_000, |mode| mode.limits.max_wait_ms),
    ("memoryLimitBytes", 67_108_864, 1_048_576, 1_073_741_824, |mode| mode.limits.memory_bytes),
    ("maxOutputBytes", 65_536, 1_024, 10_485_760, |mode| mode.limits.output_bytes),
    ("maxStoredOutputBytes", 16_777_216, 65_536, 67_108_864, |mode| mode.limits.stored_output_bytes),
    ("maxMediaBlocks", 8, 0, 64, |mode| mode.limits.media_blocks),
    ("maxMediaBytes", 5_242_880, 0, 33_554_432, |mode| mode.limits.media_bytes),
    ("maxSnapshotBytes", 10_485_760, 1_024, 268_435_456, |mode| mode.limits.snapshot_bytes),
    ("maxPendingToolCalls", 16, 1, 128, |mode| mode.limits.pending_calls),
    ("snapshotTtlSeconds", 900, 1, 86_400, |mode| mode.snapshot_ttl_seconds),
    ("searchDefaultLimit", 8, 1, 50, |mode| mode.search.default),
    ("maxSearchLimit", 50, 1, 50, |mode| mode.search.max),
    ("maxLiveRuns", 10_000, 1, 1_000_000, |mode| mode.max_live_runs),
];

#[test]
fn every_number_has_its_default_and_is_clamped() {
    assert_eq!(FIELDS.map(|field| field.0).len(), NUMBERS.len());
    for (key, default, least, most, get) in FIELDS {
        assert_eq!(get(&read(&json!({})).unwrap()), default, "{key}");
        let inside = u64::midpoint(least, most);
        for (given, expected) in [
            (0, least),
            (least.saturating_sub(1), least),
            (least, least),
            (inside, inside),
            (most, most),
            (most + 1, most),
        ] {
            let mode = read(&json!({ key: given })).unwrap();
            assert_eq!(get(&mode), expected, "{key}: {given}");
            assert_eq!(mode.limits, mode.limits.clamped(), "{key}: {given}");
        }
    }
}

#[test]
fn an_invalid_number_is_an_error_even_if_code_mode_is_off() {
    for (key, _, least, most, _) in FIELDS {
        for (value, found) in [
            (json!(-1), "`-1`"),
            (json!(1.5), "`1.5`"),
            (json!("900"), "`\"900\"`"),
            (Value::Null, "`null`"),
            (json!({}), "an object"),
        ] {
            let expected = format!("`codeMode.{key}`: expected a whole number from {least} to {most}, found {found}");
            assert_eq!(read(&json!({ key: value })), Err(vec![expected]));
        }
    }
}

#[test]
fn the_default_search_limit_is_at_most_the_maximum() {
    let cases = [
        (json!({"maxSearchLimit": 5}), 5, 5),
        (json!({"maxSearchLimit": 1, "searchDefaultLimit": 50}), 1, 1),
        (json!({"searchDefaultLimit": 30}), 30, 50),
        (json!({"searchDefaultLimit": 30, "maxSearchLimit": 20}), 20, 20),
        (json!({"searchDefaultLimit": 0, "maxSearchLimit": 0}), 1, 1),
    ];
    for (value, default, max) in cases {
        assert_eq!(read(&value).unwrap().search, SearchLimits { default, max }, "{value}");
    }
}

#[test]
fn languages_are_a_nonempty_subset() {
    let cases = [
        (json!(["javascript", "typescript"]), true, true),
        (json!(["typescript", "javascript"]), true, true),
        (json!(["javascript"]), true, false),
        (json!(["typescript", "typescript"]), false, true),
    ];
    for (languages, javascript, typescript) in cases {
        let allowed = read(&json!({ "languages": languages })).unwrap().languages;
        assert_eq!(allowed.allow(Language::JavaScript), javascript, "{languages}");
        assert_eq!(allowed.allow(Language::TypeScript), typescript, "{languages}");
    }
    let word = "expected one of `javascript`, `typescript`, found";
    let cases = [
        (
            json!([]),
            vec!["`codeMode.languages`: expected at least one of `javascript`, `typescript`, found a list".to_owned()],
        ),
        (json!("javascript"), vec!["`codeMode.languages`: expected a list, found `\"javascript\"`".to_owned()]),
        (
            json!(["python", "javascripts", 1]),
            vec![
                format!("`codeMode.languages[0]`: {word} `\"python\"`"),
                format!("`codeMode.languages[1]`: {word} `\"javascripts\"`; did you mean `javascript`?"),
                format!("`codeMode.languages[2]`: {word} `1`"),
            ],
        ),
    ];
    for (languages, errors) in cases {
        assert_eq!(read(&json!({ "languages": languages })), Err(errors));
    }
}

#[test]
fn wrong_values_and_keys_are_all_reported_at_once() {
    let cases = [
        (json!("on"), vec!["`codeMode`: expected `true`, `false` or an object, found `\"on\"`"]),
        (Value::Null, vec!["`codeMode`: expected `true`, `false` or an object, found `null`"]),
        (json!(1), vec!["`codeMode`: expected `true`, `false` or an object, found `1`"]),
        (json!([]), vec!["`codeMode`: expected `true`, `false` or an object, found a list"]),
        (
            json!({"enabled": "auto", "runtime": "node", "mode": "all", "timeoutMS": 5, "executor": "node"}),
            vec![
                "`codeMode.enabled`: expected `true` or `false`, found `\"auto\"`",
                "`codeMode.runtime`: expected `quickjs-wasi`, found `\"node\"`",
                "`codeMode.mode`: expected `only`, found `\"all\"`",
                "`codeMode.timeoutMS`: unknown key; did you mean `timeoutMs`?",
                "`codeMode.executor`: unknown key; known keys are `enabled`, `runtime`, `mode`, `languages`, `timeoutMs`, \
                 `maxWaitMs`, `memoryLimitBytes`, `maxOutputBytes`, `maxStoredOutputBytes`, `maxMediaBlocks`, \
                 `maxMediaBytes`, `maxSnapshotBytes`, `maxPendingToolCalls`, \
                 `snapshotTtlSeconds`, `searchDefaultLimit`, `maxSearchLimit`, `maxLiveRuns`",
            ],
        ),
    ];
    for (value, errors) in cases {
        assert_eq!(read(&value), Err(errors.into_iter().map(str::to_owned).collect()), "{value}");
    }
}
