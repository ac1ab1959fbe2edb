//! Every route of the table: its token, its permission, its methods, and what it makes of garbage.

use reqwest::Method;
use serde_json::{Value, json};

use crate::api_client::{get, operations};
use crate::world::{ADA, APPROVER, Options, ROOT, RUNNER, World};

/// Returns a token that has none of these permissions.
fn token_without(permissions: &[String]) -> Option<&'static str> {
    let lacks = |own: &[&str]| !permissions.iter().any(|permission| own.contains(&permission.as_str()));
    let tokens = [(ADA, &["execute", "read"][..]), (APPROVER, &["approve"]), (RUNNER, &["execute"])];
    tokens.into_iter().find(|(_, own)| !permissions.is_empty() && lacks(own)).map(|(token, _)| token)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_needs_a_token_its_permission_and_its_method() {
    let world = World::start(Options::default(), Vec::new()).await;
    let mut refused = 0;
    for operation in operations() {
        let address = format!("{}{}", world.base, operation.with_ids("nothing"));
        let request = |method: &Method| world.client.request(method.clone(), address.as_str());
        let case = format!("{} {}", operation.method, operation.path);
        for (token, status) in [(None, 401), (Some("nonsense"), 401), (Some("bearer"), 401)] {
            let request = request(&operation.method);
            let request = if let Some(token) = token { request.bearer_auth(token) } else { request };
            let response = request.send().await.unwrap();
            assert_eq!(response.status().as_u16(), status, "{case}");
            assert!(response.headers().contains_key("www-authenticate"), "{case}");
            assert!(response.json::<Value>().await.unwrap()["error"]["type"] == "unauthorized", "{case}");
        }
        if let Some(token) = token_without(&operation.permissions()) {
            let response = request(&operation.method).bearer_auth(token).send().await.unwrap();
            assert_eq!(response.status().as_u16(), 403, "{case}");
            assert_eq!(response.json::<Value>().await.unwrap()["error"]["type"], "permission_denied", "{case}");
            refused += 1;
        }
        for wrong in [Method::PATCH, Method::PUT] {
            let response = request(&wrong).bearer_auth(ROOT).send().await.unwrap();
            assert_eq!(response.status().as_u16(), 405, "{case}");
            assert!(response.headers().contains_key("allow"), "{case}");
            let response = request(&wrong).send().await.unwrap();
            assert_eq!(response.status().as_u16(), 401, "{case}");
        }
    }
    assert!(refused >= 20, "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_names_both_permissions_if_either_is_enough() {
    let world = World::start(Options::default(), Vec::new()).await;
    let refused = get(&world, RUNNER, "/api/v1/approvals").await;
    let message = "this token has neither the permission `read` nor `approve`; use one with either";
    assert_eq!((refused.status, &refused.body["error"]["message"]), (403, &json!(message)), "{}", refused.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_in_bodies_paths_and_queries_is_the_clients_error() {
    let world = World::start(Options::default(), Vec::new()).await;
    let long = "x".repeat(2_000);
    let ids = ["nothing", "%00", "a%00b", "%ff%fe", "..%2f..%2fetc", "%F0%9F%92%A9", long.as_str(), "'%20OR%201=1--"];
    let queries = ["", "?limit=0", "?limit=501x", "?limit=99999999999999", "?cursor=%00", "?cursor=AAAA", "?nope=1"];
    let deep = format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000));
    let bodies = ["", "{", "[]", "null", "\"x\"", "{\"tool\":7}", "{\"decision\":\"maybe\"}", "\u{0}", deep.as_str()];
    for operation in operations() {
        for id in ids {
            for query in queries {
                if operation.is_events() && query.is_empty() {
                    continue;
                }
                let address = format!("{}{}{query}", world.base, operation.with_ids(id));
                let request = world.client.request(operation.method.clone(), &address).bearer_auth(ROOT);
                let status = request.send().await.unwrap().status().as_u16();
                let case = format!("{} {address}: {status}", operation.method);
                assert!(status < 500, "{case}");
                if !query.is_empty() && !query.starts_with("?cursor") {
                    assert_eq!(status, 400, "{case}");
                }
            }
        }
        if operation.method != Method::POST {
            continue;
        }
        for body in bodies {
            for kind in ["application/json", "text/plain", ""] {
                let address = format!("{}{}", world.base, operation.with_ids("nothing"));
                let request = world.client.post(&address).bearer_auth(ROOT).header("content-type", kind);
                let status = request.body(body.to_owned()).send().await.unwrap().status().as_u16();
                let expected: &[u16] =
                    if kind == "application/json" || body.is_empty() { &[400, 404] } else { &[400, 415] };
                assert!(expected.contains(&status), "{} {kind} {:.20}: {status}", operation.path, body);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_document_is_served_to_any_token_and_health_to_anyone() {
    let world = World::start(Options::default(), Vec::new()).await;
    let response = get(&world, APPROVER, "/openapi.json").await;
    assert_eq!((response.status, &response.body), (200, &gateway::openapi::document()));
    for (path, body) in [("/healthz", "ok\n"), ("/readyz", "ready\n")] {
        let response = world.client.get(format!("{}{path}", world.base)).send().await.unwrap();
        assert_eq!((response.status().as_u16(), response.text().await.unwrap().as_str()), (200, body));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_catalog_of_an_agent_is_listed_searched_and_described_as_policy_allows() {
    let tool = |id: &str, description: &str| json!({"id": id, "description": description});
    let tools = json!([
        tool("openclaw:core:add", "Adds numbers."),
        tool("mcp:mail:send", "Sends an email."),
        tool("mcp:mail:read", "Reads an email."),
    ]);
    let agents = json!({"defaults": {"model": "scripted/m-1"},
        "list": [{"id": "main"}, {"id": "quiet", "tools": {"deny": ["mcp:mail:send"]}}]});
    let world = World::start(Options { tools, agents, ..Options::default() }, Vec::new()).await;
    let ids = |body: &Value| -> Vec<String> {
        body["items"].as_array().unwrap().iter().map(|tool| tool["id"].as_str().unwrap().to_owned()).collect()
    };
    let first = get(&world, ADA, "/api/v1/catalog?limit=2").await;
    assert_eq!(ids(&first.body), ["mcp:mail:read", "mcp:mail:send"]);
    let cursor = first.body["nextCursor"].as_str().unwrap();
    let second = get(&world, ADA, &format!("/api/v1/catalog?limit=2&cursor={cursor}")).await;
    assert_eq!((ids(&second.body), &second.body["nextCursor"]), (vec!["openclaw:core:add".to_owned()], &Value::Null));
    let found = get(&world, ADA, "/api/v1/catalog?query=send%20an%20email&limit=1").await;
    assert_eq!(ids(&found.body), ["mcp:mail:send"]);
    let quiet = get(&world, ADA, "/api/v1/catalog?agent=QUIET").await;
    assert_eq!(ids(&quiet.body), ["mcp:mail:read", "openclaw:core:add"]);
    assert_eq!(get(&world, ADA, "/api/v1/catalog?agent=nobody").await.status, 404);
    let described = get(&world, ADA, "/api/v1/catalog/mcp:mail:send").await;
    assert_eq!(described.body["parameters"], json!({"type": "object"}));
    assert_eq!(get(&world, ADA, "/api/v1/catalog/mcp:mail:send?agent=quiet").await.status, 404);
    let agents = get(&world, ADA, "/api/v1/agents").await;
    assert_eq!(ids(&agents.body), ["main", "quiet"]);
    assert_eq!(agents.body["items"][0]["isDefault"], true);
}
