use std::path::Path;

use catalog::arguments::check;
use contract::config::error::Problem;
use contract::limits::{MAX_MANIFEST_BYTES, MAX_MANIFEST_DEPTH, MAX_MANIFEST_VALUES, MAX_PLUGIN_TOOLS};
use contract::tool::Repeat;
use serde_json::{Value, json};

use super::{Manifest, ManifestError, schema};

fn valid() -> Value {
    json!({
        "id": "issues",
        "name": "Issues",
        "version": "1.0.0",
        "description": "Issues of a tracker.",
        "command": ["python3", "main.py"],
        "env": ["TRACKER_TOKEN"],
        "configSchema": {"type": "object", "properties": {"project": {"type": "string"}}},
        "tools": [
            {"name": "list", "description": "Lists.", "inputSchema": {"type": "object"}, "effects": "reads", "timeoutMs": 5000},
            {"name": "close", "description": "Closes.", "title": "Close", "outputSchema": {"type": "object"}},
            {"name": "label", "description": "Labels.", "effects": "repeatable"},
        ],
        "hooks": {
            "before_tool_call": {"tools": ["*"], "cells": true, "timeoutMs": 1000},
            "after_tool_call": {"tools": ["mcp:*"]},
        },
        "namespaces": [{
            "id": "issues",
            "globalName": "Issues",
            "description": "Issues.",
            "prompt": "Use Issues.list().",
            "requiredToolNames": ["list", "close"],
            "scope": {
                "site": "example",
                "list": {"$tool": "list"},
                "nested": {"close": [{"$tool": "close", "input": {"positional": ["number"], "constants": {"a": 1}, "spread": 1}}]},
            },
        }],
    })
}

/// Returns the manifest with one value replaced, added or (by `null`) removed.
fn with(pointer: &str, value: Value) -> Value {
    let mut manifest = valid();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    match manifest.pointer_mut(parent).unwrap() {
        Value::Object(fields) if value.is_null() => drop(fields.shift_remove(key)),
        Value::Object(fields) => drop(fields.insert(key.to_owned(), value)),
        Value::Array(items) => items[key.parse::<usize>().unwrap()] = value,
        other => panic!("{other}"),
    }
    manifest
}

fn problem(manifest: &Value) -> String {
    match Manifest::from_json(manifest) {
        Ok(_) => panic!("{manifest} was accepted"),
        Err(problems) => problems.first().unwrap().to_string(),
    }
}

#[test]
fn a_complete_manifest_is_read() {
    let manifest = Manifest::from_json(&valid()).unwrap();
    assert_eq!(manifest.tools[0].spec.id.as_str(), "plugin:issues:list");
    let repeats: Vec<Repeat> = manifest.tools.iter().map(|tool| tool.spec.repeat).collect();
    assert_eq!(repeats, [Repeat::Always, Repeat::Never, Repeat::WithKey]);
    assert_eq!(manifest.tools[0].timeout.as_millis(), 5_000);
    assert_eq!(manifest.tools[1].timeout.as_millis(), 60_000);
    assert_eq!(manifest.hooks().map(|(name, _)| name).collect::<Vec<_>>(), ["before_tool_call", "after_tool_call"]);
    assert_eq!(manifest.namespaces[0].required_tool_names, ["list", "close"]);
}

/// Manifests that are wrong in one place each, with a part of the error. All but those marked `false` also violate the
/// published schema.
fn wrong() -> Vec<(Value, &'static str, bool)> {
    vec![
        (with("/id", json!("Issues")), "plugin.id", true),
        (with("/id", json!("core")), "plugin.id", true),
        (with("/id", json!("a:b")), "plugin.id", true),
        (with("/id", json!("-a")), "plugin.id", true),
        (with("/id", json!("x".repeat(65))), "plugin.id", true),
        (with("/id", Value::Null), "plugin.id", true),
        (with("/name", json!(" ")), "plugin.name", true),
        (with("/version", json!("1 0")), "plugin.version", true),
        (with("/description", json!("x".repeat(3_000))), "plugin.description", true),
        (with("/command", json!("python3 main.py")), "plugin.command", true),
        (with("/command", json!([])), "plugin.command[0]", true),
        (with("/command", json!(["/bin/sh", "-c", "x"])), "plugin.command[0]", true),
        (with("/command", json!(["../other/run.sh"])), "plugin.command[0]", true),
        (with("/command", json!(["bin/../../run.sh"])), "plugin.command[0]", true),
        (with("/command", json!(["python3", 7])), "plugin.command[1]", true),
        (with("/env", json!(["LD_PRELOAD"])), "plugin.env[0]", true),
        (with("/env", json!(["A=B"])), "plugin.env[0]", true),
        (with("/tools", json!({})), "plugin.tools", true),
        (with("/tools/0/name", json!("read")), "plugin.tools[0].name", true),
        (with("/tools/0/name", json!("apply-patch")), "plugin.tools[0].name", false),
        (with("/tools/0/name", json!("a:b")), "plugin.tools[0].name", true),
        (with("/tools/0/name", json!("close")), "plugin.tools[1].name", false),
        (with("/tools/0/effects", json!("read")), "plugin.tools[0].effects", true),
        (with("/tools/0/timeoutMs", json!(5)), "plugin.tools[0].timeoutMs", true),
        (with("/tools/0/timeoutMs", json!(6_000_000)), "plugin.tools[0].timeoutMs", true),
        (with("/tools/0/inputSchema", json!("object")), "plugin.tools[0].inputSchema", true),
        (with("/tools/0/inputSchema", json!({"type": "string"})), "plugin.tools[0].inputSchema.type", false),
        (
            with("/tools/0/inputSchema", json!({"properties": {"a": {"type": "strin"}}})),
            "plugin.tools[0].inputSchema.properties.a.type",
            false,
        ),
        (with("/tools/0/inputSchema", json!({"required": "a"})), "plugin.tools[0].inputSchema.required", false),
        (with("/tools/1/outputSchema", json!({"type": "strin"})), "plugin.tools[1].outputSchema.type", false),
        (with("/configSchema", json!({"properties": []})), "plugin.configSchema.properties", false),
        (with("/tools/0/description", Value::Null), "plugin.tools[0].description", true),
        (with("/tools/0/readOnly", json!(true)), "plugin.tools[0].readOnly", true),
        (
            with("/hooks/before_tool_call/tools", json!(["group:nothing"])),
            "plugin.hooks.before_tool_call.tools[0]",
            false,
        ),
        (with("/hooks/before_tool_call/timeoutMs", json!(60_000)), "plugin.hooks.before_tool_call.timeoutMs", true),
        (with("/hooks/before_tool_call", json!({})), "plugin.hooks.before_tool_call.tools", true),
        (with("/hooks/before_call", json!({"tools": ["*"]})), "plugin.hooks.before_call", true),
        (with("/namespaces/0/globalName", json!("a-b")), "plugin.namespaces[0].globalName", true),
        (with("/namespaces/0/requiredToolNames", json!(["lst"])), "did you mean `list`", false),
        (with("/namespaces/0/requiredToolNames", json!([])), "plugin.namespaces[0].requiredToolNames", true),
        (with("/namespaces/0/scope/list", json!({"$tool": "label"})), "plugin.namespaces[0].scope.list", false),
        (with("/namespaces/0/scope/list", json!({"$tool": "list", "map": 1})), "scope.list.map", true),
        (with("/namespaces/0/scope", json!({"$tool": "list"})), "plugin.namespaces[0].scope", true),
        (with("/namespaces/0/scope", Value::Null), "plugin.namespaces[0].scope", true),
        (with("/namespaces/0/createScope", json!(true)), "plugin.namespaces[0].scope", true),
        (with("/tolls", json!([])), "did you mean `tools`", true),
        (json!([]), "plugin", true),
    ]
}

#[test]
fn each_wrong_value_is_reported_with_its_path_and_violates_the_schema() {
    let schema = schema();
    assert_eq!(check(&schema, &valid()).map_err(|error| error.to_string()), Ok(()));
    for (manifest, expected, is_in_schema) in wrong() {
        let found = problem(&manifest);
        assert!(found.contains(expected), "{expected}: {found}");
        assert_eq!(check(&schema, &manifest).is_err(), is_in_schema, "the schema and {expected}: {manifest}");
    }
}

#[test]
fn a_wrong_tool_or_hook_is_not_also_reported_as_a_missing_one() {
    let problems = |tools: Value, hooks: Value| {
        let mut manifest = valid();
        let fields = manifest.as_object_mut().unwrap();
        fields.shift_remove("namespaces");
        fields.insert("tools".to_owned(), tools);
        fields.insert("hooks".to_owned(), hooks);
        let problems = Manifest::from_json(&manifest).unwrap_err();
        problems.iter().map(ToString::to_string).collect::<Vec<String>>()
    };
    let nothing = problems(json!([]), json!({}));
    assert!(nothing.len() == 1 && nothing[0].contains("expected at least one tool or hook"), "{nothing:?}");
    let tool = problems(json!([{"name": "a:b", "description": "d"}]), json!({}));
    assert!(tool.len() == 1 && tool[0].starts_with("`plugin.tools[0].name`"), "{tool:?}");
    let hook = problems(json!([]), json!({"before_tool_call": {"tools": ["group:nothing"]}}));
    assert!(hook.len() == 1 && hook[0].starts_with("`plugin.hooks.before_tool_call.tools[0]`"), "{hook:?}");
}

/// Returns the keys that the reader asks for in the object at a path, from its error about an unknown key.
fn known_keys(pointer: &str) -> Vec<String> {
    let problems = Manifest::from_json(&with(&format!("{pointer}/zzzzzzzz"), json!(1))).unwrap_err();
    let known = problems.into_iter().find_map(|error| match error.problem {
        Problem::UnknownKey { known, .. } => Some(known),
        Problem::Value { .. } => None,
    });
    let mut known: Vec<String> = known.unwrap().into_iter().map(str::to_owned).collect();
    known.sort();
    known
}

#[test]
fn the_schema_has_exactly_the_keys_of_the_reader() {
    let schema = schema();
    let places = [
        ("", ""),
        ("/tools/0", "/properties/tools/items"),
        ("/hooks", "/properties/hooks"),
        ("/hooks/before_tool_call", "/properties/hooks/properties/before_tool_call"),
        ("/hooks/after_tool_call", "/properties/hooks/properties/after_tool_call"),
        ("/namespaces/0", "/properties/namespaces/items"),
        ("/namespaces/0/scope/list", "/$defs/scopeValue/anyOf/0"),
        ("/namespaces/0/scope/nested/close/0/input", "/$defs/scopeValue/anyOf/0/properties/input"),
    ];
    for (manifest, place) in places {
        let listed = schema.pointer(place).unwrap()["properties"].as_object().unwrap();
        let mut listed: Vec<String> = listed.keys().cloned().collect();
        listed.sort();
        assert_eq!(listed, known_keys(manifest), "{place}");
    }
}

#[test]
fn the_published_schema_is_the_generated_one() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/plugin.schema.json");
    let generated = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    if std::env::var_os("CELLMATE_UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&file, &generated).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap_or_default(), generated, "set CELLMATE_UPDATE_SNAPSHOTS=1");
}

#[test]
fn manifest_bombs_are_refused_before_they_are_parsed() {
    let file = Path::new("/x/cellmate.plugin.json");
    let read = |text: &str| Manifest::read(text.as_bytes(), file).unwrap_err();
    let long = format!("{{\"name\":\"{}\"}}", "x".repeat(MAX_MANIFEST_BYTES));
    assert!(matches!(read(&long), ManifestError::TooLong(_)));
    let deep = "[".repeat(MAX_MANIFEST_DEPTH + 1) + &"]".repeat(MAX_MANIFEST_DEPTH + 1);
    assert!(matches!(read(&deep), ManifestError::TooComplex(_)));
    let many = format!("[{}0]", "0,".repeat(MAX_MANIFEST_VALUES));
    assert!(matches!(read(&many), ManifestError::TooComplex(_)));
    assert!(read("{").to_string().contains("/x/cellmate.plugin.json"));
    let tool = |number: usize| json!({"name": format!("t{number}"), "description": "d"});
    let tools: Vec<Value> = (0..=MAX_PLUGIN_TOOLS).map(tool).collect();
    assert!(problem(&with("/tools", json!(tools))).contains("at most 128 tools"));
    let errors = Manifest::read(json!({"tools": vec![1; 100]}).to_string().as_bytes(), file).unwrap_err().to_string();
    assert!(errors.len() < 5_000 && errors.contains("more"), "{errors}");
}
