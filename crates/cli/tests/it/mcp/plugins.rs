//! Plugins over `cellmate mcp`: tools, hooks and namespaces beside an MCP server, kills, and changes while it runs.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::clients::{Era, PATIENCE, Streams};
use super::place::{Place, reads, writes};

/// Writes the scripted plugin with this manifest's tools and hooks to a folder, and installs it.
fn install(place: &Place, id: &str, mode: &str, more: &Value) {
    let folder = place.path(&format!("source-{id}"));
    std::fs::create_dir_all(&folder).unwrap();
    let fake = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/tests/plugins/fake.py");
    std::fs::copy(fake, format!("{folder}/fake.py")).unwrap();
    let tool = |name: &str, effects: &str| json!({"name": name, "description": "Does it.", "inputSchema": {"type": "object"}, "effects": effects});
    let mut manifest = json!({
        "id": id, "name": id, "version": "1.0.0", "description": "A scripted plugin.",
        "command": ["python3", "fake.py", mode],
        "tools": [tool("echo", "reads"), tool("other", "reads"), tool("change", "changes")],
    });
    for (key, value) in more.as_object().unwrap() {
        manifest[key] = value.clone();
    }
    std::fs::write(format!("{folder}/cellmate.plugin.json"), manifest.to_string()).unwrap();
    plugins(place, &["add", &folder, "--yes"]);
}

fn plugins(place: &Place, arguments: &[&str]) -> String {
    let output = place.command(&[&["plugins"], arguments].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn recorded(place: &Place, id: &str) -> String {
    std::fs::read_to_string(place.path(&format!("state/plugins/{id}/data/record"))).unwrap_or_default()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "it never came to be that {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Adds settings to the configuration of the place.
fn configure(place: &Place, more: &Value) {
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(place.path("config.json")).unwrap()).unwrap();
    for (key, value) in more.as_object().unwrap() {
        config[key] = value.clone();
    }
    place.configure(&config);
}

fn demo() -> Value {
    json!({
        "hooks": {"before_tool_call": {"tools": ["plugin:demo:*"]}},
        "namespaces": [{
            "id": "demo", "globalName": "Demo", "description": "Demo.echo(number) echoes.", "requiredToolNames": ["echo"],
            "scope": {"kind": "fixed", "echo": {"$tool": "echo", "input": {"positional": ["number"], "constants": {"by": "Demo"}}}},
        }],
    })
}

#[test]
fn a_cell_uses_core_tool_plugin_namespace_and_server_under_policy_hook_and_approval_and_survives_a_kill() {
    let place = Place::new(json!([
        writes("push"),
        reads("look", json!([{"result": {"content": [{"type": "text", "text": "seen"}]}}]))
    ]));
    install(&place, "demo", "good", &demo());
    let guard = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/guard");
    plugins(&place, &["add", guard.to_str().unwrap(), "--yes"]);
    let rules = json!([{"tools": ["mcp:*"], "match": "project-[0-9]+", "action": "redact"}]);
    configure(
        &place,
        &json!({
            "plugins": {"entries": {"guard": {"config": {"rules": rules}}}},
            "tools": {"deny": ["plugin:demo:other"], "fs": {"enabled": true, "roots": [place.path("root")]}},
        }),
    );
    std::fs::create_dir(place.path("root")).unwrap();
    std::fs::write(place.path("root/notes.txt"), "first").unwrap();
    let code = "
        const before = (await tools.read({path: 'notes.txt'})).text;
        const called = await tools.call('plugin:demo:echo', {old: 'x'});
        const named = await Demo.echo(7);
        const denied = await tools.call('plugin:demo:other', {}).catch(error => error.message);
        const secret = await tools.call('plugin:demo:echo', {text: 'AKIA' + 'A'.repeat(16)}).catch(error => error.message);
        const seen = await MCP.s.look({});
        const pushed = await MCP.s.push({to: 'project-17'});
        const after = await Demo.echo(8);
        const now = (await tools.read({path: 'notes.txt'})).text;
        return {before, now, called: called.input, named: named.input, kind: Demo.kind, denied, secret, pushed, after: after.input};
    ";
    let mut client = Streams::plain(&place, Era::November2025);
    let waiting = client.exec(code);
    assert_eq!(waiting["status"], "waiting", "{waiting}");
    let approval = waiting["approvals"][0]["approvalId"].as_str().unwrap_or_else(|| panic!("{waiting}")).to_owned();
    let shown = String::from_utf8(place.approvals(&["show", &approval]).stdout).unwrap();
    assert!(
        shown.contains("[redacted]") && !shown.contains("project-17"),
        "people see what the hook made of it: {shown}"
    );
    client.child.kill().unwrap();
    client.child.wait().unwrap();
    std::fs::write(place.path("root/notes.txt"), "second").unwrap();

    assert!(place.approvals(&["approve", &approval]).status.success());
    let mut client = Streams::plain(&place, Era::November2025);
    let mut result = client.call("wait", json!({"runId": waiting["runId"]}));
    let deadline = Instant::now() + PATIENCE;
    while result["status"] == "waiting" {
        assert!(Instant::now() < deadline, "{result}");
        result = client.call("wait", json!({"runId": waiting["runId"]}));
    }
    assert_eq!(result["status"], "completed", "{result}");
    let value = &result["value"];
    assert_eq!((&value["before"], &value["now"]), (&json!("first"), &json!("second")), "{value}");
    assert_eq!(value["called"], json!({"old": "new"}), "the hook of `demo` rewrote it");
    assert_eq!(value["named"], json!({"number": 7, "by": "Demo"}));
    assert_eq!((&value["kind"], &value["after"]), (&json!("fixed"), &json!({"number": 8, "by": "Demo"})));
    assert!(value["denied"].as_str().unwrap().contains("plugin:demo:other"), "{value}");
    assert!(value["secret"].as_str().unwrap().contains("plugin `guard`"), "{value}");
    assert!(place.received().contains(r#""to":"[redacted]""#), "{}", place.received());
    // Calls from before the kill are not repeated.
    assert_eq!(recorded(&place, "demo").matches("call echo").count(), 3, "{}", recorded(&place, "demo"));
    assert_eq!(place.received().matches("\"tools/call\"").count(), 2);
}

#[test]
fn a_call_under_way_at_a_kill_is_repeated_if_it_reads_and_unknown_otherwise() {
    for (tool, expected) in [("echo", "slow"), ("change", "unknown")] {
        let place = Place::new(json!([]));
        install(&place, "demo", "slow", &json!({}));
        configure(&place, &json!({"approvals": {"ask": "never"}, "tools": {"codeMode": {"timeoutMs": 1_000}}}));
        let mut client = Streams::plain(&place, Era::November2025);
        let code =
            format!("return await tools.call('plugin:demo:{tool}', {{seconds: 4}}).catch(error => error.message)");
        let waiting = client.exec(&code);
        assert_eq!(waiting["status"], "waiting", "{waiting}");
        client.child.kill().unwrap();
        client.child.wait().unwrap();
        let mut client = Streams::plain(&place, Era::November2025);
        let deadline = Instant::now() + PATIENCE;
        let result = loop {
            let result = client.call("wait", json!({"runId": waiting["runId"]}));
            if result["status"] == "completed" {
                break result;
            }
            assert!(Instant::now() < deadline, "{result}");
            std::thread::sleep(Duration::from_millis(200));
        };
        assert!(result["value"].as_str().unwrap().contains(expected), "{tool}: {result}");
        let record = recorded(&place, "demo");
        let keys: Vec<&str> = record.lines().filter(|line| line.starts_with("call")).collect();
        match tool {
            "echo" => assert!(keys.len() == 2 && keys[0] == keys[1], "the same idempotency key: {record}"),
            _ => assert_eq!(keys.len(), 1, "{record}"),
        }
    }
}

#[test]
fn plugins_that_are_added_rolled_back_and_disabled_take_effect_while_the_server_runs() {
    let place = Place::new(json!([]));
    let mut client = Streams::plain(&place, Era::November2025);
    let code = "return typeof Demo === 'undefined' ? 'none' : (await Demo.echo(1)).input";
    assert_eq!(client.exec(code)["value"], "none");
    install(&place, "demo", "good", &demo());
    wait_until("the namespace is offered", || client.exec(code)["value"] == json!({"number": 1, "by": "Demo"}));
    let mut newer = demo();
    newer["version"] = json!("2.0.0");
    newer["namespaces"][0]["scope"]["echo"]["input"]["constants"]["by"] = json!("newer");
    install(&place, "demo", "good", &newer);
    wait_until("the new version is used", || client.exec(code)["value"]["by"] == "newer");
    plugins(&place, &["rollback", "demo"]);
    wait_until("the former version is used", || client.exec(code)["value"]["by"] == "Demo");
    plugins(&place, &["disable", "demo"]);
    wait_until("the namespace is gone", || client.exec(code)["value"] == "none");
    wait_until("the process was asked to exit", || recorded(&place, "demo").ends_with("shutdown\n"));
    plugins(&place, &["enable", "demo"]);
    wait_until("it is back", || client.exec(code)["value"]["by"] == "Demo");
    // Changed files are not used, and since the plugin checks calls, all calls are denied.
    client.child.kill().unwrap();
    let listed: Value = serde_json::from_str(&plugins(&place, &["list", "--json"])).unwrap();
    let hash = &listed["plugins"][0]["hash"].as_str().unwrap()[..16];
    std::fs::write(place.path(&format!("state/plugins/demo/{hash}/fake.py")), "print()").unwrap();
    let mut client = Streams::plain(&place, Era::November2025);
    let result = client.exec(code);
    let error = result["error"].as_str().unwrap_or_else(|| panic!("{result}"));
    assert!(error.contains("plugin `demo`") && error.contains("all calls are denied"), "{error}");
    let listed: Value = serde_json::from_str(&plugins(&place, &["list", "--json"])).unwrap();
    assert_eq!(listed["plugins"][0]["state"], "refused");
}

#[test]
fn a_projects_file_cannot_enable_or_configure_plugins() {
    let place = Place::new(json!([]));
    install(&place, "demo", "good", &demo());
    plugins(&place, &["disable", "demo"]);
    let project = json!({"plugins": {"enabled": true, "entries": {"demo": {"enabled": true, "config": {"a": 1}}}}});
    let folder = place.path("project");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(format!("{folder}/.cellmate.json5"), project.to_string()).unwrap();
    std::fs::create_dir_all(place.path("xdg")).unwrap();
    std::os::unix::fs::symlink(place.path("state"), place.path("xdg/cellmate")).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_cellmate"));
        command.args(arguments).current_dir(&folder).env("HOME", &place.0).env("XDG_STATE_HOME", place.path("xdg"));
        command.env_remove("XDG_CONFIG_HOME").env_remove("CELLMATE_CONFIG").stdin(std::process::Stdio::null());
        let output = command.output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    };
    run(&["config", "trust"]);
    let code = "return typeof Demo === 'undefined' ? 'none' : (await Demo.echo(1)).input.by";
    let disabled = run(&["exec", "--json", "-e", code]);
    assert!(disabled.contains(r#""value":"none""#), "{disabled}");
    assert!(run(&["config", "check"]).contains("plugins"), "the project's section is reported");
    // The plugin has no settings, so it would not start with those of the project.
    plugins(&place, &["enable", "demo"]);
    let enabled = run(&["exec", "--json", "-e", code]);
    assert!(enabled.contains(r#""value":"Demo""#), "{enabled}");
}

#[test]
fn a_namespace_that_the_plugin_creates_is_there_in_the_first_cell() {
    let place = Place::new(json!([]));
    let made = json!({
        "configSchema": {"type": "object"},
        "namespaces": [{
            "id": "made", "globalName": "Made", "description": "Made.", "requiredToolNames": ["echo"], "createScope": true,
        }],
    });
    install(&place, "demo", "good", &made);
    configure(&place, &json!({"plugins": {"entries": {"demo": {"config": {"project": "p"}}}}}));
    let mut client = Streams::plain(&place, Era::November2025);
    let result = client.exec("return [typeof Made.agent, Made.config, (await Made.echo('hi')).input]");
    assert_eq!(result["value"], json!(["string", {"project": "p"}, {"text": "hi"}]), "{result}");
}
