//! `cellmate plugins new` and `test`: the template's hook, and its decisions on given calls. Hooks that see cells, and
//! plugins that cannot be used.

use serde_json::{Value, json};

use crate::person::Person;

#[test]
fn the_hook_of_the_template_works_once_its_comment_signs_are_removed() {
    let person = Person::new();
    assert_eq!(person.run(&["plugins", "new", "hello"]).code, 0);
    let (main, manifest) = ("project/hello/main.py", "project/hello/cellmate.plugin.json");
    let template = person.read(main);
    let mut program = String::new();
    let mut is_hook = false;
    for line in template.lines() {
        is_hook = is_hook && line.trim_start().starts_with('#');
        is_hook |= line.contains("# def before_tool_call") || line.contains("# if method == \"hooks/");
        program += &if is_hook { line.replacen("# ", "", 1) } else { line.to_owned() };
        program += "\n";
    }
    assert_ne!(program, template);
    person.write(main, &program);
    // The template says what to add to the manifest.
    let hooks = template.lines().find_map(|line| line.trim_start_matches(['#', ' ']).strip_prefix("\"hooks\": "));
    let mut described: Value = serde_json::from_str(&person.read(manifest)).unwrap();
    described["hooks"] = serde_json::from_str(hooks.unwrap()).unwrap();
    person.write(manifest, &described.to_string());

    let calls = [
        ("mcp:files:write_file", r#"{"path": "/etc/hosts"}"#),
        ("mcp:files:delete_file", r#"{"path": "notes"}"#),
        ("mcp:files:write_file", r#"{"path": "notes"}"#),
        ("mcp:other:write_file", r#"{"path": "/etc/hosts"}"#),
        ("greet", r#"{"name": "Ada"}"#),
    ];
    let mut arguments = vec!["plugins", "test", "./hello"];
    calls.iter().for_each(|(tool, input)| arguments.extend(["--call", tool, "--input", input]));
    let tested = person.run(&arguments);
    assert_eq!(tested.code, 0, "{}{}", tested.out, tested.err);
    let unseen = "does not see it: its `tools` do not match";
    for expected in [
        "before_tool_call  mcp:files:write_file: blocks: files in /etc stay as they are\n",
        "before_tool_call  mcp:files:delete_file: requires approval: it deletes a file\n",
        "before_tool_call  mcp:files:write_file: allows\n",
        "call        mcp:files:write_file: not called, because it is not the plugin's own\n",
        &format!("before_tool_call  mcp:other:write_file: {unseen}\n"),
        &format!("before_tool_call  greet: {unseen}\n"),
        "Hello, Ada!",
    ] {
        assert!(tested.out.contains(expected), "{expected}: {}", tested.out);
    }
    assert!(!tested.out.contains("sample"), "{}", tested.out);
    let sampled = person.run(&["plugins", "test", "./hello"]);
    let line = format!("before_tool_call  mcp:sample:sample (invented): {unseen}\n");
    assert!(sampled.code == 0 && sampled.out.contains(&line), "{}{}", sampled.out, sampled.err);
    let sampled = person.run(&["plugins", "test", "./hello", "--json"]).json();
    assert_eq!(sampled["hooks"][0]["tool"], "mcp:sample:sample", "{sampled}");
    arguments.push("--json");
    let tested = person.run(&arguments).json();
    assert_eq!(
        tested["calls"][0],
        json!({
            "tool": "mcp:files:write_file",
            "ok": true,
            "hooks": [{
                "hook": "before_tool_call",
                "outcome": {"ok": true, "result": "blocks: files in /etc stay as they are"},
            }],
        })
    );
    assert_eq!(tested["calls"][4]["result"], json!({"greeting": "Hello, Ada!"}));
}

/// Adds and enables a plugin whose hook blocks the cells that contain `forbidden`.
fn add_guard(person: &Person, id: &str) {
    assert_eq!(person.run(&["plugins", "new", id]).code, 0);
    let (main, manifest) = (format!("project/{id}/main.py"), format!("project/{id}/cellmate.plugin.json"));
    let mut described: Value = serde_json::from_str(&person.read(&manifest)).unwrap();
    described["hooks"] = json!({"before_tool_call": {"tools": [], "cells": true}});
    person.write(&manifest, &described.to_string());
    let template = person.read(&main);
    let start = template.find("# if method == \"hooks/").unwrap();
    let hook = "if method == \"hooks/before_tool_call\":\n        \
        return {\"block\": \"not today\"} if \"forbidden\" in params[\"params\"][\"code\"] else {}\n    ";
    person.write(&main, &format!("{}{hook}{}", &template[..start], &template[start..]));
    let added = person.run(&["plugins", "add", &format!("./{id}"), "--yes"]);
    assert_eq!(added.code, 0, "{}{}", added.out, added.err);
    let enabled = person.run(&["plugins", "enable", id]);
    assert_eq!(enabled.code, 0, "{}{}", enabled.out, enabled.err);
}

#[test]
fn a_hook_that_sees_cells_also_sees_those_of_exec_and_the_repl() {
    let person = Person::new();
    add_guard(&person, "guard");
    let allowed = person.run(&["exec", "-e", "return 6 * 7"]);
    assert!(allowed.code == 0 && allowed.out.contains("42"), "{}{}", allowed.out, allowed.err);
    let blocked = person.run(&["exec", "-e", "return 'forbidden'"]);
    assert!(blocked.code == 1, "{}{}", blocked.out, blocked.err);
    assert!(format!("{}{}", blocked.out, blocked.err).contains("plugin `guard`: not today"), "{}", blocked.err);
    let typed = person.run_with(&[], "'forbidden'\n6 * 7\n", &["repl"]);
    let shown = format!("{}{}", typed.out, typed.err);
    assert!(shown.contains("plugin `guard`: not today") && shown.contains("42"), "{shown}");
}

#[test]
fn doctor_names_every_plugin_that_cannot_be_used() {
    let person = Person::new();
    for id in ["one", "two"] {
        add_guard(&person, id);
    }
    let installed = person.path("home/.local/state/cellmate/plugins");
    let mut changed = 0;
    let mut folders = vec![installed];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else if entry.ends_with("main.py") {
                std::fs::remove_file(entry).unwrap();
                changed += 1;
            }
        }
    }
    assert_eq!(changed, 2);
    let doctor = person.run(&["doctor"]).out;
    let line = doctor.lines().find(|line| line.starts_with("plugins ")).unwrap();
    assert!(line.contains("`one` cannot be used: ") && line.contains("; `two` cannot be used: "), "{doctor}");
}

/// A plugin that complains and exits at the first request after its start.
const LOUD: &str = r#"
import json, os, sys
for line in sys.stdin:
    request = json.loads(line)
    if request["method"] == "initialize":
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": {"protocolVersion": 1}}), flush=True)
    elif "id" in request:
        os.write(2, b"disk on fire\n")
        os._exit(7)
"#;

#[test]
fn the_user_sees_standard_error_of_a_plugin_that_exits_and_the_cell_only_its_exit_code() {
    let mut described = json!({
        "id": "loud", "name": "Loud", "version": "1.0.0", "description": "Fails.", "command": ["python3", "main.py"],
        "tools": [{"name": "burn", "description": "Burns.", "inputSchema": {"type": "object"}, "effects": "reads"}],
    });
    for hooks in [None, Some(json!({"before_tool_call": {"tools": ["*"]}}))] {
        if let Some(hooks) = hooks {
            described["hooks"] = hooks;
        }
        let person = Person::new();
        person.write("project/loud/cellmate.plugin.json", &described.to_string());
        person.write("project/loud/main.py", LOUD);
        let added = person.run(&["plugins", "add", "./loud", "--yes"]);
        assert_eq!(added.code, 0, "{}{}", added.out, added.err);
        let cell = ["exec", "-e", "return await tools.call('plugin:loud:burn', {})"];
        let commands: [&[&str]; 2] = [&cell, &["tools", "call", "plugin:loud:burn"]];
        for arguments in commands {
            let done = person.run(arguments);
            assert_eq!(done.code, 1, "{arguments:?}: {}{}", done.out, done.err);
            let note = "cellmate: plugin `loud` failed: the plugin exited with code 7\n      | disk on fire\n";
            assert!(done.err.contains(note), "{arguments:?}: {}", done.err);
            assert!(!done.out.contains("fire"), "{arguments:?}: {}", done.out);
        }
        let seen = person.run(&cell).json();
        assert!(seen["error"].as_str().unwrap().contains("the plugin exited with code 7"), "{seen}");
    }
}
