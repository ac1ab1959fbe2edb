//! HTTP sessions belong to the principal that started them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::clients::{Era, HttpClient, Response, Served};
use super::place::{Place, reads, writes};

const ADA: &str = "ada-ada-ada-ada-ada";
/// A token of the same principal that may not approve.
const RUNNER: &str = "runner-runner-runner";
const BOB: &str = "bob-bob-bob-bob-bob";
const UNKNOWN: &str = "00000000-0000-4000-8000-000000000000";

fn served(place: &Place) -> Served {
    std::fs::write(
        place.path("tokens"),
        format!("ada {ADA} execute,approve\nbob {BOB} execute,approve\nada {RUNNER}\n"),
    )
    .unwrap();
    std::fs::set_permissions(place.path("tokens"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    Served::start(place, &["--tokens", &place.path("tokens")])
}

/// Sends a request with this token and session id, which may belong to different principals.
fn in_session(
    served: &Served,
    token: &str,
    session: &str,
    method: &str,
    more: &[(&str, &str)],
    body: &str,
) -> Response {
    let bearer = format!("Bearer {token}");
    let mut headers = vec![
        ("Authorization", bearer.as_str()),
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
        ("MCP-Protocol-Version", "2025-11-25"),
        ("Mcp-Session-Id", session),
    ];
    headers.extend(more);
    served.request(method, "/mcp", &headers, body)
}

fn list() -> String {
    json!({"jsonrpc": "2.0", "id": 70, "method": "tools/list"}).to_string()
}

#[test]
fn another_principal_with_the_session_id_gets_404_as_for_an_unknown_id() {
    let place = Place::new(json!([reads("slow", json!([{"sleepMs": 3000}, {"result": {"content": []}}]))]));
    let served = served(&place);
    let mut ada = served.client(Era::November2025, ADA, json!({}));
    let session = ada.session().to_owned();
    let call = json!({"name": "exec", "arguments": {"code": "await MCP.s.slow({}); return 42"},
        "_meta": {"progressToken": "t"}});
    let mut stream = ada.send("tools/call", call);
    let progress = stream.message().unwrap();
    assert_eq!(progress["method"], "notifications/progress", "{progress}");

    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": ada.next_id}});
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let answer = json!({"jsonrpc": "2.0", "id": 0, "result": {"action": "accept", "content": {}}});
    let requests = [
        ("POST", None, list()),
        ("POST", None, cancel.to_string()),
        ("POST", None, initialized.to_string()),
        ("POST", None, answer.to_string()),
        ("GET", None, String::new()),
        ("GET", Some("0"), String::new()),
        ("GET", Some("0/0"), String::new()),
        ("GET", Some("1/0"), String::new()),
        ("GET", Some("1/1"), String::new()),
        ("DELETE", None, String::new()),
    ];
    for (method, last_event, body) in &requests {
        let more: Vec<_> = last_event.iter().map(|id| ("Last-Event-ID", *id)).collect();
        let [foreign, unknown] = [session.as_str(), UNKNOWN].map(|id| {
            let response = in_session(&served, BOB, id, method, &more, body);
            (response.status, response.header("content-type"), response.text())
        });
        assert_eq!(foreign.0, 404, "{method} {more:?} {body}");
        assert_eq!(foreign, unknown, "{method} {more:?} {body}");
    }
    let done = stream.answer();
    assert_eq!(done["result"]["structuredContent"]["value"], 42, "{done}");
    assert_eq!(in_session(&served, ADA, &session, "POST", &[], &list()).status, 200);
    assert!(in_session(&served, ADA, &session, "DELETE", &[], "").status < 300);
    for method in ["POST", "GET", "DELETE"] {
        let body = if method == "POST" { list() } else { String::new() };
        assert_eq!(in_session(&served, ADA, &session, method, &[], &body).status, 404, "{method}");
    }
}

#[test]
fn another_principal_cannot_answer_an_approval_form() {
    let place = Place::new(json!([writes("push")]));
    let served = served(&place);
    let mut ada = served.client(Era::November2025, ADA, json!({"elicitation": {"form": {}}}));
    let session = ada.session().to_owned();
    let call = json!({"name": "exec", "arguments": {"code": "return (await MCP.s.push({})).structuredContent.done"}});
    let mut stream = ada.send("tools/call", call);
    let form = stream.message().unwrap();
    assert_eq!(form["method"], "elicitation/create", "{form}");
    let result = json!({"action": "accept", "content": {"decision": "approve once"}});
    let answer = json!({"jsonrpc": "2.0", "id": form["id"], "result": result}).to_string();
    assert_eq!(in_session(&served, BOB, &session, "POST", &[], &answer).status, 404);
    let bobs = served.client(Era::November2025, BOB, json!({"elicitation": {"form": {}}}));
    assert_eq!(in_session(&served, BOB, bobs.session(), "POST", &[], &answer).status, 202);
    std::thread::sleep(Duration::from_millis(500));
    assert!(!place.received().contains("\"tools/call\""), "{}", place.received());
    assert_eq!(in_session(&served, ADA, &session, "POST", &[], &answer).status, 202);
    assert_eq!(stream.answer()["result"]["structuredContent"]["value"], "push");
}

#[test]
fn a_token_that_may_not_approve_gets_text_and_no_form() {
    let place = Place::new(json!([writes("push")]));
    let served = served(&place);
    let forms = json!({"elicitation": {"form": {}}});
    let call = json!({"name": "exec", "arguments": {"code": "return (await MCP.s.push({})).structuredContent.done"}});
    for era in [Era::November2025, Era::July2026] {
        let mut runner = served.client(era, RUNNER, forms.clone());
        let waiting = runner.send("tools/call", call.clone()).answer()["result"].clone();
        let named = waiting["structuredContent"]["approvals"][0]["approvalId"].as_str().unwrap_or_default();
        assert!(!named.is_empty() && waiting.get("inputRequests").is_none(), "{waiting}");
    }
    assert!(!place.received().contains("\"tools/call\""), "{}", place.received());
}

#[test]
fn a_token_that_may_not_approve_cannot_answer_a_form_of_its_own_principal() {
    let place = Place::new(json!([writes("push")]));
    let served = served(&place);
    let forms = json!({"elicitation": {"form": {}}});
    let call = json!({"name": "exec", "arguments": {"code": "return (await MCP.s.push({})).structuredContent.done"}});
    let accept = json!({"action": "accept", "content": {"decision": "approve once"}});
    // In a session.
    let mut ada = served.client(Era::November2025, ADA, forms.clone());
    let session = ada.session().to_owned();
    let mut stream = ada.send("tools/call", call.clone());
    let form = stream.message().unwrap();
    assert_eq!(form["method"], "elicitation/create", "{form}");
    let answer = json!({"jsonrpc": "2.0", "id": form["id"], "result": accept}).to_string();
    assert_eq!(in_session(&served, RUNNER, &session, "POST", &[], &answer).status, 404);
    // With the state of a result.
    let mut ada = served.client(Era::July2026, ADA, forms.clone());
    let asked = ada.send("tools/call", call.clone()).answer()["result"].clone();
    let (id, _) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
    let mut again = call;
    again["requestState"] = asked["requestState"].clone();
    again["inputResponses"] = json!({ id: accept });
    let waiting = served.client(Era::July2026, RUNNER, forms).send("tools/call", again).answer();
    let approvals = &waiting["result"]["structuredContent"]["approvals"];
    assert_eq!(approvals[0]["approvalId"].as_str(), Some(id.as_str()), "{waiting}");
    assert!(!place.received().contains("\"tools/call\""), "{}", place.received());
}

#[test]
fn another_principal_cannot_use_the_request_state_of_a_question() {
    let place = Place::new(json!([writes("push")]));
    let served = served(&place);
    let forms = json!({"elicitation": {"form": {}}});
    let call = json!({"name": "exec", "arguments": {"code": "return (await MCP.s.push({})).structuredContent.done"}});
    let mut ada = served.client(Era::July2026, ADA, forms.clone());
    let asked = ada.send("tools/call", call.clone()).answer()["result"].clone();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let (id, _) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
    let mut again = call;
    again["requestState"] = asked["requestState"].clone();
    again["inputResponses"] = json!({ id: {"action": "accept", "content": {"decision": "approve once"}} });
    let refused = served.client(Era::July2026, BOB, forms).send("tools/call", again.clone()).answer();
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    assert!(!place.received().contains("\"tools/call\""), "{}", place.received());
    let done = ada.send("tools/call", again).answer();
    assert_eq!(done["result"]["structuredContent"]["value"], "push", "{done}");
}

#[test]
fn a_principal_resumes_its_own_stream() {
    let place = Place::new(json!([reads("slow", json!([{"sleepMs": 1500}, {"result": {"content": []}}]))]));
    let served = served(&place);
    let mut ada = served.client(Era::November2025, ADA, json!({}));
    let call = json!({"name": "exec", "arguments": {"code": "await MCP.s.slow({}); return 42"},
        "_meta": {"progressToken": "t"}});
    let mut stream = ada.send("tools/call", call);
    assert!(stream.message().is_some());
    drop(stream);
    let session = ada.session().to_owned();
    let mut resumed = in_session(&served, ADA, &session, "GET", &[("Last-Event-ID", "1/0")], "");
    assert_eq!(resumed.status, 200);
    assert_eq!(resumed.answer()["result"]["structuredContent"]["value"], 42);
}

fn initialize(padding: usize) -> Value {
    let info = json!({"name": "x".repeat(padding), "version": "1"});
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info});
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
}

fn session_of(begun: &Response) -> String {
    assert_eq!(begun.status, 200);
    begun.header("mcp-session-id").unwrap()
}

#[test]
fn thousands_of_sessions_of_one_principal_take_little_memory_and_replace_the_idle_ones() {
    let place = Place::new(json!([]));
    let served = served(&place);
    let keeps = served.client(Era::November2025, ADA, json!({}));
    let kept = in_session(&served, ADA, keeps.session(), "GET", &[], "");
    assert_eq!(kept.status, 200);
    let bobs = served.client(Era::November2025, BOB, json!({}));
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string();
    for _ in 0..100 {
        served.post(Era::November2025, ADA, None, &initialize(0)).text();
    }
    let before = served.resident_mib();
    let first = session_of(&served.post(Era::November2025, ADA, None, &initialize(0)));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for number in 0..1000 {
                    let session = session_of(&served.post(Era::November2025, ADA, None, &initialize(4 << 10)));
                    if number % 4 == 0 {
                        in_session(&served, ADA, &session, "POST", &[], &initialized);
                    }
                }
            });
        }
    });
    let grown = served.resident_mib().saturating_sub(before);
    assert!(grown <= 16, "{grown} MiB");
    assert_eq!(in_session(&served, ADA, &first, "POST", &[], &list()).status, 404);
    assert_eq!(in_session(&served, ADA, keeps.session(), "POST", &[], &list()).status, 200);
    assert_eq!(in_session(&served, BOB, bobs.session(), "POST", &[], &list()).status, 200);
}

#[test]
fn a_principal_whose_sessions_are_all_in_use_gets_429_and_another_is_served() {
    let place = Place::new(json!([]));
    let served = served(&place);
    let mut streams = Vec::new();
    for _ in 0..64 {
        let session = session_of(&served.post(Era::November2025, ADA, None, &initialize(0)));
        streams.push(in_session(&served, ADA, &session, "GET", &[], ""));
    }
    let refused = served.post(Era::November2025, ADA, None, &initialize(0));
    assert_eq!((refused.status, refused.header("retry-after").is_some()), (429, true));
    assert!(refused.text().contains("64 sessions"));
    session_of(&served.post(Era::November2025, BOB, None, &initialize(0)));
    drop(streams.pop());
    let deadline = Instant::now() + Duration::from_secs(30);
    while served.post(Era::November2025, ADA, None, &initialize(0)).status != 200 {
        assert!(Instant::now() < deadline, "the closed stream's session was not replaced");
        std::thread::sleep(Duration::from_millis(500));
    }
}

#[test]
fn streams_of_one_session_are_bounded() {
    let place = Place::new(json!([]));
    let served = served(&place);
    let ada = served.client(Era::November2025, ADA, json!({}));
    let mut streams = Vec::new();
    let before = served.resident_mib();
    let mut refused = 0;
    for _ in 0..200 {
        let stream = in_session(&served, ADA, ada.session(), "GET", &[], "");
        assert!(matches!(stream.status, 200 | 429), "{}", stream.status);
        refused += u32::from(stream.status == 429);
        streams.push(stream);
    }
    assert!(served.resident_mib() < before + 16);
    // The protocol library ends the oldest stream of more than 33, so none need be refused; either bounds the total.
    let mut open = 0;
    for stream in &mut streams {
        open += u32::from(stream.status == 200 && stream.is_open());
    }
    assert!(open <= 64, "{open} open, {refused} refused");
    assert_eq!(in_session(&served, ADA, ada.session(), "POST", &[], &list()).status, 200);
}

#[test]
fn a_request_id_in_use_is_refused_in_its_session() {
    let place = Place::new(json!([reads("slow", json!([{"sleepMs": 1500}, {"result": {"content": []}}]))]));
    let served = served(&place);
    let mut ada = served.client(Era::November2025, ADA, json!({}));
    let call = json!({"name": "exec", "arguments": {"code": "await MCP.s.slow({}); return 42"}});
    let mut stream = ada.send("tools/call", call);
    ada.next_id -= 1;
    let refused = ada.send("tools/list", json!({}));
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("id is already in progress"));
    assert_eq!(stream.answer()["result"]["structuredContent"]["value"], 42);
    ada.next_id -= 1;
    assert_eq!(ada.send("tools/list", json!({})).status, 200);
}

#[test]
fn large_initialize_requests_are_refused() {
    let place = Place::new(json!([]));
    let served = served(&place);
    session_of(&served.post(Era::November2025, ADA, None, &initialize(60 << 10)));
    let before = served.resident_mib();
    let mut modern = initialize(1 << 20);
    modern["params"]["protocolVersion"] = json!("2026-07-28");
    for era in [Era::June2025, Era::July2026] {
        let mut message = if era.is_modern() { modern.clone() } else { initialize(1 << 20) };
        if !era.is_modern() {
            message["params"]["protocolVersion"] = json!(era.version());
        }
        let refused = served.post(era, ADA, None, &message);
        assert_eq!((refused.status, refused.header("mcp-session-id")), (413, None), "{era:?}");
    }
    let bearer = format!("Bearer {ADA}");
    let huge = initialize(3_900_000).to_string();
    for number in 0..100 {
        let mut headers = vec![
            ("Authorization", bearer.as_str()),
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
        ];
        // Without the header, the server must read the body to see what it is.
        if number % 10 != 0 {
            headers.push(("MCP-Protocol-Version", "2025-11-25"));
        }
        assert_eq!(served.request("POST", "/mcp", &headers, &huge).status, 413);
    }
    let grown = served.resident_mib().saturating_sub(before);
    assert!(grown <= 32, "{grown} MiB");
}

#[test]
fn a_message_with_too_many_values_is_refused_before_it_is_parsed() {
    let place = Place::new(json!([]));
    let served = served(&place);
    let before = served.resident_mib();
    let junk: Vec<Value> = vec![json!([0]); 1_000_000];
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "exec", "arguments": {"code": "return 1", "junk": junk}, "_meta": Era::July2026.meta(&json!({}))}});
    assert_eq!(served.post(Era::July2026, ADA, None, &message).status, 413);
    let mut ada = served.client(Era::November2025, ADA, json!({}));
    assert_eq!(ada.send("tools/call", message["params"].clone()).status, 413);
    assert_eq!(ada.exec("return 1")["value"], 1);
    let grown = served.resident_mib().saturating_sub(before);
    assert!(grown <= 64, "{grown} MiB");
}

#[test]
fn a_client_may_repeat_the_initialized_notification() {
    let place = Place::new(json!([]));
    let served = served(&place);
    let ada: HttpClient<'_> = served.client(Era::November2025, ADA, json!({}));
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    for _ in 0..200 {
        assert_eq!(ada.post(&initialized).status, 202);
    }
    assert_eq!(in_session(&served, ADA, ada.session(), "POST", &[], &list()).status, 200);
}
