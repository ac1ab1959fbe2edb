//! `cellmate connect`: writing the configuration of every client, with the variables that it passes on.

use serde_json::{Value, json};

use crate::person::{CANARY, Person};

const USER_CONFIG: &str = "home/.config/cellmate/config.json5";

fn exe() -> &'static str {
    env!("CARGO_BIN_EXE_cellmate")
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn connect_writes_the_configuration_file_of_every_client() {
    let plain = json!({"command": exe(), "args": ["mcp"]});
    let typed = json!({"type": "stdio", "command": exe(), "args": ["mcp"]});
    let cases = [
        ("claude-code", "home/.claude.json", json!({"mcpServers": {"cellmate": typed}})),
        (
            "claude-desktop",
            "home/.config/Claude/claude_desktop_config.json",
            json!({"mcpServers": {"cellmate": plain}}),
        ),
        ("cursor", "home/.cursor/mcp.json", json!({"mcpServers": {"cellmate": plain}})),
        ("vscode", "home/.config/Code/User/mcp.json", json!({"servers": {"cellmate": typed}})),
        (
            "opencode",
            "home/.config/opencode/opencode.json",
            json!({"mcp": {"cellmate": {"type": "local", "command": [exe(), "mcp"], "enabled": true}}}),
        ),
        ("windsurf", "home/.codeium/windsurf/mcp_config.json", json!({"mcpServers": {"cellmate": plain}})),
        ("gemini", "home/.gemini/settings.json", json!({"mcpServers": {"cellmate": plain}})),
        (
            "zed",
            "home/.config/zed/settings.json",
            json!({"context_servers": {"cellmate": {"source": "custom", "command": exe(), "args": ["mcp"], "env": {}}}}),
        ),
    ];
    let person = Person::new();
    for (client, file, expected) in cases {
        let output = person.run(&["connect", client, "--yes", "--take-over"]);
        assert!(
            output.code == 0 && output.out.ends_with(&format!("to undo: cellmate disconnect {client}\n")),
            "{client}: {}{}",
            output.out,
            output.err
        );
        assert_eq!(parsed(&person.read(file)), expected, "{client}");
        assert!(person.run(&["connect", client]).out.ends_with("is already connected\n"), "{client}");
    }
    assert!(!person.has(USER_CONFIG), "there was nothing to take over");
    assert_eq!(person.run(&["connect", "codex", "--yes"]).code, 0);
    let codex =
        format!("[mcp_servers.cellmate]\ncommand = \"{}\"\nargs = [\"mcp\"]\nstartup_timeout_sec = 60\n", exe());
    assert_eq!(person.read("home/.codex/config.toml"), codex);
    let files = [
        ("claude-code", ".mcp.json"),
        ("cursor", ".cursor/mcp.json"),
        ("vscode", ".vscode/mcp.json"),
        ("gemini", ".gemini/settings.json"),
        ("opencode", "opencode.json"),
        ("zed", ".zed/settings.json"),
        ("codex", ".codex/config.toml"),
    ];
    for (client, file) in files {
        let output = person.run(&["connect", client, "--scope", "project", "--yes", "--config", "mine.json5"]);
        assert_eq!(output.code, 0, "{client}: {}", output.err);
        let wanted = person.path("project/mine.json5").display().to_string();
        assert!(person.read(&format!("project/{file}")).contains(&wanted), "{client}");
    }
    person.write("project/.cursor/mcp.json", r#"{"mcpServers": {"a": {"command": "x"}}}"#);
    let output = person.run(&["connect", "cursor", "--scope", "project", "--take-over", "--yes"]);
    let notes = "note: `a` moves to cellmate's configuration\n\
        note: this project's file is not trusted yet, so it is not read; run `cellmate config trust`\n";
    assert_eq!((output.code, output.err.as_str()), (0, notes));
    let output = person.run(&["connect", "windsurf", "--scope", "project", "--yes"]);
    assert!(output.code == 2 && output.err.contains("--scope user"), "{}", output.err);
    assert_eq!(person.run(&["connect", "emacs"]).code, 2);
}

#[test]
fn connect_says_that_the_clients_other_servers_stay() {
    let person = Person::new();
    person.write("home/.cursor/mcp.json", r#"{"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}}"#);
    let note = "note: cursor keeps its 2 other MCP servers, whose calls do not pass through cellmate; `cellmate connect \
        cursor --take-over` moves them to cellmate\n";
    // Connected again, there is nothing to write, and the servers still stay.
    for _ in 0..2 {
        let output = person.run(&["connect", "cursor", "--yes"]);
        assert_eq!((output.code, output.err.as_str()), (0, note));
    }
    let moved = person.run(&["connect", "cursor", "--yes", "--take-over"]);
    assert!(moved.code == 0 && !moved.err.contains("keeps"), "{}", moved.err);
    assert_eq!(person.run(&["connect", "cursor", "--yes"]).err, "", "it has no other servers");
}

#[test]
fn connect_writes_nothing_without_confirmation() {
    let person = Person::new();
    let before = format!(
        "{{\n  // {CANARY}\n  \"mcpServers\": {{\n    \"a\": {{\"command\": \"x\", \"env\": {{\"K\": \"{CANARY}\"}}}} // tail\n  }}\n}}\n"
    );
    person.write("home/.cursor/mcp.json", &before);
    let output = person.run(&["connect", "cursor"]);
    assert!(
        output.code == 2 && output.out.contains("+    \"cellmate\": {") && output.err.contains("--yes"),
        "{}{}",
        output.out,
        output.err
    );
    assert_eq!(person.run(&["connect", "cursor", "--dry-run"]).code, 0);
    assert_eq!(person.run(&["connect", "cursor", "--json"]).code, 2);
    assert_eq!(person.read("home/.cursor/mcp.json"), before);
    let done = person.run(&["connect", "cursor", "--yes", "--json"]).json();
    let after = person.read("home/.cursor/mcp.json");
    assert!(after.contains(&format!("// {CANARY}\n")) && after.contains("}, // tail\n"), "{after}");
    assert_eq!((&done["undo"], &done["changes"][0]["undo"]), (&json!("cellmate disconnect cursor"), &Value::Null));
    let backup = done["changes"][0]["backup"].as_str().unwrap();
    assert_eq!(person.read(backup.trim_start_matches('/')), before, "{backup}");
    person.write("home/.cursor/mcp.json", "{ not json");
    let output = person.run(&["connect", "cursor", "--yes"]);
    assert!(output.code == 2 && output.err.contains("fix it"), "{}", output.err);
    assert_eq!(person.read("home/.cursor/mcp.json"), "{ not json");
}

#[test]
fn take_over_moves_servers_as_written_and_reports_those_it_leaves() {
    let person = Person::new();
    person.write(USER_CONFIG, "{\n  // mine\n  mcpServers: { taken: { command: 'mine' } },\n}\n");
    let here = person.path("project").canonicalize().unwrap().display().to_string();
    let theirs = json!({
        "oauthAccount": CANARY,
        "projects": {
            here.clone(): {"mcpServers": {"local": {"command": "y"}}, "history": [CANARY]},
            "/elsewhere": {"mcpServers": {"theirs": {"command": "z"}}},
        },
        "mcpServers": {
            "moves": {"command": "npx", "args": ["x"], "env": {"TOKEN": "${TOKEN}", "K": CANARY}},
            "keyed": {"type": "http", "url": "https://x.y/mcp", "headers": {"Authorization": CANARY}},
            "logged-in": {"type": "http", "url": "https://linear.example/mcp"},
            "old": {"type": "sse", "url": "https://x.y/sse", "headers": {"A": "b"}},
            "taken": {"command": "another"},
        },
    });
    person.write("home/.claude.json", &theirs.to_string());
    let output = person.run(&["connect", "claude-code", "--take-over", "--yes"]);
    assert_eq!(output.code, 0, "{}", output.err);
    let notes = "note: `local` moves to cellmate's configuration\nnote: `moves` moves to cellmate's configuration\nnote: `keyed` moves to cellmate's configuration\n\
        note: `logged-in` stays where it is: the client may be logged in to it; if it needs no login, add it with `cellmate servers add`\n\
        note: `old` stays where it is: cellmate does not support its transport\n\
        note: `taken` stays where it is: cellmate has a different server with that name; rename one\n\
        note: these 3 servers are not trusted to declare which tools only read, so all calls need approval; `cellmate servers trust-tools local moves keyed` shows what is declared, and changes that\n";
    assert_eq!(output.err, notes);
    let left = parsed(&person.read("home/.claude.json"));
    let names: Vec<&String> = left["mcpServers"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["logged-in", "old", "taken", "cellmate"]);
    assert_eq!(
        (&left["oauthAccount"], &left["projects"][&here]),
        (&json!(CANARY), &json!({"mcpServers": {}, "history": [CANARY]}))
    );
    assert_eq!(
        left["projects"]["/elsewhere"], theirs["projects"]["/elsewhere"],
        "the servers of other folders are unchanged"
    );
    let ours = person.read(USER_CONFIG);
    assert!(ours.contains("// mine") && ours.contains("${TOKEN}") && ours.contains(CANARY), "{ours}");
    let listed = person.run(&["servers", "list", "--json"]).json();
    let names: Vec<&str> =
        listed["servers"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["taken", "local", "keyed"]);
    assert_eq!(listed["problems"][0]["server"], "moves", "its variable is not set here");
}

#[test]
fn taken_over_variables_keep_the_meaning_they_had_in_the_client() {
    let person = Person::new();
    person.write("home/.codex/config.toml", "# mine\n[mcp_servers.a]\ncommand = \"x\"\nargs = [\"${NOT_A_VARIABLE}\"]\nenabled_tools = [\"t\"]\n\n# theirs\n[tui]\ntheme = \"dark\"\n");
    person.write(
        "home/.gemini/settings.json",
        r#"{"mcpServers": {"b": {"command": "x", "args": ["$SECRET", "$5", "${SECRET}"]}}}"#,
    );
    person.write(
        "home/.config/opencode/opencode.json",
        r#"{"mcp": {"c": {"type": "local", "command": ["x", "{env:SECRET}"]}}}"#,
    );
    person.write("home/.config/Code/User/mcp.json", r#"{"inputs": [{"id": "k", "type": "promptString", "default": "d"}], "servers": {"d": {"command": "x", "args": ["${input:k}"]}}}"#);
    for client in ["codex", "gemini", "opencode", "vscode"] {
        let output = person.run(&["connect", client, "--take-over", "--yes"]);
        assert_eq!(output.code, 0, "{client}: {}", output.err);
    }
    let codex = person.read("home/.codex/config.toml");
    assert!(
        codex.starts_with("# mine\n") && codex.contains("# theirs\n[tui]") && !codex.contains("mcp_servers.a"),
        "{codex}"
    );
    let ours = parsed(&person.read(USER_CONFIG));
    assert_eq!(ours["mcpServers"]["a"]["args"], json!(["$${NOT_A_VARIABLE}"]));
    assert_eq!(ours["mcpServers"]["b"]["args"], json!(["${SECRET}", "$5", "${SECRET}"]));
    let listed = person.run(&["servers", "list", "--json"]).json();
    assert_eq!((listed["servers"].as_array().unwrap().len(), &listed["problems"]), (4, &json!([])), "{listed}");
    assert_eq!(listed["servers"][0]["onlyTools"], json!(["t"]));
}

#[test]
fn a_dry_run_says_what_would_happen() {
    let person = Person::new();
    person
        .write("home/.cursor/mcp.json", r#"{"mcpServers": {"a": {"command": "x"}, "b": {"url": "https://x.y/mcp"}}}"#);
    let dry = person.run(&["connect", "cursor", "--take-over", "--dry-run"]);
    let notes = "note: `a` would move to cellmate's configuration\n\
        note: `b` would stay where it is: the client may be logged in to it; if it needs no login, add it with `cellmate servers add`\n";
    assert_eq!((dry.code, dry.err.as_str()), (0, notes));
    assert!(dry.out.ends_with("nothing was written\n"), "{}", dry.out);
    assert!(!person.has("home/.local/state/cellmate/connections"), "a dry run records nothing");
}

#[test]
fn variables_that_servers_need_are_passed_on_by_name_and_never_by_value() {
    let person = Person::new();
    let config = json!({"mcpServers": {
        "a": {"command": "x", "env": {"TOKEN": "${SECRET}", "HOME": "${HOME}", "K": "${secret:K}"}},
        "b": {"url": "https://x.y/mcp", "bearer_token_env_var": "NOT_SET"},
    }});
    person.write("elsewhere/cellmate/config.json5", &config.to_string());
    let (settings, state) = (person.path("elsewhere"), person.path("state"));
    let proxy = format!("http://me:{CANARY}@proxy:3128");
    let store = format!("postgres://me:{CANARY}@db/x");
    let variables = [
        ("XDG_CONFIG_HOME", settings.to_str().unwrap()),
        ("XDG_STATE_HOME", state.to_str().unwrap()),
        ("HTTPS_PROXY", &proxy),
        ("CELLMATE_STORE", &store),
        ("LANG", "C"),
        ("UNRELATED", CANARY),
    ];
    let connect = |client: &str, file: &str| {
        let output = person.run_with(&variables, "", &["connect", client, "--yes"]);
        assert_eq!(output.code, 0, "{client}: {}", output.err);
        let written = person.read(file);
        assert!(!written.contains(CANARY) && !written.contains("UNRELATED"), "{client}: {written}");
        (written, output)
    };
    let (codex, output) = connect("codex", "home/.codex/config.toml");
    let names = r#"["CELLMATE_STORE", "HTTPS_PROXY", "NOT_SET", "SECRET", "XDG_CONFIG_HOME", "XDG_STATE_HOME"]"#;
    assert!(codex.contains(&format!("env_vars = {names}\n")), "{codex}");
    assert!(output.out.contains(&format!("+env_vars = {names}\n")), "the diff shows names: {}", output.out);
    let folders = json!({"XDG_CONFIG_HOME": settings, "XDG_STATE_HOME": state});
    let (claude, _) = connect("claude-code", "home/.claude.json");
    assert_eq!(parsed(&claude)["mcpServers"]["cellmate"]["env"], folders);
    let (cursor, _) = connect("cursor", "home/.cursor/mcp.json");
    let env = &parsed(&cursor)["mcpServers"]["cellmate"]["env"];
    assert_eq!(
        (&env["SECRET"], &env["CELLMATE_STORE"], &env["NOT_SET"]),
        (&json!("${env:SECRET}"), &json!("${env:CELLMATE_STORE}"), &Value::Null)
    );
    assert_eq!((&env["XDG_CONFIG_HOME"], &env["HOME"]), (&folders["XDG_CONFIG_HOME"], &Value::Null));
    let (opencode, _) = connect("opencode", "elsewhere/opencode/opencode.json");
    assert_eq!(parsed(&opencode)["mcp"]["cellmate"]["environment"], folders);
    let (_, desktop) = connect("claude-desktop", "elsewhere/Claude/claude_desktop_config.json");
    assert!(desktop.err.contains("claude-desktop passes no variables on, so `NOT_SET` and 1 more"), "{}", desktop.err);
    assert!(person.run_with(&variables, "", &["connect", "codex"]).out.ends_with("is already connected\n"));
}

#[test]
fn variables_of_servers_that_are_taken_over_are_passed_on() {
    let person = Person::new();
    let theirs = "[mcp_servers.a]\ncommand = \"x\"\nenv_vars = [\"SECRET\"]\n";
    person.write("home/.codex/config.toml", theirs);
    assert_eq!(person.run(&["connect", "codex", "--take-over", "--yes"]).code, 0);
    let written = person.read("home/.codex/config.toml");
    assert!(written.contains("env_vars = [\"SECRET\"]") && !written.contains("mcp_servers.a]"), "{written}");
}

const TOKEN_FILE: &str = "home/.local/state/cellmate/token";

/// The user's file of every agent that can use a gateway, with other content.
const AGENTS: [(&str, &str, &str); 3] = [
    ("claude-code", "home/.claude/settings.json", "{\n  // mine\n  \"env\": {\"ANTHROPIC_MODEL\": \"opus\"}\n}\n"),
    ("codex", "home/.codex/config.toml", "# mine\nmodel = \"m\" # tail\n\n[mcp_servers.other]\ncommand = \"x\"\n"),
    ("opencode", "home/.config/opencode/opencode.json", "{\"theme\": \"dark\"}\n"),
];

#[test]
fn connect_writes_the_address_of_a_gateway_but_not_its_token() {
    let person = Person::new();
    person.write(TOKEN_FILE, CANARY);
    let token_file = person.path(TOKEN_FILE).display().to_string();
    let connect = |client| {
        let output = person.run(&["connect", client, "--gateway", "--yes"]);
        assert_eq!((output.code, output.err.as_str()), (0, ""), "{client}: {}", output.out);
        let undo = format!("to undo: cellmate disconnect {client} --gateway\n");
        assert!(output.out.ends_with(&undo) && output.out.contains("http://127.0.0.1:18789"), "{}", output.out);
        assert!(!output.out.contains(CANARY) && !output.out.contains('…'), "{}", output.out);
        assert!(person.run(&["connect", client, "--gateway"]).out.ends_with("is already connected\n"), "{client}");
        output.out
    };
    connect("claude-code");
    let settings = json!({
        "env": {
            "ANTHROPIC_BASE_URL": "http://127.0.0.1:18789", "ANTHROPIC_MODEL": "openclaw",
            "ANTHROPIC_DEFAULT_OPUS_MODEL": "openclaw", "ANTHROPIC_DEFAULT_SONNET_MODEL": "openclaw",
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": "openclaw",
        },
        "apiKeyHelper": format!("cat {token_file}"),
    });
    assert_eq!(parsed(&person.read("home/.claude/settings.json")), settings);
    let next = format!("export CELLMATE_TOKEN=\"$(cat /{TOKEN_FILE})\"\n");
    assert!(connect("codex").contains(&next));
    let codex = "model = \"openclaw\"\nmodel_provider = \"cellmate\"\n\n[model_providers.cellmate]\nname = \"cellmate\"\n\
        base_url = \"http://127.0.0.1:18789/v1\"\nwire_api = \"responses\"\nenv_key = \"CELLMATE_TOKEN\"\n";
    assert_eq!(person.read("home/.codex/config.toml"), codex);
    connect("opencode");
    let provider = json!({
        "npm": "@ai-sdk/openai-compatible", "name": "cellmate",
        "options": {"baseURL": "http://127.0.0.1:18789/v1", "apiKey": format!("{{file:{token_file}}}")},
        "models": {"openclaw": {"name": "openclaw"}},
    });
    let settings = json!({"model": "cellmate/openclaw", "provider": {"cellmate": provider}});
    assert_eq!(parsed(&person.read("home/.config/opencode/opencode.json")), settings);
}

#[test]
fn disconnect_restores_what_the_settings_for_a_gateway_replaced() {
    let person = Person::new();
    for (client, file, before) in AGENTS {
        person.write(file, before);
        assert_eq!(person.run(&["connect", client, "--gateway", "--dry-run"]).code, 0, "{client}");
        assert_eq!(person.read(file), before, "{client}");
        for address in ["http://127.0.0.1:1", "https://agents.example/v1"] {
            let output = person.run(&["connect", client, "--gateway", address, "--token-file", "t", "--yes"]);
            assert_eq!(output.code, 0, "{client}: {}", output.err);
            assert!(output.err.contains("does not exist yet"), "{client}: {}", output.err);
        }
        assert_eq!(person.run(&["connect", client, "--yes"]).code, 0, "{client}");
        assert_eq!(person.run(&["disconnect", client, "--yes"]).code, 0, "{client}");
        let connected = person.read(file);
        assert!(connected.contains("https://agents.example"), "{client}: {connected}");
        assert_eq!(person.run(&["disconnect", client, "--gateway", "--dry-run"]).code, 0, "{client}");
        assert_eq!(person.read(file), connected, "{client}");
        let done = person.run(&["disconnect", client, "--gateway", "--yes"]);
        assert_eq!((done.code, done.err.as_str()), (0, ""), "{client}");
        let words = |text: &str| text.split_whitespace().collect::<String>();
        assert_eq!(words(&person.read(file)), words(before), "{client}");
        let again = person.run(&["disconnect", client, "--gateway", "--yes"]);
        assert_eq!(again.out, format!("{client} is not connected to a gateway\n"));
    }
}

#[test]
fn connect_writes_the_model_of_the_agent_that_the_user_chooses() {
    let person = Person::new();
    let shown = person.run(&["connect", "codex", "--gateway", "--agent", "support", "--dry-run"]);
    assert_eq!(shown.code, 0, "{}", shown.err);
    assert!(shown.out.contains("+model = \"openclaw/support\""), "{}", shown.out);
}

#[test]
fn a_setting_for_a_gateway_that_was_changed_since_stays() {
    let person = Person::new();
    let file = "home/.codex/config.toml";
    assert_eq!(person.run(&["connect", "codex", "--gateway", "--yes"]).code, 0);
    person.write(file, &person.read(file).replace("model = \"openclaw\"", "model = \"openclaw/support\""));
    let done = person.run(&["disconnect", "codex", "--gateway", "--yes"]);
    assert_eq!((done.code, done.err.as_str()), (0, "note: `model` stays: it was changed since\n"));
    assert_eq!(person.read(file).trim_end(), "model = \"openclaw/support\"");
}

#[test]
fn a_gateway_is_refused_for_other_clients_and_with_arguments_about_servers() {
    let person = Person::new();
    for (arguments, part) in [
        (&["connect", "cursor", "--gateway"][..], "claude-code, codex, opencode"),
        (&["disconnect", "cursor", "--gateway"], "claude-code, codex, opencode"),
        (&["connect", "codex", "--gateway", "--scope", "project"], "omit --scope project"),
        (&["connect", "codex", "--gateway", "--take-over"], "--take-over"),
        (&["connect", "codex", "--gateway", "--trusted"], "omit them with --gateway"),
        (&["connect", "codex", "--token-file", "x"], "--gateway"),
        (&["connect", "codex", "--gateway", "http://me:secret@x"], "without a user"),
        (&["connect", "codex", "--gateway", "https://agents.example"], "--token-file"),
        (&["connect", "codex", "--gateway", "--agent", "a/b"], "--agent"),
        (&["connect", "codex", "--agent", "support"], "--gateway"),
    ] {
        let output = person.run(arguments);
        assert!(output.code == 2 && output.err.contains(part), "{arguments:?}: {}", output.err);
        assert!(!output.err.contains("me:secret"), "{}", output.err);
    }
    let output =
        person.run(&["connect", "codex", "--gateway", "http://10.0.0.7:18789", "--token-file", "t", "--dry-run"]);
    assert!(output.code == 0 && output.err.contains("without encryption"), "{}", output.err);
    let credentials = "{\"env\": {\"ANTHROPIC_API_KEY\": \"canary\"}}";
    person.write("home/.claude/settings.json", credentials);
    let output = person.run(&["connect", "claude-code", "--gateway", "--dry-run"]);
    assert!(output.err.contains("ANTHROPIC_API_KEY is set") && !output.out.contains("canary"), "{}", output.out);
}

#[test]
fn connect_writes_the_link_on_the_path_and_not_its_target() {
    let person = Person::new();
    std::fs::create_dir(person.path("bin")).unwrap();
    let link = person.path("bin/cellmate");
    std::os::unix::fs::symlink(exe(), &link).unwrap();
    let path = std::env::join_paths(
        [person.path("bin")].into_iter().chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    )
    .unwrap();
    // A shell finds the program on the path, and passes the typed name on.
    let connect = |name: &str| {
        let script = format!("{name} connect cursor --yes");
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &script]).current_dir(person.path("project")).env_clear();
        command.env("PATH", &path).env("HOME", person.path("home"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        parsed(&person.read("home/.cursor/mcp.json"))["mcpServers"]["cellmate"]["command"].clone()
    };
    for name in ["cellmate", "../bin/cellmate", link.to_str().unwrap()] {
        let written = connect(name);
        let written = std::path::Path::new(written.as_str().unwrap());
        assert!(written.is_absolute() && written.is_symlink() && written.ends_with("bin/cellmate"), "{written:?}");
        std::fs::remove_file(person.path("home/.cursor/mcp.json")).unwrap();
    }
    assert_eq!(connect(exe()), exe());
}
