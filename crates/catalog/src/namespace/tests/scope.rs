//! The values that a scope may hold, and how a cell receives them.

use contract::limits::{MAX_NAMESPACE_BYTES, MAX_NAMESPACE_DEPTH, MAX_NAMESPACE_VALUES};
use serde_json::{Value, json};

use super::{LIST, github, issues, registry, table, visible};
use crate::namespace::{NamespaceError, Namespaces, Registration, ScopeMaker, ScopeValue};

fn with_scope(scope: ScopeValue) -> Namespaces {
    visible(&registry(Registration { scope: ScopeMaker::fixed(scope), ..issues() }), &github())
}

#[test]
fn tables_hold_the_descriptors_of_the_prelude() {
    let plain = github();
    let before = plain.tables().hash();
    assert_eq!(table(&plain, "namespaces"), None);
    let catalog = plain.with_namespaces(visible(&registry(issues()), &github()));
    assert_ne!(catalog.tables().hash(), before);
    assert_eq!(table(&catalog, "namespaces"), Some(json!(["Issues"])));
    let expected = json!({"kind": "object", "entries": [
        ["repository", {"kind": "object", "entries": [["owner", {"kind": "value", "value": "o"}]]}],
        ["agent", {"kind": "value", "value": "main"}],
        ["list", {"kind": "function"}],
        ["update", {"kind": "function"}],
    ]});
    assert_eq!(table(&catalog, "namespace/Issues"), Some(expected));
    let again = github().with_namespaces(visible(&registry(issues()), &github()));
    assert_eq!(again.tables(), catalog.tables());
    let without = catalog.with_namespaces(Namespaces::default());
    assert_eq!(without.tables().hash(), before);
}

#[test]
fn nested_and_shared_values_are_written_out() {
    let shared = ScopeValue::object([("list", ScopeValue::tool(LIST)), ("then", ScopeValue::Json(json!([1, null])))]);
    let scope = ScopeValue::object([
        ("a", shared.clone()),
        ("b", ScopeValue::Array(vec![shared, ScopeValue::Json(json!(true))])),
    ]);
    let catalog = github().with_namespaces(with_scope(scope));
    let numbers = json!({"kind": "array", "items": [{"kind": "value", "value": 1}, {"kind": "value", "value": null}]});
    let shared = json!({"kind": "object", "entries": [["list", {"kind": "function"}], ["then", numbers]]});
    let list = json!({"kind": "array", "items": [shared, {"kind": "value", "value": true}]});
    assert_eq!(
        table(&catalog, "namespace/Issues"),
        Some(json!({"kind": "object", "entries": [["a", shared], ["b", list]]}))
    );
    for path in [&["a", "list"][..], &["b", "0", "list"]] {
        assert!(catalog.namespace_call("Issues", path, &[]).is_ok(), "{path:?}");
    }
}

#[test]
fn invalid_scope_values_are_refused() {
    let tool = |name: &str| ScopeValue::tool(name);
    let path = |text: &str| text.to_owned();
    let unsafe_key = |path: &str, key: &str| NamespaceError::UnsafeKey { path: path.to_owned(), key: key.to_owned() };
    let cases = [
        (ScopeValue::Json(json!({"a": {"__proto__": 1}})), unsafe_key("Issues.a", "__proto__")),
        (ScopeValue::object([("constructor", tool(LIST))]), unsafe_key("Issues", "constructor")),
        (ScopeValue::Json(json!({"a": [{"prototype": 1}]})), unsafe_key("Issues.a.0", "prototype")),
        (ScopeValue::Json(json!({"": 1})), unsafe_key("Issues", "")),
        (ScopeValue::Json(json!({"a\u{0}b": 1})), unsafe_key("Issues", "a b")),
        (
            ScopeValue::object([("a", tool(LIST)), ("a", tool(LIST))]),
            NamespaceError::DuplicateKey { path: path("Issues"), key: path("a") },
        ),
        (
            ScopeValue::object([("a", ScopeValue::object([("run", tool("read"))]))]),
            NamespaceError::UndeclaredTool { path: path("Issues.a.run"), tool: path("read") },
        ),
        (ScopeValue::object([("then", tool(LIST))]), NamespaceError::Thenable(path("Issues.then"))),
        (tool(LIST), NamespaceError::NotAnObject(path("Issues"))),
        (ScopeValue::Json(json!([1])), NamespaceError::NotAnObject(path("Issues"))),
        (ScopeValue::Json(Value::Null), NamespaceError::NotAnObject(path("Issues"))),
    ];
    for (scope, expected) in cases {
        let namespaces = with_scope(scope);
        assert!(namespaces.is_empty(), "{expected}");
        assert_eq!(namespaces.refused(), [expected]);
    }
}

#[test]
fn scopes_have_limits() {
    let deep = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!({ "a": inner }));
    let many = |values: usize| json!({"a": vec![1; values - 2]});
    let large = |bytes: usize| json!({"a": "x".repeat(bytes - 1)});
    let too_deep = NamespaceError::TooDeep("Issues".to_owned() + &".a".repeat(MAX_NAMESPACE_DEPTH));
    let cases = [
        (deep(MAX_NAMESPACE_DEPTH), None),
        (deep(MAX_NAMESPACE_DEPTH + 1), Some(too_deep.clone())),
        (deep(100), Some(too_deep)),
        (many(MAX_NAMESPACE_VALUES), None),
        (many(MAX_NAMESPACE_VALUES + 1), Some(NamespaceError::TooManyValues("Issues".to_owned()))),
        (large(MAX_NAMESPACE_BYTES), None),
        (large(MAX_NAMESPACE_BYTES + 1), Some(NamespaceError::TooLarge("Issues".to_owned()))),
        (json!({"x".repeat(MAX_NAMESPACE_BYTES + 1): 1}), Some(NamespaceError::TooLarge("Issues".to_owned()))),
    ];
    for (scope, expected) in cases {
        assert_eq!(with_scope(ScopeValue::Json(scope)).refused().first(), expected.as_ref());
    }
}
