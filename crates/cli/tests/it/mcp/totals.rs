//! Totals over all sessions, bodies and requests of an HTTP server, reached over the wire.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use super::clients::{Era, Response, Served};
use super::place::{Place, reads};

fn token(number: usize) -> String {
    format!("token-of-principal-{number:04}")
}

fn served(place: &Place, principals: usize) -> Served {
    let tokens: String = (0..principals).map(|number| format!("p{number} {}\n", token(number))).collect();
    std::fs::write(place.path("tokens"), tokens).unwrap();
    std::fs::set_permissions(place.path("tokens"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    Served::start(place, &["--tokens", &place.path("tokens")])
}

fn initialize(served: &Served, token: &str) -> Response {
    let info = json!({"name": "test", "version": "1"});
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info});
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    served.post(Era::November2025, token, None, &message)
}

#[test]
fn sessions_of_all_principals_are_bounded_and_a_principal_can_replace_its_own() {
    let place = Place::new(json!([]));
    let served = served(&place, 17);
    for number in 0..1024 {
        assert_eq!(initialize(&served, &token(number % 16)).status, 200, "session {number}");
    }
    let refused = initialize(&served, &token(16));
    assert_eq!(refused.status, 503);
    assert!(refused.text().contains("all 1024 sessions of the server are in use"));
    assert_eq!(initialize(&served, &token(0)).status, 200, "it replaces its own idle session");
}

#[test]
fn large_bodies_of_all_principals_share_a_budget() {
    const BODY_BYTES: usize = 4 << 20;
    let place = Place::new(json!([]));
    let served = served(&place, 5);
    // Each holds 4 MiB of the budget, because that much is announced and more than the free amount was sent.
    let held: Vec<TcpStream> = (0..16)
        .map(|number| {
            let mut stream = TcpStream::connect(&served.address).unwrap();
            let (host, token) = (&served.address, token(number % 4));
            let head = format!(
                "POST /mcp HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
                 Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n\
                 Content-Length: {BODY_BYTES}\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(&vec![b' '; 256 << 10]).unwrap();
            stream
        })
        .collect();
    std::thread::sleep(Duration::from_millis(500));
    let large = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {
        "_meta": Era::July2026.meta(&json!({})), "padding": " ".repeat(1 << 20)}});
    assert_eq!(served.post(Era::July2026, &token(4), None, &large).status, 503);
    let small = served.client(Era::July2026, &token(4), json!({})).send("tools/list", json!({})).answer();
    assert!(small["result"]["tools"].is_array(), "small requests need no budget: {small}");
    drop(held);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(served.post(Era::July2026, &token(4), None, &large).status, 200);
}

#[test]
fn requests_in_progress_of_one_principal_are_bounded() {
    let place = Place::new(json!([reads("slow", json!([{"sleepMs": 60_000}, {"result": {"content": []}}]))]));
    let served = served(&place, 2);
    let call = json!({"name": "exec", "arguments": {"code": "await MCP.s.slow({}); return 1"}});
    // Several sessions, because each has a limit of streams, and a closed stream is noticed with a delay.
    let mut clients: Vec<_> = (0..8).map(|_| served.client(Era::November2025, &token(0), json!({}))).collect();
    for number in 0..256 {
        // The request stays in progress when its connection is closed.
        assert_eq!(clients[number % 8].send("tools/call", call.clone()).status, 200, "request {number}");
    }
    let refused = clients[0].send("tools/call", call);
    assert_eq!(refused.status, 429);
    assert!(refused.text().contains("256 requests in progress"));
    let mut other = served.client(Era::November2025, &token(1), json!({}));
    assert_eq!(other.exec("return 1")["value"], 1, "another principal is served");
}

#[test]
fn responses_kept_for_resuming_clients_take_bounded_memory() {
    let place = Place::new(json!([]));
    let served = served(&place, 1);
    let mut clients: Vec<_> = (0..4).map(|_| served.client(Era::November2025, &token(0), json!({}))).collect();
    for client in &mut clients {
        client.exec("return 1");
    }
    let before = served.resident_mib();
    for number in 0..480 {
        let client = &mut clients[number % 4];
        let done: Value = client.exec("return 'x'.repeat(60_000)");
        assert_eq!(done["value"].as_str().map(str::len), Some(60_000), "{number}");
    }
    let grown = served.resident_mib().saturating_sub(before);
    assert!(grown <= 40, "{grown} MiB for 57 MB of responses");
}
