//! `cellmate config`, the commands that edit servers in place, and what the program says about itself.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::person::Person;

const USER_CONFIG: &str = "home/.config/cellmate/config.json5";

const COMMENTED: &str = "{
  // My servers.
  mcpServers: {
    files: { command: 'files', /* for now */ enabled: true }, // the first
    other: { command: 'other', disabled: true },
    plain: { command: 'plain' },
  },
  tools: {
    deny: ['mcp:files:remove'], // never
  },
}
";

#[test]
fn a_setting_is_changed_in_place_and_only_if_the_result_is_valid() {
    let person = Person::new();
    person.write(USER_CONFIG, COMMENTED);
    let set = person.run(&["config", "set", "tools.codeMode", "{timeoutMs: 20000}"]);
    assert_eq!(set.code, 0, "{}", set.err);
    assert!(set.out.contains("+    \"codeMode\": {") && set.out.contains("to undo: cp "), "{}", set.out);
    let after = person.read(USER_CONFIG);
    for comment in ["// My servers.", "/* for now */", "// the first", "// never"] {
        assert!(after.contains(comment), "{comment}: {after}");
    }
    assert_eq!(person.run(&["config", "get", "tools.codeMode.timeoutMs"]).out, "20000\n");
    assert_eq!(person.run(&["config", "set", "tools.toolSearch", "true"]).code, 0);
    assert_eq!(person.run(&["config", "get", "tools.toolSearch", "--json"]).json()["value"], true);
    let mode = std::fs::metadata(person.path(USER_CONFIG)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o644, "the mode of an existing file is kept");

    for (key, value, why) in [
        ("tools.codeMode.timeoutMs", "soon", "`tools.codeMode.timeoutMs`: expected a whole number"),
        ("tools.codeMod", "true", "did you mean `codeMode`?"),
        ("approvals.ask", "nevr", "did you mean `never`?"),
        ("mcpServers.new", "{}", "it has neither `command` nor `url`"),
        ("store.keepRunsSeconds", "[]", "`store.keepRunsSeconds`"),
        (
            "tools.deny",
            "mcp:files:*",
            "expected a list, found `\"mcp:files:*\"`; write a list, such as '[\"mcp:files:*\"]'\n",
        ),
        ("agents.local.tools.deny", "7", "; write a list, such as '[\"7\"]'\n"),
        ("store.url", "mysql://x", "`store.url`: invalid store location; expected `postgres://"),
        ("store.url", "${secret:X}", "`store.url`: `${secret:X}` is not possible here, because `store` names the key"),
    ] {
        let refused = person.run(&["config", "set", key, value]);
        assert_eq!(refused.code, 2, "{key}: {}", refused.out);
        assert!(refused.err.contains("nothing was written") && refused.err.contains(why), "{key}: {}", refused.err);
    }
    // A number is not a command, but the same text is.
    assert_eq!(person.run(&["config", "set", "mcpServers.files.command", "7"]).code, 0);
    assert_eq!(person.run(&["config", "get", "mcpServers.files.command", "--json"]).json()["value"], "7");
    let dry = person.run(&["config", "set", "approvals.ask", "never", "--dry-run"]);
    assert!(dry.out.contains("nothing was written"), "{}", dry.out);
    assert_eq!(person.run(&["config", "get", "approvals.ask"]).code, 1);
}

#[test]
fn an_invalid_location_of_the_store_is_reported_and_can_be_removed() {
    let person = Person::new();
    for (url, severity, code, why) in [
        ("mysql://me:s3cret@db/x", "error", 1, "`store.url`: invalid store location"),
        ("${secret:X}", "error", 1, "`env` of a plugin"),
        ("postgres://me:${PASS}@db/x", "warning", 0, "`store.url`: environment variable `PASS` is not set"),
    ] {
        person.write(USER_CONFIG, &json!({"store": {"url": url}}).to_string());
        let checked = person.run(&["config", "check"]);
        assert!(checked.code == code && checked.out.contains(&format!("{severity}: ")), "{url}: {}", checked.out);
        assert!(checked.out.contains(why) && !checked.out.contains("s3cret"), "{url}: {}", checked.out);
        assert_eq!(person.run(&["config", "unset", "store.url"]).code, 0, "{url}");
        assert_eq!(person.run(&["config", "check"]).out, "1 file checked: no problems\n");
    }
    // The variable may be set where a service starts.
    let set = person.run(&["config", "set", "store.url", "postgres://me:${PASS}@db/x"]);
    assert!(set.code == 0 && set.err.contains("note: `store.url`: environment variable `PASS`"), "{}", set.err);
}

#[test]
fn an_item_before_an_invalid_one_can_be_removed() {
    let person = Person::new();
    person.write(USER_CONFIG, r#"{"tools": {"deny": ["mcp:files:*", 4, 5]}}"#);
    for left in [json!([4, 5]), json!([5])] {
        let unset = person.run(&["config", "unset", "tools.deny[0]"]);
        assert_eq!(unset.code, 0, "{}", unset.err);
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&person.read(USER_CONFIG)).unwrap()["tools"]["deny"],
            left
        );
    }
    let file = r#"{"mcpServers": {"files": {"command": "files"}}}"#;
    person.write(USER_CONFIG, file);
    let refused = person.run(&["config", "unset", "mcpServers.files.command"]);
    assert!(refused.code == 2 && person.read(USER_CONFIG) == file, "{}", refused.err);
}

#[test]
fn objects_that_are_empty_without_a_removed_setting_are_removed_too() {
    let person = Person::new();
    let cases = [
        ("{tools: {codeMode: {timeoutMs: 1000}}}", "tools.codeMode.timeoutMs", "{}"),
        ("{tools: {codeMode: {timeoutMs: 1000}, deny: []}}", "tools.codeMode.timeoutMs", "{tools: { deny: []}}"),
        // A comment, a list and an agent are kept, and so is what was empty before.
        (
            "{tools: {codeMode: {timeoutMs: 1000 /* slow */}}}",
            "tools.codeMode.timeoutMs",
            "{tools: {codeMode: { /* slow */}}}",
        ),
        ("{tools: {deny: ['x']}}", "tools.deny[0]", "{tools: {deny: []}}"),
        ("{agents: {ada: {tools: {deny: ['x']}}}}", "agents.ada.tools.deny", "{agents: {ada: {}}}"),
        ("{store: {}, tools: {deny: ['x']}}", "tools.deny", "{store: {}}"),
    ];
    for (before, key, after) in cases {
        person.write(USER_CONFIG, before);
        let unset = person.run(&["config", "unset", key]);
        assert_eq!((unset.code, person.read(USER_CONFIG).as_str()), (0, after), "{before} {key}: {}", unset.err);
    }
    person.write(USER_CONFIG, "{tools: {codeMode: {}}}");
    let unset = person.run(&["config", "unset", "tools.codeMode.timeoutMs"]);
    assert_eq!((unset.code, person.read(USER_CONFIG).as_str()), (1, "{tools: {codeMode: {}}}"), "{}", unset.err);
}

#[test]
fn a_switch_that_may_be_an_object_keeps_its_keys_and_its_value() {
    let person = Person::new();
    let set = |key: &str, value: &str| {
        let set = person.run(&["config", "set", key, value]);
        assert_eq!(set.code, 0, "{key}: {}", set.err);
    };
    let get = |key: &str| person.run(&["config", "get", key, "--json"]).json()["value"].clone();
    for (key, below) in [
        ("tools.codeMode", "timeoutMs"),
        ("tools.toolSearch", "codeTimeoutMs"),
        ("agents.main.tools.codeMode", "timeoutMs"),
    ] {
        set(key, "true");
        assert_eq!(get(key), json!(true), "{key}");
        set(&format!("{key}.{below}"), "20000");
        assert_eq!(get(key), json!({"enabled": true, below: 20_000}), "{key}");
        set(key, "false");
        assert_eq!(get(key), json!({"enabled": false, below: 20_000}), "{key}");
        set(key, "{}");
        assert_eq!(get(key), json!({}), "an object replaces the whole setting");
    }
}

#[test]
fn a_number_outside_of_its_range_is_noted_with_the_number_that_is_used() {
    let person = Person::new();
    let moved = "`tools.codeMode.timeoutMs`: 90000 is outside of its range, 100 to 60000, so 60000 is used";
    let set = person.run(&["config", "set", "tools.codeMode.timeoutMs", "90000"]);
    assert!(set.code == 0 && set.err.contains(&format!("note: {moved}")), "{}", set.err);
    let checked = person.run(&["config", "check"]);
    assert!(checked.code == 0 && checked.out.contains(&format!(":4:7: warning: {moved}\n")), "{}", checked.out);
    let set = person.run(&["config", "set", "tools.codeMode.timeoutMs", "60000"]);
    assert_eq!((set.code, set.err.as_str()), (0, ""));
    assert_eq!(person.run(&["config", "check"]).out, "1 file checked: no problems\n");
}

#[test]
fn a_new_file_is_private_and_a_projects_file_is_not_trusted_by_editing_it() {
    let person = Person::new();
    assert_eq!(person.run(&["config", "set", "approvals.ask", "never"]).code, 0);
    let mode = std::fs::metadata(person.path(USER_CONFIG)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let project = person.run(&["config", "set", "tools.deny", "['mcp:*:remove']", "--scope", "project"]);
    assert!(project.code == 0 && project.err.contains("is not trusted yet"), "{}", project.err);
    let refused = person.run(&["config", "set", "tools.codeMode", "true", "--scope", "project"]);
    assert!(refused.code == 2 && refused.err.contains("can only add servers and `tools.deny`"), "{}", refused.err);
    let listed = person.run(&["config", "path", "--json"]).json();
    let states: Vec<&str> =
        listed["files"].as_array().unwrap().iter().map(|file| file["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["read", "not trusted"]);
}

#[test]
fn servers_are_switched_with_the_key_that_they_have_and_comments_stay() {
    let person = Person::new();
    person.write(USER_CONFIG, COMMENTED);
    for (name, verb) in [("files", "disable"), ("other", "enable"), ("plain", "disable"), ("plain", "enable")] {
        let switched = person.run(&["servers", verb, name]);
        assert_eq!(switched.code, 0, "{}", switched.err);
    }
    let expected = COMMENTED
        .replace("enabled: true", "enabled: false")
        .replace("disabled: true", "disabled: false")
        .replace("command: 'plain' }", "command: 'plain', \"enabled\": true }");
    assert_eq!(person.read(USER_CONFIG), expected);
    let listed = person.run(&["servers", "list", "--json"]).json();
    let enabled: Vec<_> = listed["servers"].as_array().unwrap().iter().map(|one| one["enabled"].clone()).collect();
    assert_eq!(enabled, [json!(false), json!(true), json!(true)]);
}

#[test]
fn check_names_the_place_of_every_problem() {
    let person = Person::new();
    let config =
        "{\n  mcpServers: {\n    empty: {},\n  },\n  tools: {\n    deny: ['ok',\n      7],\n  },\n  toolz: 1,\n}\n";
    person.write(USER_CONFIG, config);
    let checked = person.run(&["config", "check"]);
    assert_eq!(checked.code, 1);
    let file = "/home/.config/cellmate/config.json5";
    for line in [
        format!("{file}:3:5: error: server `empty`: it has neither `command` nor `url`"),
        format!("{file}:7:7: error: `tools.deny[1]`: expected"),
        format!("{file}:9:3: error: `toolz`: unknown key; did you mean `tools`?"),
        "1 file checked: 3 errors".to_owned(),
    ] {
        assert!(checked.out.contains(&line), "{line}: {}", checked.out);
    }
    person.write("project/broken.json5", "{\n  a: [1, 2\n}\n");
    let checked = person.run(&["config", "check", "broken.json5", "--json"]);
    let problem = &checked.json()["problems"][0];
    assert_eq!((checked.code, &problem["line"], &problem["severity"]), (1, &json!(3), &json!("error")), "{problem}");
    person.write(USER_CONFIG, "{}");
    assert_eq!(person.run(&["config", "check"]).out, "1 file checked: no problems\n");
}

#[test]
fn a_key_that_a_file_has_twice_is_reported_and_nothing_runs_with_the_file() {
    let person = Person::new();
    person.write(USER_CONFIG, "{\n  tools: {deny: ['exec']},\n  toolz: 1,\n  tools: {},\n}\n");
    let checked = person.run(&["config", "check"]);
    let finding = "/config.json5:4:3: error: the key `tools` is already at line 2, column 3, and only one of them could \
        be used; merge them, or remove one\n1 file checked: 1 error\n";
    assert!(checked.code == 1 && checked.out.ends_with(finding), "{}{}", checked.out, checked.err);
    let listed = person.run(&["servers", "list"]);
    assert!(listed.code == 2 && listed.err.contains("line 4, column 3: the key `tools`"), "{}", listed.err);
}

#[test]
fn completions_and_manual_pages_cover_every_command() {
    let person = Person::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = person.run(&["completions", shell]);
        assert_eq!(script.code, 0, "{}", script.err);
        assert!(script.out.contains("add-json") && script.out.contains("schema"), "{shell}");
        let as_json = person.run(&["completions", shell, "--json"]).json();
        assert_eq!((&as_json["shell"], &as_json["script"]), (&json!(shell), &json!(script.out)));
    }
    let script = person.run(&["completions", "bash"]).out;
    assert!(
        script.contains("servers,trust-tools)") && !script.contains("servers,trust)"),
        "a hidden command is offered"
    );
    person.write("completions.bash", &script);
    let parsed = Command::new("bash").arg("-n").arg(person.path("completions.bash")).status().unwrap();
    assert!(parsed.success());
    let pages = person.path("pages").display().to_string();
    let written = person.run(&["man", "--dir", &pages, "--json"]).json();
    let files = written["files"].as_array().unwrap();
    assert!(files.len() > 30, "{files:?}");
    assert!(person.read("pages/cellmate-servers-get.1").contains("secrets"), "the page has the description");
    let version = person.run(&["--version"]).out;
    assert!(version.starts_with(concat!("cellmate ", env!("CARGO_PKG_VERSION"))), "{version}");
}

#[test]
fn servers_that_start_are_reported_on_a_terminal_only() {
    let person = Person::new();
    let server = person.server();
    person.write(USER_CONFIG, &json!({"mcpServers": {"greeter": {"command": "sh", "args": [server]}}}).to_string());
    let plain = person.run(&["servers", "test"]);
    assert_eq!(plain.err, "");
    let line = format!("'{}' servers test", env!("CARGO_BIN_EXE_cellmate"));
    let on_terminal = Command::new("script")
        .args(["-qefc", &line, "/dev/null"])
        .current_dir(person.path("project"))
        .env("HOME", person.path("home"))
        .env("TERM", "xterm")
        .env_remove("NO_COLOR")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let seen = String::from_utf8(on_terminal.stdout).unwrap();
    assert!(seen.contains("[1/1] greeter: 2 tools ("), "{seen:?}");
    assert!(seen.contains("\u{1b}[32mok\u{1b}[0m    greeter: 2 tools in"), "{seen:?}");
}

#[test]
fn patterns_that_match_no_tool_are_reported_once_the_servers_have_listed_their_tools() {
    let person = Person::new();
    let config = json!({
        "mcpServers": {"s": {"command": "sh", "args": [person.server()]}},
        "tools": {"deny": ["mcp:s:othr", "s.other"]},
        "approvals": {"ask": ["changes", "gret"], "pass": ["mcp:s:greet"]},
    });
    person.write(USER_CONFIG, &config.to_string());
    let deny = "`tools.deny[0]`: `mcp:s:othr` matches no known tool; did you mean `mcp:s:other`?";
    let ask = "`approvals.ask[1]`: `gret` matches no known tool; did you mean `mcp:s:greet`?";
    let served = |person: &Person| {
        let mut command = person.command(&["mcp"]);
        let output = command.stdin(Stdio::null()).output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    let before = person.run(&["config", "check"]);
    assert!(before.code == 0 && !before.out.contains("matches no known tool"), "{}", before.out);
    assert!(!served(&person).contains("matches no known tool"), "the server has not listed its tools yet");

    let tested = person.run(&["servers", "test", "s"]);
    assert_eq!(tested.code, 0, "{}{}", tested.out, tested.err);
    let after = person.run(&["config", "check"]);
    let shown = [deny, ask].iter().all(|warning| after.out.contains(&format!(": warning: {warning}")));
    assert!(after.code == 0 && shown && after.out.matches("matches no known tool").count() == 2, "{}", after.out);
    let problems = person.run(&["config", "check", "--json"]).json();
    assert_eq!(problems["problems"][0]["severity"], "warning", "{problems}");
    let doctor = person.run(&["doctor"]);
    let shown = [deny, ask].iter().all(|warning| doctor.out.contains(&format!("policy         {warning}\n")));
    assert!(shown, "{}", doctor.out);
    let doctor = person.run(&["doctor", "--json"]).json();
    assert_eq!(doctor["unmatchedPatterns"][0], json!({"setting": "tools.deny[0]", "message": deny}));
    // A change is checked, too, and written all the same.
    let pass = "`approvals.pass[0]`: `mcp:s:gret` matches no known tool; did you mean `mcp:s:greet`?";
    let set = person.run(&["config", "set", "approvals.pass", "['mcp:s:gret']"]);
    assert!(set.code == 0 && format!("{}{}", set.out, set.err).contains(pass), "{}{}", set.out, set.err);
    assert_eq!(set.err.matches("matches no known tool").count(), 1, "only what is new is reported: {}", set.err);
    assert_eq!(person.run(&["config", "set", "approvals.pass", "['mcp:s:greet']"]).code, 0);
    let stderr = served(&person);
    assert!([deny, ask].iter().all(|warning| stderr.contains(&format!("cellmate: {warning}\n"))), "{stderr}");
    // The pattern that works denies the tool.
    let listed = person.run(&["tools", "list"]);
    assert!(listed.out.contains("s.greet") && !listed.out.contains("s.other"), "{}", listed.out);
}

#[test]
fn patterns_that_match_no_tool_of_an_installed_plugin_are_reported_while_the_plugin_is_enabled() {
    let person = Person::new();
    assert_eq!(person.run(&["plugins", "new", "hello"]).code, 0);
    assert_eq!(person.run(&["plugins", "add", "./hello", "--yes"]).code, 0);
    let config = json!({"tools": {"deny": ["plugin:hello:gret", "plugin:hello:greet"]}, "approvals": {"pass": ["plugin:other:x"]}});
    person.write(USER_CONFIG, &config.to_string());
    let warning = "`tools.deny[0]`: `plugin:hello:gret` matches no known tool; did you mean `plugin:hello:greet`?";
    let checked = person.run(&["config", "check"]);
    assert!(checked.out.contains(&format!(": warning: {warning}")), "{}", checked.out);
    assert_eq!(checked.out.matches("matches no known tool").count(), 1, "{}", checked.out);
    let doctor = person.run(&["doctor"]);
    assert!(doctor.out.contains(&format!("policy         {warning}\n")), "{}", doctor.out);
    assert_eq!(person.run(&["plugins", "disable", "hello"]).code, 0);
    let checked = person.run(&["config", "check"]);
    assert!(!checked.out.contains("matches no known tool"), "{}", checked.out);
}

#[test]
fn check_reports_a_file_that_is_no_object_and_mistakes_in_entries_of_servers() {
    let person = Person::new();
    let checked = |text: &str| {
        person.write(USER_CONFIG, text);
        let checked = person.run(&["config", "check"]);
        (checked.code, checked.out.replace("/home/.config/cellmate/config.json5:", ""))
    };
    let (code, out) = checked("[1]");
    assert_eq!((code, out.as_str()), (1, "1:1: error: expected an object, found a list\n1 file checked: 1 error\n"));
    for arguments in [&["exec", "-e", "return 1"][..], &["mcp"], &["servers", "list"], &["tools", "list"]] {
        let refused = person.run(arguments);
        let reason = "cellmate: `/home/.config/cellmate/config.json5`: expected an object, found a list; write `{ \
                      mcpServers: { … } }`, or run `cellmate servers add`\n";
        assert_eq!((refused.code, refused.err.as_str()), (2, reason), "{arguments:?}");
    }
    let (code, out) = checked("{mcpServers: {\n  a: { command: 'x', trustd: true, env: { A: 3, B: 'c' } } }}");
    assert_eq!(
        (code, out.as_str()),
        (
            0,
            "2:22: warning: `mcpServers.a.trustd`: unknown key; did you mean `trusted`?\n\
             2:43: warning: `mcpServers.a.env.A`: expected a string, found a number, which is passed as text; write it in \
             quotes\n\
             1 file checked: 0 errors, 2 warnings\n"
        )
    );
    let (code, out) = checked("{mcp: {servers: {a: {comand: 'x'}}}}");
    assert_eq!(code, 1);
    assert!(out.contains("`mcp.servers.a.comand`: unknown key; did you mean `command`?"), "{out}");
    let (code, out) = checked("{mcpServers: {a: {command: 'x', startupTimeoutMs: 0}}}");
    assert_eq!(code, 1);
    assert!(out.contains("`startupTimeoutMs`: expected a time greater than zero"), "{out}");
    assert_eq!(out.lines().count(), 2, "one problem and the summary: {out}");
    let (code, out) = checked("{servers: {a: {command: 'x', alwaysAllow: ['y']}}}");
    assert_eq!(code, 0);
    assert!(out.ends_with("1 file checked: no problems; 1 setting does not apply\n"), "{out}");
}

#[test]
fn get_suggests_the_key_that_is_meant() {
    let person = Person::new();
    let got = person.run(&["config", "get", "tools.codeMode.timeoutms"]);
    let expected = "cellmate: `tools.codeMode.timeoutms` is not set; did you mean `tools.codeMode.timeoutMs`?\n";
    assert_eq!((got.code, got.err.as_str()), (1, expected));
}
