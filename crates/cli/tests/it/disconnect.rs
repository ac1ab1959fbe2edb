//! `cellmate disconnect`: removing from a client's configuration exactly what `cellmate connect` added.

use serde_json::{Value, json};

use crate::person::{CANARY, Person};

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// The user's file of every client that can be connected, with other content.
const FILES: [(&str, &str, &str); 9] = [
    ("claude-code", "home/.claude.json", "{\"numStartups\": 3}\n"),
    ("claude-desktop", "home/.config/Claude/claude_desktop_config.json", "{}\n"),
    ("codex", "home/.codex/config.toml", "# mine\nmodel = \"m\"\n\n[mcp_servers.other]\ncommand = \"x\"\n"),
    ("cursor", "home/.cursor/mcp.json", "{\n  // mine\n  \"mcpServers\": {\"a\": {\"command\": \"x\"}} // tail\n}\n"),
    ("vscode", "home/.config/Code/User/mcp.json", "{\"servers\": {}, \"inputs\": []}\n"),
    ("opencode", "home/.config/opencode/opencode.json", "{\"theme\": \"dark\"}\n"),
    ("windsurf", "home/.codeium/windsurf/mcp_config.json", "{\"mcpServers\": {}}\n"),
    ("gemini", "home/.gemini/settings.json", "{\"ui\": {\"theme\": \"x\"}}\n"),
    ("zed", "home/.config/zed/settings.json", "// mine\n{ \"vim_mode\": true }\n"),
];

#[test]
fn what_connect_added_is_removed_from_the_file_of_every_client() {
    let person = Person::new();
    for (client, file, before) in FILES {
        person.write(file, before);
        assert_eq!(person.run(&["connect", client, "--yes"]).code, 0, "{client}");
        let connected = person.read(file);
        let dry = person.run(&["disconnect", client, "--dry-run"]);
        assert!(dry.code == 0 && dry.out.ends_with("nothing was written\n"), "{client}: {}", dry.out);
        let unconfirmed = person.run(&["disconnect", client]);
        assert!(unconfirmed.code == 2 && unconfirmed.err.contains("--yes"), "{client}: {}", unconfirmed.err);
        assert_eq!(person.read(file), connected, "{client}");
        let done = person.run(&["disconnect", client, "--yes"]);
        assert!(done.code == 0 && done.out.contains("disconnected; restart"), "{client}: {}{}", done.out, done.err);
        let after = person.read(file);
        if file.ends_with(".toml") {
            assert_eq!(after, before, "{client}");
        } else {
            let (now, then) =
                (after.split_whitespace().collect::<String>(), before.split_whitespace().collect::<String>());
            assert_eq!(now, then, "{client}");
        }
        assert_eq!(person.run(&["disconnect", client, "--yes"]).out, format!("{client} is not connected\n"));
    }
    assert_eq!(person.run(&["disconnect", "emacs"]).code, 2);
}

#[test]
fn what_the_client_wrote_since_stays() {
    let person = Person::new();
    person.write("home/.claude.json", r#"{"numStartups": 1}"#);
    assert_eq!(person.run(&["connect", "claude-code", "--yes"]).code, 0);
    let mut since = parsed(&person.read("home/.claude.json"));
    since["numStartups"] = json!(2);
    since["history"] = json!([CANARY]);
    since["mcpServers"]["new"] = json!({"command": "y"});
    since["mcpServers"]["cellmate"]["alwaysLoad"] = json!(true);
    person.write("home/.claude.json", &since.to_string());
    let done = person.run(&["disconnect", "claude-code", "--yes", "--json"]).json();
    assert_eq!((&done["client"], &done["changes"][0]["changed"]), (&json!("claude-code"), &json!(true)));
    let expected = json!({"numStartups": 2, "mcpServers": {"new": {"command": "y"}}, "history": [CANARY]});
    assert_eq!(parsed(&person.read("home/.claude.json")), expected);
}

#[test]
fn servers_that_were_taken_over_are_put_back_unless_the_file_has_others() {
    let person = Person::new();
    let here = person.path("project").canonicalize().unwrap().display().to_string();
    let before = json!({
        "mcpServers": {
            "a": {"command": "x", "env": {"K": CANARY}},
            "b": {"command": "y"},
            "stays": {"url": "https://x.y/mcp"},
        },
        "projects": {here: {"mcpServers": {"local": {"command": "z"}}}},
    });
    person.write("home/.claude.json", &before.to_string());
    assert_eq!(person.run(&["connect", "claude-code", "--take-over", "--yes"]).code, 0);
    // A second `connect`, which moves nothing, does not lose the record of the first.
    assert_eq!(person.run(&["connect", "claude-code", "--yes", "--config", "other.json5"]).code, 0);
    let mut since = parsed(&person.read("home/.claude.json"));
    since["mcpServers"]["b"] = json!({"command": "new"});
    person.write("home/.claude.json", &since.to_string());
    let done = person.run(&["disconnect", "claude-code", "--yes"]);
    let notes = "note: `local` is put back, and stays in cellmate's configuration; `cellmate servers remove local` removes it there\n\
        note: `a` is put back, and stays in cellmate's configuration; `cellmate servers remove a` removes it there\n\
        note: `b` is not put back: the file has a server with that name\n";
    assert_eq!((done.code, done.err.as_str()), (0, notes), "{}", done.out);
    let mut expected = before;
    expected["mcpServers"]["b"] = json!({"command": "new"});
    assert_eq!(parsed(&person.read("home/.claude.json")), expected);
    let listed = person.run(&["servers", "list", "--json"]).json();
    assert_eq!(listed["servers"].as_array().unwrap().len(), 3, "cellmate keeps them: {listed}");
    // The record is used once.
    assert_eq!(person.run(&["servers", "remove", "a"]).code, 0);
    let mut emptied = expected;
    emptied["mcpServers"].as_object_mut().unwrap().shift_remove("a");
    person.write("home/.claude.json", &emptied.to_string());
    assert_eq!(person.run(&["disconnect", "claude-code", "--yes"]).out, "claude-code is not connected\n");
}

#[test]
fn the_record_is_private_and_an_entry_of_another_program_is_kept() {
    use std::os::unix::fs::PermissionsExt;
    let person = Person::new();
    let mine = r#"{"mcpServers": {"cellmate": {"command": "mine"}, "a": {"command": "x", "env": {"K": "canary-7f3e9a51c0de"}}}}"#;
    person.write("home/.cursor/mcp.json", mine);
    let refused = person.run(&["disconnect", "cursor", "--yes"]);
    assert!(refused.code == 2 && refused.err.contains("does not start cellmate"), "{}", refused.err);
    assert_eq!(person.run(&["connect", "cursor", "--take-over", "--yes"]).code, 0);
    let folder = person.path("home/.local/state/cellmate/connections");
    assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    for file in std::fs::read_dir(&folder).unwrap() {
        assert_eq!(file.unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
    assert_eq!(person.run(&["disconnect", "cursor", "--yes"]).code, 0);
    assert_eq!(parsed(&person.read("home/.cursor/mcp.json")), parsed(mine), "the replaced entry is put back, too");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn the_projects_file_is_disconnected_on_its_own() {
    let person = Person::new();
    let connected = person.run(&["connect", "cursor", "--scope", "project", "--yes"]);
    assert!(connected.out.ends_with("to undo: cellmate disconnect cursor --scope project\n"), "{}", connected.out);
    assert_eq!(person.run(&["disconnect", "cursor", "--yes"]).out, "cursor is not connected\n");
    assert_eq!(person.run(&["disconnect", "cursor", "--scope", "project", "--yes"]).code, 0);
    assert_eq!(parsed(&person.read("project/.cursor/mcp.json")), json!({}));
}
