//! The log of `cellmate mcp`, and `cellmate logs`, which prints it.

use std::process::{Command, Output};

use serde_json::{Value, json};

use super::clients::{Era, Served, Streams};
use super::place::{Place, reads};

const SECRET: &str = "canary-7f3e9a51c0de";

fn log_text(place: &Place) -> String {
    std::fs::read_to_string(place.path("state/logs/cellmate.log")).unwrap()
}

fn parse(lines: &str) -> Vec<Value> {
    lines.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}"))).collect()
}

fn event<'a>(events: &'a [Value], message: &str) -> &'a Value {
    events.iter().find(|event| event["message"] == message).unwrap_or_else(|| panic!("no `{message}` in {events:#?}"))
}

/// Returns the values of a field in an event and its spans.
fn values<'a>(event: &'a Value, field: &'a str) -> impl Iterator<Item = &'a Value> {
    let spans = event["spans"].as_array().into_iter().flatten();
    std::iter::once(event).chain(spans).filter_map(move |part| part.get(field))
}

fn logs(place: &Place, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cellmate"));
    command.args(["logs", "--state-dir", &place.path("state")]).args(arguments).output().unwrap()
}

fn printed(output: &Output) -> &str {
    assert!(output.status.success(), "{output:?}");
    std::str::from_utf8(&output.stdout).unwrap()
}

#[test]
fn a_server_logs_its_start_its_problems_and_its_shutdown() {
    let place = Place::new(json!([reads("add", json!([{"result": {"content": []}}]))]));
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(place.path("config.json")).unwrap()).unwrap();
    config["mcpServers"]["incomplete"] = json!({});
    place.configure(&config);
    let mut client = Streams::plain(&place, Era::July2026);
    let run = client.exec("await yield_control(); return await MCP.s.add({})")["runId"].clone();
    let done = client.call("wait", json!({ "runId": run }));
    assert_eq!(done["status"], "completed", "{done}");
    client.close();
    assert!(client.child.wait().unwrap().success());

    let events = parse(&log_text(&place));
    let started = event(&events, "cellmate mcp started");
    assert_eq!((&started["level"], &started["transport"]), (&json!("INFO"), &json!("stdio")));
    assert!(started["version"].as_str().unwrap().starts_with(env!("CARGO_PKG_VERSION")), "{started}");
    let problem = event(&events, "part of the configuration cannot be used");
    assert_eq!(problem["level"], "WARN");
    assert!(problem["problem"].as_str().unwrap().contains("server `incomplete`"), "{problem}");
    event(&events, "shutting down");
    event(&events, "cellmate mcp stopped");
    // The settled call is logged inside the spans run, turn and call.
    let spans = |event: &Value| -> Vec<String> {
        let spans = event["spans"].as_array().into_iter().flatten();
        spans.filter_map(|span| span["name"].as_str().map(str::to_owned)).collect()
    };
    let in_call = events.iter().filter(|event| values(event, "call").next().is_some());
    let in_call: Vec<&Value> = in_call.filter(|event| spans(event) == ["run", "turn", "call"]).collect();
    assert!(!in_call.is_empty(), "{events:#?}");
    assert!(in_call.iter().all(|event| values(event, "tool").any(|tool| tool == "mcp:s:add")), "{in_call:#?}");
    // Libraries log the messages of clients at `info`.
    assert!(events.iter().all(|event| !event["target"].as_str().unwrap().starts_with("rmcp")), "{events:#?}");
    // Events of a run name it.
    for value in events.iter().flat_map(|event| values(event, "run")) {
        assert_eq!(value, &run);
    }

    let text = logs(&place, &[]);
    let lines: Vec<&str> = printed(&text).lines().collect();
    assert_eq!(lines.len(), events.len());
    let first = lines[0];
    assert!(
        first.contains("INFO cellmate_commands::serve::") && first.contains(": cellmate mcp started version="),
        "{first}"
    );
    let last = logs(&place, &["-n", "1", "--json"]);
    assert_eq!(parse(printed(&last)), events[events.len() - 1..]);
    let all = logs(&place, &["-n", "0", "--json"]);
    assert_eq!(parse(printed(&all)), events);
    let run = run.as_str().unwrap();
    for event in parse(printed(&logs(&place, &["--run", run, "--json"]))) {
        assert!(values(&event, "run").any(|value| value == run), "{event}");
    }
}

#[test]
fn a_shutdown_while_a_cell_waits_for_a_timer_is_no_problem() {
    let place = Place::new(json!([]));
    let mut client = Streams::plain(&place, Era::July2026);
    let code = "const timer = new Promise((done) => setTimeout(done, 60_000)); await yield_control(); await timer";
    let run = client.exec(code)["runId"].clone();
    client.send("tools/call", json!({"name": "wait", "arguments": {"runId": run}}));
    std::thread::sleep(std::time::Duration::from_millis(500));
    client.close();
    assert!(client.child.wait().unwrap().success());
    let events = parse(&log_text(&place));
    event(&events, "cellmate mcp stopped");
    // The client closed the connection during a call, which the library logs.
    let is_ours = |event: &&Value| event["target"].as_str().is_some_and(|target| target.starts_with("cellmate"));
    assert!(events.iter().filter(is_ours).all(|event| event["level"] != "WARN"), "{events:#?}");
    event(&events, "cells still wait, for a timer or a call; each continues with the next `wait`");
}

#[test]
fn logs_are_filtered_by_run_and_incident() {
    let place = Place::new(json!([]));
    let empty = logs(&place, &[]);
    assert!(printed(&empty).is_empty() && String::from_utf8_lossy(&empty.stderr).contains("nothing is logged"));
    let event = |message: &str, fields: Value, spans: Value| {
        let mut event = json!({"timestamp": "2026-07-28T00:00:00Z", "level": "INFO", "target": "executor"});
        event["message"] = json!(message);
        event["spans"] = spans;
        event.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        format!("{event}\n")
    };
    let written = [
        event("first", json!({}), json!([{"name": "run", "run": "run_a1"}, {"name": "call", "call": 7}])),
        event("second", json!({"run": "run_b2", "incident": "0123abcd"}), json!([])),
        event("third\u{1b}[2J", json!({}), json!([])),
    ];
    std::fs::create_dir_all(place.path("state/logs")).unwrap();
    // The older file is printed first.
    std::fs::write(place.path("state/logs/cellmate.log.1"), &written[0]).unwrap();
    std::fs::write(place.path("state/logs/cellmate.log"), written[1..].concat()).unwrap();
    let cases: [(&[&str], &[&str]); 7] = [
        (&[], &["first", "second", "third\\u{1b}[2J"]),
        (&["--lines", "2"], &["second", "third\\u{1b}[2J"]),
        (&["--run", "run_a1"], &["first"]),
        (&["--run", "run_"], &["first", "second"]),
        (&["--incident", "0123abcd"], &["second"]),
        (&["--incident", "0123abcd", "--run", "run_a1"], &[]),
        (&["--run", "run_c"], &[]),
    ];
    for (arguments, expected) in cases {
        let output = logs(&place, arguments);
        let lines: Vec<&str> = printed(&output).lines().collect();
        let messages: Vec<&str> =
            lines.iter().map(|line| line.split("executor: ").nth(1).unwrap().split(' ').next().unwrap()).collect();
        assert_eq!(messages, expected, "{arguments:?}");
    }
    let text = logs(&place, &["--run", "run_a1"]);
    assert_eq!(printed(&text), "2026-07-28T00:00:00Z  INFO run=run_a1 call=7 executor: first\n");
}

#[test]
fn secrets_of_the_configuration_and_tokens_are_not_logged() {
    let place = Place::new(json!([reads("add", json!([{"result": {"content": [{"type": "text", "text": SECRET}]}}]))]));
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(place.path("config.json")).unwrap()).unwrap();
    config["mcpServers"]["s"]["env"] = json!({"API_KEY": SECRET});
    // Nothing listens there, and the program does not exist: both failures are logged with what was tried.
    let headers = json!({"Authorization": format!("Bearer {SECRET}")});
    config["mcpServers"]["remote"] = json!({"url": format!("http://127.0.0.1:9/{SECRET}/mcp"), "headers": headers});
    config["mcpServers"]["missing"] = json!({"command": format!("/none/{SECRET}"), "env": {"API_KEY": SECRET}});
    place.configure(&config);
    let mut client = Streams::start(&place, Era::July2026, json!({}), &["--log", "trace"]);
    let done = client.exec(&format!("return await MCP.s.add({{ token: '{SECRET}' }})"));
    assert_eq!(done["status"], "completed", "{done}");
    client.close();
    assert!(client.child.wait().unwrap().success());
    let text = log_text(&place);
    assert!(text.contains("[redacted]") && !text.contains(SECRET), "{text}");

    let served = Served::start(&place, &["--log", "trace"]);
    let message =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": Era::July2026.meta(&json!({}))}});
    assert_eq!(served.post(Era::July2026, &served.token, None, &message).status, 200);
    assert!(served.token.len() > 20 && !log_text(&place).contains(&served.token));
}

#[test]
fn an_invalid_filter_is_refused_with_a_message() {
    let place = Place::new(json!([]));
    let cases = [(Some("cellmate=loud"), None), (None, Some("cellmate=loud"))];
    for (argument, variable) in cases {
        let mut command = place.server(&[]);
        command.args(argument.into_iter().flat_map(|filter| ["--log", filter]));
        command.envs(variable.map(|filter| ("CELLMATE_LOG", filter)));
        let output = command.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains("`cellmate=loud` is not a log filter") && error.contains("TARGET=LEVEL"), "{error}");
    }
}
