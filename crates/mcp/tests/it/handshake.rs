//! The handshake over HTTP: which revision is used, and which error is reported.

use std::collections::BTreeMap;

use executor::ToolSource;
use mcp::{ConnectFailure, Server, Transport};
use serde_json::{Value, json};

use crate::fake::{AtAddress, Connected, Folder, heard, limits, tool};

fn raw(status: &str, kind: &str, body: &str) -> Value {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close");
    json!([{"raw": format!("{head}\r\n\r\n{body}")}])
}

#[tokio::test]
async fn a_server_with_an_empty_result_for_unknown_methods_is_an_older_one() {
    for nothing in [json!({}), json!({"supportedVersions": "all"}), json!(null)] {
        let folder = Folder::new();
        let record = folder.0.join("record");
        let script = json!({
            "tools": [tool("t", json!([{"result": {}}]))],
            "on": {"server/discover": [{"result": nothing}]},
            "record": record,
        });
        let server = Connected::at_address(script, limits()).await;
        assert_eq!(server.returned("t", json!({})).await.to_cell_value(), json!({}));
        let methods: Vec<Value> = heard(&record).iter().map(|line| line["method"].clone()).collect();
        assert!(methods.contains(&json!("initialize")), "{methods:?}");
    }
}

#[tokio::test]
async fn a_forbidden_discovery_is_reported_even_if_initialize_fails_otherwise() {
    let words = raw("403 Forbidden", "text/plain", "not from here");
    let error = json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32001, "message": "not you"}});
    let in_the_protocols = raw("403 Forbidden", "application/json", &error.to_string());
    let cases = [
        (words, "HTTP 403: not from here"),
        (in_the_protocols, "HTTP 403: not you"),
        (raw("403 Forbidden", "text/html", "<p>no"), "HTTP 403"),
    ];
    let nexts = [raw("405 Method Not Allowed", "text/plain", ""), json!([{"error": {"code": -32601, "message": "x"}}])];
    for (refusal, reason) in cases {
        for next in &nexts {
            let folder = Folder::new();
            let on = json!({"server/discover": refusal, "initialize": next});
            let at = AtAddress::start(&folder, json!({"tools": [], "on": on}));
            let error = Server::connect(at.spec(limits())).await.unwrap_err();
            assert!(matches!(error.why, ConnectFailure::Forbidden(_)), "{error:?}");
            let expected =
                format!("connect to MCP server `s`: it denied access: {reason}; check its login and its headers");
            assert_eq!(error.to_string(), expected);
        }
    }
}

#[tokio::test]
async fn a_server_that_forbids_only_the_discovery_is_initialized() {
    let folder = Folder::new();
    let on = json!({"server/discover": raw("403 Forbidden", "text/plain", "unknown method")});
    let at = AtAddress::start(&folder, json!({"tools": [tool("t", json!([{"result": {}}]))], "on": on}));
    let server = Server::connect(at.spec(limits())).await.unwrap();
    assert_eq!(server.tools().len(), 1);
}

#[tokio::test]
async fn a_rejected_authorization_header_is_reported_and_no_login_is_required() {
    let folder = Folder::new();
    let refused = raw("401 Unauthorized", "text/plain", "bad key");
    let at = AtAddress::start(&folder, json!({"on": {"server/discover": refused, "initialize": refused}}));
    let mut spec = at.spec(limits());
    let Transport::Http { headers, .. } = &mut spec.transport else { panic!("{spec:?}") };
    *headers = BTreeMap::from([("Authorization".to_owned(), "Bearer hunter2".to_owned())]);
    let error = Server::connect(spec).await.unwrap_err().to_string();
    let expected = "connect to MCP server `s`: it denied access: HTTP 401: bad key; check its login and its \
                    headers";
    assert_eq!(error, expected);
}
