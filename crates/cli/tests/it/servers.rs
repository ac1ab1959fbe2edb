//! Tests `cellmate servers` and `cellmate tools`. Every command also checks that its output has no secret.

use serde_json::json;

use crate::person::{CANARY, Person};

/// The user's configuration file, in the test's folder.
const USER_CONFIG: &str = "home/.config/cellmate/config.json5";

#[test]
fn a_server_is_added_listed_tested_called_and_removed() {
    let person = Person::new();
    let server = person.server();
    let command = ["--no-trusted", "--", "sh", &server, "--quiet"];
    let added = person.run(&[&["servers", "add", "greeter", "--env", "TOKEN=${SECRET}"], &command[..]].concat());
    assert_eq!((added.code, added.err.as_str()), (0, ""), "{}", added.out);
    assert!(
        added.out.contains("+    \"greeter\": {")
            && added.out.contains("to undo: rm /home/.config/cellmate/config.json5"),
        "{}",
        added.out
    );

    let listed = person.run(&["servers", "list", "--json"]).json();
    let greeter = &listed["servers"][0];
    assert_eq!(greeter["shown"], format!("sh {} --quiet", server).replace(person.path("").to_str().unwrap(), "/"));
    assert_eq!(
        (&greeter["env"], &greeter["origin"]["line"], &greeter["enabled"]),
        (&json!(["TOKEN"]), &json!(3), &json!(true))
    );

    let tested = person.run(&["servers", "test", "--json"]);
    assert_eq!(tested.code, 0, "{}", tested.out);
    let tested = &tested.json()["servers"][0];
    assert_eq!((&tested["ok"], &tested["tools"], &tested["revision"]), (&json!(true), &json!(2), &json!("2025-06-18")));

    let tools = person.run(&["tools", "list"]);
    assert_eq!(tools.out, "TOOL           ASKS  DESCRIPTION\ngreeter.greet  yes   Greets.\ngreeter.other  yes\n");
    let called = person.run(&["tools", "call", "greeter.greet", "name=Ada", "--yes"]);
    assert_eq!((called.code, called.out.as_str()), (0, "hello Ada\n"), "{}", called.err);
    let arguments = r#"{"name": "Ada"}"#;
    let called = person.run(&["tools", "call", "mcp:greeter:greet", "--args", arguments, "--json", "--yes"]).json();
    assert_eq!(
        called,
        json!({"ok": true, "result": {"content": [{"type": "text", "text": "hello Ada"}]}, "error": null})
    );

    let removed = person.run(&["servers", "remove", "greeter"]);
    assert_eq!(removed.code, 0, "{}", removed.err);
    assert!(removed.out.contains("to undo: cp /home/.local/state/cellmate/backups/"), "{}", removed.out);
    assert_eq!(person.run(&["servers", "list", "--json"]).json()["servers"], json!([]));
}

#[test]
fn a_direct_call_is_checked_like_a_cells_call() {
    let person = Person::new();
    let server = person.server();
    let config = json!({
        "mcpServers": {
            "s": {"command": "sh", "args": [server]},
            "narrow": {"command": "sh", "args": [server], "disabledTools": ["greet"]},
            "off": {"command": "sh", "args": [server], "enabled": false},
        },
        "tools": {"deny": ["mcp:s:other"]},
    });
    person.write(USER_CONFIG, &config.to_string());
    let cases: [(&[&str], i32, &str); 10] = [
        (&["tools", "call", "s.greet"], 1, "missing property \"name\""),
        (&["tools", "call", "s.other"], 2, "the policy denies `s.other`: the pattern `mcp:s:other` in `tools.deny`"),
        (&["tools", "call", "s.gret"], 2, "no tool `s.gret`; did you mean `s.greet`?"),
        (&["tools", "call", "narrow.greet", "name=x"], 2, "`narrow.greet` is left out by the lists"),
        (&["tools", "call", "off.greet", "name=x"], 2, "server `off` is disabled"),
        (&["tools", "call", "nobody.greet"], 2, "no server named `nobody`; `cellmate servers list` lists them"),
        (&["tools", "call", "narow.other"], 2, "no server named `narow`; did you mean `narrow`?"),
        (&["tools", "call", "nothing"], 2, "no tool `nothing`"),
        (&["tools", "call", "s.greet", "name"], 2, "name=text"),
        (&["tools", "call", "s.greet", "--args", "[]"], 2, "one JSON object"),
    ];
    for (arguments, code, reason) in cases {
        let output = person.run(arguments);
        assert!(output.code == code && output.err.contains(reason), "{arguments:?}: {} {}", output.code, output.err);
        assert!(!output.err.contains("tools.search"), "a shell has no `tools.search`: {}", output.err);
    }
    for command in ["test", "get", "login", "enable", "disable", "remove", "trust-tools"] {
        let unknown = person.run(&["servers", command, "narow"]);
        let meant = "no server named `narow`; did you mean `narrow`? `cellmate servers list` lists them";
        assert!(unknown.code == 2 && unknown.err.contains(meant), "{command}: {} {}", unknown.code, unknown.err);
    }
    let listed = person.run(&["tools", "list"]).out;
    let expected = "TOOL          ASKS  DESCRIPTION\nnarrow.other  yes\n\ns.greet       yes   Greets.\n";
    assert_eq!(listed, expected);
    for name in ["greet", "MCP.s.greet", "mcp:s:greet"] {
        let called = person.run(&["tools", "call", name, "name=Ada", "--yes"]);
        assert_eq!((called.code, called.out.as_str()), (0, "hello Ada\n"), "{name}: {}", called.err);
    }
    person.write(USER_CONFIG, r#"{"tools": {"codeMode": {"timeoutMS": 1}}}"#);
    let output = person.run(&["tools", "list"]);
    assert!(output.code == 2 && output.err.contains("did you mean `timeoutMs`?"), "{}", output.err);
}

#[test]
fn a_failing_server_does_not_affect_the_report_of_the_others() {
    let person = Person::new();
    let server = person.server();
    let config = json!({"mcpServers": {
        "crashes": {"command": "sh", "args": [server, "fail", "${SECRET}"], "env": {"TOKEN": CANARY}},
        "missing": {"command": "/no/such/program"},
        "remote": {"url": format!("https://u:{CANARY}@example.invalid/mcp?k={CANARY}"), "headers": {"Authorization": format!("Bearer {CANARY}")}},
        "unset": {"command": "x", "env": {"K": "${NOT_SET_ANYWHERE}"}},
        "good": {"command": "sh", "args": [server], "env": {"TOKEN": CANARY}},
    }});
    person.write(USER_CONFIG, &config.to_string());
    let tested = person.run(&["servers", "test", "--json"]);
    let report = tested.json();
    assert_eq!(tested.code, 1);
    let ok: Vec<_> = report["servers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["name"].as_str().unwrap(), one["ok"].as_bool().unwrap()))
        .collect();
    assert_eq!(ok, [("crashes", false), ("missing", false), ("remote", false), ("good", true)]);
    assert_eq!(report["servers"][0]["stderr"], json!(["started with … …"]));
    let problem = &report["problems"][0];
    assert_eq!(
        (&problem["server"], &problem["message"]),
        (
            &json!("unset"),
            &json!(
                "environment variable `NOT_SET_ANYWHERE` is not set; set it in the environment that cellmate starts in, or run `cellmate secrets set NOT_SET_ANYWHERE` and write `${secret:NOT_SET_ANYWHERE}` in cellmate's configuration"
            )
        )
    );
    let readable = person.run(&["servers", "test", "crashes"]);
    assert!(
        readable.code == 1
            && readable.out.starts_with("FAIL  crashes: ")
            && readable.out.contains("      | started with … …\n      not passed: SECRET; to pass one"),
        "{}",
        readable.out
    );
    let exited = "its command `sh` exited with code 3 before it was ready";
    let missing = "its command `/no/such/program` does not exist; install it, or correct the entry";
    assert!(readable.out.contains(exited), "{}", readable.out);
    let kept = std::fs::read_dir(person.path("home/.local/state/cellmate/servers")).unwrap().flatten();
    let kept: String = kept.map(|file| std::fs::read_to_string(file.path()).unwrap()).collect();
    assert!(kept.contains("started with … …") && !kept.contains(CANARY), "{kept}");
    let ends = format!("{exited}; its standard error ends with: started with … …");
    for (arguments, reason) in [
        (&["servers", "list"][..], ends.as_str()),
        (&["servers", "list"], missing),
        (&["servers", "get", "crashes"], &ends),
        (&["doctor"], &ends),
        (&["tools", "list"], exited),
        (&["tools", "list"], "      | started with … …\n"),
        (&["exec", "-e", "return MCP.crashes.greet({})"], "      | started with … …\n"),
        (&["exec", "-e", "return 1"], "servers `crashes`, `missing`, `remote` are not available; run"),
    ] {
        let shown = person.run(arguments);
        assert!(shown.out.contains(reason) || shown.err.contains(reason), "{arguments:?}: {}{}", shown.out, shown.err);
    }
    // A model reads how the command ended, and nothing of its standard error.
    let cell = person.run(&["exec", "-e", "return await MCP.crashes.greet({})"]);
    let error = cell.json()["error"].as_str().unwrap().to_owned();
    assert!(error.contains(exited) && !error.contains("started with"), "{error}");
    assert_eq!(person.run(&["servers", "test", "good"]).code, 0);
    assert_eq!(person.run(&["servers", "test", "nobody"]).code, 2);
    // Neither output may contain a secret.
    person.run(&["servers", "list"]);
    person.run(&["servers", "list", "--json"]);
}

#[test]
fn servers_add_accepts_the_arguments_of_other_clients_commands() {
    let oauth = ["--client-id", "us", "--client-secret-env-var", "S", "--callback-port", "8085", "--login-scope", "r"];
    let cases: [(&[&str], &str); 8] = [
        (
            &[&["a", "https://x.y/mcp"], oauth.as_slice()].concat(),
            r#"{"type":"http","url":"https://x.y/mcp","oauth":{"clientId":"us","clientSecret":"${S}","scopes":["r"],"callbackPort":8085}}"#,
        ),
        (&["a", "--", "npx", "-y", "pkg"], r#"{"command":"npx","args":["-y","pkg"]}"#),
        (&["a", "npx", "pkg"], r#"{"command":"npx","args":["pkg"]}"#),
        (&["-e", "A=1", "a", "--env", "B", "--", "x"], r#"{"command":"x","args":[],"env":{"A":"1","B":"${B}"}}"#),
        (
            &["--transport", "http", "a", "https://x.y/mcp", "--header", "Authorization: Bearer ${T}"],
            r#"{"type":"http","url":"https://x.y/mcp","headers":{"Authorization":"Bearer ${T}"}}"#,
        ),
        (
            &["a", "--url", "https://x.y/mcp", "--bearer-token-env-var", "T"],
            r#"{"type":"http","url":"https://x.y/mcp","bearer_token_env_var":"T"}"#,
        ),
        (&["a", "https://x.y/mcp", "-H", "K=v"], r#"{"type":"http","url":"https://x.y/mcp","headers":{"K":"v"}}"#),
        (&["a", "--trusted", "--cwd", "/srv", "--", "x"], r#"{"command":"x","args":[],"cwd":"/srv","trusted":true}"#),
    ];
    for (arguments, entry) in cases {
        let person = Person::new();
        let added = person.run(&[&["servers", "add"], arguments].concat());
        assert_eq!(added.code, 0, "{arguments:?} {}", added.err);
        let written: serde_json::Value = serde_json::from_str(&person.read(USER_CONFIG)).unwrap();
        assert_eq!(written["mcpServers"]["a"].to_string(), entry, "{arguments:?}");
    }
    let person = Person::new();
    let wrong: [(&[&str], &str); 10] = [
        (&["a", "--client-id", "us", "--", "x"], "login options need a server with a URL"),
        (&["a"], "pass the command"),
        (&["a", "--url", "ftp://x"], "https://"),
        (&["a:b", "x"], "no `:`"),
        (&["a", "--header", "K=v", "--", "x"], "headers need a server with a URL"),
        (&["a", "--url", "https://x.y", "--env", "A=1"], "use --header"),
        (&["a", "--env", "=1", "--", "x"], "NAME=value"),
        (&["a", "--", "cellmate", "mcp"], "cellmate itself"),
        (&["a", "-t", "http", "--", "x", "y"], "a URL and no command"),
        (&["a", "-t", "stdio", "--url", "https://x.y"], "a command and no URL"),
    ];
    for (arguments, reason) in wrong {
        let output = person.run(&[&["servers", "add"], arguments].concat());
        assert!(output.code == 2 && output.err.contains(reason), "{arguments:?}: {} {}", output.code, output.err);
    }
    assert!(!person.has(USER_CONFIG), "a refused command writes nothing");
}

#[test]
fn edits_keep_comments_show_no_secrets_and_can_be_undone() {
    let person = Person::new();
    let before = format!(
        "// mine\n{{\n  mcpServers: {{\n    // one\n    one: {{ command: 'x', env: {{ KEY: '{CANARY}' }} }}, // {CANARY}\n  }},\n}}\n"
    );
    person.write(USER_CONFIG, &before);
    let dry = person.run(&["servers", "add", "two", "--env", &format!("TOKEN={CANARY}"), "--dry-run", "--", "y"]);
    assert!(dry.code == 0 && dry.out.ends_with("nothing was written (--dry-run)\n"), "{}", dry.out);
    assert_eq!(person.read(USER_CONFIG), before);
    let added = person.run(&["servers", "add", "two", "--env", &format!("TOKEN={CANARY}"), "--json", "--", "y"]).json();
    let entry = format!(
        "\n    \"two\": {{\n      \"command\": \"y\",\n      \"args\": [],\n      \"env\": {{\n        \"TOKEN\": \"{CANARY}\"\n      }}\n    }},"
    );
    assert_eq!(person.read(USER_CONFIG), before.replace(&format!("// {CANARY}"), &format!("// {CANARY}{entry}")));
    assert_eq!(
        added["notes"][0],
        "the value of `TOKEN` is in the file; to keep it out, use --env TOKEN='${TOKEN}', or run `cellmate secrets set \
         TOKEN` and use --env TOKEN='${secret:TOKEN}'"
    );
    let again = person.run(&["servers", "add", "two", "--", "z"]);
    assert!(again.code == 2 && again.err.contains("--replace"), "{}", again.err);
    assert_eq!(person.run(&["servers", "add", "two", "--replace", "--", "z"]).code, 0);
    let backup = added["backup"].as_str().unwrap().trim_start_matches('/').to_owned();
    assert_eq!(person.read(&backup), before);
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(person.path(&backup)).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_projects_servers_need_trust_and_config_replaces_the_default_files() {
    let person = Person::new();
    let server = person.server();
    let config = json!({"mcpServers": {"theirs": {"command": "sh", "args": [server]}}}).to_string();
    person.write("project/.cellmate.json5", &config);
    let listed = person.run(&["servers", "list"]);
    assert!(
        listed.out.starts_with("no servers") && listed.err.contains("cellmate config trust"),
        "{}{}",
        listed.out,
        listed.err
    );
    let added = person.run(&["servers", "add", "mine", "--scope", "project", "--dry-run", "--", "x"]);
    assert!(added.err.contains("run `cellmate config trust`"), "{}", added.err);
    assert_eq!(person.run(&["config", "trust"]).code, 0);
    assert_eq!(person.run(&["config", "trust"]).out, "nothing to change\n");
    assert_eq!(person.run(&["servers", "list", "--json"]).json()["servers"][0]["origin"]["source"], "project");
    person.write("home/other.json", r#"{"servers": {"other": {"command": "x"}}}"#);
    let other = person.path("home/other.json").display().to_string();
    let named = person.run(&["servers", "list", "--json", "--config", &other]).json();
    assert_eq!((&named["servers"][0]["name"], named["servers"].as_array().unwrap().len()), (&json!("other"), 1));
    assert_eq!(person.run(&["servers", "list", "--config", "/not/there"]).code, 2);
}

#[test]
fn a_tool_is_shown_with_everything_that_helps_to_call_it() {
    let person = Person::new();
    let server = json!({"command": "sh", "args": [person.server()]});
    person.write(USER_CONFIG, &json!({"mcpServers": {"my-greeter": server}}).to_string());
    for name in ["my-greeter.greet", "MCP.myGreeter.greet", "mcp:my-greeter:greet", "greet"] {
        let shown = person.run(&["tools", "show", name, "--json"]).json();
        assert_eq!(
            (&shown["id"], &shown["call"], &shown["signature"]),
            (&json!("mcp:my-greeter:greet"), &json!("MCP.myGreeter.greet"), &json!("{ name: string }")),
            "{shown}"
        );
        assert_eq!((&shown["asks"], &shown["readOnly"]), (&json!(true), &json!(false)), "{shown}");
        assert_eq!(shown["parameters"]["required"], json!(["name"]));
        assert!(shown["declaration"].as_str().unwrap().contains("function greet("), "{shown}");
    }
    let shown = person.run(&["tools", "show", "greet"]);
    for line in [
        "my-greeter.greet\n  Greets.\n",
        "\nid         mcp:my-greeter:greet\n",
        "\nasks       yes, before each call\n",
        "\nread-only  no\n",
        "\nin a cell  await MCP.myGreeter.greet({ name: string })\n",
        "\ndeclaration:\n",
        "\ninput schema:\n  {\n    \"type\": \"object\",\n",
    ] {
        assert!(shown.out.contains(line), "{line}: {}", shown.out);
    }
    let unknown = person.run(&["tools", "show", "my-greeter.gret"]);
    assert!(
        unknown.code == 2 && unknown.err.contains("did you mean `my-greeter.greet`?"),
        "{} {}",
        unknown.code,
        unknown.err
    );
}

#[test]
fn a_tool_that_the_configuration_withholds_is_explained_with_the_rule_and_its_place() {
    let person = Person::new();
    let server = json!({"command": "sh", "args": [person.server()]});
    let config = |server: &serde_json::Value, tools: serde_json::Value| {
        let config = json!({"mcpServers": {"s": server}, "tools": tools});
        person.write(USER_CONFIG, &serde_json::to_string_pretty(&config).unwrap());
    };
    let expect = |place: &str| {
        for command in [&["tools", "show", "s.greet"][..], &["tools", "show", "greet"], &["tools", "call", "s.greet"]] {
            let refused = person.run(command);
            assert!(refused.code == 2 && refused.err.contains(place), "{command:?}: {}", refused.err);
            assert!(!refused.err.contains("did you mean"), "{}", refused.err);
        }
    };
    config(&server, json!({"deny": ["mcp:s:none", "mcp:s:gr*"]}));
    expect(
        "the policy denies `s.greet`: the pattern `mcp:s:gr*` in `tools.deny` (`/home/.config/cellmate/config.json5:13`)",
    );
    config(&server, json!({"allow": ["mcp:s:other"]}));
    expect(
        "the policy denies `s.greet`: it is not in the allow list of `tools` (`/home/.config/cellmate/config.json5:10`); \
         add `mcp:s:greet` there",
    );
    let mut filtered = server.clone();
    filtered["disabledTools"] = json!(["greet"]);
    config(&filtered, json!({}));
    expect("`s.greet` is left out by the lists of tools in the entry of server `s`");
    let unknown = person.run(&["tools", "show", "s.othr"]);
    assert!(unknown.err.contains("did you mean `s.other`?"), "{}", unknown.err);
}

#[test]
fn tool_lists_are_remembered_until_they_are_refreshed() {
    let person = Person::new();
    let trace = person.path("started").display().to_string();
    let line = format!("echo x >> {trace}; exec sh {}", person.server());
    person.write(USER_CONFIG, &json!({"mcpServers": {"s": {"command": "sh", "args": ["-c", line]}}}).to_string());
    let starts = || person.read("started").lines().count();
    let first = person.run(&["tools", "list"]).out;
    assert_eq!(starts(), 1);
    assert_eq!(person.run(&["tools", "list"]).out, first);
    let found = person.run(&["tools", "search", "greet"]).out;
    assert!(found.starts_with("mcp:s:greet"), "{found}");
    assert_eq!(person.run(&["tools", "show", "s.greet"]).code, 0);
    assert_eq!(starts(), 1, "the list of the first start is used");
    assert_eq!(person.run(&["tools", "list", "--refresh"]).out, first);
    assert_eq!(starts(), 2);
}

#[test]
fn commands_that_find_no_tools_say_so_and_what_to_do() {
    let person = Person::new();
    for command in [&["tools", "list"][..], &["tools", "search", "greet"]] {
        let none = person.run(command);
        assert_eq!((none.code, none.out.as_str()), (0, ""));
        assert!(none.err.contains("add one with `cellmate servers add"), "{}", none.err);
    }
    let server = json!({"command": "sh", "args": [person.server()]});
    let denied = json!({"mcpServers": {"s": server}, "tools": {"deny": ["mcp:*"]}});
    person.write(USER_CONFIG, &denied.to_string());
    let none = person.run(&["tools", "list"]);
    assert!(none.out.is_empty() && none.err.contains("the policy allows none"), "{}", none.err);
    assert_eq!(person.run(&["tools", "list", "--json"]).json()["tools"], json!([]));
    person.write(USER_CONFIG, &json!({"mcpServers": {"s": server}}).to_string());
    let none = person.run(&["tools", "search", "zebra crossing"]);
    assert!(none.out.is_empty() && none.err.contains("no tool matches `zebra crossing`"), "{}{}", none.out, none.err);
}

#[test]
fn a_program_that_does_not_exist_is_noted_when_its_server_is_added() {
    let person = Person::new();
    let note = "the program `no-such-program` was not found in $PATH, so the server cannot be started";
    let added = person.run(&["servers", "add", "one", "--", "no-such-program"]);
    assert!(added.code == 0 && added.err.contains(&format!("note: {note}")), "{}", added.err);
    let added = person.run(&["servers", "add-json", "two", "{command: 'no-such-program'}", "--json"]).json();
    assert!(added["notes"][0].as_str().unwrap().starts_with(note), "{added}");
    let added = person.run(&["servers", "add", "three", "--", "sh", &person.server()]);
    assert!(!added.err.contains("was not found"), "{}", added.err);
}

#[test]
fn a_server_is_shown_with_its_references_and_trust_and_without_its_literal_values() {
    let person = Person::new();
    person.run_with(&[], "a-secret-value\n", &["secrets", "set", "KEY"]);
    let env = json!({"A": "${secret:KEY}", "B": "${SECRET}", "C": CANARY});
    let trusted = json!({"command": "sh", "args": [person.server()], "env": env, "trusted": true});
    let other = json!({"command": "sh", "args": [person.server()]});
    person.write(USER_CONFIG, &json!({"mcpServers": {"s": trusted, "t": other}}).to_string());
    let shown = person.run(&["servers", "get", "s"]).out;
    for line in [
        "trusted yes, to declare which tools only read\n",
        "\"A\": \"${secret:KEY}\"",
        "\"B\": \"${SECRET}\"",
        "\"C\": \"…\"",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    assert!(!shown.contains("a-secret-value"), "{shown}");
    let listed = person.run(&["servers", "list"]).out;
    let rows: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((rows[0][2], rows[1][3], rows[2][3]), ("TRUSTED", "yes", "no"), "{listed}");
    let listed = person.run(&["servers", "list", "--json"]).json();
    assert_eq!((&listed["servers"][0]["trusted"], &listed["servers"][1]["trusted"]), (&json!(true), &json!(false)));
}
