//! Allow and deny lists as they are read.

use serde_json::{Value, json};

use super::{Lists, Path, Pattern, Profiles, Scope, reader};

fn read(value: &Value) -> Result<Scope, Vec<String>> {
    let mut errors = Vec::new();
    let profiles = Profiles::built_in();
    let scope = reader::object(value, &Path::root("tools"), &mut errors, |reader| Scope::read(reader, &profiles));
    if errors.is_empty() { Ok(scope.unwrap()) } else { Err(errors.iter().map(ToString::to_string).collect()) }
}

fn patterns(texts: &[&str]) -> Vec<Pattern> {
    texts.iter().map(|text| Pattern::parse(text).unwrap()).collect()
}

#[test]
fn absent_allow_lists_differ_from_empty_ones() {
    assert_eq!(read(&json!({})).unwrap(), Scope::empty(&Path::root("tools")));
    let empty = read(&json!({"allow": [], "alsoAllow": [], "deny": []})).unwrap();
    assert_eq!(empty.rules.lists, Lists { allow: Some(vec![]), also_allow: Some(vec![]), deny: vec![] });
    assert_eq!(empty.rules.profile, None);
}

#[test]
fn every_list_is_read_into_its_field() {
    let scope = read(&json!({
        "allow": ["read", "group:web"],
        "alsoAllow": ["bundle-mcp"],
        "deny": ["openclaw:core:*"],
        "profile": "minimal",
        "byProvider": {
            "openai": {"deny": ["exec"]},
            "openai/gpt-5": {"allow": [], "alsoAllow": ["a"], "profile": "full"},
        },
        "sandbox": {"tools": {"allow": ["b"], "alsoAllow": ["c"], "deny": ["d"]}},
    }))
    .unwrap();
    assert_eq!(scope.path, "tools");
    assert_eq!(
        scope.rules.lists,
        Lists {
            allow: Some(patterns(&["read", "group:web"])),
            also_allow: Some(patterns(&["bundle-mcp"])),
            deny: patterns(&["openclaw:core:*"]),
        }
    );
    assert_eq!(scope.rules.profile.unwrap().name, "minimal");
    let (provider, model) = (&scope.by_provider["openai"], &scope.by_provider["openai/gpt-5"]);
    assert_eq!(provider.lists, Lists { deny: patterns(&["exec"]), ..Lists::default() });
    assert_eq!(provider.profile, None);
    assert_eq!(model.lists, Lists { allow: Some(vec![]), also_allow: Some(patterns(&["a"])), ..Lists::default() });
    assert_eq!(model.profile.as_ref().unwrap().name, "full");
    assert_eq!(
        scope.sandbox,
        Lists { allow: Some(patterns(&["b"])), also_allow: Some(patterns(&["c"])), deny: patterns(&["d"]) }
    );
}

#[test]
fn empty_nested_objects_equal_an_absent_policy() {
    for value in [json!({"sandbox": {}}), json!({"sandbox": {"tools": {}}}), json!({"byProvider": {}})] {
        assert_eq!(read(&value).unwrap(), Scope::empty(&Path::root("tools")), "{value}");
    }
}

#[test]
fn wrong_values_and_keys_are_all_reported_at_once() {
    let value = json!({
        "allow": "read",
        "deny": ["exec", "group:runtme", ""],
        "profile": "codng",
        "byProvider": {"openai/gpt-5": {"dney": [], "sandbox": {}}, "x": true},
        "sandbox": {"tools": {"profile": "full"}, "mode": "all"},
    });
    assert_eq!(
        read(&value).unwrap_err(),
        [
            "`tools.allow`: expected a list, found `\"read\"`",
            "`tools.deny[1]`: expected a known group, found `\"group:runtme\"`; did you mean `group:runtime`?",
            "`tools.deny[2]`: expected a tool's id, name or owner, a glob over them, or a group, found `\"\"`",
            "`tools.profile`: expected one of `coding`, `full`, `messaging`, `minimal`, found `\"codng\"`; \
             did you mean `coding`?",
            "`tools.byProvider[\"openai/gpt-5\"].dney`: unknown key; did you mean `deny`?",
            "`tools.byProvider[\"openai/gpt-5\"].sandbox`: unknown key; known keys are `allow`, `alsoAllow`, \
             `deny`, `profile`",
            "`tools.byProvider.x`: expected an object, found `true`",
            "`tools.sandbox.tools.profile`: unknown key; known keys are `allow`, `alsoAllow`, `deny`",
            "`tools.sandbox.mode`: unknown key; known keys are `tools`",
        ]
    );
}
