//! The file tools in cells over `cellmate mcp` and `cellmate exec`: off by default, reading without approval, changing
//! only with it.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::clients::{Era, Streams};
use super::place::Place;

/// A place whose configuration enables the file tools in the folder `project`.
fn place(tools: &Value) -> Place {
    let place = Place::new(json!([]));
    std::fs::create_dir_all(place.path("project/src")).unwrap();
    std::fs::write(place.path("project/src/main.rs"), "fn main() {\n    old();\n}\n").unwrap();
    std::fs::write(place.path("secret"), "SECRET").unwrap();
    place.configure(&json!({"tools": tools}));
    place
}

fn enabled(place: &Place) -> Value {
    json!({"fs": {"enabled": true, "roots": [place.path("project")]}})
}

fn exec(place: &Place, cell: &str) -> (Option<i32>, Value, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cellmate"));
    command.args(["exec", "-e", cell, "--state-dir", &place.path("state"), "--config", &place.path("config.json")]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let result = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status.code(), result, String::from_utf8_lossy(&output.stderr).into_owned())
}

const READING: &str = "const found = await tools.call('openclaw:core:grep', { pattern: 'old\\\\(' });
    const file = await tools.read({ path: found.matches[0].path });
    const listed = await tools.ls({}), paths = await tools.find({ pattern: '*.rs' });
    return [found.matches.length, file.text, file.totalLines, listed.entries[0].name, paths.paths];";

const EDITING: &str = "const found = await tools.grep({ pattern: 'old' });
    const done = await tools.edit({ path: found.matches[0].path, oldText: 'old()', newText: 'fresh()' });
    return [done.replacements, (await tools.read({ path: 'src/main.rs' })).text];";

#[test]
fn a_cell_reads_and_searches_files_without_approval() {
    let place = place(&Value::Null);
    place.configure(&json!({"tools": enabled(&place)}));
    let expected = json!([1, "fn main() {\n    old();\n}\n", 3, "src", ["src/main.rs"]]);
    let (code, done, stderr) = exec(&place, READING);
    assert_eq!((code, &done["value"]), (Some(0), &expected), "{done} {stderr}");
    let mut client = Streams::plain(&place, Era::June2025);
    assert_eq!(client.exec(READING)["value"], expected);
    let refused = client.exec("try { await tools.read({ path: '../secret' }) } catch (error) { return error.message }");
    let message = refused["value"].as_str().unwrap();
    assert!(message.contains("outside the folders") && message.contains("project"), "{message}");
}

#[test]
fn a_root_with_a_named_state_folder_or_configuration_file_is_refused() {
    let place = place(&Value::Null);
    for (root, reason) in [("", "Cellmate's configuration"), ("state", "Cellmate's keys and tokens")] {
        std::fs::create_dir_all(place.path("state")).unwrap();
        place.configure(&json!({"tools": {"fs": {"enabled": true, "roots": [place.path(root)]}}}));
        let (_, done, stderr) = exec(&place, "return ALL_TOOLS.map(tool => tool.id)");
        assert!(stderr.contains("tools.fs.roots[0]") && stderr.contains(reason), "{stderr}");
        assert_eq!(done["value"], json!([]), "{done} {stderr}");
    }
}

#[test]
fn a_cell_that_changes_a_file_waits_for_approval() {
    for era in [Era::June2025, Era::July2026] {
        let place = place(&Value::Null);
        place.configure(&json!({"tools": enabled(&place)}));
        let mut client = Streams::plain(&place, era);
        let waiting = client.exec(EDITING);
        assert_eq!(waiting["status"], "waiting", "{waiting}");
        let before = std::fs::read_to_string(place.path("project/src/main.rs")).unwrap();
        assert!(before.contains("old()"), "nothing is changed before the approval");
        let id = waiting["approvals"][0]["approvalId"].as_str().unwrap();
        assert!(place.approvals(&["approve", id]).status.success());
        let wait = client.send("tools/call", json!({"name": "wait", "arguments": {"runId": waiting["runId"]}}));
        let done = super::clients::structured(&client.answer(wait));
        assert_eq!(done["value"], json!([1, "fn main() {\n    fresh();\n}\n"]), "{done}");
    }
    // Each tool that changes something asks.
    let place = place(&Value::Null);
    place.configure(&json!({"tools": enabled(&place)}));
    for cell in [
        "return await tools.write({ path: 'new.txt', content: 'x' })",
        "return await tools.edit({ path: 'src/main.rs', oldText: 'old', newText: 'new' })",
        "return await tools.apply_patch({ input: '*** Begin Patch\\n*** Delete File: src/main.rs\\n*** End Patch' })",
    ] {
        let (code, waiting, stderr) = exec(&place, cell);
        assert_eq!((code, &waiting["status"]), (Some(3), &json!("waiting")), "{cell}: {waiting} {stderr}");
    }
    assert!(std::fs::read_to_string(place.path("project/src/main.rs")).unwrap().contains("old()"));
    assert!(!std::path::Path::new(&place.path("project/new.txt")).exists());
}

#[test]
fn the_file_tools_are_off_by_default_and_a_policy_denies_them_as_a_group() {
    let place = place(&Value::Null);
    let names = "return ALL_TOOLS.map((tool) => tool.id).filter((id) => id.startsWith('openclaw:core:')).sort()";
    let (_, off, _) = exec(&place, names);
    assert_eq!(off["value"], json!([]), "{off}");
    place.configure(&json!({"tools": {"fs": {"roots": [place.path("project")]}}}));
    assert_eq!(exec(&place, names).1["value"], json!([]), "roots alone enable nothing");
    place.configure(&json!({"tools": enabled(&place)}));
    let all =
        ["apply_patch", "edit", "find", "grep", "ls", "read", "write"].map(|name| format!("openclaw:core:{name}"));
    assert_eq!(exec(&place, names).1["value"], json!(all));
    let mut tools = enabled(&place);
    tools["deny"] = json!(["group:fs"]);
    place.configure(&json!({"tools": tools}));
    assert_eq!(exec(&place, names).1["value"], json!([]));
    // Without a root that may be changed, there are only tools that read.
    let read_only = json!({"fs": {"enabled": true, "roots": [{"path": place.path("project"), "access": "read"}]}});
    place.configure(&json!({"tools": read_only}));
    let reading = ["find", "grep", "ls", "read"].map(|name| format!("openclaw:core:{name}"));
    assert_eq!(exec(&place, names).1["value"], json!(reading));
}

#[test]
fn a_root_that_cannot_be_used_is_reported_and_the_others_work() {
    let place = place(&Value::Null);
    let home = place.path("");
    let roots = json!([place.path("project"), place.path("missing"), "/", home]);
    place.configure(&json!({"tools": {"fs": {"enabled": true, "roots": roots}}}));
    let mut command = Command::new(env!("CARGO_BIN_EXE_cellmate"));
    command.args(["exec", "-e", "return (await tools.ls({})).path", "--config", &place.path("config.json")]);
    command.args(["--state-dir", &place.path("state")]).env("HOME", &home).env_remove("XDG_CONFIG_HOME");
    let output = command.env_remove("XDG_STATE_HOME").stdin(Stdio::null()).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let done: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(done["value"], ".", "{done} {stderr}");
    for reason in [
        "`tools.fs.roots[1]`: the folder",
        "it does not exist",
        "it is the root of the file system",
        "it contains Cellmate's configuration",
    ] {
        assert!(stderr.contains(reason), "{reason}: {stderr}");
    }
    place.configure(&json!({"tools": {"fs": {"enabled": true}}}));
    let (_, _, stderr) = exec(&place, "return 1");
    assert!(stderr.contains("no folder is listed in `roots`"), "{stderr}");
    // `config check` names the place of the setting.
    place.configure(&json!({"tools": {"fs": {"enabled": true, "roots": [place.path("missing")]}}}));
    let checked = Command::new(env!("CARGO_BIN_EXE_cellmate"))
        .args(["config", "check", &place.path("config.json"), "--json"])
        .output()
        .unwrap();
    let checked: Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!((&checked["problems"][0]["severity"], &checked["problems"][0]["line"]), (&json!("warning"), &json!(1)));
    assert!(checked["problems"][0]["message"].as_str().unwrap().contains("it does not exist"), "{checked}");
}
