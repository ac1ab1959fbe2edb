//! Servers over HTTP: requests, responses, and which of them are accepted.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use contract::tool::ToolSpec;
use executor::{Outcome, ProgressSink, ToolSource};
use mcp::{DisconnectReason, Limits, Server, ServerSpec, Transport, UnreachableCause};
use serde_json::{Value, json};

use crate::fake::{AtAddress, Connected, Folder, heard, limits, tool, wait_until_recorded};

/// Makes the fake a server without `server/discover`.
fn older(mut script: Value, session: bool) -> Value {
    let no = "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: 14\r\nconnection: close\r\n\r\nno session yet";
    script["on"]["server/discover"] = json!([{"raw": no}]);
    if session {
        script["http"]["session"] = json!("s1");
    }
    script
}

fn whole() -> Value {
    json!({
        "content": [
            {"type": "text", "text": "a"},
            {"type": "image", "data": "AA==", "mimeType": "image/png"},
            {"type": "resource_link", "uri": "note://1", "name": "one"},
            {"type": "unheardOf", "x": [1]},
        ],
        "structuredContent": [1, {"b": null}],
        "isError": true,
        "_meta": {"c": 1},
    })
}

#[tokio::test]
async fn results_are_complete_in_both_revisions_as_a_message_or_a_stream() {
    for (older_one, json_only) in [(false, false), (false, true), (true, false), (true, true)] {
        let record = Folder::new();
        let path = record.0.join("record");
        let schema = json!({"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}});
        let answers = json!({"name": "whole", "inputSchema": schema, "does": [{"result": whole()}]});
        let mut script = json!({"tools": [answers], "http": {"json": json_only}, "record": path, "resources": [{"uri": "note://1", "name": "one", "text": "hi"}]});
        if older_one {
            script = older(script, true);
        }
        let server = Connected::at_address(script, limits()).await;
        let returned = server.returned("whole", json!({"region": "eu"})).await;
        assert_eq!(returned.to_cell_value(), whole());
        assert_eq!(returned.content, *whole()["content"].as_array().unwrap());
        let read = server.returned("resources_read", json!({"uri": "note://1"})).await;
        assert_eq!(read.to_cell_value()["contents"][0]["text"], "hi");
        let lines = heard(&path);
        let call = lines.iter().position(|line| line["method"] == "tools/call").unwrap();
        let headers = &lines[call - 1]["headers"];
        let version = if older_one { "2025-11-25" } else { "2026-07-28" };
        assert_eq!(headers["mcp-protocol-version"], version, "{headers}");
        let expected = if older_one {
            [Value::Null, Value::Null, Value::Null]
        } else {
            [json!("tools/call"), json!("whole"), json!("eu")]
        };
        assert_eq!(
            [headers["mcp-method"].clone(), headers["mcp-name"].clone(), headers["mcp-param-region"].clone()],
            expected
        );
        assert_eq!(headers["mcp-session-id"], if older_one { json!("s1") } else { Value::Null });
        drop(server.server);
    }
}

#[tokio::test]
async fn progress_and_tool_changes_are_received_in_both_revisions() {
    for older_one in [false, true] {
        let changed = json!({"say": {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}});
        let slow =
            json!([{"progress": {"progress": 1, "total": 2, "message": "half"}}, {"sleepMs": 50}, {"result": {}}]);
        let tells = json!([changed, {"drip": 20}]);
        let mut script = json!({"tools": [tool("slow", slow)], "listChanged": true, "http": {"listen": tells}, "on": {"subscriptions/listen": tells}});
        if older_one {
            script = older(script, false);
        }
        let server = Connected::at_address(script, limits()).await;
        let mut changes = server.server.list_changes();
        tokio::time::timeout(Duration::from_secs(10), changes.wait_for(|times| *times > 0)).await.unwrap().unwrap();
        let names: Vec<ToolSpec> = server.server.relist().await.unwrap();
        assert_eq!(names[0].id.as_str(), "mcp:s:slow");
        let (send, receive) = std::sync::mpsc::channel();
        let updates = ProgressSink::to(move |update| send.send(update).unwrap());
        let outcome = server.call_heard("slow", json!({}), updates).await;
        assert!(matches!(outcome, Outcome::Returned(_)), "{outcome:?}");
        assert_eq!(receive.try_iter().collect::<Vec<_>>(), [json!({"progress": 1, "total": 2, "message": "half"})]);
    }
}

#[tokio::test]
async fn a_dropped_call_is_cancelled_at_the_server() {
    for older_one in [false, true] {
        let folder = Folder::new();
        let record = folder.0.join("record");
        let mut script = json!({"tools": [tool("drips", json!([{"drip": 10}]))], "record": record});
        if older_one {
            script = older(script, true);
        }
        let server = Connected::at_address(script, limits()).await;
        tokio::select! {
            outcome = server.call("drips", json!({})) => panic!("{outcome:?}"),
            _ = wait_until_recorded(&record, |line| line["method"] == "tools/call") => {}
        }
        wait_until_recorded(&record, |line| line["gone"] == "drips").await;
        if older_one {
            let call = wait_until_recorded(&record, |line| line["method"] == "tools/call").await;
            let cancelled = wait_until_recorded(&record, |line| line["method"] == "notifications/cancelled").await;
            assert_eq!(cancelled["params"]["requestId"], call["id"]);
        } else {
            assert!(!heard(&record).iter().any(|line| line["method"] == "notifications/cancelled"));
        }
        if older_one {
            drop(server.server);
        }
    }
}

#[tokio::test]
async fn a_broken_stream_is_resumed_if_there_is_a_session() {
    let breaks = json!([{"print": "id: 7\nretry: 10\ndata: \n"}]);
    let folder = Folder::new();
    let record = folder.0.join("record");
    let rest = json!([{"result": {"content": [], "structuredContent": "the rest"}}]);
    let script = json!({"tools": [tool("breaks", breaks)], "http": {"resume": rest}, "record": record});
    let server = Connected::at_address(older(script.clone(), true), limits()).await;
    assert_eq!(server.returned("breaks", json!({})).await.to_cell_value()["structuredContent"], "the rest");
    wait_until_recorded(&record, |line| line["http"] == "GET" && line["headers"]["last-event-id"] == "7").await;
    let without = Connected::at_address(script, limits()).await;
    let expected = "`breaks` of MCP server `s` failed: the response broke off; the call may have taken effect (code 0)";
    assert_eq!(without.failed("breaks").await, expected);
    assert_eq!(without.server.why_closed(), None, "a lost response does not end the connection");
}

#[tokio::test]
async fn an_unknown_session_or_an_unreachable_server_ends_the_connection() {
    let forgets = json!([{"session": "s2"}, {"result": {}}]);
    let script = older(json!({"tools": [tool("forgets", forgets)]}), true);
    let server = Connected::at_address(script.clone(), limits()).await;
    server.returned("forgets", json!({})).await;
    assert_eq!(server.call("forgets", json!({})).await, Outcome::Unknown);
    let failed = server.failed("forgets").await;
    assert!(failed.contains("the server no longer knows the session"), "{failed}");
    assert_eq!(server.server.closed().await, DisconnectReason::SessionGone);
    let mut server = Connected::at_address(script, limits()).await;
    server.at.as_mut().unwrap().end();
    assert_eq!(server.call("forgets", json!({})).await, Outcome::Unknown);
    let failed = server.failed("forgets").await;
    assert!(failed.contains("the server cannot be reached at its address: connection refused"), "{failed}");
    assert_eq!(server.server.closed().await, DisconnectReason::Unreachable(UnreachableCause::Refused));
    let at = server.at.as_ref().unwrap();
    let address = at.url.strip_suffix("/mcp").unwrap();
    let secret = at.url.replace("/mcp", "/hunter2?token=hunter2").replace("://", "://me:hunter2@");
    let named = at.url.replace("127.0.0.1", "no-such-host.invalid");
    let cases = [
        (secret, address, "connection refused"),
        (named.clone(), named.strip_suffix("/mcp").unwrap(), "its name was not found"),
    ];
    for (url, shown, cause) in cases {
        let transport = Transport::Http { url: url.clone(), headers: BTreeMap::new(), login: None };
        let error = Server::connect(ServerSpec { transport, ..at.spec(limits()) }).await.unwrap_err().to_string();
        let expected = format!(
            "connect to MCP server `s`: the server cannot be reached at `{shown}`: {cause}; check the address and that the \
             server runs"
        );
        assert_eq!(error, expected);
    }
    // A server that does not speak TLS.
    let plain = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/mcp", plain.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in plain.incoming() {
            let (mut stream, mut hello) = (stream.unwrap(), [0; 4096]);
            drop(std::io::Read::read(&mut stream, &mut hello));
            drop(std::io::Write::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n"));
        }
    });
    let transport = Transport::Http { url, headers: BTreeMap::new(), login: None };
    let error = Server::connect(ServerSpec { transport, ..at.spec(limits()) }).await.unwrap_err().to_string();
    assert!(error.contains("the encrypted connection (TLS) failed"), "{error}");
}

#[tokio::test]
async fn http_errors_are_reported_and_a_redirect_to_another_origin_is_not_followed() {
    let folder = Folder::new();
    let elsewhere = AtAddress::start(&folder, json!({"record": folder.0.join("record")}));
    let Transport::Http { url: there, .. } = elsewhere.spec(limits()).transport else { panic!() };
    let raw = |status: &str, head: &str, body: &str| json!([{"raw": format!("HTTP/1.1 {status}\r\n{head}content-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())}]);
    let tools = [
        tool("redirects", raw("307 Temporary Redirect", &format!("location: {there}?secret=1\r\n"), "")),
        tool("plain", raw("503 Service Unavailable", "content-type: text/plain\r\n", "later\u{1b}[2J")),
        tool("page", raw("500 Oops", "content-type: text/html\r\n", "<html>")),
        tool("limited", raw("429 Too Many Requests", "", "")),
        tool(
            "protocol",
            raw(
                "400 Bad",
                "content-type: application/json\r\n",
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}"#,
            ),
        ),
        tool("html", raw("200 OK", "content-type: text/html\r\n", "<html>")),
        tool("nothing", raw("202 Accepted", "", "")),
        tool("fine", json!([{"result": {}}])),
    ];
    let server = Connected::at_address(json!({"tools": tools}), limits()).await;
    let expected = [
        (
            "redirects",
            format!(
                "it redirects to {there}, which is not followed; if you trust that address, configure it (code 307)"
            ),
        ),
        ("plain", "HTTP 503: later [2J (code 503)".to_owned()),
        ("page", "HTTP 500 (code 500)".to_owned()),
        ("limited", "HTTP 429 (code 429)".to_owned()),
        ("protocol", "no (code -32602)".to_owned()),
        ("html", "its response is not a JSON-RPC message (code 0)".to_owned()),
        ("nothing", "the response broke off; the call may have taken effect (code 0)".to_owned()),
    ];
    for (name, why) in expected {
        assert_eq!(server.failed(name).await, format!("`{name}` of MCP server `s` failed: {why}"));
    }
    assert_eq!(server.returned("fine", json!({})).await.to_cell_value(), json!({}));
    assert!(heard(&folder.0.join("record")).is_empty());
}

#[tokio::test]
async fn configured_headers_reach_the_server_and_cannot_replace_reserved_ones() {
    let folder = Folder::new();
    let record = folder.0.join("record");
    let at = AtAddress::start(&folder, json!({"tools": [], "record": record}));
    let mut spec = at.spec(limits());
    let mut with = |name: &str, value: &str| {
        let Transport::Http { headers, .. } = &mut spec.transport else { panic!() };
        headers.clear();
        headers.insert(name.to_owned(), value.to_owned());
        spec.clone()
    };
    Server::connect(with("X-Api-Key", "hunter2")).await.unwrap();
    wait_until_recorded(&record, |line| line["headers"]["x-api-key"] == "hunter2").await;
    for (name, value) in [("Mcp-Session-Id", "x"), ("a b", "x"), ("x", "a\nb")] {
        let error = Server::connect(with(name, value)).await.unwrap_err().to_string();
        let expected = format!(
            "connect to MCP server `s`: its header `{name}` cannot be sent; check its name, and that its value is one line of plain text"
        );
        assert_eq!(error, expected);
    }
    for (url, shown) in [("hunter2", "(not an address)"), ("file:///etc/passwd", "file:///etc/passwd")] {
        let Transport::Http { url: ours, headers, .. } = &mut spec.transport else { panic!() };
        headers.clear();
        *ours = url.to_owned();
        let error = Server::connect(spec.clone()).await.unwrap_err().to_string();
        assert_eq!(error, format!("connect to MCP server `s`: invalid URL `{shown}`: expected http:// or https://"));
    }
}

#[tokio::test]
async fn an_endless_body_or_event_fails_only_its_own_call() {
    for (json_only, before) in [(false, "data: "), (true, "")] {
        let tools =
            [tool("endless", json!([{"print": before}, {"endless": true}])), tool("fine", json!([{"result": {}}]))];
        let server = Connected::at_address(json!({"tools": tools, "http": {"json": json_only}}), limits()).await;
        let (endless, fine) = tokio::join!(server.call("endless", json!({})), server.returned("fine", json!({})));
        let Outcome::Dropped(dropped) = endless else { panic!("{endless:?}") };
        let expected =
            "`endless` of MCP server `s`: its response is longer than 8388608 bytes; ask it for less at once";
        assert!(dropped.message.contains(expected), "{}", dropped.message);
        assert_eq!(fine.to_cell_value(), json!({}));
        server.returned("fine", json!({})).await;
    }
}

#[tokio::test]
async fn a_body_that_never_ends_times_out_with_its_call() {
    for json_only in [false, true] {
        let tools = [tool("drips", json!([{"drip": 5}])), tool("fine", json!([{"result": {}}]))];
        let short = Limits { call: Duration::from_millis(300), ..limits() };
        let server = Connected::at_address(json!({"tools": tools, "http": {"json": json_only}}), short).await;
        let began = Instant::now();
        let (drips, fine) = tokio::join!(server.failed("drips"), server.returned("fine", json!({})));
        assert!(drips.contains("no response within 300 ms"), "{drips}");
        assert_eq!(fine.to_cell_value(), json!({}));
        assert!(began.elapsed() < Duration::from_secs(5));
    }
}

#[tokio::test]
async fn garbage_wrong_ids_and_floods_are_skipped_until_there_are_too_many() {
    let stray = |times: u32| json!({"sayTimes": [times, "not an object"]});
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    let tools = [
        tool("some", json!([stray(9), {"result": {}}])),
        tool(
            "wrong",
            json!([{"say": {"jsonrpc": "2.0", "id": 999, "result": {"content": ["wrong"]}}}, {"say": {"id": {}, "result": 1}}, {"result": {}}]),
        ),
        tool(
            "flood",
            json!([{"sayTimes": [20_000, changed]}, {"sayTimes": [20_000, {"method": "notifications/message"}]}, {"result": {}}]),
        ),
        tool("many", json!([stray(10), {"result": {}}])),
    ];
    let server = Connected::at_address(json!({"tools": tools}), limits()).await;
    for name in ["some", "wrong", "flood"] {
        assert_eq!(server.returned(name, json!({})).await.to_cell_value(), json!({}), "{name}");
    }
    assert_eq!(*server.server.list_changes().borrow(), 20_000);
    assert!(matches!(server.call("many", json!({})).await, Outcome::Unknown));
    assert_eq!(server.server.closed().await, DisconnectReason::Garbage);
    assert_eq!(server.server.tools().len(), 4);
}
