//! `docs/reference/http.md`: every route of the gateway, with the permission that it needs.

use serde_json::Value;

use super::{compare, root};

const HEADER: &str = "| method | path | permission | what it does |\n|---|---|---|---|\n";

/// Returns the permission that an operation of the OpenAPI document needs.
fn permission(operation: &Value) -> String {
    if operation["security"].as_array().is_some_and(Vec::is_empty) {
        return "no token".to_owned();
    }
    let names =
        operation["x-permissions"].as_array().unwrap().iter().map(|name| format!("`{}`", name.as_str().unwrap()));
    match names.collect::<Vec<_>>().join(" or ") {
        none if none.is_empty() => "any token".to_owned(),
        names => names,
    }
}

#[test]
fn the_page_lists_every_route_with_its_permission() {
    let document = gateway::openapi::document();
    let mut table = HEADER.to_owned();
    let mut routes = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let what = operation["summary"].as_str().unwrap();
            table += &format!("| {} | `{path}` | {} | {what} |\n", method.to_uppercase(), permission(operation));
            routes += 1;
        }
    }
    assert!(routes > 35, "only {routes} routes");
    let path = root().join("docs/reference/http.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, after) = page.split_once(HEADER).unwrap();
    let (_, after) = after.split_once("\n## ").unwrap();
    compare(&path, &format!("{before}{table}\n## {after}"));
}
