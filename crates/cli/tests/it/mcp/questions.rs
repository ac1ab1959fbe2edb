//! Questions that upstream servers ask a person: shown by a client that supports forms, or answered in a terminal.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::clients::{Era, Streams, structured};
use super::place::{Place, on_terminal, reads, writes};

const CELL: &str = "return (await MCP.s.book({})).structuredContent";

fn form() -> Value {
    json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})
}

/// A server whose tool first asks this question and then returns the parameters of its call.
fn asks(request: &Value) -> Place {
    let place = Place::new(json!([]));
    let mut book = writes("book");
    let question = json!({"resultType": "input_required", "inputRequests": {"where": request}, "requestState": "s1"});
    book["does"] = json!([{"ifAnswered": [[{"echo": true}], [{"result": question}]]}]);
    let script = json!({"tools": [book], "record": place.path("received")});
    std::fs::write(place.path("script.json"), script.to_string()).unwrap();
    place
}

fn city() -> Value {
    json!({"method": "elicitation/create", "params": {"message": "Where to?", "requestedSchema": form()}})
}

fn start(place: &Place, era: Era, capabilities: Value) -> Streams {
    Streams::start(place, era, capabilities, &["--ask-nobody"])
}

fn forms() -> Value {
    json!({"elicitation": {"form": {}}})
}

fn assert_booked(done: &Value, answer: &Value) {
    assert_eq!(done["status"], "completed", "{done}");
    assert_eq!(done["value"]["inputResponses"], json!({"where": answer}), "{done}");
    assert_eq!(done["value"]["requestState"], "s1", "{done}");
}

#[test]
fn a_client_that_supports_forms_receives_the_servers_form() {
    let oslo = json!({"action": "accept", "content": {"city": "Oslo"}});
    for answer in [oslo.clone(), json!({"action": "decline"})] {
        let place = asks(&city());
        let mut client = start(&place, Era::July2026, forms());
        let params = json!({"name": "exec", "arguments": {"code": CELL}});
        let asked = client.ask("tools/call", params.clone())["result"].clone();
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        let (id, request) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
        assert_eq!(request["params"]["requestedSchema"]["required"], json!(["city"]), "{request}");
        let message = request["params"]["message"].as_str().unwrap();
        assert_eq!(message, "The tool s.book asks for your input.\nIt says: Where to?");
        let mut again = params;
        again["requestState"] = asked["requestState"].clone();
        again["inputResponses"] = json!({ id: answer });
        assert_booked(&structured(&client.ask("tools/call", again)), &answer);

        let place = asks(&city());
        let mut client = start(&place, Era::November2025, forms());
        let id = client.send("tools/call", json!({"name": "exec", "arguments": {"code": CELL}}));
        let form = client.next("form", |message| message["method"] == "elicitation/create");
        client.write(&json!({"jsonrpc": "2.0", "id": form["id"], "result": answer}));
        assert_booked(&structured(&client.answer(id)), &answer);
    }
}

#[test]
fn without_forms_a_person_answers_in_a_terminal_even_after_a_kill() {
    let place = asks(&city());
    let mut client = start(&place, Era::July2026, json!({}));
    let waiting = client.exec(CELL);
    assert_eq!(waiting["status"], "waiting", "{waiting}");
    assert_eq!(waiting["pendingToolCalls"][0]["state"], "approval", "{waiting}");
    let id = waiting["approvals"][0]["approvalId"].as_str().unwrap().to_owned();
    let message = waiting["message"].as_str().unwrap();
    let says = format!("answer what `s.book` asks ({id}): Where to?. Ask your user to run `cellmate approvals`");
    assert!(message.contains(&says), "{message}");
    assert_eq!(waiting["approvals"][0]["question"]["form"], form(), "{waiting}");
    client.child.kill().unwrap();
    client.child.wait().unwrap();

    let shown = String::from_utf8(place.approvals(&["show", &id]).stdout).unwrap();
    assert!(shown.contains("Where to?") && shown.contains("\"city\""), "{shown}");
    for unfit in
        [vec!["approve", &id], vec!["approve", &id, "--input", "{\"city\":7}"], vec!["approve", &id, "--always"]]
    {
        let refused = place.approvals(&unfit);
        let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            refused.status.code() == Some(1) && stderr.contains("the answer does not fit the question"),
            "{unfit:?}: {stderr}"
        );
    }
    let decided = place.approvals(&["approve", &id, "--input", "{\"city\":\"Oslo\"}"]);
    assert_eq!(decided.status.code(), Some(0), "{}", String::from_utf8_lossy(&decided.stderr));
    let mut next = start(&place, Era::June2025, json!({}));
    let done = next.call("wait", json!({"runId": waiting["runId"]}));
    assert_booked(&done, &json!({"action": "accept", "content": {"city": "Oslo"}}));
}

#[test]
fn a_question_is_answered_on_the_terminal_of_exec_and_asked_again_if_the_answer_does_not_fit() {
    let place = asks(&city());
    let mut command = place.command_line(&["exec", "-e", CELL, "--json"]);
    command.env("HOME", place.path("own")).env_remove("XDG_STATE_HOME");
    let seen = on_terminal(&command, "y\n{\"city\":7}\n{\"city\":\"Oslo\"}\n");
    let shown = String::from_utf8_lossy(&seen.stdout).into_owned();
    assert_eq!(seen.status.code(), Some(0), "{shown}");
    assert!(shown.matches("The tool asks: Where to?").count() == 2, "{shown}");
    assert!(shown.contains("For example: {\"city\":\"text\"}"), "{shown}");
    assert!(shown.contains("the answer does not fit the question"), "{shown}");
    let result = shown.find("{\"status\"").and_then(|at| shown[at..].lines().next());
    let done: Value = serde_json::from_str(result.unwrap_or_else(|| panic!("{shown}"))).unwrap();
    assert_booked(&done, &json!({"action": "accept", "content": {"city": "Oslo"}}));
}

#[test]
fn a_page_to_visit_is_shown_and_never_opened() {
    let page = json!({"mode": "url", "message": "Log in.", "url": "http://127.0.0.1:9/consent?x=1"});
    let place = asks(&json!({"method": "elicitation/create", "params": page}));
    let mut client = start(&place, Era::July2026, json!({}));
    let waiting = client.exec(CELL);
    let message = waiting["message"].as_str().unwrap_or_default();
    assert!(message.contains("Log in. (a page to visit: http://127.0.0.1:9/consent?x=1)"), "{waiting}");
    let id = waiting["approvals"][0]["approvalId"].as_str().unwrap();
    assert_eq!(place.approvals(&["approve", id]).status.code(), Some(0));
    let done = client.call("wait", json!({"runId": waiting["runId"]}));
    assert_booked(&done, &json!({"action": "accept"}));
}

#[test]
fn a_task_that_asks_receives_the_answer_and_continues() {
    let place = Place::new(json!([]));
    let mut book = writes("book");
    let begun = json!({"resultType": "task", "taskId": "t1", "status": "working", "pollIntervalMs": 50});
    book["does"] = json!([{"result": begun}]);
    let asks = json!({"taskId": "t1", "status": "input_required", "inputRequests": {"where": city()}});
    let result = json!({"content": [], "structuredContent": "booked"});
    let over = json!([{"result": {"taskId": "t1", "status": "completed", "result": result}}]);
    let on = json!({
        "tasks/get": [{"result": asks}],
        "tasks/update": [{"on": {"tasks/get": over}}, {"result": {}}],
    });
    let script = json!({"tools": [book], "on": on, "record": place.path("received")});
    std::fs::write(place.path("script.json"), script.to_string()).unwrap();
    let mut client = start(&place, Era::July2026, json!({}));
    let waiting = client.exec(CELL);
    let id = waiting["approvals"][0]["approvalId"].as_str().unwrap_or_else(|| panic!("{waiting}"));
    assert_eq!(place.approvals(&["approve", id, "--input", "{\"city\":\"Oslo\"}"]).status.code(), Some(0));
    let done = client.call("wait", json!({"runId": waiting["runId"]}));
    assert_eq!((&done["status"], &done["value"]), (&json!("completed"), &json!("booked")), "{done}");
    let received = place.received();
    assert_eq!(received.matches("\"tools/call\"").count(), 1, "{received}");
    let update = received.lines().find(|line| line.contains("tasks/update")).unwrap();
    let update: Value = serde_json::from_str(update).unwrap();
    let expected = json!({"where": {"action": "accept", "content": {"city": "Oslo"}}});
    assert_eq!((&update["params"]["taskId"], &update["params"]["inputResponses"]), (&json!("t1"), &expected));
}

/// In revision 2025-11-25 a server may also answer with an error and expect a retry after the person visited a page.
#[test]
fn a_page_that_must_be_visited_first_is_shown_and_the_call_is_retried() {
    let place = Place::new(json!([]));
    let mut book = writes("book");
    let page = json!({"mode": "url", "message": "Log in.", "url": "https://example.com/", "elicitationId": "e1"});
    let error = json!({"code": -32042, "message": "log in first", "data": {"elicitations": [page]}});
    book["does"] = json!([{"ifFile": [place.path("visited"), [{"echo": true}], [{"error": error}]]}]);
    let script = json!({"tools": [book], "record": place.path("received")});
    std::fs::write(place.path("script.json"), script.to_string()).unwrap();
    let mut client = start(&place, Era::July2026, json!({}));
    let waiting = client.exec(CELL);
    assert!(waiting["message"].as_str().unwrap_or_default().contains("https://example.com/"), "{waiting}");
    std::fs::write(place.path("visited"), "").unwrap();
    let id = waiting["approvals"][0]["approvalId"].as_str().unwrap();
    assert_eq!(place.approvals(&["approve", id]).status.code(), Some(0));
    let done = client.call("wait", json!({"runId": waiting["runId"]}));
    assert_eq!((&done["status"], &done["value"]["inputResponses"]), (&json!("completed"), &Value::Null), "{done}");
    std::fs::remove_file(place.path("visited")).unwrap();
    let waiting = client.exec(CELL);
    let id = waiting["approvals"][0]["approvalId"].as_str().unwrap();
    assert_eq!(place.approvals(&["deny", id]).status.code(), Some(0));
    let failed = client.call("wait", json!({"runId": waiting["runId"]}));
    assert!(failed["error"].as_str().unwrap_or_default().contains("a person declined to visit"), "{failed}");
}

#[test]
fn a_question_that_is_not_for_a_person_fails_the_call_with_a_reason() {
    let sampling = json!({"method": "sampling/createMessage", "params": {}});
    let place = asks(&sampling);
    let failed = start(&place, Era::July2026, forms()).exec(CELL);
    assert_eq!(failed["status"], "failed", "{failed}");
    assert!(
        failed["error"].as_str().unwrap().contains("it requests model sampling, which is not supported"),
        "{failed}"
    );
}

/// A server of an older revision, which asks while its call is in progress.
fn asks_during_its_call() -> Place {
    let place = Place::new(json!([]));
    let mut book = writes("book");
    book["does"] = json!([{"ask": {"message": "Where to?", "requestedSchema": form()}}]);
    let script = json!({"tools": [book], "record": place.path("received")});
    std::fs::write(place.path("script.json"), script.to_string()).unwrap();
    place
}

fn asks_during_its_call_that_needs_no_approval() -> Place {
    let place = Place::new(json!([]));
    let book = reads("book", json!([{"ask": {"message": "Where to?", "requestedSchema": form()}}]));
    let script = json!({"tools": [book], "record": place.path("received")});
    std::fs::write(place.path("script.json"), script.to_string()).unwrap();
    place
}

#[test]
fn an_older_server_can_ask_while_its_call_is_in_progress() {
    let oslo = json!({"action": "accept", "content": {"city": "Oslo"}});
    for answer in [oslo.clone(), json!({"action": "decline"})] {
        let place = asks_during_its_call();
        let mut client = start(&place, Era::November2025, forms());
        let id = client.send("tools/call", json!({"name": "exec", "arguments": {"code": CELL}}));
        let form = client.next("form", |message| message["method"] == "elicitation/create");
        client.write(&json!({"jsonrpc": "2.0", "id": form["id"], "result": answer}));
        let done = structured(&client.answer(id));
        assert_eq!((&done["status"], &done["value"]), (&json!("completed"), &answer), "{done}");
    }

    let place = asks_during_its_call();
    let mut client = start(&place, Era::July2026, json!({}));
    let waiting = client.exec(CELL);
    assert_eq!((&waiting["status"], &waiting["pendingToolCalls"][0]["state"]), (&json!("waiting"), &json!("approval")));
    let id = waiting["approvals"][0]["approvalId"].as_str().unwrap();
    assert_eq!(place.approvals(&["approve", id, "--input", "{\"city\":\"Oslo\"}"]).status.code(), Some(0));
    let done = client.call("wait", json!({"runId": waiting["runId"]}));
    assert_eq!((&done["status"], &done["value"]), (&json!("completed"), &oslo), "{done}");
    assert_eq!(place.received().matches("\"tools/call\"").count(), 1);
}

#[test]
fn after_a_kill_a_call_that_waited_for_a_person_is_unknown() {
    let place = asks_during_its_call();
    let mut client = start(&place, Era::July2026, json!({}));
    let waiting = client.exec(CELL);
    assert_eq!(waiting["status"], "waiting", "{waiting}");
    client.child.kill().unwrap();
    client.child.wait().unwrap();
    let mut next = start(&place, Era::July2026, json!({}));
    let deadline = Instant::now() + 2 * super::clients::PATIENCE;
    let done = loop {
        let answer = next.call("wait", json!({"runId": waiting["runId"]}));
        if answer["status"] != "waiting" || Instant::now() > deadline {
            break answer;
        }
    };
    assert!(done["error"].as_str().unwrap_or_default().contains("the outcome of this call is unknown"), "{done}");
    assert_eq!(place.received().matches("\"tools/call\"").count(), 1);
}

/// Waits for the only pending approval, and returns its id.
fn pending_id(place: &Place) -> String {
    let deadline = Instant::now() + super::clients::PATIENCE;
    loop {
        let listed = place.approvals(&["list", "--json"]);
        let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
        match listed[0]["approvalId"].as_str() {
            Some(id) => return id.to_owned(),
            None => assert!(Instant::now() < deadline, "nothing is pending"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A command without a terminal whose tool asks while its call is in progress, and which makes the call without asking.
fn started_without_terminal(place: &Place, arguments: &[&str]) -> Child {
    let mut command = place.command_line(arguments);
    command.env("HOME", place.path("own")).env_remove("XDG_STATE_HOME").stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn without_a_terminal_a_command_waits_until_its_question_is_answered_elsewhere() {
    let oslo = json!({"action": "accept", "content": {"city": "Oslo"}});
    for (arguments, value) in [
        (&["exec", "-e", CELL, "--json"][..], "/value"),
        (&["tools", "call", "s.book", "--yes", "--json"][..], "/result/structuredContent"),
    ] {
        let place = asks_during_its_call_that_needs_no_approval();
        let child = started_without_terminal(&place, arguments);
        let id = pending_id(&place);
        // A decision about everything that is pending is not an answer.
        let all = place.approvals(&["deny", "--all"]);
        assert!(String::from_utf8_lossy(&all.stderr).contains("the question of a tool stays pending"), "{all:?}");
        assert_eq!(place.approvals(&["approve", &id, "--input", "{\"city\":\"Oslo\"}"]).status.code(), Some(0));
        let done = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(stderr.contains("`mcp:s:book` asks: Where to?"), "{stderr}");
        assert!(stderr.contains("cellmate approvals") && stderr.contains("this command waits until then"), "{stderr}");
        assert_eq!(done.status.code(), Some(0), "{stderr}");
        let result: Value = serde_json::from_slice(&done.stdout).unwrap();
        assert_eq!(result.pointer(value), Some(&oslo), "{result}");
    }
}

#[test]
fn the_question_of_a_command_that_was_killed_is_no_longer_pending() {
    let place = asks_during_its_call_that_needs_no_approval();
    let mut child = started_without_terminal(&place, &["exec", "-e", CELL, "--json"]);
    let id = pending_id(&place);
    child.kill().unwrap();
    child.wait().unwrap();
    let deadline = Instant::now() + super::clients::PATIENCE;
    while place.approvals(&["list", "--json"]).stdout != b"[]\n" {
        assert!(Instant::now() < deadline, "the question is still pending");
        std::thread::sleep(Duration::from_millis(100));
    }
    let late = place.approvals(&["approve", &id, "--input", "{\"city\":\"Oslo\"}"]);
    assert_eq!(late.status.code(), Some(1), "{late:?}");
}
