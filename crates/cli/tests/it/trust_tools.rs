//! Trusting what a server declares about its tools, with `cellmate servers trust-tools` and when servers are added.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::person::{CANARY, Person, exec_over_streams};

const USER_CONFIG: &str = "home/.config/cellmate/config.json5";

/// Returns a test user whose server declares its tools `greet` and `add_once` harmless, and `other` not.
fn person_with_declaring_server() -> Person {
    let person = Person::new();
    let greet = r#"\"name\":\"greet\","#;
    let text = person.read("server.sh");
    assert!(text.contains(greet), "{text}");
    let read_only = r#"\"annotations\":{\"readOnlyHint\":true},"#;
    let text = text.replace(greet, &format!("{greet}{read_only}"));
    let adds = r#"{\"name\":\"add_once\",\"annotations\":{\"destructiveHint\":false,\"idempotentHint\":true},\"inputSchema\":{\"type\":\"object\"}},"#;
    let other = r#"{\"name\":\"other\","#;
    person.write("server.sh", &text.replace(other, &format!("{adds}{other}")));
    person
}

/// Runs `cellmate` on a new terminal, with this input. Returns the exit code and what the terminal shows.
pub(crate) fn on_terminal(person: &Person, arguments: &[&str], typed: &str) -> (i32, String) {
    use std::io::Write;
    let words = std::iter::once(env!("CARGO_BIN_EXE_cellmate")).chain(arguments.iter().copied());
    let line: Vec<String> = words.map(|word| format!("'{word}'")).collect();
    let mut terminal = Command::new("script")
        .args(["-qefc", &line.join(" "), "/dev/null"])
        .current_dir(person.path("project"))
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", person.path("home"))
        .env("SECRET", CANARY)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    terminal.stdin.as_mut().unwrap().write_all(typed.as_bytes()).unwrap();
    let output = terminal.wait_with_output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!shown.contains(CANARY), "{shown}");
    (output.status.code().unwrap(), shown)
}

/// Returns the configured servers, and whether each is trusted.
fn trust_of_servers(person: &Person) -> Vec<(String, bool)> {
    let listed = person.run(&["servers", "list", "--json"]).json();
    let servers = listed["servers"].as_array().unwrap();
    servers.iter().map(|one| (one["name"].as_str().unwrap().to_owned(), one["trusted"] == true)).collect()
}

/// What the user reads about the declarations of the server `s`.
const DECLARATION: &str =
    "`s` declares that 2 of its 3 tools only read, or add something once and destroy nothing: add_once, greet";

#[test]
fn adding_a_server_on_a_terminal_shows_what_it_declares_and_asks_once() {
    for (answer, is_trusted, told) in [
        ("y\n", true, "`s` is trusted; to undo: cellmate servers trust-tools --remove s"),
        ("\n", false, "not trusted; to trust it later: cellmate servers trust-tools s"),
        ("yes please\n", false, "not trusted; to trust it later: cellmate servers trust-tools s"),
    ] {
        let person = person_with_declaring_server();
        let (code, shown) = on_terminal(&person, &["servers", "add", "s", "--", "sh", &person.server()], answer);
        assert_eq!(code, 0, "{shown}");
        assert!(shown.contains(DECLARATION) && shown.matches("Believe it").count() == 1, "{shown}");
        assert!(shown.contains(told), "{shown}");
        assert_eq!(trust_of_servers(&person), [("s".to_owned(), is_trusted)], "{answer:?}");
        let called = person.run(&["tools", "call", "s.greet", "name=Ada"]);
        assert_eq!(called.code, i32::from(!is_trusted), "{}{}", called.out, called.err);
        assert_eq!(person.run(&["tools", "call", "s.other"]).code, 1, "a tool that is not declared harmless asks");
    }
}

#[test]
fn flags_set_the_trust_and_without_flag_and_terminal_a_server_is_not_trusted() {
    let person = person_with_declaring_server();
    let started = person.path("started").display().to_string();
    let start = format!("echo x >> {started}; exec sh {}", person.server());
    let add = |name: &str, more: &[&str]| {
        let added = person.run(&[&["servers", "add", name], more, &["--", "sh", "-c", &start]].concat());
        assert_eq!(added.code, 0, "{}", added.err);
        added
    };
    assert_eq!(add("yes", &["--trusted"]).err, "");
    assert_eq!(add("no", &["--no-trusted"]).err, "");
    let note = "`open` is not trusted to declare which tools only read, so all calls need approval; `cellmate servers \
                trust-tools open` shows what is declared, and changes that";
    assert_eq!(add("open", &[]).err, format!("note: {note}\n"));
    assert_eq!(add("json", &["--json"]).json()["notes"], json!([note.replace("open", "json")]));
    assert_eq!(add("project", &["--scope", "project", "--dry-run"]).err.matches("trust-tools").count(), 0);
    assert!(!person.has("started"), "without a terminal no server is started");
    let expected = [("json", false), ("no", false), ("open", false), ("yes", true)];
    let mut found = trust_of_servers(&person);
    found.sort();
    assert_eq!(found, expected.map(|(name, is_trusted)| (name.to_owned(), is_trusted)));
    assert_eq!(person.run(&["servers", "add", "x", "--trusted", "--no-trusted", "--", "x"]).code, 2);
}

#[test]
fn a_server_that_cannot_be_started_is_added_and_can_be_trusted_later() {
    let person = person_with_declaring_server();
    let server = person.server();
    for (name, command, why) in [
        ("bad", vec!["sh", server.as_str(), "fail"], "exited"),
        ("unset", vec!["sh", server.as_str(), "${NOT_SET_ANYWHERE}"], "`NOT_SET_ANYWHERE` is not set"),
    ] {
        let words: Vec<&str> = [&["servers", "add", name, "--"], command.as_slice()].concat();
        let (code, shown) = on_terminal(&person, &words, "");
        assert!(code == 0 && shown.contains(why) && !shown.contains("Believe"), "{shown}");
        let later = format!("when it works, run `cellmate servers trust-tools {name}`");
        assert!(shown.contains(&later), "{shown}");
        assert!(person.read(USER_CONFIG).contains(&format!("\"{name}\"")));
    }
    let failed = person.run(&["servers", "trust-tools", "bad"]);
    assert!(failed.code == 1 && failed.err.contains("`bad` cannot be started"), "{}", failed.err);
}

#[test]
fn trust_tools_shows_trusts_and_stops_trusting() {
    let person = person_with_declaring_server();
    let entry = json!({"command": "sh", "args": [person.server()]});
    let config = json!({"mcpServers": {"s": entry, "t": entry}, "imports": ["cursor"]});
    person.write(USER_CONFIG, &format!("// kept\n{config}"));
    person.write("home/.cursor/mcp.json", &json!({"mcpServers": {"theirs": entry}}).to_string());
    let shown = person.run(&["servers", "trust-tools", "s"]);
    assert!(shown.code == 2 && shown.err.contains(DECLARATION) && shown.err.contains("pass --yes"), "{}", shown.err);
    assert!(trust_of_servers(&person).iter().all(|(_, is_trusted)| !is_trusted));

    let (code, seen) = on_terminal(&person, &["servers", "trust-tools", "s", "t"], "t\n");
    assert_eq!((code, trust_of_servers(&person)[1].1, trust_of_servers(&person)[0].1), (0, true, false), "{seen}");
    let report = person.run(&["servers", "trust-tools", "s", "t", "--yes", "--json"]).json();
    assert_eq!(
        report["servers"][0],
        json!({"server": "s", "trusted": true, "declaredReadOnly": ["add_once", "greet"], "tools": 3})
    );
    assert_eq!(person.run(&["tools", "call", "s.greet", "name=Ada"]).code, 0);
    let removed = person.run(&["servers", "trust-tools", "--remove", "s", "t"]);
    assert_eq!((removed.code, removed.out.as_str()), (0, "`s`: no longer trusted\n`t`: no longer trusted\n"));
    assert!(person.read(USER_CONFIG).starts_with("// kept") && !person.read(USER_CONFIG).contains("trusted"));
    assert_eq!(person.run(&["servers", "trust-tools", "--remove", "s"]).out, "`s`: was not trusted\n");

    for (name, why) in [("theirs", "only servers in your own configuration"), ("nobody", "no server named")] {
        let refused = person.run(&["servers", "trust-tools", name]);
        assert!(refused.code == 2 && refused.err.contains(why), "{}", refused.err);
    }
}

#[test]
fn trusting_a_server_approves_the_calls_of_harmless_tools_that_wait() {
    let person = person_with_declaring_server();
    let entry = json!({"command": "sh", "args": [person.server()]});
    let config = json!({"mcpServers": {"s": entry, "t": entry}});
    person.write(USER_CONFIG, &config.to_string());
    let waiting = |code: &str| {
        let mut server = person.command(&["mcp"]);
        let mut child = server.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let answer = exec_over_streams(&mut child, code);
        child.wait().unwrap();
        let result: Value = serde_json::from_str(answer["result"]["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(result["status"], "waiting", "{result}");
        result["runId"].as_str().unwrap().to_owned()
    };
    let harmless = waiting("return (await MCP.s.greet({ name: 'Ada' })).content[0].text");
    waiting("return await MCP.s.other({})");
    waiting("return await MCP.t.greet({ name: 'Ada' })");
    let open = || person.run(&["approvals", "list", "--json"]).json().as_array().unwrap().len();
    assert_eq!(open(), 3);
    let trusted = person.run_with(&[("USER", "ada")], "", &["servers", "trust-tools", "s", "--yes"]);
    assert_eq!(trusted.code, 0, "{}", trusted.err);
    let approved: Vec<&str> = trusted.out.lines().filter(|line| line.starts_with("approved  apr_")).collect();
    assert!(approved.len() == 1 && approved[0].ends_with("  mcp:s:greet  (it was waiting)"), "{}", trusted.out);
    assert_eq!(open(), 2, "a tool that is not declared harmless, and another server, still wait");
    let done = person.run(&["wait", &harmless, "--json"]);
    assert_eq!(done.json()["value"], "hello Ada", "{}{}", done.out, done.err);
    let shown = person.run(&["runs", "show", &harmless]).out;
    assert!(shown.contains("           approved by ada (cellmate servers trust-tools), "), "{shown}");
    let again = person.run(&["servers", "trust-tools", "s", "--yes", "--json"]).json();
    assert_eq!(again["approved"], json!([]));
}

#[test]
fn servers_that_are_taken_over_are_trusted_only_if_the_user_says_so() {
    let entry = |person: &Person| json!({"command": "sh", "args": [person.server()]});
    let moved = |more: &[&str]| {
        let person = person_with_declaring_server();
        let theirs = json!({"mcpServers": {"a": entry(&person), "b": entry(&person)}});
        person.write("home/.cursor/mcp.json", &theirs.to_string());
        let output = person.run(&[&["connect", "cursor", "--take-over", "--yes"], more].concat());
        assert_eq!(output.code, 0, "{}", output.err);
        (trust_of_servers(&person).iter().map(|(_, is_trusted)| *is_trusted).collect::<Vec<_>>(), output.err)
    };
    let (found, notes) = moved(&[]);
    assert_eq!(found, [false, false]);
    assert!(notes.contains("`cellmate servers trust-tools a b`"), "{notes}");
    assert_eq!(moved(&["--trusted"]).0, [true, true]);
    let (found, notes) = moved(&["--no-trusted"]);
    assert!(found == [false, false] && !notes.contains("trust-tools"), "{notes}");

    let person = person_with_declaring_server();
    let theirs = json!({"mcpServers": {"a": entry(&person), "b": entry(&person)}});
    person.write("home/.cursor/mcp.json", &theirs.to_string());
    let (code, shown) = on_terminal(&person, &["connect", "cursor", "--take-over"], "y\nb\n");
    assert!(code == 0 && shown.matches("Believe them").count() == 1, "{shown}");
    assert_eq!(trust_of_servers(&person), [("a".to_owned(), false), ("b".to_owned(), true)], "{shown}");
    assert_eq!(person.run(&["connect", "cursor", "--trusted", "--yes"]).code, 2, "nothing is moved");
}

#[test]
fn approvals_of_an_untrusted_server_name_the_command_that_trusts_it() {
    let person = person_with_declaring_server();
    let config = json!({"mcpServers": {"s": {"command": "sh", "args": [person.server()]}}});
    person.write(USER_CONFIG, &config.to_string());
    let hint = "server `s` is not trusted to declare which tools only read; to trust it, run `cellmate servers \
                trust-tools s`";
    let refused = person.run(&["tools", "call", "s.greet", "name=Ada"]);
    assert!(refused.code == 1 && refused.err.contains(hint), "{}", refused.err);
    let (code, shown) = on_terminal(&person, &["tools", "call", "s.greet", "name=Ada"], "n\n");
    assert!(code == 1 && shown.contains(hint), "{shown}");
    // Trust would not help if the configuration requires approval of the tool.
    let mut asks = config;
    asks["approvals"] = json!({"ask": ["mcp:s:*"]});
    person.write(USER_CONFIG, &asks.to_string());
    let refused = person.run(&["tools", "call", "s.greet", "name=Ada"]);
    assert!(refused.code == 1 && !refused.err.contains("trust-tools"), "{}", refused.err);
}

#[test]
fn a_wrong_trust_command_names_the_right_one() {
    let person = person_with_declaring_server();
    let config: Value = json!({"mcpServers": {"s": {"command": "sh", "args": [person.server()]}}});
    person.write(USER_CONFIG, &config.to_string());
    for (arguments, told) in [
        (vec!["servers", "trust"], "`cellmate config trust`"),
        (vec!["servers", "trust", "folder", "--dry-run"], "`cellmate config trust folder --dry-run`"),
        (vec!["servers", "trust", "s"], "`cellmate servers trust-tools s`"),
        (vec!["config", "trust", "s"], "`cellmate servers trust-tools s`"),
        (vec!["config", "trust", "nothing"], "`nothing` is not a folder"),
    ] {
        let output = person.run(&arguments);
        assert!(output.code == 2 && output.err.contains(told), "{arguments:?}: {}", output.err);
    }
    let help = person.run(&["servers", "--help"]).out;
    assert!(help.contains("trust-tools") && !help.contains("  trust  "), "{help}");
}
