//! A call that is called off, and one that only lost its client.

use std::time::{Duration, Instant};

use serde_json::json;

use super::clients::{Era, PATIENCE, Served, Streams};
use super::place::{Place, reads};

const CELL: &str = "await MCP.s.hang({}); return 1";

fn hangs() -> Place {
    Place::new(json!([
        reads("hang", json!([])),
        reads("slow", json!([{"sleepMs": 3000}, {"result": {"content": []}}]))
    ]))
}

/// Until the server behind us has heard this.
fn until_heard(place: &Place, words: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !place.heard().contains(words) {
        assert!(Instant::now() < deadline, "not heard: {words}\n{}", place.heard());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_cancelled_exec_is_over_and_so_is_what_it_asked_of_others() {
    for era in Era::ALL {
        let place = hangs();
        let mut client = Streams::plain(&place, era);
        let id = client.send("tools/call", json!({"name": "exec", "arguments": {"code": CELL}}));
        until_heard(&place, "\"tools/call\"");
        client.notify("notifications/cancelled", json!({"requestId": id, "reason": "changed my mind"}));
        until_heard(&place, "notifications/cancelled");
        let found = client.call("wait", json!({}));
        assert_eq!((&found["status"], &found["code"]), (&json!("failed"), &json!("aborted")), "{found}");
    }
}

#[test]
fn over_http_a_notification_cancels_or_since_2026_the_end_of_the_stream() {
    for era in [Era::November2025, Era::July2026] {
        let place = hangs();
        let served = Served::start(&place, &[]);
        let mut client = served.client(era, &served.token, json!({}));
        if era.is_modern() {
            // Nobody reads the answer: the connection is closed under it.
            let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
                "name": "exec", "arguments": {"code": CELL}, "_meta": era.meta(&json!({})),
            }});
            abandon(&served, &body.to_string(), &place);
        } else {
            let id = client.next_id + 1;
            let _stream = client.send("tools/call", json!({"name": "exec", "arguments": {"code": CELL}}));
            until_heard(&place, "\"tools/call\"");
            client.post(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
        }
        until_heard(&place, "notifications/cancelled");
        let found = client.call("wait", json!({}));
        assert_eq!((&found["status"], &found["code"]), (&json!("failed"), &json!("aborted")), "{found}");
    }
}

#[test]
fn a_session_that_loses_its_stream_loses_no_run() {
    let place = hangs();
    let served = Served::start(&place, &[]);
    let mut client = served.client(Era::June2025, &served.token, json!({}));
    let code = "await MCP.s.slow({}); return 'here'";
    let stream = client.send("tools/call", json!({"name": "exec", "arguments": {"code": code}}));
    until_heard(&place, "\"tools/call\"");
    drop(stream);
    let found = client.call("wait", json!({}));
    assert_eq!((&found["status"], &found["value"]), (&json!("completed"), &json!("here")), "{found}");
    assert!(!place.heard().contains("notifications/cancelled"));
}

fn abandon(served: &Served, body: &str, place: &Place) {
    use std::io::Write;
    let mut stream = std::net::TcpStream::connect(&served.address).unwrap();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\n\
         Mcp-Name: exec\r\nContent-Length: {}\r\n\r\n",
        served.address,
        served.token,
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    until_heard(place, "\"tools/call\"");
}
