//! What the store keeps of turns: exports of runs, transcripts of sessions, and what later requests replay to the model.

use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};
use store::{Keys, Location, Store};
use testkit::model::Reply;

use super::super::running::{cell, when_last};
use super::super::wires::Wire;
use super::{Provider, configure, names, request, setup};
use crate::mcp::place::Place;

/// Calls of every kind: two of the client at once, then one of the plugin and one of the server.
const CODE: &str = "const seen = await Promise.all([tools.look({n: 1}), tools.look({n: 2})]); \
    const echo = await tools.echo({word: 'w'}); const { structuredContent } = await MCP.s.add({a: 1, b: 2}); \
    return ['calls of every kind', seen.length, echo.input.word, structuredContent.sum]";

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

/// Returns kind and content of each entry in the transcript of the session that a run belongs to.
pub(super) fn session(place: &Place, run: &str) -> Vec<(String, Value)> {
    let run = listed(place).into_iter().find(|one| one["runId"] == run).unwrap();
    let location = Location::File(place.path("state/runs.db").into());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let entries = runtime.block_on(async {
        let store = Store::open(&location, Keys::ephemeral().unwrap()).await.unwrap();
        store.transcript(run["sessionId"].as_str().unwrap()).await.unwrap()
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
        in_order(&export);
        let kinds: Vec<&str> = session.iter().map(|(kind, _)| kind.as_str()).collect();
        let expected = ["user_message", "model_message", "control_call"];
        assert_eq!(&kinds[..3], expected, "{wire:?} {session:?}");
        assert_eq!(&kinds[kinds.len() - 3..], ["control_result", "model_message", "turn_note"], "{session:?}");
        let model = &session[1].1;
        assert_eq!((&model["calls"][0]["name"], &model["calls"][0]["id"]), (&json!("exec"), &export[0]["toolCallId"]));
        rows.push((wire, provider, items, run, export, session));
    }
    running.signal(Signal::KILL);
    running.wait();
    let running = setup.start();
    for (wire, provider, mut items, run, export, before) in rows {
        assert_eq!(exported(&setup.place, &run), export, "{wire:?}");
        assert_eq!(session(&setup.place, &run), before, "{wire:?}");
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

/// Checks that every call is under the call of `exec`, after those that it depends on and before its own result.
fn in_order(entries: &[Value]) {
    let shown: Vec<(&str, &str)> = entries
        .iter()
        .map(|entry| (entry["kind"].as_str().unwrap(), entry["toolId"].as_str().unwrap_or("exec")))
        .collect();
    assert_eq!((shown[0], shown[shown.len() - 1]), (("control_call", "exec"), ("control_result", "exec")), "{shown:?}");
    let inside = &shown[1..shown.len() - 1];
    let look = |kind| (kind, "client:app:look");
    // Both are sent to the client together, so their calls come first.
    assert_eq!(
        inside[..4],
        [look("tool_call"), look("tool_call"), look("tool_result"), look("tool_result")],
        "{shown:?}"
    );
    let [echo, add] = ["plugin:demo:echo", "mcp:s:add"].map(|id| [("tool_call", id), ("tool_result", id)]);
    assert_eq!(inside[4..], [echo, add].concat(), "{shown:?}");
    let control = &entries[0]["toolCallId"];
    let inside = &entries[1..entries.len() - 1];
    assert!(control.is_string() && inside.iter().all(|entry| entry["parentToolCallId"] == *control), "{entries:?}");
}
