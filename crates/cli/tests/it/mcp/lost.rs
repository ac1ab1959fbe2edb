//! Answers that did not arrive, and processes that share a store.

use serde_json::json;

use super::clients::{Era, Streams};
use super::place::{Place, reads};

#[test]
fn an_exec_whose_answer_was_lost_is_found_again() {
    let place = Place::new(json!([]));
    for era in [Era::June2025, Era::July2026] {
        let mut client = Streams::plain(&place, era);
        // The client is gone before it could read the answer.
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

#[test]
fn the_only_run_there_is_needs_no_name() {
    let place = Place::new(json!([]));
    let mut client = Streams::plain(&place, Era::July2026);
    assert_eq!(client.exec("await yield_control(); return 3")["status"], "waiting");
    assert_eq!(client.call("wait", json!({}))["value"], 3);
    // What is just over is told again.
    assert_eq!(client.call("wait", json!({"runId": null}))["value"], 3);
}

#[test]
fn two_processes_on_one_store_go_on_with_each_others_runs() {
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
    // Many at once, from both.
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
