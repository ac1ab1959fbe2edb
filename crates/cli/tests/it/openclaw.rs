//! OpenClaw's own configuration files, used as they are.

use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::person::{CommandOutput, Person, exec_over_streams};

/// Configurations as versions of OpenClaw and their users write them.
const FILES: [&str; 4] =
    ["openclaw-onboarded.json", "openclaw-agents.json5", "openclaw-entries.json5", "openclaw-early.json5"];

/// Copies a configuration to the project's folder. Its server `greeter` is the user's, with the tools `greet` and
/// `other`.
fn user_of(name: &str) -> Person {
    let person = Person::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../client_config/tests/config");
    let text = std::fs::read_to_string(folder.join(name)).unwrap();
    let text = text.replace("SERVER", &person.server()).replace("${TOKEN}", "token");
    person.write(&format!("project/{name}"), &text);
    person
}

fn settings(checked: &CommandOutput, list: &str, kind: &str) -> Vec<String> {
    let found = checked.json()[list].as_array().unwrap().clone();
    let of_kind = found.iter().filter(|one| one["kind"] == kind);
    of_kind.map(|one| one["setting"].as_str().unwrap().to_owned()).collect()
}

/// Returns the names of the MCP tools that an agent has; without an agent, those of a client that names none.
fn tools_of(person: &Person, file: &str, agent: Option<&str>) -> Vec<String> {
    let agent = agent.map_or(Vec::new(), |agent| vec!["--agent", agent]);
    let listed = person.run(&[&["tools", "list", "--json", "--config", file], agent.as_slice()].concat());
    assert_eq!(listed.code, 0, "{file}: {}", listed.err);
    let listed = listed.json();
    let tools = listed["tools"].as_array().unwrap();
    let mut names: Vec<String> = tools
        .iter()
        .filter_map(|tool| tool["id"].as_str()?.strip_prefix("mcp:greeter:").map(str::to_owned))
        .filter(|name| !name.starts_with('$'))
        .collect();
    names.sort();
    names
}

#[test]
fn every_file_is_valid_and_what_it_does_not_do_is_reported() {
    for file in FILES {
        let person = user_of(file);
        let checked = person.run(&["config", "check", file, "--json"]);
        let found = checked.json();
        assert_eq!((checked.code, &found["ok"]), (0, &Value::Bool(true)), "{file}: {}", checked.out);
        let problems = found["problems"].as_array().unwrap();
        let unexplained: Vec<&Value> = problems.iter().filter(|problem| problem["kind"] != "notEnforced").collect();
        assert!(unexplained.is_empty(), "{file}: {unexplained:?}");
        for one in problems.iter().chain(found["unused"].as_array().unwrap()) {
            assert!(one["line"].as_u64() > Some(1) && one["reason"].as_str().is_some(), "{file}: {one}");
        }
        let shown = person.run(&["config", "check", file]);
        assert!(shown.out.contains(": note: `") && shown.out.contains("do not apply"), "{file}: {}", shown.out);
    }
}

#[test]
fn restrictions_that_are_not_enforced_are_warnings_and_no_others() {
    let cases: [(&str, &[&str]); 4] = [
        ("openclaw-onboarded.json", &[]),
        (
            "openclaw-agents.json5",
            &[
                "agents.list[0].tools.elevated",
                "agents.list[1].sandbox.mode",
                "channels.whatsapp.groups[\"120363@g.us\"].tools",
                "channels.discord.guilds[\"42\"].channels.help.toolsBySender",
                "tools.subagents",
                "tools.exec.security",
                "tools.exec.ask",
                "tools.exec.applyPatch.allowModels",
                "tools.elevated",
                "tools.loopDetection",
            ],
        ),
        ("openclaw-entries.json5", &["tools.exec.mode", "tools.exec.strictInlineEval", "tools.toolsBySender"]),
        ("openclaw-early.json5", &["agent.elevated", "agent.tools"]),
    ];
    for (file, expected) in cases {
        let checked = user_of(file).run(&["config", "check", file, "--json"]);
        assert_eq!(settings(&checked, "problems", "notEnforced"), expected, "{file}");
    }
    let person = user_of("openclaw-agents.json5");
    let shown = person.run(&["config", "check", "openclaw-agents.json5"]);
    let line = "warning: `tools.elevated` is not enforced: cellmate does not know who sent a message";
    assert!(shown.out.contains(line), "{}", shown.out);
    let checked = person.run(&["config", "check", "openclaw-agents.json5", "--json"]);
    let unused = settings(&checked, "unused", "notApplicable");
    for setting in ["env", "bindings", "agents.defaults.heartbeat", "tools.exec.pathPrepend", "approvals.exec"] {
        assert!(unused.iter().any(|one| one == setting), "{setting}: {unused:?}");
    }
    for applied in ["tools.exec.timeoutSec", "tools.fs.workspaceOnly", "agents.list[1].tools.exec.security"] {
        assert!(!checked.out.contains(&format!("\"{applied}\"")), "{applied}: {}", checked.out);
    }
}

#[test]
fn an_agents_policy_decides_which_tools_it_has() {
    let person = user_of("openclaw-agents.json5");
    let both = ["greet", "other"];
    let cases: [(Option<&str>, &[&str]); 5] = [
        // The default agent, whose deny list has OpenClaw's name of the tool.
        (None, &["greet"]),
        (Some("main"), &["greet"]),
        (Some("FAMILY"), &both),
        (Some("public"), &[]),
        (Some("unknown"), &both),
    ];
    for (agent, expected) in cases {
        assert_eq!(tools_of(&person, "openclaw-agents.json5", agent), expected, "{agent:?}");
    }
    let person = user_of("openclaw-entries.json5");
    assert_eq!(tools_of(&person, "openclaw-entries.json5", None), ["greet"], "the server has a tool filter with globs");
    assert_eq!(tools_of(&person, "openclaw-entries.json5", Some("work")), Vec::<String>::new());
    let person = user_of("openclaw-onboarded.json");
    assert_eq!(tools_of(&person, "openclaw-onboarded.json", None), both, "the profile includes MCP tools");
}

#[test]
fn a_server_starts_with_every_file_and_says_how_many_settings_are_not_used() {
    for (file, notice) in [
        ("openclaw-onboarded.json", "settings of the configuration are not used; run `cellmate config check"),
        ("openclaw-agents.json5", "are not used, among them 10 restrictions that are not enforced; run `cellmate"),
        ("openclaw-entries.json5", "among them 3 restrictions that are not enforced"),
        ("openclaw-early.json5", "among them 2 restrictions that are not enforced"),
    ] {
        let person = user_of(file);
        let mut command = person.command(&["mcp", "--config", file, "--ask-nobody"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let answer = exec_over_streams(&mut child, "return await MCP.greeter.greet({ name: 'you' })");
        assert!(answer.to_string().contains("hello you"), "{file}: {answer}");
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        let lines: Vec<&str> = err.lines().filter(|line| line.contains("not used")).collect();
        assert!(matches!(lines.as_slice(), [line] if line.contains(notice)), "{file}: {err}");
    }
}

#[test]
fn an_included_file_is_an_error_and_an_imported_policy_a_warning() {
    let person = user_of("openclaw-early.json5");
    person.write("project/split.json5", "{ tools: { $include: './tools.json5' } }");
    let checked = person.run(&["config", "check", "split.json5"]);
    assert!(checked.code == 1 && checked.out.contains("does not read included files"), "{}", checked.out);
    let started = person.run(&["mcp", "--config", "split.json5"]);
    assert!(started.code != 0 && started.err.contains("does not read included files"), "{}", started.err);
    person.write("home/.openclaw/openclaw.json", "{ mcp: { servers: {} }, tools: { deny: ['exec'] } }");
    person.write("home/.config/cellmate/config.json5", "{ imports: ['openclaw'] }");
    let checked = person.run(&["config", "check"]);
    assert!(checked.code == 0 && checked.out.contains("warning: `tools` is not applied"), "{}", checked.out);
}
