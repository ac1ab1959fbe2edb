//! The state of servers, as `servers list` and `doctor` report it without starting any.

use serde_json::{Value, json};

use crate::person::{CANARY, Person};

const USER_CONFIG: &str = "home/.config/cellmate/config.json5";

/// A user with a server that works, one that fails and prints its secret, one that is off, and one whose variable is
/// not set; each writes to the file `started` when it is started.
fn person() -> Person {
    let person = Person::new();
    let server = person.server();
    let trace = person.path("started").display().to_string();
    let line = |more: &str| json!(["-c", format!("echo x >> {trace}; exec sh {server} {more}")]);
    let config = json!({"mcpServers": {
        "good": {"command": "sh", "args": line("")},
        "bad": {"command": "sh", "args": line("fail"), "env": {"TOKEN": CANARY}},
        "resting": {"command": "sh", "args": line(""), "enabled": false},
        "missing": {"url": "https://example.com/mcp", "headers": {"K": "${NOT_SET}"}},
    }});
    person.write(USER_CONFIG, &config.to_string());
    person
}

fn of<'a>(report: &'a Value, name: &str) -> &'a Value {
    report["servers"].as_array().unwrap().iter().find(|one| one["name"] == name).unwrap()
}

#[test]
fn a_server_is_not_tried_then_ready_or_failed_and_each_state_names_the_next_command() {
    let person = person();
    let before = person.run(&["servers", "list", "--json"]).json();
    assert_eq!((&of(&before, "good")["state"], &of(&before, "good")["listedAt"]), (&json!("not tried"), &Value::Null));
    assert_eq!(of(&before, "good")["next"], "cellmate servers test good");
    assert_eq!((&of(&before, "resting")["state"], &of(&before, "resting")["next"]), (&json!("off"), &Value::Null));
    assert!(!person.has("started") && !person.has("home/.local/state/cellmate"), "listing must not create files");

    assert_eq!(person.run(&["servers", "test"]).code, 1);
    let starts = person.read("started");
    let after = person.run(&["servers", "list", "--json"]).json();
    assert_eq!((&of(&after, "good")["state"], &of(&after, "good")["tools"]), (&json!("ready"), &json!(2)));
    let bad = of(&after, "bad");
    assert_eq!((&bad["state"], &bad["next"]), (&json!("failed"), &json!("cellmate servers test bad")));
    let why = "its command `sh` exited with code 3 before it was ready; check its standard error";
    assert_eq!(bad["lastError"]["message"], why);
    let table = person.run(&["servers", "list"]);
    assert!(table.out.contains("ready    no       2 tools, just now"), "{}", table.out);
    let expected = "bad: it failed just now: its command `sh` exited with code 3 before it was ready; its standard error \
                    ends with: started with …; run `cellmate servers test bad`\n";
    assert!(table.err.contains(expected), "{}", table.err);
    assert_eq!(person.read("started"), starts, "listing must not start servers");
}

#[test]
fn logins_that_are_needed_or_forgotten_are_reported_as_json() {
    let person = Person::new();
    let remote =
        json!({"url": "https://example.invalid/mcp", "oauth": {"clientId": "us", "clientSecret": "${SECRET}"}});
    let own = json!({"url": "https://example.invalid/mcp", "headers": {"Authorization": "Bearer ${SECRET}"}});
    person.write(USER_CONFIG, &json!({"mcpServers": {"remote": remote, "own": own}}).to_string());
    let listed = person.run(&["servers", "list", "--json"]).json();
    assert_eq!(of(&listed, "remote")["login"], json!({"loggedIn": false, "wanted": false}));
    assert_eq!(of(&listed, "own")["login"], Value::Null);
    let out = person.run(&["servers", "login", "remote", "--out", "--json"]).json();
    assert_eq!(out, json!({"server": "remote", "loggedIn": false, "forgotten": false}));
    let refused = person.run(&["servers", "login", "own"]);
    assert!(refused.code == 2 && refused.err.contains("without a configured authorization header"), "{}", refused.err);
    let diff = person.run(&["servers", "remove", "remote", "--dry-run"]).out;
    assert!(
        diff.contains("${SECRET}") && !diff.contains("\"us\""),
        "variable names are shown and values are not: {diff}"
    );
}

#[test]
fn doctor_reports_servers_and_starts_them_only_on_request() {
    let person = person();
    let seen = person.run(&["doctor", "--json"]);
    assert_eq!((seen.code, of(&seen.json(), "good")["state"].clone()), (1, json!("not tried")));
    assert_eq!(seen.json()["problems"][0]["server"], "missing");
    assert!(!person.has("started"));
    let started = person.run(&["doctor", "--servers"]);
    assert_eq!(person.read("started"), "x\nx\n", "the disabled server is not started");
    let lines =
        ["good: ready, 2 tools, just now", "bad: failed, -", "run `cellmate servers test bad`", "`NOT_SET` is not set"];
    for line in lines {
        assert!(started.out.contains(line), "{line}: {}", started.out);
    }
    assert_eq!(started.code, 1);
    person.write(USER_CONFIG, "{ mcpServers: ");
    let broken = person.run(&["doctor"]);
    assert!(broken.code == 2 && broken.out.contains("jail") && broken.err.contains("config.json5"), "{}", broken.err);
    person.write(USER_CONFIG, "{}");
    let none = person.run(&["doctor"]);
    assert!(none.out.contains("servers        none; add one with `cellmate servers add"), "{}", none.out);
}
