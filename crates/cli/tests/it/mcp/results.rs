//! What results contain beside their values: telemetry, also if no cell ran, and what is true after limits were lowered.

use std::time::Duration;

use serde_json::{Value, json};

use super::clients::{Era, Streams, structured};
use super::place::{Place, reads};

/// Changes `tools.codeMode` of the place's configuration.
fn limit(place: &Place, code_mode: Value) {
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(place.path("config.json")).unwrap()).unwrap();
    config["tools"]["codeMode"] = code_mode;
    place.configure(&config);
}

fn place() -> Place {
    let slow = json!([{"sleepMs": 20_000}, {"result": {"content": []}}]);
    Place::new(json!([reads("look", json!([{"result": {"content": []}}])), reads("slow", slow)]))
}

/// Calls a tool, and returns the result and its telemetry.
fn call(client: &mut Streams, tool: &str, arguments: Value) -> (Value, Value) {
    let answer = client.ask("tools/call", json!({"name": tool, "arguments": arguments}));
    (structured(&answer), answer["result"]["_meta"]["cellmate/telemetry"].clone())
}

fn assert_catalog(telemetry: &Value, visible: [&str; 2]) {
    assert_eq!(telemetry["catalogSize"], 2, "{telemetry}");
    assert_eq!(telemetry["sources"], json!({"openclaw": 0, "plugin": 0, "mcp": 2, "client": 0}));
    assert_eq!(telemetry["visibleTools"], json!(visible), "{telemetry}");
}

#[test]
fn every_result_says_what_the_model_sees_also_if_no_cell_ran() {
    let place = place();
    limit(&place, json!({"maxLiveRuns": 2, "languages": ["javascript"]}));
    let mut client = Streams::start(&place, Era::November2025, json!({}), &["--tool-prefix", "cell_"]);
    let names = ["cell_exec", "cell_wait"];
    let refused = [
        ("cell_exec", json!({}), "invalid_input"),
        ("cell_exec", json!({"code": "a", "command": "b"}), "invalid_input"),
        ("cell_exec", json!({"code": "return 1", "language": "typescript"}), "unsupported_language"),
        ("cell_wait", json!({"runId": "cm_unknown"}), "invalid_input"),
        ("cell_wait", json!({"runId": 5}), "invalid_input"),
        ("cell_wait", json!({}), "invalid_input"),
    ];
    for (tool, arguments, code) in refused {
        let (result, telemetry) = call(&mut client, tool, arguments);
        assert_eq!(result["code"], code, "{result}");
        assert_catalog(&telemetry, names);
        assert_eq!((&telemetry["execCount"], &telemetry["waitCount"]), (&json!(0), &json!(0)), "{telemetry}");
    }
    for _ in 0..2 {
        let (waiting, telemetry) = call(&mut client, "cell_exec", json!({"code": "await yield_control()"}));
        assert_eq!((&waiting["status"], &telemetry["execCount"]), (&json!("waiting"), &json!(1)), "{waiting}");
        assert_catalog(&telemetry, names);
        assert_eq!(telemetry["snapshots"]["taken"], 1, "{telemetry}");
        assert_eq!(telemetry["snapshots"]["deleted"], 0, "{telemetry}");
    }
    let (listed, telemetry) = call(&mut client, "cell_wait", json!({}));
    assert_eq!((&listed["status"], listed["runs"].as_array().map(Vec::len)), (&json!("listed"), Some(2)), "{listed}");
    assert_catalog(&telemetry, names);
    let (full, telemetry) = call(&mut client, "cell_exec", json!({"code": "return 1"}));
    assert_eq!(full["code"], "runtime_unavailable", "{full}");
    assert!(full["error"].as_str().unwrap().contains("at most 2 at once"), "{full}");
    assert_catalog(&telemetry, names);
    let (done, telemetry) = call(&mut client, "cell_wait", json!({"runId": listed["runs"][0]["runId"]}));
    assert_eq!(done["status"], "completed", "{done}");
    let snapshots = &telemetry["snapshots"];
    assert_eq!((&snapshots["restored"], &snapshots["deleted"]), (&json!(1), &json!(1)), "{telemetry}");
}

#[test]
fn an_expired_run_reports_its_own_counts_and_says_what_to_check() {
    let place = place();
    limit(&place, json!({"snapshotTtlSeconds": 1}));
    let mut client = Streams::plain(&place, Era::November2025);
    let (waiting, _) = call(&mut client, "exec", json!({"code": "await MCP.s.look({}); await yield_control()"}));
    std::thread::sleep(Duration::from_millis(2_500));
    // Once by the call that notices it, and once from the store.
    for _ in 0..2 {
        let answer = client.ask("tools/call", json!({"name": "wait", "arguments": {"runId": waiting["runId"]}}));
        let (expired, telemetry) = (structured(&answer), &answer["result"]["_meta"]["cellmate/telemetry"]);
        assert_eq!(expired["code"], "snapshot_expired", "{expired}");
        assert_eq!(answer["result"]["isError"], false, "the cell ran: {answer}");
        let error = expired["error"].as_str().unwrap();
        assert!(error.contains("check that before you run it again"), "{error}");
        assert_catalog(telemetry, ["exec", "wait"]);
        assert_eq!((&telemetry["execCount"], &telemetry["callCount"]), (&json!(1), &json!(1)), "{telemetry}");
        assert_eq!(telemetry["nestedToolIds"], json!(["mcp:s:look"]));
        let snapshots = &telemetry["snapshots"];
        assert_eq!((&snapshots["taken"], &snapshots["expired"]), (&json!(1), &json!(1)), "{telemetry}");
    }
}

#[test]
fn the_time_of_a_call_that_has_not_ended_counts() {
    let place = place();
    limit(&place, json!({"timeoutMs": 600}));
    let mut client = Streams::plain(&place, Era::November2025);
    // The server is started before.
    assert_eq!(client.exec("return Object.keys(MCP.s).length > 0")["value"], true);
    let (waiting, telemetry) = call(&mut client, "exec", json!({"code": "await MCP.s.slow({})"}));
    assert_eq!(waiting["pendingToolCalls"][0]["toolId"], "mcp:s:slow", "{waiting}");
    let tools = telemetry["durationMs"]["tools"].as_u64().unwrap();
    let since = waiting["pendingToolCalls"][0]["sinceMs"].as_u64().unwrap();
    assert!(tools >= 100 && tools <= since + 500, "{tools} ms of tools, pending since {since} ms");
}

#[test]
fn a_configured_timeout_above_45_seconds_is_kept_and_described() {
    let place = place();
    for (configured, expected) in [(json!(60_000), "Limits: 60 s in all"), (json!(90_000), "Limits: 60 s in all")] {
        limit(&place, json!({"timeoutMs": configured}));
        let mut client = Streams::plain(&place, Era::November2025);
        let listed = client.ask("tools/list", json!({}));
        let tools = listed["result"]["tools"].as_array().unwrap().clone();
        let description = tools[0]["description"].as_str().unwrap();
        assert!(description.contains(expected), "{description}");
        let wait = tools[1]["description"].as_str().unwrap();
        assert!(wait.contains("or after 44 s") && wait.contains("may run for 60 s in each call"), "{wait}");
    }
}

#[test]
fn a_cell_that_no_longer_fits_the_configuration_is_kept_until_it_does() {
    let place = place();
    let big = "const kept = new Array(400000).fill(0).map((_, n) => n * 1.5); await yield_control(); \
               return kept.length";
    let noise = "const kept = Array.from({ length: 3000 }, () => Math.random()); await yield_control(); \
                 return kept.length";
    let cases = [
        (big, "javascript", json!({"memoryLimitBytes": 1 << 20}), "memory_limit_exceeded", "memoryLimitBytes", 400_000),
        (noise, "javascript", json!({"maxSnapshotBytes": 1024}), "snapshot_limit_exceeded", "maxSnapshotBytes", 3_000),
        (
            "const n: number = 7; await yield_control(); return n",
            "typescript",
            json!({"languages": ["javascript"]}),
            "unsupported_language",
            "languages",
            7,
        ),
    ];
    for (code, language, lowered, expected, key, value) in cases {
        limit(&place, json!({}));
        let mut client = Streams::plain(&place, Era::November2025);
        let waiting = client.call("exec", json!({"code": code, "language": language}));
        assert_eq!(waiting["status"], "waiting", "{waiting}");
        drop(client);
        limit(&place, lowered);
        let mut client = Streams::plain(&place, Era::November2025);
        for _ in 0..2 {
            let (refused, telemetry) = call(&mut client, "wait", json!({"runId": waiting["runId"]}));
            assert_eq!(refused["code"], expected, "{refused}");
            let error = refused["error"].as_str().unwrap();
            assert!(error.contains(&format!("`tools.codeMode.{key}`")) && error.contains("is kept"), "{error}");
            assert_eq!(telemetry["execCount"], 1, "{telemetry}");
        }
        drop(client);
        limit(&place, json!({}));
        let done = Streams::plain(&place, Era::November2025).call("wait", json!({"runId": waiting["runId"]}));
        assert_eq!((&done["status"], &done["value"]), (&json!("completed"), &json!(value)), "{done}");
    }
}
