//! A person's word: within a result, by a request, or from another process.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::clients::{Era, Served, Streams, structured};
use super::place::{Place, writes};

const CELL: &str = "text('before'); return (await MCP.s.push({ to: 'main' })).structuredContent.done";

fn pushes() -> Place {
    Place::new(json!([writes("push")]))
}

fn forms() -> Value {
    json!({"elicitation": {"form": {}}})
}

fn made(place: &Place) -> usize {
    place.heard().matches("\"tools/call\"").count()
}

#[test]
fn since_2026_the_result_asks_and_the_call_comes_back_with_the_answer() {
    for (answer, status, calls) in [
        (json!({"action": "accept", "content": {"decision": "approve once"}}), "completed", 1),
        (json!({"action": "accept", "content": {"decision": "deny"}}), "failed", 0),
        (json!({"action": "decline"}), "failed", 0),
        (json!({"action": "cancel"}), "waiting", 0),
    ] {
        let place = pushes();
        let mut client = Streams::start(&place, Era::July2026, forms(), &[]);
        let params = json!({"name": "exec", "arguments": {"code": CELL}});
        let asked = client.ask("tools/call", params.clone())["result"].clone();
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        let (id, request) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
        assert_eq!(request["method"], "elicitation/create");
        let message = request["params"]["message"].as_str().unwrap();
        assert!(message.contains("s.push") && message.contains("\"to\": \"main\""), "{message}");
        let mut again = params.clone();
        again["requestState"] = asked["requestState"].clone();
        again["inputResponses"] = json!({ id: answer });
        let done = structured(&client.ask("tools/call", again.clone()));
        assert_eq!(done["status"], status, "{done}");
        assert_eq!(done["output"][0]["text"], "before", "what was said before the question: {done}");
        assert_eq!(made(&place), calls);
        if status == "waiting" {
            assert!(done["message"].as_str().unwrap().contains("cellmate approvals approve apr_"), "{done}");
        }
        // The state holds for its own call only.
        again["arguments"]["code"] = json!("return 2");
        assert_eq!(client.ask("tools/call", again)["error"]["code"], -32602);
        let mut forged = params;
        forged["requestState"] = json!("rs1.forged");
        assert_eq!(client.ask("tools/call", forged)["error"]["code"], -32602);
    }
}

#[test]
fn before_that_we_ask_and_always_means_always() {
    let place = pushes();
    for era in [Era::June2025, Era::November2025] {
        let mut client = Streams::start(&place, era, forms(), &[]);
        let first = era == Era::June2025;
        let id = client.send("tools/call", json!({"name": "exec", "arguments": {"code": CELL}}));
        if first {
            let form = client.next("form", |message| message["method"] == "elicitation/create");
            assert_eq!(form["params"]["requestedSchema"]["required"], json!(["decision"]));
            let content = json!({"decision": "approve always"});
            client.write(
                &json!({"jsonrpc": "2.0", "id": form["id"], "result": {"action": "accept", "content": content}}),
            );
        }
        let done = structured(&client.answer(id));
        assert_eq!((&done["value"], &done["output"][0]["text"]), (&json!("push"), &json!("before")), "{done}");
    }
    assert_eq!(made(&place), 2);
}

#[test]
fn over_http_the_form_comes_on_the_stream_of_its_call() {
    let place = pushes();
    let served = Served::start(&place, &[]);
    let mut client = served.client(Era::November2025, &served.token, forms());
    let mut stream = client.send("tools/call", json!({"name": "exec", "arguments": {"code": CELL}}));
    let form = stream.message().unwrap();
    assert_eq!(form["method"], "elicitation/create", "{form}");
    let content = json!({"decision": "approve once"});
    let answer = json!({"jsonrpc": "2.0", "id": form["id"], "result": {"action": "accept", "content": content}});
    assert_eq!(client.post(&answer).status, 202);
    assert_eq!(structured(&stream.answer())["value"], "push");
}

#[test]
fn a_form_that_is_closed_leaves_the_question_open() {
    let place = pushes();
    let mut client = Streams::start(&place, Era::November2025, forms(), &[]);
    let id = client.send("tools/call", json!({"name": "exec", "arguments": {"code": CELL}}));
    let form = client.next("form", |message| message["method"] == "elicitation/create");
    client.write(&json!({"jsonrpc": "2.0", "id": form["id"], "result": {"action": "cancel"}}));
    let waiting = structured(&client.answer(id));
    assert_eq!(waiting["status"], "waiting", "{waiting}");
    assert_eq!(waiting["approvals"][0]["tool"], "s.push");
}

#[test]
fn a_word_from_another_process_is_heard_by_a_wait_that_holds_on() {
    for (era, action, status) in [
        (Era::June2025, "approve", "completed"),
        (Era::July2026, "approve", "completed"),
        (Era::July2026, "deny", "failed"),
    ] {
        let place = pushes();
        let mut client = Streams::plain(&place, era);
        let began = Instant::now();
        let waiting = client.exec(CELL);
        assert!(began.elapsed() < Duration::from_secs(15), "exec does not hold on");
        assert_eq!(waiting["status"], "waiting", "{waiting}");
        let id = waiting["approvals"][0]["approvalId"].as_str().unwrap().to_owned();
        assert!(
            waiting["message"].as_str().unwrap().contains(&format!("cellmate approvals approve {id}")),
            "{waiting}"
        );

        let listed = place.approvals(&["list", "--json"]);
        let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
        assert_eq!((&listed[0]["approvalId"], &listed[0]["input"]), (&json!(id), &json!({"to": "main"})), "{listed}");
        let shown = String::from_utf8(place.approvals(&["show", &id]).stdout).unwrap();
        assert!(shown.contains("mcp:s:push") && shown.contains("\"to\": \"main\""), "{shown}");

        let wait = client.send("tools/call", json!({"name": "wait", "arguments": {"runId": waiting["runId"]}}));
        std::thread::sleep(Duration::from_millis(1500));
        let decided = place.approvals(&[action, &id]);
        assert_eq!(decided.status.code(), Some(0), "{}", String::from_utf8_lossy(&decided.stderr));
        let said = Instant::now();
        let done = structured(&client.answer(wait));
        assert_eq!(done["status"], status, "{done}");
        assert!(said.elapsed() < Duration::from_secs(8), "{:?}", said.elapsed());
        // Given once.
        assert_eq!(place.approvals(&[action, &id]).status.code(), Some(1));
        assert_eq!(place.approvals(&["show", &id]).status.code(), Some(1));
    }
}

#[test]
fn who_is_asked_can_be_configured() {
    let place = pushes();
    let mut client = Streams::start(&place, Era::July2026, json!({}), &["--ask-nobody"]);
    assert_eq!(client.exec(CELL)["value"], "push");
    let mut client = Streams::start(&place, Era::July2026, json!({}), &["--ask", "mcp:other:*"]);
    assert_eq!(client.exec(CELL)["value"], "push");
    let mut client = Streams::start(&place, Era::July2026, json!({}), &["--ask", "mcp:s:*"]);
    assert_eq!(client.exec(CELL)["status"], "waiting");
}
