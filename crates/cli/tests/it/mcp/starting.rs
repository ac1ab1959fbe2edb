//! What `cellmate mcp` says and lists when it is started.

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::clients::{Era, Streams};
use super::place::{Place, on_terminal, reads};

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
fn an_address_that_others_can_reach_is_refused_before_anything_is_started() {
    let place = Place::new(json!([]));
    let refused = place.server(&["--http", "0.0.0.0:0", "--no-token"]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let seen = String::from_utf8(refused.stderr).unwrap();
    assert!(seen.contains("requires a token") && !seen.contains("serving MCP at"), "{seen}");
    assert!(!std::path::Path::new(&place.path("state")).exists(), "the store was opened");
}

/// Clients send their first request to a model without the tools of a server whose list takes a second.
#[test]
fn tools_are_listed_at_once_while_a_server_starts_and_exec_waits_for_it() {
    let said = json!([{"result": {"content": [{"type": "text", "text": "hello"}]}}]);
    let place = Place::new(json!([reads("say", said)]));
    let config: Value = serde_json::from_str(&std::fs::read_to_string(place.path("config.json")).unwrap()).unwrap();
    let entry = &config["mcpServers"]["s"];
    let mut args = vec![json!("-c"), json!("sleep 2; exec \"$0\" \"$@\""), entry["command"].clone()];
    args.extend(entry["args"].as_array().cloned().unwrap_or_default());
    let mut slow = entry.clone();
    (slow["command"], slow["args"]) = (json!("sh"), json!(args));
    place.configure(&json!({"mcpServers": {"s": slow}}));
    let mut client = Streams::plain(&place, Era::November2025);
    let began = Instant::now();
    let listed = client.ask("tools/list", json!({}));
    assert!(began.elapsed() < Duration::from_millis(1500), "{:?}", began.elapsed());
    let description = listed["result"]["tools"][0]["description"].as_str().unwrap();
    assert!(description.contains("Servers: s.") && !description.contains("Unavailable"), "{description}");
    let ran = client.exec("return (await MCP.s.say({})).content[0].text");
    assert_eq!(ran["value"], "hello", "{ran}");
    client.next("notification of changed tools", |message| message["method"] == "notifications/tools/list_changed");
}
