//! Results as models read them: short, and with what they need to continue.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::clients::{Era, Streams, structured};
use super::place::{Place, reads};

/// A tool that answers after this time.
fn slow(name: &str, after_ms: u64) -> Value {
    reads(name, json!([{"sleepMs": after_ms}, {"result": {"content": [], "structuredContent": {"done": name}}}]))
}

/// Sets `tools.codeMode` in the configuration.
fn limit(place: &Place, code_mode: Value) {
    let config = std::fs::read_to_string(place.path("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["tools"] = json!({ "codeMode": code_mode });
    place.configure(&config);
}

#[test]
fn a_small_result_is_short_and_telemetry_is_beside_it() {
    let place = Place::new(json!([reads("add", json!([{"result": {"content": []}}]))]));
    for era in Era::ALL {
        let mut client = Streams::plain(&place, era);
        let answer = client.ask("tools/call", json!({"name": "exec", "arguments": {"code": "return 1"}}));
        let text = answer["result"]["content"][0]["text"].as_str().unwrap();
        assert_eq!(text, "{\"status\":\"completed\",\"value\":1}");
        assert!(text.len() < 80);
        assert_eq!(structured(&answer), json!({"status": "completed", "value": 1}));
        let telemetry = &answer["result"]["_meta"]["cellmate/telemetry"];
        assert_eq!((&telemetry["execCount"], &telemetry["catalogSize"]), (&json!(1), &json!(1)), "{answer}");
        let called = client.ask("tools/call", json!({"name": "exec", "arguments": {"command": "await MCP.s.add({})"}}));
        assert_eq!(structured(&called)["status"], "completed", "the alias `command` is accepted: {called}");
        let telemetry = &called["result"]["_meta"]["cellmate/telemetry"];
        assert_eq!(telemetry["nestedToolIds"], json!(["mcp:s:add"]), "{called}");
    }
}

#[test]
fn a_waiting_result_names_the_tools_and_the_reason_of_a_yield() {
    let place = Place::new(json!([slow("slow_look", 20_000)]));
    limit(&place, json!({"timeoutMs": 1_000, "maxWaitMs": 1_000}));
    let mut client = Streams::plain(&place, Era::July2026);
    let began = Instant::now();
    let waiting = client.exec("await MCP.s.slowLook({}); return 1");
    assert!(began.elapsed() < Duration::from_secs(10), "a configured timeout is kept");
    let pending = &waiting["pendingToolCalls"];
    assert_eq!((pending.as_array().map(Vec::len), &pending[0]["toolId"]), (Some(1), &json!("mcp:s:slow_look")));
    assert!(waiting["output"].is_null() && waiting["yieldReason"].is_null(), "{waiting}");
    let still = client.call("wait", json!({"runId": waiting["runId"]}));
    assert_eq!((&still["status"], &still["pendingToolCalls"][0]["toolId"]), (&json!("waiting"), &pending[0]["toolId"]));

    let yielded = client.exec("text('a'); await yield_control('phase 0 done'); await yield_control(); return 2");
    let expected = json!({"status": "waiting", "runId": yielded["runId"], "reason": "yield",
        "output": [{"type": "text", "text": "a"}], "yieldReason": "phase 0 done"});
    assert_eq!(yielded, expected);
    let again = client.call("wait", json!({"runId": yielded["runId"]}));
    assert_eq!(again, json!({"status": "waiting", "runId": yielded["runId"], "reason": "yield"}));
}

#[test]
fn wait_without_a_run_id_waits_for_the_only_live_run() {
    let place = Place::new(json!([]));
    let mut client = Streams::plain(&place, Era::July2026);
    for number in 0..3 {
        assert_eq!(client.exec(&format!("return {number}"))["status"], "completed");
    }
    // No cell is live: the ones that ended are listed, in case a result was lost.
    let ended = client.call("wait", json!({}));
    assert_eq!((&ended["status"], ended["runs"].as_array().map(Vec::len)), (&json!("listed"), Some(3)), "{ended}");
    assert!(ended["message"].as_str().unwrap().starts_with("No cell is live."), "{ended}");

    let waiting = client.exec("await yield_control(); return 'one'");
    let unknown = client.ask("tools/call", json!({"name": "wait", "arguments": {"runId": "cm_nobody"}}));
    let refused = structured(&unknown);
    assert_eq!((&unknown["result"]["isError"], &refused["code"]), (&json!(true), &json!("invalid_input")), "{unknown}");
    let listed = |result: &Value| -> Vec<Value> {
        result["runs"].as_array().unwrap().iter().map(|run| run["runId"].clone()).collect()
    };
    assert_eq!(listed(&refused), [waiting["runId"].clone()], "{refused}");
    assert!(refused["error"].as_str().unwrap().contains("your live cell is in `runs`"), "{refused}");

    assert_eq!(client.call("wait", json!({}))["value"], "one");
    let begin = |_| {
        // Runs that started in the same millisecond have no order.
        std::thread::sleep(Duration::from_millis(5));
        client.exec("await yield_control(); return 2")["runId"].clone()
    };
    let runs: Vec<Value> = (0..12).map(begin).collect();
    let several = client.call("wait", json!({}));
    assert_eq!(several["status"], "listed", "{several}");
    assert_eq!(listed(&several), runs.iter().rev().take(10).cloned().collect::<Vec<_>>(), "live ones, newest first");
    assert!(several["runs"].as_array().unwrap().iter().all(|run| run["state"] == "waiting"), "{several}");
}

#[test]
fn an_exec_waits_for_slow_tools_and_returns_within_45_seconds() {
    let begin = |tool: &str, after_ms: u64| {
        let place = Place::new(json!([slow(tool, after_ms)]));
        let mut client = Streams::plain(&place, Era::November2025);
        let code = format!("return (await MCP.s.{tool}({{}})).structuredContent.done");
        let id = client.send("tools/call", json!({"name": "exec", "arguments": {"code": code}}));
        (place, client, id)
    };
    let began = Instant::now();
    let (_one, mut short, short_id) = begin("eleven", 11_000);
    let (_two, mut long, long_id) = begin("fifty", 50_000);
    let done = short.answer(short_id);
    assert_eq!(structured(&done)["value"], "eleven", "no `wait` is needed: {done}");
    let waiting = structured(&long.answer(long_id));
    let took = began.elapsed();
    assert!(took > Duration::from_secs(40) && took <= Duration::from_secs(46), "{took:?}");
    assert_eq!((&waiting["status"], &waiting["reason"]), (&json!("waiting"), &json!("pending_tools")), "{waiting}");
    assert_eq!(waiting["pendingToolCalls"][0]["toolId"], "mcp:s:fifty", "{waiting}");
    let done = long.call("wait", json!({}));
    assert_eq!(done["value"], "fifty", "{done}");
}
