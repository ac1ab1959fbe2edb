//! Which runs a client finds: without a `runId` those of the same client and project, with it any of its principal.

use serde_json::{Value, json};

use super::clients::{Era, Identity, Served, Streams};
use super::place::Place;

const CELL: &str = "await yield_control('later'); return 3";

fn folder(place: &Place, name: &str) -> String {
    std::fs::create_dir_all(place.path(name)).unwrap();
    place.path(name)
}

fn assert_no_live_cell(answer: &Value) {
    assert_eq!((&answer["status"], &answer["code"]), (&json!("failed"), &json!("invalid_input")), "{answer}");
    assert!(answer["error"].as_str().unwrap().contains("no cell is live"), "{answer}");
    assert_eq!(answer["runs"], Value::Null, "another client's runs must not be listed: {answer}");
}

#[test]
fn over_streams_a_run_is_found_without_its_id_only_by_the_same_client_in_the_same_project() {
    let place = Place::new(json!([]));
    for era in Era::ALL {
        let (shop, blog) = (folder(&place, &format!("shop-{era:?}")), folder(&place, &format!("blog-{era:?}")));
        let connect = |name: &str, folder: &str| Streams::identified(&place, era, &Identity::new(name, folder));
        let mut first = connect("one-agent", &shop);
        let waiting = first.exec(CELL);
        assert_eq!(waiting["status"], "waiting", "{waiting}");
        let mut others = [connect("other-agent", &shop), connect("one-agent", &blog)];
        for other in &mut others {
            assert_no_live_cell(&other.call("wait", json!({})));
            // An unknown id lists the client's own runs only.
            let unknown = other.call("wait", json!({"runId": "cm_unknown"}));
            assert_eq!((&unknown["code"], &unknown["runs"]), (&json!("invalid_input"), &Value::Null), "{unknown}");
        }
        // The other client's own run is the only one that it finds.
        let own = others[0].exec("await yield_control(); return 'own'");
        assert_eq!(own["status"], "waiting", "{own}");
        assert_eq!(others[0].call("wait", json!({}))["value"], "own");
        // The client finds its run after a restart, because the name and the folder are the same.
        first.close();
        assert!(first.child.wait().unwrap().success());
        let mut again = connect("one-agent", &shop);
        assert_eq!(again.call("wait", json!({}))["value"], 3);
        // The result of an ended run is found in the same way.
        assert_eq!(again.call("wait", json!({}))["value"], 3);
        assert_no_live_cell(&others[1].call("wait", json!({})));
        // With the id, any client of the principal can resume a run.
        let handed_over = again.exec(CELL);
        assert_eq!(others[1].call("wait", json!({"runId": handed_over["runId"]}))["value"], 3);
    }
}

#[test]
fn over_http_a_run_is_found_without_its_id_only_by_the_same_client() {
    let place = Place::new(json!([]));
    let served = Served::start(&place, &[]);
    for era in Era::ALL {
        let connect = |name: &str| served.client_named(era, &served.token, name);
        let (mut first, mut other) = (connect("one-agent"), connect("other-agent"));
        let waiting = first.exec(CELL);
        assert_eq!(waiting["status"], "waiting", "{waiting}");
        assert_no_live_cell(&other.call("wait", json!({})));
        // A new session of the same client finds it.
        assert_eq!(connect("one-agent").call("wait", json!({}))["value"], 3);
        let waiting = first.exec(CELL);
        assert_eq!(other.call("wait", json!({"runId": waiting["runId"]}))["value"], 3);
    }
}

#[test]
fn a_run_outlives_the_http_session_that_started_it() {
    let place = Place::new(json!([]));
    let served = Served::start(&place, &[]);
    let mut client = served.client(Era::November2025, &served.token, json!({}));
    let waiting = client.exec(CELL);
    let bearer = format!("Bearer {}", served.token);
    let headers = [
        ("Authorization", bearer.as_str()),
        ("MCP-Protocol-Version", Era::November2025.version()),
        ("Mcp-Session-Id", client.session()),
    ];
    assert!(served.request("DELETE", "/mcp", &headers, "").status < 300);
    assert_eq!(served.request("DELETE", "/mcp", &headers, "").status, 404, "the session has ended");
    let mut again = served.client(Era::November2025, &served.token, json!({}));
    assert_eq!(again.call("wait", json!({"runId": waiting["runId"]}))["value"], 3);
}
