//! Which requests the HTTP server accepts, and which runs each principal sees.

use serde_json::{Value, json};

use super::clients::{Era, Served};
use super::place::{Place, reads};

#[test]
fn all_revisions_share_one_endpoint() {
    let place =
        Place::new(json!([reads("add", json!([{"result": {"content": [], "structuredContent": {"sum": 3}}}]))]));
    let served = Served::start(&place, &[]);
    for era in Era::ALL {
        let mut client = served.client(era, &served.token, json!({}));
        let list = client.send("tools/list", json!({})).answer();
        assert_eq!(list["result"]["tools"].as_array().map(Vec::len), Some(2), "{list}");
        let result = client.exec("return (await MCP.s.add({})).structuredContent.sum");
        assert_eq!(result["value"], 3, "{result}");
        let params =
            json!({"name": "exec", "arguments": {"code": "await MCP.s.add({})"}, "_meta": {"progressToken": 1}});
        let mut stream = client.send("tools/call", params);
        let progress = stream.message().unwrap();
        assert_eq!(progress["params"]["message"], "call 1: s.add", "{progress}");
        assert!(stream.answer()["result"].is_object());
    }
}

#[test]
fn requests_without_a_token_for_another_host_or_from_a_foreign_origin_are_refused() {
    let place = Place::new(json!([]));
    let served = Served::start(&place, &[]);
    let bearer = format!("Bearer {}", served.token);
    let list =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": Era::July2026.meta(&json!({}))}});
    let status = |more: &[(&str, &str)]| {
        let mut headers = vec![
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", "tools/list"),
        ];
        headers.extend(more);
        served.request("POST", "/mcp", &headers, &list.to_string()).status
    };
    assert_eq!(status(&[("Authorization", &bearer)]), 200);
    assert_eq!(status(&[]), 401);
    assert_eq!(status(&[("Authorization", "Bearer 00000000000000000000000000000000")]), 401);
    assert_eq!(status(&[("Authorization", &bearer), ("Host", "evil.example")]), 403);
    assert_eq!(status(&[("Authorization", &bearer), ("Origin", "https://evil.example")]), 403);
    assert_eq!(status(&[("Authorization", &bearer), ("Origin", "null")]), 403);
    assert_eq!(status(&[("Authorization", &bearer), ("Origin", "http://localhost:3000")]), 200);

    assert_eq!(served.announce(&bearer, 5 << 20).status, 413);
    assert_eq!(served.request("GET", "/healthz", &[], "").text(), "ok\n");
    assert_eq!(served.request("GET", "/readyz", &[], "").status, 200);
    assert_eq!(served.request("GET", "/healthz", &[("Host", "evil.example")], "").status, 403);
    assert_eq!(served.request("GET", "/nowhere", &[("Authorization", bearer.as_str())], "").status, 404);
}

#[test]
fn secret_files_are_readable_by_their_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new(json!([]));
    let served = Served::start(&place, &[]);
    for (name, mode) in [("state", 0o700), ("state/key", 0o600), ("state/token", 0o600)] {
        let found = std::fs::metadata(place.path(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(found, mode, "{name}");
    }
    assert_eq!(served.token.len(), 64);
    drop(served);
    std::fs::set_permissions(place.path("state/key"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let refused = place.server(&["--http", "127.0.0.1:0"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("can be read by others"));
}

#[test]
fn listening_on_all_interfaces_requires_a_token() {
    let place = Place::new(json!([]));
    let refused = place.server(&["--http", "0.0.0.0:0", "--no-token"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("requires a token"));
}

#[test]
fn a_principal_sees_its_own_runs_and_no_others() {
    let place = Place::new(json!([]));
    let (ada, bob) = ("ada-ada-ada-ada-ada", "bob-bob-bob-bob-bob");
    std::fs::write(place.path("tokens"), format!("# ours\nada {ada}\nbob {bob}\n")).unwrap();
    std::fs::set_permissions(place.path("tokens"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let served = Served::start(&place, &["--tokens", &place.path("tokens")]);
    for era in [Era::November2025, Era::July2026] {
        let mut adas = served.client(era, ada, json!({}));
        let mut bobs = served.client(era, bob, json!({}));
        let waiting = adas.exec("await yield_control(); return 1");
        let run_id = waiting["runId"].clone();
        let foreign = bobs.call("wait", json!({ "runId": run_id }));
        let unknown = bobs.call("wait", json!({"runId": "cm_00000000000000000000000000000000"}));
        assert_eq!(foreign, unknown);
        // An unknown id is answered with the caller's own live cells, and no others.
        assert!(foreign["runs"].is_null() && !foreign.to_string().contains(run_id.as_str().unwrap()), "{foreign}");
        let listed = adas.call("wait", json!({"runId": "cm_00000000000000000000000000000000"}));
        assert_eq!((&listed["code"], &listed["runs"][0]["runId"]), (&json!("invalid_input"), &run_id), "{listed}");
        let nothing = bobs.call("wait", json!({}));
        assert!(nothing["error"].as_str().unwrap().contains("no cell is live"), "{nothing}");
        let done = adas.call("wait", json!({ "runId": run_id }));
        assert_eq!(done["value"], 1, "{done}");
    }
}

#[test]
fn a_named_token_needs_execute_and_is_refused_once_it_is_revoked() {
    let place = Place::new(json!([]));
    let served = Served::start(&place, &[]);
    let create = |scope: &str| {
        let created = place.tokens(&["create", "ada", "--scope", scope, "--json"]);
        assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
        let created: Value = serde_json::from_slice(&created.stdout).unwrap();
        (created["tokenId"].as_str().unwrap().to_owned(), created["secret"].as_str().unwrap().to_owned())
    };
    let ((id, secret), (_, reader)) = (create("execute"), create("read,approve,admin"));
    let list =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": Era::July2026.meta(&json!({}))}});
    let status = |secret: &str| {
        let headers = [
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", "tools/list"),
            ("x-api-key", secret),
        ];
        served.request("POST", "/mcp", &headers, &list.to_string()).status
    };
    assert_eq!((status(&secret), status(&reader)), (200, 403));
    let mut client = served.client(Era::July2026, &secret, json!({}));
    assert_eq!(client.exec("return 7")["value"], 7);
    let stored = std::fs::read(place.path("state/runs.db")).unwrap();
    assert!(!stored.windows(secret.len()).any(|window| window == secret.as_bytes()), "the store has only the hash");
    assert!(place.tokens(&["revoke", &id]).status.success());
    let began = std::time::Instant::now();
    while status(&secret) != 401 {
        assert!(began.elapsed() < std::time::Duration::from_secs(5), "a revoked token still works");
    }
    assert_eq!(place.tokens(&["revoke", &id]).status.code(), Some(1));
}

#[test]
fn a_terminated_server_releases_its_runs() {
    let place = Place::new(json!([]));
    let mut served = Served::start(&place, &[]);
    let run_id = served.client(Era::July2026, &served.token.clone(), json!({})).exec("await yield_control(); return 5")
        ["runId"]
        .clone();
    let pid = rustix::process::Pid::from_raw(i32::try_from(served.pid()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert!(served.wait().success());
    let again = Served::start(&place, &[]);
    let done: Value = again.client(Era::July2026, &again.token, json!({})).call("wait", json!({ "runId": run_id }));
    assert_eq!(done["value"], 5, "{done}");
}
