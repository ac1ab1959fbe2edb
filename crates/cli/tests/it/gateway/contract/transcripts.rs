//! What the store keeps of turns: exports of runs, transcripts of sessions, and what later requests replay to the model.

use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};
use store::{Keys, Location, Store};
use testkit::model::Reply;

use super::super::running::{Running, cell, when_last};
use super::super::wires::Wire;
use super::{Provider, configure, names, request, setup};
use crate::mcp::place::Place;

/// Calls of every kind: two of the client at once, then one of the plugin and one of the server.
const CODE: &str = "const seen = await Promise.all([tools.look({n: 1}), tools.look({n: 2})]); \
    const echo = await tools.echo({word: 'w'}); const { structuredContent } = await MCP.s.add({a: 1, b: 2}); \
    return ['calls of every kind', seen.length, echo.input.word, structuredContent.sum]";

const CALLS: [&str; 4] = ["client:app:look", "client:app:look", "plugin:demo:echo", "mcp:s:add"];

fn runs(place: &Place, arguments: &[&str]) -> Vec<u8> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cellmate"));
    let output = command.arg("runs").args(arguments).args(["--state-dir", &place.path("state")]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

/// Returns the runs of the store, the newest first.
pub(super) fn listed(place: &Place) -> Vec<Value> {
    serde_json::from_slice(&runs(place, &["list", "--json"])).unwrap()
}

pub(super) fn newest_run(place: &Place) -> String {
    listed(place)[0]["runId"].as_str().unwrap().to_owned()
}

pub(super) fn exported(place: &Place, run: &str) -> Vec<Value> {
    let exported = String::from_utf8(runs(place, &["export", run])).unwrap();
    exported.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn session_id(place: &Place, run: &str) -> String {
    let run = listed(place).into_iter().find(|one| one["runId"] == run).unwrap();
    run["sessionId"].as_str().unwrap().to_owned()
}

/// Returns kind and content of each entry in the transcript of the session that a run belongs to.
pub(super) fn session(place: &Place, run: &str) -> Vec<(String, Value)> {
    let session_id = session_id(place, run);
    let location = Location::File(place.path("state/runs.db").into());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let entries = runtime.block_on(async {
        let store = Store::open(&location, Keys::ephemeral().unwrap()).await.unwrap();
        store.transcript(&session_id).await.unwrap()
    });
    entries.into_iter().map(|entry| (entry.kind.as_str().to_owned(), entry.entry)).collect()
}

#[test]
fn a_turn_with_client_plugin_and_mcp_calls_is_exported_in_order_and_replayed_also_after_a_kill() {
    let replies = vec![
        when_last("call all", cell(CODE)),
        when_last("calls of every kind", Reply::text("All were called.")),
        when_last("and then", Reply::text("That was all.")),
    ];
    let setup = setup(replies);
    configure(&setup, &json!({"codeMode": {"enabled": true}}), &json!({}));
    let mut running = setup.start();
    let mut rows = Vec::new();
    for (wire, provider) in Wire::ALL.into_iter().zip(Provider::ALL) {
        let mut items = wire.user("call all");
        let first = running.send(wire, &request(wire, provider.agent(), &items, true));
        assert_eq!(first.calls.len(), 2, "{wire:?} {}", first.body);
        items.extend(first.items);
        items.extend(wire.results(&[(&first.calls[0].id, "one"), (&first.calls[1].id, "two")]));
        let done = running.send(wire, &request(wire, provider.agent(), &items, true));
        assert_eq!(done.text, "All were called.", "{wire:?} {}", done.body);
        items.extend(done.items);
        let run = newest_run(&setup.place);
        let (export, session) = (exported(&setup.place, &run), session(&setup.place, &run));
        nested(&export, &CALLS);
        let shown = trajectory(&running, &session_id(&setup.place, &run), &CALLS);
        let kinds: Vec<&str> = session.iter().map(|(kind, _)| kind.as_str()).collect();
        let expected = ["user_message", "model_message", "control_call"];
        assert_eq!(&kinds[..3], expected, "{wire:?} {session:?}");
        assert_eq!(&kinds[kinds.len() - 3..], ["control_result", "model_message", "turn_note"], "{session:?}");
        let model = &session[1].1;
        assert_eq!((&model["calls"][0]["name"], &model["calls"][0]["id"]), (&json!("exec"), &export[0]["toolCallId"]));
        rows.push((wire, provider, items, run, export, session, shown));
    }
    running.signal(Signal::KILL);
    running.wait();
    let running = setup.start();
    for (wire, provider, mut items, run, export, before, shown) in rows {
        assert_eq!(exported(&setup.place, &run), export, "{wire:?}");
        assert_eq!(session(&setup.place, &run), before, "{wire:?}");
        assert_eq!(trajectory(&running, &session_id(&setup.place, &run), &CALLS), shown, "{wire:?}");
        items.extend(wire.user("and then"));
        let later = running.send(wire, &request(wire, provider.agent(), &items, false));
        assert_eq!(later.text, "That was all.", "{wire:?} {}", later.body);
        // The model receives the control call and its result, and not the calls that the client saw.
        let replayed = setup.model.requests().pop().unwrap();
        assert_eq!(names(&replayed), ["exec", "wait"]);
        let replayed = replayed.json();
        let replayed = replayed["messages"].as_array().or(replayed["input"].as_array()).unwrap();
        let text = serde_json::to_string(replayed).unwrap();
        assert!(text.contains("Promise.all([tools.look") && text.contains("calls of every kind"), "{wire:?} {text}");
        assert!(text.contains(export[0]["toolCallId"].as_str().unwrap()), "{wire:?} {text}");
        assert!(!text.contains("\"name\":\"look\"") && text.contains("All were called."), "{wire:?} {text}");
    }
}

/// Checks that the calls are below the control calls of their cell, in this order, each before its own result. A cell that
/// calls the client is suspended by the result of `exec` and resumed by a `wait` of the same call.
pub(super) fn nested(entries: &[Value], expected: &[&str]) {
    let of = |kind: &str| entries.iter().filter(|entry| entry["kind"] == kind).collect::<Vec<_>>();
    let ids = |kind| of(kind).iter().map(|entry| entry["toolId"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(ids("tool_call"), expected, "{entries:#?}");
    assert_eq!(ids("tool_result"), expected, "{entries:#?}");
    let controls: Vec<&str> = of("control_call").iter().map(|entry| entry["toolName"].as_str().unwrap()).collect();
    assert!(controls[0] == "exec" && controls[1..].iter().all(|name| *name == "wait"), "{entries:#?}");
    assert_eq!(of("control_result").len(), controls.len(), "{entries:#?}");
    let (first, last) = (&entries[0], &entries[entries.len() - 1]);
    assert_eq!((&first["kind"], &last["kind"]), (&json!("control_call"), &json!("control_result")), "{entries:#?}");
    assert_eq!(last["result"]["status"], "completed", "{entries:#?}");
    for (at, entry) in entries.iter().enumerate() {
        let own = if entry["toolId"].is_string() { &entry["parentToolCallId"] } else { &entry["toolCallId"] };
        assert!(own.is_string() && *own == first["toolCallId"], "{entry}");
        let is_begun = |one: &Value| one["kind"] == "tool_call" && one["toolCallId"] == entry["toolCallId"];
        assert!(entry["kind"] != "tool_result" || entries[..at].iter().any(is_begun), "{entry}");
    }
}

/// Checks the export over HTTP: the same calls, inside the control calls that they belong to.
fn trajectory(running: &Running, session: &str, expected: &[&str]) -> String {
    let text = running.get(&format!("/api/v1/sessions/{session}/trajectory")).text();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["kind"], &lines[0]["sessionId"]), (&json!("trajectory"), &json!(session)), "{text}");
    let calls: Vec<&str> = lines
        .iter()
        .filter(|line| line["kind"] == "control_call")
        .flat_map(|line| line["toolCalls"].as_array().unwrap())
        .map(|call| call["toolId"].as_str().unwrap())
        .collect();
    assert_eq!(calls, expected, "{text}");
    // The first line has the time of the export.
    text.split_once('\n').unwrap().1.to_owned()
}
