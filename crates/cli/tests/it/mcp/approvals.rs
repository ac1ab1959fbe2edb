//! Approvals given in a result of the newest revision, in a form, or by a command in another process.

use std::process::Output;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::clients::{Era, Served, Streams, structured};
use super::place::{Place, on_terminal, writes};

const CELL: &str = "text('before'); return (await MCP.s.push({ to: 'main' })).structuredContent.done";

fn pushes() -> Place {
    Place::new(json!([writes("push")]))
}

fn forms() -> Value {
    json!({"elicitation": {"form": {}}})
}

fn made(place: &Place) -> usize {
    place.received().matches("\"tools/call\"").count()
}

#[test]
fn since_2026_the_result_requests_input_and_the_repeated_call_carries_it() {
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
        assert_eq!(done["output"][0]["text"], "before", "output from before the question: {done}");
        assert_eq!(made(&place), calls);
        if status == "waiting" {
            assert!(done["message"].as_str().unwrap().contains("run `cellmate approvals`"), "{done}");
        }
        // The request state is valid for its own call only.
        again["arguments"]["code"] = json!("return 2");
        assert_eq!(client.ask("tools/call", again)["error"]["code"], -32602);
        let mut forged = params;
        forged["requestState"] = json!("rs1.forged");
        assert_eq!(client.ask("tools/call", forged)["error"]["code"], -32602);
    }
}

#[test]
fn before_2026_the_server_sends_a_form_and_approve_always_covers_later_calls() {
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
fn over_http_the_form_is_sent_on_the_stream_of_its_call() {
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
fn a_cancelled_form_leaves_the_approval_pending() {
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
fn a_decision_made_in_another_process_completes_a_pending_wait() {
    for (era, action, status) in [
        (Era::June2025, "approve", "completed"),
        (Era::July2026, "approve", "completed"),
        (Era::July2026, "deny", "failed"),
    ] {
        let place = pushes();
        let mut client = Streams::plain(&place, era);
        let began = Instant::now();
        let waiting = client.exec(CELL);
        assert!(began.elapsed() < Duration::from_secs(15), "exec must not wait for the approval");
        assert_eq!(waiting["status"], "waiting", "{waiting}");
        let id = waiting["approvals"][0]["approvalId"].as_str().unwrap().to_owned();
        let message = waiting["message"].as_str().unwrap();
        assert!(message.contains(&id) && message.contains("run `cellmate approvals` in a terminal"), "{waiting}");

        let listed = place.approvals(&["list", "--json"]);
        let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
        assert_eq!((&listed[0]["approvalId"], &listed[0]["input"]), (&json!(id), &json!({"to": "main"})), "{listed}");
        let shown = String::from_utf8(place.approvals(&["show", &id]).stdout).unwrap();
        assert!(shown.contains("mcp:s:push") && shown.contains("\"to\": \"main\""), "{shown}");

        let wait = client.send("tools/call", json!({"name": "wait", "arguments": {"runId": waiting["runId"]}}));
        std::thread::sleep(Duration::from_millis(1500));
        let decided = place.approvals(&[action, &id]);
        assert_eq!(decided.status.code(), Some(0), "{}", String::from_utf8_lossy(&decided.stderr));
        let decided_at = Instant::now();
        let done = structured(&client.answer(wait));
        assert_eq!(done["status"], status, "{done}");
        assert!(decided_at.elapsed() < Duration::from_secs(8), "{:?}", decided_at.elapsed());
        // An approval can be decided only once.
        assert_eq!(place.approvals(&[action, &id]).status.code(), Some(1));
        assert_eq!(place.approvals(&["show", &id]).status.code(), Some(1));
    }
}

#[test]
fn flags_choose_which_calls_need_approval() {
    let place = pushes();
    let mut client = Streams::start(&place, Era::July2026, json!({}), &["--ask-nobody"]);
    assert_eq!(client.exec(CELL)["value"], "push");
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(place.path("config.json")).unwrap()).unwrap();
    for (approvals, flags, reason) in [
        (json!({}), &["--ask", "mcp:other:*"][..], "this tool may change something"),
        (json!({"ask": "never"}), &["--ask", "mcp:other:*"], "this tool may change something"),
        (json!({"ask": ["mcp:s:*"]}), &["--ask", "mcp:other:*"], "the configuration requires approval of this tool"),
        (json!({}), &["--ask", "mcp:s:*"], "the configuration requires approval of this tool"),
        (json!({"ask": ["mcp:other:*"]}), &[], "this tool may change something"),
    ] {
        config["approvals"] = approvals.clone();
        place.configure(&config);
        let waiting = Streams::start(&place, Era::July2026, json!({}), flags).exec(CELL);
        let id = &waiting["approvals"][0]["approvalId"];
        let listed: Value = serde_json::from_slice(&place.approvals(&["list", "--json"]).stdout).unwrap();
        let asked = listed.as_array().unwrap().iter().find(|asked| asked["approvalId"] == *id);
        assert_eq!(asked.map(|asked| &asked["reason"]), Some(&json!(reason)), "{approvals} {flags:?} {waiting}");
    }
}

fn exit_and_json(output: &Output) -> (Option<i32>, Value) {
    let json = serde_json::from_slice(&output.stdout);
    (output.status.code(), json.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr))))
}

#[test]
fn a_direct_call_needs_approval_like_a_cells_and_honours_standing_approvals() {
    let place = pushes();
    let (code, refused) = exit_and_json(&place.by_hand("s.push").output().unwrap());
    let why = "calling `mcp:s:push` needs approval (this tool may change something); run this in a terminal, or pass \
               --yes";
    assert_eq!((code, &refused["error"]), (Some(1), &json!(why)));
    assert_eq!((made(&place), place.approvals(&["list", "--json"]).stdout.as_slice()), (0, b"[]\n".as_slice()));
    let (code, called) = exit_and_json(&place.by_hand("s.push").arg("--yes").output().unwrap());
    assert_eq!((code, &called["result"]["structuredContent"]), (Some(0), &json!({"done": "push"})));
    assert_eq!(
        exit_and_json(&place.by_hand("s.push").output().unwrap()).0,
        Some(1),
        "the approval covered one call only"
    );

    let waiting = Streams::plain(&place, Era::July2026).exec(CELL);
    let id = waiting["approvals"][0]["approvalId"].as_str().unwrap();
    assert!(place.approvals(&["approve", id, "--always"]).status.success());
    assert_eq!(exit_and_json(&place.by_hand("s.push").output().unwrap()).0, Some(0));
    assert_eq!(exit_and_json(&place.by_hand("s.push").args(["--agent", "other"]).output().unwrap()).0, Some(1));
}

#[test]
fn a_direct_call_needs_no_approval_if_the_configuration_exempts_it() {
    let place = pushes();
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(place.path("config.json")).unwrap()).unwrap();
    for (approvals, code) in [
        (json!({"ask": "never"}), 0),
        (json!({"pass": ["mcp:s:*"]}), 0),
        (json!({"ask": ["mcp:s:push"]}), 1),
        (json!({"ask": ["mcp:other:*"]}), 1),
        (json!({"ask": ["mcp:other:*"], "pass": ["mcp:s:push"]}), 0),
        (json!({"ask": "nevr"}), 2),
    ] {
        config["approvals"] = approvals.clone();
        place.configure(&config);
        assert_eq!(place.by_hand("s.push").output().unwrap().status.code(), Some(code), "{approvals}");
    }
}

#[test]
fn a_direct_call_on_a_terminal_prompts_for_approval() {
    for (answer, code, calls) in [("y\n", 0, 1), ("n\n", 1, 0), ("\n", 1, 0)] {
        let place = pushes();
        let seen = on_terminal(&place.by_hand("s.push"), answer);
        let text = String::from_utf8_lossy(&seen.stdout);
        assert!(
            text.contains("mcp:s:push: this tool may change something") && text.contains("\"to\": \"main\""),
            "{text}"
        );
        assert_eq!((seen.status.code(), made(&place)), (Some(code), calls), "{text}");
    }
}
