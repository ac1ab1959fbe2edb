//! The variables that servers get, and what is reported if one fails for lack of a variable.

use serde_json::json;

use crate::person::{CANARY, Person};

const USER_CONFIG: &str = "home/.config/cellmate/config.json5";

/// A server that writes its variables to a file and exits.
const PRINTS: &str = "env | sort > \"$OUT\"; echo 'fatal: AWS_PROFILE is not set' >&2; exit 3";

fn seen(person: &Person, name: &str) -> Option<String> {
    let text = person.read("seen");
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
}

#[test]
fn a_server_gets_what_it_needs_to_work_and_a_failure_names_what_it_did_not_get() {
    let person = Person::new();
    let env = json!({"OUT": person.path("seen"), "LANG": "of-the-entry"});
    let entry = json!({"command": "sh", "args": ["-c", PRINTS], "env": env});
    person.write(USER_CONFIG, &json!({"mcpServers": {"s": entry}}).to_string());
    let variables = [
        ("LANG", "de_DE.UTF-8"),
        ("LC_TIME", "C"),
        ("TZ", "Asia/Tokyo"),
        ("SSL_CERT_FILE", "/etc/ca.pem"),
        ("HTTPS_PROXY", "http://proxy:3128"),
        ("SSH_AUTH_SOCK", "/run/agent"),
        ("UV_INDEX_URL", "https://me:pass@pypi.example/simple"),
        ("AWS_PROFILE", "mine"),
        ("ZZ_TOKEN", CANARY),
    ];
    let tested = person.run_with(&variables, "", &["servers", "test"]);
    assert_eq!(tested.code, 1);
    let note =
        "      not passed: AWS_PROFILE, SECRET, ZZ_TOKEN, UV_INDEX_URL; to pass one, name it in the server's `env`\n";
    assert!(tested.out.ends_with(note), "{}", tested.out);
    for (name, value) in [
        ("LANG", Some("of-the-entry")),
        ("LC_TIME", Some("C")),
        ("TZ", Some("Asia/Tokyo")),
        ("SSL_CERT_FILE", Some("/etc/ca.pem")),
        ("HTTPS_PROXY", Some("http://proxy:3128")),
        ("SSH_AUTH_SOCK", Some("/run/agent")),
        ("UV_INDEX_URL", None),
        ("AWS_PROFILE", None),
        ("SECRET", None),
        ("ZZ_TOKEN", None),
    ] {
        assert_eq!(seen(&person, name).as_deref(), value, "{name}");
    }
    let report = person.run_with(&variables, "", &["servers", "test", "--json"]).json();
    assert_eq!(report["servers"][0]["notPassed"][0], "AWS_PROFILE", "{report}");
    // A command that does not exist is not missing a variable.
    let entry = json!({"command": "/no/such/program"});
    person.write(USER_CONFIG, &json!({"mcpServers": {"s": entry}}).to_string());
    assert!(!person.run(&["servers", "test"]).out.contains("not passed"));
}

#[test]
fn a_projects_file_cannot_extend_the_list_and_what_it_gets_is_shown_before_it_is_trusted() {
    let person = Person::new();
    let entry = json!({
        "command": "sh", "args": ["-c", PRINTS],
        "env": {"OUT": person.path("seen"), "T": "${ZZ_TOKEN}", "K": "${secret:KEY}"},
    });
    let project = json!({"mcpServers": {"s": entry}, "inherit": ["AWS_PROFILE"], "environment": {"AWS_PROFILE": "x"}});
    person.write("project/.cellmate.json5", &project.to_string());
    person.run_with(&[], "a-secret-value\n", &["secrets", "set", "KEY"]);
    let variables = [("AWS_PROFILE", "mine"), ("ZZ_TOKEN", "of-the-user")];
    let untrusted = person.run_with(&variables, "", &["servers", "test"]);
    assert!(!person.has("seen") && untrusted.err.contains("until you trust it"), "{}", untrusted.err);
    let trusted = person.run_with(&variables, "", &["config", "trust"]);
    assert!(
        trusted.err.contains("server `s` gets your variables `ZZ_TOKEN` and your secrets `KEY`"),
        "{}",
        trusted.err
    );
    let tested = person.run_with(&variables, "", &["servers", "test"]);
    assert!(tested.err.contains("`inherit` is not applied"), "{}", tested.err);
    assert_eq!(seen(&person, "AWS_PROFILE"), None);
    assert_eq!(seen(&person, "T").as_deref(), Some("of-the-user"));
    assert_eq!(seen(&person, "K").as_deref(), Some("a-secret-value"));
}
