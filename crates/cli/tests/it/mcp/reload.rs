//! The configuration is reloaded while `cellmate mcp` runs, without harm to cells that run.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::clients::{Era, PATIENCE, Streams, structured};
use super::place::{Place, reads};
use crate::person::Person;

const CHANGED: &str = "notifications/tools/list_changed";

/// Returns the entry of the scripted server `s`.
fn scripted(place: &Place) -> Value {
    let config: Value = serde_json::from_str(&std::fs::read_to_string(place.path("config.json")).unwrap()).unwrap();
    config["mcpServers"]["s"].clone()
}

/// Returns the entry of another scripted server, whose tool answers with this text.
fn another(place: &Place, script: &str, answer: &str) -> Value {
    let tool = reads("say", json!([{"result": {"content": [{"type": "text", "text": answer}]}}]));
    std::fs::write(place.path(script), json!({"tools": [tool]}).to_string()).unwrap();
    let mut entry = scripted(place);
    entry["args"] = json!([place.path(script)]);
    entry
}

fn say(answer: &str) -> Value {
    reads("say", json!([{"result": {"content": [{"type": "text", "text": answer}]}}]))
}

fn description(client: &mut Streams) -> String {
    let listed = client.ask("tools/list", json!({}));
    listed["result"]["tools"][0]["description"].as_str().unwrap().to_owned()
}

fn wait_for_change(client: &mut Streams) {
    client.next("notification of changed tools", |message| message["method"] == CHANGED);
}

fn log_text(place: &Place) -> String {
    std::fs::read_to_string(place.path("state/logs/cellmate.log")).unwrap_or_default()
}

fn wait_for_log(place: &Place, text: &str) -> String {
    wait_for_text(&place.path("state/logs/cellmate.log"), text)
}

fn wait_for_text(file: &str, text: &str) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let log = std::fs::read_to_string(file).unwrap_or_default();
        if log.contains(text) {
            return log;
        }
        assert!(Instant::now() < deadline, "no {text:?} in {log}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

const CALL: &str = "return (await MCP.SERVER.say({})).content[0].text";

#[test]
fn servers_that_are_added_changed_and_removed_take_effect_and_clients_are_notified() {
    let place = Place::new(json!([say("one")]));
    let mut client = Streams::plain(&place, Era::November2025);
    assert_eq!(client.exec(&CALL.replace("SERVER", "s"))["value"], "one");
    let before = description(&mut client);
    let starts = |place: &Place| place.received().matches("tools/list").count();
    let started = starts(&place);

    let kept = scripted(&place);
    let added = another(&place, "added.json", "two");
    place.configure(&json!({"mcpServers": {"s": kept, "added": added}}));
    wait_for_change(&mut client);
    // The first change names the server as one that is starting.
    let deadline = Instant::now() + PATIENCE;
    while client.exec(&CALL.replace("SERVER", "added"))["value"] != "two" {
        assert!(Instant::now() < deadline, "{}", log_text(&place));
    }
    assert_ne!(description(&mut client), before, "the description lists the servers");
    assert_eq!(client.exec(&CALL.replace("SERVER", "s"))["value"], "one");
    assert_eq!(starts(&place), started, "a server that did not change must not be started again");

    let changed = another(&place, "changed.json", "three");
    place.configure(&json!({"mcpServers": {"s": kept, "added": changed}}));
    wait_for_log(&place, "\"changed\":\"added\"");
    let deadline = Instant::now() + PATIENCE;
    while client.exec(&CALL.replace("SERVER", "added"))["value"] != "three" {
        assert!(Instant::now() < deadline, "{}", log_text(&place));
    }

    client.notifications(CHANGED);
    place.configure(&json!({"mcpServers": {"s": kept}}));
    wait_for_change(&mut client);
    let gone = client.exec(&CALL.replace("SERVER", "added"));
    assert_eq!(gone["status"], "failed", "{gone}");
    assert_eq!(client.exec(&CALL.replace("SERVER", "s"))["value"], "one");
    wait_for_log(&place, "\"removed\":\"added\"");
}

#[test]
fn a_call_in_progress_on_a_removed_server_finishes_and_later_calls_of_the_cell_fail_clearly() {
    let slow = reads("slow", json!([{"sleepMs": 8000}, {"result": {"content": [{"type": "text", "text": "done"}]}}]));
    let place = Place::new(json!([slow, say("one")]));
    let mut client = Streams::plain(&place, Era::November2025);
    let cell = "const slow = (await MCP.s.slow({})).content[0].text; \
                const after = await MCP.s.say({}).then(() => 'called', (error) => String(error.message ?? error)); \
                return [slow, after]";
    let id = client.send("tools/call", json!({"name": "exec", "arguments": {"code": cell}}));
    let deadline = Instant::now() + PATIENCE;
    while !place.received().contains("\"slow\"") {
        assert!(Instant::now() < deadline, "{}", place.received());
        std::thread::sleep(Duration::from_millis(50));
    }
    place.configure(&json!({"mcpServers": {"other": another(&place, "other.json", "two")}}));
    wait_for_log(&place, "the configuration was reloaded");
    let mut result = client.answer(id)["result"]["structuredContent"].clone();
    while result["status"] == "waiting" {
        result = client.call("wait", json!({"runId": result["runId"]}));
    }
    assert_eq!(result["value"][0], "done", "{result}");
    let after = result["value"][1].as_str().unwrap();
    assert!(after.contains("removed from the configuration") || after.contains("unknown tool"), "{after}");
    assert_eq!(client.exec(&CALL.replace("SERVER", "other"))["value"], "two");
}

#[test]
fn while_the_configuration_is_invalid_no_cell_starts_and_suspended_ones_continue() {
    let place = Place::new(json!([say("one")]));
    let server = scripted(&place);
    let mut client = Streams::plain(&place, Era::November2025);
    assert_eq!(client.exec(&CALL.replace("SERVER", "s"))["value"], "one");
    let suspended = client.exec(&format!("await yield_control(); {}", CALL.replace("SERVER", "s")));
    assert_eq!(suspended["status"], "waiting", "{suspended}");
    const INVALID: &str = "the changed configuration is invalid";
    std::fs::write(place.path("config.json"), "{ mcpServers: {").unwrap();
    wait_for_log(&place, INVALID);
    // Two more rounds of comparing the files.
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(log_text(&place).matches(INVALID).count(), 1);
    let answer = client.ask("tools/call", json!({"name": "exec", "arguments": {"code": "return 1"}}));
    let (refused, telemetry) = (structured(&answer), &answer["result"]["_meta"]["cellmate/telemetry"]);
    assert_eq!((&refused["status"], &refused["code"]), (&json!("failed"), &json!("invalid_config")), "{refused}");
    let error = refused["error"].as_str().unwrap();
    assert!(error.contains("config.json") && error.contains("cellmate config check"), "{error}");
    assert_eq!((&telemetry["catalogSize"], &answer["result"]["isError"]), (&json!(1), &json!(true)), "{answer}");
    // The former servers and policy are used for cells that were started before.
    assert_eq!(client.call("wait", json!({"runId": suspended["runId"]}))["value"], "one");

    place.configure(&json!({"mcpServers": {"s": server}, "tools": {"deny": "not a list"}}));
    let deadline = Instant::now() + PATIENCE;
    while log_text(&place).matches(INVALID).count() < 2 {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(100));
    }
    let refused = client.exec("return 1");
    assert_eq!(refused["code"], "invalid_config", "{refused}");
    assert!(refused["error"].as_str().unwrap().contains("tools.deny"), "{refused}");

    place.configure(&json!({"mcpServers": {"s": server}}));
    let deadline = Instant::now() + PATIENCE;
    while client.exec(&CALL.replace("SERVER", "s"))["value"] != "one" {
        assert!(Instant::now() < deadline, "{}", log_text(&place));
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_changed_policy_applies_to_new_runs() {
    let place = Place::new(json!([say("one")]));
    let server = scripted(&place);
    let mut client = Streams::plain(&place, Era::November2025);
    assert_eq!(client.exec(&CALL.replace("SERVER", "s"))["value"], "one");
    place.configure(&json!({"mcpServers": {"s": server}, "tools": {"deny": ["mcp:s:say"]}}));
    wait_for_log(&place, "\"policy\":true");
    let denied = client.exec(&CALL.replace("SERVER", "s"));
    assert_eq!(denied["status"], "failed", "{denied}");
    place.configure(&json!({"mcpServers": {"s": server}}));
    let deadline = Instant::now() + PATIENCE;
    while client.exec(&CALL.replace("SERVER", "s"))["value"] != "one" {
        assert!(Instant::now() < deadline, "{}", log_text(&place));
    }
}

#[test]
fn a_server_that_fails_is_in_the_log_and_in_the_list() {
    let place = Place::new(json!([say("one")]));
    let server = scripted(&place);
    let mut client = Streams::plain(&place, Era::November2025);
    assert_eq!(client.exec(&CALL.replace("SERVER", "s"))["value"], "one");
    let failing = json!({"command": "sh", "args": ["-c", "exit 3"]});
    place.configure(&json!({"mcpServers": {"s": server, "failing": failing}}));
    wait_for_log(&place, "a server is not available");
    let listed = place.command(&["servers", "list", "--json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let failing = listed["servers"].as_array().unwrap().iter().find(|one| one["name"] == "failing").unwrap();
    assert_eq!(failing["state"], "failed", "{failing}");
}

#[test]
fn a_server_that_failed_its_first_listing_is_tried_again_and_clients_are_notified() {
    let place = Place::new(json!([say("one")]));
    let server = scripted(&place);
    let script =
        format!("test -e {0}/ready || exit 3; exec {1} {2}", place.path(""), server["command"], server["args"][0]);
    let mut late = server.clone();
    (late["command"], late["args"]) = (json!("sh"), json!(["-c", script]));
    place.configure(&json!({"mcpServers": {"s": late}}));
    let mut client = Streams::plain(&place, Era::November2025);
    wait_for_log(&place, "a server is not available");
    assert_eq!(client.exec(&CALL.replace("SERVER", "s"))["status"], "failed");
    std::fs::write(place.path("ready"), "").unwrap();
    wait_for_change(&mut client);
    let deadline = Instant::now() + PATIENCE;
    while client.exec(&CALL.replace("SERVER", "s"))["value"] != "one" {
        assert!(Instant::now() < deadline, "{}", log_text(&place));
    }
}

#[test]
fn a_projects_file_that_changes_loses_its_servers_until_it_is_trusted_again() {
    let person = Person::new();
    let project = |more: &str| {
        let server = json!({"command": "sh", "args": [person.server(), more]});
        person.write("project/.cellmate.json5", &json!({"mcpServers": {"p": server}}).to_string());
    };
    project("");
    assert_eq!(person.run(&["config", "trust"]).code, 0);
    let mut command = Command::new(env!("CARGO_BIN_EXE_cellmate"));
    command.arg("mcp").current_dir(person.path("project")).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    command.env("HOME", person.path("home")).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut server = command.spawn().unwrap();
    let log = person.path("home/.local/state/cellmate/logs/cellmate.log").display().to_string();
    wait_for_text(&log, "listed the tools of an MCP server");

    project("changed");
    let seen = wait_for_text(&log, "\"removed\":\"p\"");
    assert!(seen.contains("changed since you trusted it") && seen.contains("to trust it"), "{seen}");
    assert_eq!(person.run(&["config", "trust"]).code, 0);
    wait_for_text(&log, "\"added\":\"p\"");
    drop(server.stdin.take());
    assert!(server.wait().unwrap().success());
}
