//! Resolution of a cell's namespace call to a tool.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{LIST, catalog, github, issues, registry, visible};
use crate::namespace::{InputMapping, NamespaceError, Registration, ScopeMaker, ScopeValue};

#[test]
fn a_namespace_call_becomes_a_call_of_a_catalog_tool() {
    let catalog = github().with_namespaces(visible(&registry(issues()), &github()));
    let cases = [
        ("list", json!([{"state": "open"}]), LIST, json!({"state": "open"})),
        ("list", json!([]), LIST, json!({})),
        ("list", json!([null]), LIST, json!({})),
        ("list", json!(["open", 2]), LIST, json!("open")),
        ("update", json!([7, {"title": "t"}]), super::UPDATE, json!({"number": 7, "patch": {"title": "t"}})),
        ("update", json!([7]), super::UPDATE, json!({"number": 7})),
        ("update", json!([7, null, 8]), super::UPDATE, json!({"number": 7, "patch": null})),
        ("update", json!([]), super::UPDATE, json!({})),
    ];
    for (path, arguments, tool, input) in cases {
        let (id, given) = catalog.namespace_call("Issues", &[path], arguments.as_array().unwrap()).unwrap();
        assert_eq!((id.as_str(), given), (format!("plugin:github:{tool}").as_str(), input), "{path} {arguments}");
    }
}

#[test]
fn a_plugin_may_map_arguments_itself() {
    let mapper = |arguments: &[Value]| json!({ "count": arguments.len() });
    let count = ScopeValue::Tool { name: LIST.to_owned(), input: InputMapping::Custom(Arc::new(mapper)) };
    let scope = ScopeMaker::fixed(ScopeValue::object([("count", count)]));
    let namespaces = visible(&registry(Registration { scope, ..issues() }), &github());
    let called = github().with_namespaces(namespaces).namespace_call("Issues", &["count"], &[json!(1), json!(2)]);
    assert_eq!(called.unwrap().1, json!({"count": 2}));
}

#[test]
fn forged_namespaces_and_paths_all_get_one_answer() {
    let namespaces = visible(&registry(issues()), &github());
    let catalog_with = github().with_namespaces(namespaces);
    let long = "x".repeat(1 << 20);
    let many = vec!["a"; 100_000];
    let cases: [(&str, &[&str], &str); 12] = [
        ("Other", &["list"], "Other.list"),
        ("github-issues", &["list"], "github-issues.list"),
        ("MCP", &["list"], "MCP.list"),
        ("Issues", &[], "Issues"),
        ("Issues", &["List"], "Issues.List"),
        ("Issues", &["repository"], "Issues.repository"),
        ("Issues", &["repository", "owner"], "Issues.repository.owner"),
        ("Issues", &["list", "call"], "Issues.list.call"),
        ("Issues", &["__proto__"], "Issues.__proto__"),
        ("Issues", &["constructor", "constructor"], "Issues.constructor.constructor"),
        ("Issues", &["a\u{0}b\u{202e}`"], "Issues.a b`"),
        ("", &[""], "."),
    ];
    for (global, path, shown) in cases {
        let error = catalog_with.namespace_call(global, path, &[]).unwrap_err();
        assert_eq!(error, NamespaceError::NotCallable(shown.to_owned()));
    }
    for path in [vec![long.as_str()], many] {
        let error = catalog_with.namespace_call("Issues", &path, &[]).unwrap_err();
        assert!(error.to_string().len() < 300, "{error}");
    }
}

#[test]
fn a_tool_that_this_catalog_lacks_is_not_called() {
    let namespaces = visible(&registry(issues()), &github());
    let other = catalog(&["plugin:github:github_update_issue"]).with_namespaces(namespaces);
    assert_eq!(
        other.namespace_call("Issues", &["list"], &[]),
        Err(NamespaceError::NotCallable("Issues.list".to_owned()))
    );
    assert!(other.namespace_call("Issues", &["update"], &[]).is_ok());
}
