//! Recovery of answers that did not arrive, and processes that share a store.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::clients::{Era, Streams};
use super::place::{Place, reads};

#[test]
fn an_exec_whose_answer_was_lost_can_be_recovered() {
    let place = Place::new(json!([]));
    for era in [Era::June2025, Era::July2026] {
        let mut client = Streams::plain(&place, era);
        // The client exits before it reads the answer.
        client.send("tools/call", json!({"name": "exec", "arguments": {"code": format!("return '{era:?}'")}}));
        client.close();
        assert!(client.child.wait().unwrap().success());
    }
    let mut client = Streams::plain(&place, Era::November2025);
    let listed = client.call("wait", json!({}));
    assert_eq!(listed["status"], "listed", "{listed}");
    let runs = listed["runs"].as_array().unwrap();
    let codes: Vec<&str> = runs.iter().map(|run| run["code"].as_str().unwrap()).collect();
    assert_eq!(codes, ["return 'July2026'", "return 'June2025'"], "newest first");
    let found = client.call("wait", json!({"runId": runs[0]["runId"]}));
    assert_eq!((&found["status"], &found["value"]), (&json!("completed"), &json!("July2026")), "{found}");
}

/// Nothing of this cell must be stored before it ends, except that it may take long.
#[test]
fn a_cell_that_has_only_read_for_long_is_listed_and_survives_a_kill() {
    let place = Place::new(json!([reads(
        "slow",
        json!([{"sleepMs": 8_000}, {"result": {"content": [], "structuredContent": {"done": true}}}])
    )]));
    let mut client = Streams::plain(&place, Era::July2026);
    let code = "return (await MCP.s.slow({})).structuredContent.done";
    client.send("tools/call", json!({"name": "exec", "arguments": {"code": code}}));
    let began = Instant::now();
    let run = loop {
        let listed: Vec<Value> = serde_json::from_slice(&place.runs(&["list", "--json"]).stdout).unwrap();
        if let [run] = listed.as_slice() {
            break run.clone();
        }
        assert!(began.elapsed() < Duration::from_secs(7), "the run is not listed before it ends");
        std::thread::sleep(Duration::from_millis(100));
    };
    assert_eq!((&run["state"], &run["pending"]), (&json!("running"), &json!(1)), "{run}");
    client.child.kill().unwrap();
    client.child.wait().unwrap();

    let mut other = Streams::plain(&place, Era::July2026);
    let mut found = other.call("wait", json!({"runId": run["runId"]}));
    while found["status"] == "waiting" {
        found = other.call("wait", json!({"runId": run["runId"]}));
    }
    assert_eq!((&found["status"], &found["value"]), (&json!("completed"), &json!(true)), "{found}");
}

#[test]
fn wait_without_a_run_id_means_the_only_run() {
    let place = Place::new(json!([]));
    let mut client = Streams::plain(&place, Era::July2026);
    assert_eq!(client.exec("await yield_control(); return 3")["status"], "waiting");
    assert_eq!(client.call("wait", json!({}))["value"], 3);
    // A run that has just ended is reported again.
    assert_eq!(client.call("wait", json!({"runId": null}))["value"], 3);
}

#[test]
fn two_processes_on_one_store_resume_each_others_runs() {
    let place =
        Place::new(json!([reads("add", json!([{"result": {"content": [], "structuredContent": {"sum": 3}}}]))]));
    let mut clients: Vec<Streams> =
        [Era::June2025, Era::July2026].into_iter().map(|era| Streams::plain(&place, era)).collect();
    let code = "await yield_control(); return (await MCP.s.add({})).structuredContent.sum";
    let runs: Vec<_> = clients.iter_mut().map(|client| client.exec(code)["runId"].clone()).collect();
    clients.reverse();
    for (client, run_id) in clients.iter_mut().zip(runs) {
        let done = client.call("wait", json!({ "runId": run_id }));
        assert_eq!(done["value"], 3, "{done}");
    }
    // Both processes run cells at the same time.
    for round in 0..5 {
        let ids: Vec<i64> = clients
            .iter_mut()
            .map(|client| {
                client.send("tools/call", json!({"name": "exec", "arguments": {"code": format!("return {round}")}}))
            })
            .collect();
        for (client, id) in clients.iter_mut().zip(ids) {
            let done = client.answer(id);
            assert_eq!(done["result"]["structuredContent"]["value"], round, "{done}");
        }
    }
}

#[test]
fn exec_prints_why_a_server_failed_during_a_call() {
    let place = Place::new(json!([reads("crash", json!([{"stderr": "the disk is full"}, {"exit": 3}]))]));
    let mut command = place.command_line(&["exec", "-e", "return await MCP.s.crash({})"]);
    let output = command.env("HOME", place.path("own")).env_remove("XDG_STATE_HOME").output().unwrap();
    let shown = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{shown}");
    assert!(shown.contains("cellmate: server `s` failed during the cell: the connection was lost: the server exited or closed its output\n"), "{shown}");
    assert!(shown.contains("      | the disk is full\n"), "{shown}");
}
