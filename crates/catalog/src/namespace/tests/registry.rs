//! Registration rules, and which runs see a namespace.

use contract::limits::MAX_NAMESPACES;

use super::{catalog, github, issues, registry, visible};
use crate::namespace::{NamespaceError, Registration, Registry, ScopeFailure, ScopeMaker, ScopeValue};

fn named(id: &str, global: &str) -> Registration {
    Registration { id: id.to_owned(), global_name: global.to_owned(), ..issues() }
}

#[test]
fn a_global_must_be_an_unused_identifier() {
    type Error = fn(String) -> NamespaceError;
    let (shape, word, built_in): (Error, Error, Error) =
        (NamespaceError::NotAnIdentifier, NamespaceError::ReservedWord, NamespaceError::BuiltInGlobal);
    let cases = [
        ("Issues", None),
        ("$_1", None),
        ("", Some(shape)),
        ("1a", Some(shape)),
        ("a-b", Some(shape)),
        ("a.b", Some(shape)),
        ("é", Some(shape)),
        ("class", Some(word)),
        ("await", Some(word)),
        ("tools", Some(built_in)),
        ("ALL_TOOLS", Some(built_in)),
        ("MCP", Some(built_in)),
        ("API", Some(built_in)),
        ("namespaces", Some(built_in)),
        ("text", Some(built_in)),
        ("json", Some(built_in)),
        ("yield_control", Some(built_in)),
        ("console", Some(built_in)),
        ("setTimeout", Some(built_in)),
        ("clearTimeout", Some(built_in)),
        ("TextEncoder", Some(built_in)),
        ("Object", Some(built_in)),
        ("undefined", Some(built_in)),
        ("constructor", Some(built_in)),
        ("__proto__", Some(built_in)),
        ("__openclawHostRequest", Some(built_in)),
    ];
    for (global, error) in cases {
        let result = Registry::default().register("github", named("a", global));
        assert_eq!(result.err(), error.map(|error| error(global.to_owned())), "{global}");
    }
    assert!(Registry::default().register("p", named("a", &"x".repeat(64))).is_ok());
    let error = Registry::default().register("p", named("a", &"x".repeat(65))).unwrap_err();
    assert!(matches!(error, NamespaceError::NotAnIdentifier(shown) if shown.len() == 64));
}

#[test]
fn ids_and_globals_are_unique_and_limited_in_number() {
    let mut registry = registry(issues());
    let taken = NamespaceError::GlobalTaken { global: "Issues".to_owned(), owner: "github-issues".to_owned() };
    assert_eq!(
        registry.register("github", named("github-issues", "B")).err(),
        Some(NamespaceError::DuplicateId("github-issues".to_owned()))
    );
    assert_eq!(registry.register("other", named("b", "Issues")).err(), Some(taken));
    for number in 1..MAX_NAMESPACES {
        registry.register("github", named(&format!("n{number}"), &format!("N{number}"))).unwrap();
    }
    assert_eq!(registry.register("github", named("last", "Last")).err(), Some(NamespaceError::TooMany));
}

#[test]
fn only_a_plugins_own_tools_show_its_namespace() {
    let (list, update) = ("github_list_issues", "github_update_issue");
    let cases = [
        ("both", vec![format!("plugin:github:{list}"), format!("plugin:github:{update}")], true),
        ("built in", vec![format!("openclaw:github:{list}"), format!("openclaw:github:{update}")], true),
        ("one denied", vec![format!("plugin:github:{list}")], false),
        ("another's", vec![format!("plugin:github:{list}"), format!("plugin:evil:{update}")], false),
        ("a server's", vec![format!("plugin:github:{list}"), format!("mcp:github:{update}")], false),
        ("a client's", vec![format!("client:github:{list}"), format!("client:github:{update}")], false),
        ("none", vec![], false),
    ];
    for (name, ids, is_visible) in cases {
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let namespaces = visible(&registry(issues()), &catalog(&ids));
        assert_eq!(!namespaces.is_empty(), is_visible, "{name}");
        assert!(namespaces.refused().is_empty(), "{name}");
    }
    // A tool's name has no `:`, so no id can be read as a tool of the plugin `a:b`.
    let mut registry = Registry::default();
    registry.register("a:b", Registration { required_tool_names: vec!["c".to_owned()], ..issues() }).unwrap();
    assert!(contract::tool::ToolId::parse("plugin:a:b:c").is_err());
    assert!(visible(&registry, &catalog(&["plugin:a:c", "plugin:b:c"])).is_empty());
}

#[test]
fn unregistered_and_rolled_back_namespaces_are_gone() {
    let mut registry = registry(issues());
    registry.register("github", named("b", "B")).unwrap();
    registry
        .register(
            "slack",
            Registration {
                required_tool_names: vec![],
                scope: ScopeMaker::fixed(ScopeValue::object([])),
                ..named("c", "C")
            },
        )
        .unwrap();
    let seen = |registry: &Registry| visible(registry, &github()).globals().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(seen(&registry), ["B", "C", "Issues"]);
    assert!(registry.unregister("b") && !registry.unregister("b"));
    assert_eq!(seen(&registry), ["C", "Issues"]);
    assert_eq!((registry.clear_plugin("github"), registry.clear_plugin("github")), (1, 0));
    assert_eq!(seen(&registry), ["C"]);
    assert!(registry.register("github", issues()).is_ok());
}

#[test]
fn a_scope_that_fails_is_refused_and_the_others_remain() {
    let mut registry = registry(issues());
    let cause = ScopeFailure("no token".to_owned());
    let failing = {
        let cause = cause.clone();
        ScopeMaker::new(move |_| Err(cause.clone()))
    };
    registry.register("github", Registration { scope: failing, ..named("b", "B") }).unwrap();
    let namespaces = visible(&registry, &github());
    assert_eq!(namespaces.globals().collect::<Vec<_>>(), ["Issues"]);
    assert_eq!(namespaces.refused(), [NamespaceError::ScopeFailed { global: "B".to_owned(), cause }]);
}
