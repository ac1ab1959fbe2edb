//! What `cellmate mcp` says when it is started.

use std::process::Stdio;

use serde_json::json;

use super::place::{Place, on_terminal};

#[test]
fn a_person_who_starts_the_server_on_a_terminal_reads_what_it_is_for() {
    let place = Place::new(json!([]));
    // The input ends at once, and with it the server.
    let seen = on_terminal(&place.server(&[]), "\u{4}");
    let seen = String::from_utf8(seen.stdout).unwrap();
    assert!(seen.contains("this is an MCP server for clients") && seen.contains("cellmate connect"), "{seen}");
    let quiet = place.server(&[]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(String::from_utf8(quiet.stderr).unwrap(), "");
}

#[test]
fn an_address_that_others_can_reach_is_refused_before_it_is_announced() {
    let place = Place::new(json!([]));
    let refused = place.server(&["--http", "0.0.0.0:0", "--no-token"]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let seen = String::from_utf8(refused.stderr).unwrap();
    assert!(seen.contains("requires a token") && !seen.contains("serving MCP at"), "{seen}");
}
