//! `cellmate secrets`: values for `${secret:NAME}`, which no output, log or other file may contain.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::person::{CANARY, Person};

const USER_CONFIG: &str = "home/.config/cellmate/config.json5";
const FILE: &str = "home/.local/state/cellmate/secrets";
/// The value of a variable in the environment of the program.
const ENVIRONMENT: &str = "environment-9b02";

fn set(person: &Person, name: &str, value: &str) {
    let done = person.run_with(&[], &format!("{value}\n"), &["secrets", "set", name]);
    assert_eq!(done.code, 0, "{}", done.err);
}

#[test]
fn secrets_are_set_listed_and_removed() {
    let person = Person::new();
    let listed = person.run(&["secrets", "list"]);
    assert_eq!(listed.out, "no secrets; set one with `cellmate secrets set NAME`\n");
    assert!(!person.has("home/.local"), "listing creates nothing");
    let first = person.run_with(&[], &format!("{CANARY}\n"), &["secrets", "set", "github.token"]);
    let text = "set `github.token`; write ${secret:github.token} in `env`, `headers`, `url` or `oauth` of a server, in \
        `apiKey` or `headers` of a provider, or in `env` of a plugin\n";
    assert_eq!((first.code, first.out.as_str(), first.err.as_str()), (0, text, ""));
    let again = person.run_with(&[], CANARY, &["secrets", "set", "github.token", "--json"]).json();
    assert_eq!(again, json!({"name": "github.token", "replaced": true}));
    assert_eq!(std::fs::metadata(person.path(FILE)).unwrap().permissions().mode() & 0o777, 0o600);
    let sealed = std::fs::read(person.path(FILE)).unwrap();
    assert!(!sealed.windows(CANARY.len()).any(|part| part == CANARY.as_bytes()), "the file is sealed");

    let config = json!({"mcpServers": {
        "a": {"command": "x", "env": {"T": "${secret:github.token}"}},
        "b": {"url": "https://x.y/mcp", "headers": {"Authorization": "Bearer ${secret:other}"}},
    }});
    person.write(USER_CONFIG, &config.to_string());
    let listed = person.run(&["secrets", "list"]);
    assert_eq!(listed.out, "github.token  set just now, used by `a`\n");
    assert_eq!(listed.err, "problem: secret `other` is not set, used by `b`; run `cellmate secrets set other`\n");
    let listed = person.run(&["secrets", "list", "--json"]).json();
    assert_eq!(
        (&listed["secrets"][0]["name"], &listed["secrets"][0]["usedBy"]),
        (&json!("github.token"), &json!(["a"]))
    );
    assert_eq!(listed["missing"], json!([{"name": "other", "usedBy": ["b"]}]));

    let removed = person.run(&["secrets", "rm", "github.token"]);
    assert_eq!((removed.code, removed.out.as_str()), (0, "removed `github.token`\n"));
    assert_eq!(removed.err, "note: it is still used by `a`, which cannot be used without it\n");
    let gone = person.run(&["secrets", "rm", "github.token"]);
    assert!(gone.code == 1 && gone.err.contains("no secret named `github.token`"), "{}", gone.err);
}

#[test]
fn the_providers_and_plugins_that_use_a_secret_are_named() {
    let person = Person::new();
    let provider = json!({
        "baseUrl": "https://api.example.com",
        "api": "openai-completions",
        "apiKey": "${secret:KEY}",
        "headers": {"X-Team": "${secret:TEAM}"},
        "models": [{"id": "m"}],
    });
    let config = json!({
        "mcpServers": {"a": {"command": "x", "env": {"T": "${secret:KEY}"}}},
        "models": {"providers": {"acme": provider}},
        "plugins": {"entries": {"notary": {"env": {"T": "${secret:STAMP}"}}}},
    });
    person.write(USER_CONFIG, &config.to_string());
    for name in ["KEY", "TEAM"] {
        set(&person, name, CANARY);
    }
    let listed = person.run(&["secrets", "list"]);
    assert_eq!(
        listed.out,
        "KEY   set just now, used by `a`, `provider acme`\nTEAM  set just now, used by `provider acme`\n"
    );
    let missing = "problem: secret `STAMP` is not set, used by `plugin notary`; run `cellmate secrets set STAMP`\n";
    assert_eq!(listed.err, missing);
    let removed = person.run(&["secrets", "rm", "TEAM"]);
    assert_eq!(removed.err, "note: it is still used by `provider acme`, which cannot be used without it\n");
}

#[test]
fn a_value_comes_from_standard_input_and_has_a_limit() {
    let person = Person::new();
    let typed = person.run(&["secrets", "set", "A", "value"]);
    assert!(typed.code == 2 && typed.err.contains("process lists"), "{}", typed.err);
    let long = "x".repeat((64 << 10) + 1);
    for (name, input, code, message) in [
        ("A", "", 2, "the secret is empty"),
        ("A", "\n", 2, "the secret is empty"),
        ("A", "a\0b", 2, "null character"),
        ("A", long.as_str(), 2, "1 to 65536 bytes, and this one has 65537"),
        ("a b", "x", 2, "1 to 128 letters"),
        ("-a", "x", 2, ""),
        ("A", "short", 0, "fewer than 6 bytes"),
        ("A", &long[1..], 0, ""),
    ] {
        let done = person.run_with(&[], input, &["secrets", "set", name]);
        assert!(done.code == code && done.err.contains(message), "{name} {}: {}", done.code, done.err);
    }
}

#[test]
fn a_prompt_on_a_terminal_does_not_show_the_value() {
    let person = Person::new();
    let line = format!("{} secrets set TYPED", env!("CARGO_BIN_EXE_cellmate"));
    let mut child = Command::new("script")
        .args(["-qefc", &line, "/dev/null"])
        .env_clear()
        .envs([("PATH", std::env::var_os("PATH").unwrap()), ("HOME", person.path("home").into())])
        .env("SHELL", "/bin/sh")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut seen = Vec::new();
    let mut byte = [0];
    // The echo is off when the prompt is complete and its input was flushed, so typing waits for both.
    while !seen.ends_with(b"(not shown): ") {
        std::io::Read::read_exact(&mut stdout, &mut byte).unwrap();
        seen.extend(byte);
    }
    std::thread::sleep(std::time::Duration::from_millis(500));
    writeln!(stdin, "{CANARY}").unwrap();
    std::io::Read::read_to_end(&mut stdout, &mut seen).unwrap();
    drop(stdin);
    assert!(child.wait().unwrap().success());
    let seen = String::from_utf8(seen).unwrap();
    assert!(seen.contains("set `TYPED`") && !seen.contains(CANARY), "{seen}");
    let entry = json!({"command": "sh", "args": ["-c", "printf %s \"$K\" > \"$OUT\""]});
    let mut config = json!({"mcpServers": {"s": entry}});
    config["mcpServers"]["s"]["env"] = json!({"K": "${secret:TYPED}", "OUT": person.path("seen")});
    person.write(USER_CONFIG, &config.to_string());
    person.run(&["servers", "test"]);
    assert_eq!(person.read("seen"), CANARY);
}

#[test]
fn a_missing_or_misplaced_secret_affects_only_its_server() {
    let person = Person::new();
    let server = person.server();
    let config = json!({"mcpServers": {
        "missing": {"command": "sh", "args": [server], "env": {"TOKEN": "${secret:MISSING}"}},
        "argument": {"command": "sh", "args": [server, "${secret:KEY}"]},
        "program": {"command": "${secret:KEY}"},
        "good": {"command": "sh", "args": [server], "env": {"TOKEN": "${secret:KEY}"}},
    }});
    person.write(USER_CONFIG, &config.to_string());
    set(&person, "KEY", CANARY);
    let tested = person.run(&["servers", "test", "--json"]).json();
    assert_eq!(
        (&tested["servers"][0]["name"], &tested["servers"][0]["ok"]),
        (&json!("good"), &json!(true)),
        "{tested}"
    );
    let misplaced = "`${secret:KEY}` is possible only in `env`, `headers`, `url` and `oauth` of a server, `apiKey` and \
        `headers` of a provider, and `env` of a plugin, because process lists show commands and arguments; move it there";
    let problems: Vec<(&Value, &Value)> =
        tested["problems"].as_array().unwrap().iter().map(|one| (&one["server"], &one["message"])).collect();
    let missing = "secret `MISSING` is not set; run `cellmate secrets set MISSING`";
    assert_eq!(
        problems,
        [
            (&json!("missing"), &json!(missing)),
            (&json!("argument"), &json!(misplaced)),
            (&json!("program"), &json!(misplaced))
        ]
    );
    let doctor = person.run(&["doctor"]);
    assert!(doctor.out.contains(missing) && doctor.out.contains("secrets        1 set, 1 missing"), "{}", doctor.out);
    let added = person.run(&["servers", "add", "x", "--", "prog", "--key=${secret:KEY}"]);
    assert!(added.code == 2 && added.err.contains("process lists"), "{}", added.err);
    let added = person.run(&["servers", "add", "x", "--env", "K=${secret:NOPE}", "--", "prog"]);
    assert!(added.code == 0 && added.err.contains("secret `NOPE` is not set"), "{}", added.err);
    assert!(added.out.contains("${secret:NOPE}"), "the diff shows the reference: {}", added.out);
    for command in [&["servers", "list"][..], &["servers", "list", "--json"], &["tools", "list"]] {
        person.run(command);
    }
    std::fs::set_permissions(person.path(FILE), std::fs::Permissions::from_mode(0o644)).unwrap();
    let exposed = person.run(&["servers", "list"]);
    assert!(
        exposed
            .err
            .contains("secret `KEY` cannot be read: `/home/.local/state/cellmate/secrets` can be read by others")
    );
}

/// Every file below a folder that contains the text.
fn files_with(folder: &Path, text: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files_with(&path, text));
        } else if std::fs::read(&path).unwrap_or_default().windows(text.len()).any(|part| part == text) {
            found.push(path.display().to_string());
        }
    }
    found
}

#[test]
fn no_log_journal_transcript_or_other_file_contains_a_secret() {
    let person = Person::new();
    let server = person.server();
    let config = json!({
        "mcpServers": {
            // It writes its token to standard error.
            "leaks": {"command": "sh", "args": [server], "env": {"TOKEN": "${secret:KEY}"}, "trusted": true},
            "dies": {"command": "sh", "args": [server, "fail"], "env": {"TOKEN": "${secret:KEY}"}},
            "remote": {
                "url": "http://127.0.0.1:1/${secret:KEY}/mcp?k=${secret:KEY}",
                "headers": {"Authorization": "Bearer ${secret:KEY}"},
            },
        },
        "approvals": {"ask": "never"},
    });
    person.write(USER_CONFIG, &config.to_string());
    set(&person, "KEY", CANARY);
    let mut child = person
        .command(&["--log", "trace", "mcp"])
        .env("SERVICE_TOKEN", ENVIRONMENT)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let hello =
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    // Telemetry counts the calls and does not contain their input.
    let code = "const told = []; for (const s of ['dies', 'remote']) { try { told.push(await MCP[s].greet({name: 'x'})) } \
        catch (e) { told.push(String(e)) } } return [await MCP.leaks.greet({name: 'Ada'}), told]";
    for message in [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "exec", "arguments": {"code": code}}}),
    ] {
        writeln!(stdin, "{message}").unwrap();
    }
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut messages = lines.map(|line| serde_json::from_str::<Value>(&line).unwrap());
    let answer = messages.find(|message| message["id"] == 2).unwrap().to_string();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(answer.contains("hello Ada"), "the server works: {answer}\n{err}");
    for secret in [CANARY, ENVIRONMENT] {
        assert!(!answer.contains(secret) && !err.contains(secret), "{answer}\n{err}");
    }
    let telemetry = serde_json::from_str::<Value>(&answer).unwrap()["result"]["_meta"]["cellmate/telemetry"].clone();
    assert!(telemetry["callCount"].as_u64() >= Some(1), "{answer}");
    assert!(!telemetry.to_string().contains("Ada"), "{telemetry}");
    let log = person.read("home/.local/state/cellmate/logs/cellmate.log");
    assert!(log.contains("started with [redacted]"), "the server's output is in the log: {log}");
    person.run(&["doctor", "--servers"]);
    for secret in [CANARY, ENVIRONMENT] {
        assert_eq!(files_with(&person.path("home"), secret.as_bytes()), [""; 0]);
    }
}

#[test]
fn secrets_survive_a_rotation_of_the_key() {
    let person = Person::new();
    set(&person, "KEY", CANARY);
    let key = "home/.local/state/cellmate/key";
    assert_eq!(person.run(&["keys", "rotate"]).code, 0);
    let sealed = std::fs::read(person.path(FILE)).unwrap();
    assert_eq!(sealed[1..5], 2_u32.to_le_bytes(), "sealed with the new key");
    // Only the newest key is needed.
    let newest = person.read(key).lines().last().unwrap().to_owned();
    person.write(key, &format!("{newest}\n"));
    let listed = person.run(&["secrets", "list", "--json"]).json();
    assert_eq!(listed["secrets"][0]["name"], "KEY");
    person.write(key, &format!("3 {} 1\n", "ab".repeat(32)));
    let lost = person.run(&["secrets", "list"]);
    assert!(lost.code == 2 && lost.err.contains("sealed with key 2, which is not in the key file"), "{}", lost.err);
    assert!(person.run(&["doctor"]).out.contains("secrets        cannot be read: the secrets are sealed with key 2"));
}
