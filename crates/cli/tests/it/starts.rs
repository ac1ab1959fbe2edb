//! Servers that take long to start: downloads, and servers that never become ready.

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json;
use testkit::processes::all;

use crate::person::{CommandOutput, Person};

const USER_CONFIG: &str = "home/.config/cellmate/config.json5";

/// A package runner that takes longer to install its package than a command waits for tools.
const NPX: &str = "#!/bin/sh\nsleep 12\necho done >> \"$1\"\nexec sh \"$2\"\n";

/// A package runner that says when it has begun, and prints while it installs its package.
const LOUD_NPX: &str =
    "#!/bin/sh\necho > \"$1.begun\"\nsleep 2\necho noise\necho noise >&2\necho done >> \"$1\"\nexec sh \"$2\"\n";

/// Runs a command that finds the package runner.
fn run(person: &Person, arguments: &[&str]) -> CommandOutput {
    let path = format!("{}:{}", person.path("bin").display(), std::env::var("PATH").unwrap());
    person.run_with(&[("PATH", &path)], "", arguments)
}

#[test]
fn a_cell_does_not_wait_for_servers_that_it_does_not_name_and_downloads_are_not_interrupted() {
    let person = Person::new();
    person.write("bin/npx", NPX);
    std::fs::set_permissions(person.path("bin/npx"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let installed = person.path("installed").display().to_string();
    let trace = person.path("started").display().to_string();
    let config = json!({"mcpServers": {
        "cold": {"command": "npx", "args": [installed, person.server()]},
        "dead": {"command": "sh", "args": ["-c", format!("echo x >> {trace}; exec sleep 600")], "startupTimeoutMs": 90_000},
        "fine": {"command": "sh", "args": [person.server()]},
    }});
    person.write(USER_CONFIG, &config.to_string());
    let began = Instant::now();
    let first = run(&person, &["exec", "-e", "return 1"]);
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    assert_eq!((first.code, &first.json()["status"]), (0, &json!("completed")), "{}{}", first.out, first.err);
    for line in [
        "cellmate: servers `cold`, `dead` are not available; run `cellmate servers test` for the reasons\n",
        "waiting for `cold`, which may be downloading a package",
    ] {
        assert!(first.err.contains(line), "{line}: {}", first.err);
    }
    assert_eq!(person.read("installed"), "done\n", "the installation was not interrupted");
    let second = run(&person, &["exec", "-e", "return (await MCP.cold.other({})).content.length"]);
    assert!(
        second.err.contains("server `dead` is not available; run `cellmate servers test dead` for the reason"),
        "{}",
        second.err
    );
    assert!(!second.err.contains("`cold`"), "its tools are known: {}", second.err);
    assert_eq!(person.read("started"), "x\n", "the server that was not ready is not started again");
}

#[test]
fn a_server_that_was_not_ready_is_waited_for_if_the_cell_names_it() {
    let person = Person::new();
    let trace = person.path("started").display().to_string();
    let line = format!("echo x >> {trace}; exec sleep 600");
    let server = json!({"command": "sh", "args": ["-c", line], "startupTimeoutMs": 300});
    person.write(USER_CONFIG, &json!({"mcpServers": {"my-dead": server}}).to_string());
    let tested = person.run_with(&[("ZZ_TOKEN", "1")], "", &["servers", "test"]);
    assert!(
        tested.out.contains("it was not ready within 0.3 s; run its command once by hand (`sh -c ")
            && tested.out.contains("or raise `startupTimeoutMs` in its entry"),
        "{}",
        tested.out
    );
    assert!(!tested.out.contains("not passed"), "a missing variable is not the reason: {}", tested.out);
    let starts = || person.read("started").lines().count();
    assert_eq!((person.run(&["exec", "-e", "return 1"]).code, starts()), (0, 1));
    let named = person.run(&["exec", "-e", "return await MCP.myDead.greet({})"]);
    assert_eq!((named.code, starts()), (1, 2), "{}{}", named.out, named.err);
    let error = named.json()["error"].as_str().unwrap().to_owned();
    assert!(error.contains("my-dead") && error.contains("not ready within 300 ms"), "{error}");
}

#[test]
fn a_disabled_server_is_noted_only_if_the_cell_names_it() {
    let person = Person::new();
    let off = json!({"command": "sh", "args": [person.server()], "enabled": false});
    person.write(USER_CONFIG, &json!({"mcpServers": {"off": off}}).to_string());
    let note = "cellmate: server `off` is disabled; `cellmate servers enable off` enables it\n";
    let named = person.run(&["exec", "-e", "return await MCP.off.greet({})"]);
    assert!(named.code == 1 && named.err.contains(note), "{}{}", named.out, named.err);
    let other = person.run(&["exec", "-e", "return 1"]);
    assert!(other.code == 0 && !other.err.contains("disabled"), "{}{}", other.out, other.err);
}

#[test]
fn a_download_is_finished_in_the_background_when_the_client_ends_mcp() {
    let person = Person::new();
    person.write("bin/npx", LOUD_NPX);
    std::fs::set_permissions(person.path("bin/npx"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let installed = person.path("installed").display().to_string();
    let cold = json!({"command": "npx", "args": [installed, person.server()]});
    person.write(USER_CONFIG, &json!({"mcpServers": {"cold": cold}}).to_string());
    let path = format!("{}:{}", person.path("bin").display(), std::env::var("PATH").unwrap());
    let mut server = person.command(&["mcp"]);
    let server = server.env("PATH", path).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut server = server.spawn().unwrap();
    let eventually = |what: &str, is_true: &dyn Fn() -> bool| {
        let began = Instant::now();
        while !is_true() {
            assert!(began.elapsed() < Duration::from_secs(30), "{what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    eventually("the download begins", &|| person.has("installed.begun"));
    drop(server.stdin.take());
    assert!(server.wait().unwrap().success());
    assert!(!person.has("installed"), "the server has ended before the download");
    eventually("the download is complete", &|| person.has("installed"));
    let here = person.path("").display().to_string();
    let left = || all().into_iter().filter(|process| !process.is_zombie && process.names(&here)).count();
    eventually("no process is left", &|| left() == 0);
}
