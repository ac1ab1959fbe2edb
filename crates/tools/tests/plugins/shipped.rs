//! The plugins in `plugins/`, run for real.

use std::path::{Path, PathBuf};
use std::process::Command;

use executor::CallEnd;
use serde_json::{Value, json};

use crate::place::{Place, Ready, manifest};

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins").join(name)
}

/// Installs the guard with these settings, and a plugin whose calls it checks.
async fn guarded(place: &Place, config: Value) -> Ready<'_> {
    place.add(&shipped("guard"));
    place.install(&manifest("demo", "good"));
    Ready::of(place, place.configured(&json!({"entries": {"guard": {"config": config}}}))).await
}

const KEY: &str = "AKIAABCDEFGHIJKLMNOP";

#[tokio::test(flavor = "multi_thread")]
async fn the_guard_blocks_secrets_in_arguments_at_any_depth() {
    let place = Place::new().await;
    let ready = guarded(&place, json!({})).await;
    let secrets = [
        KEY.to_owned(),
        format!("ghp_{}", "a".repeat(36)),
        "-----BEGIN RSA PRIVATE KEY-----\nabc".to_owned(),
        format!("sk-ant-{}", "x".repeat(40)),
    ];
    for secret in secrets {
        let message = ready.failed("plugin:demo:echo", json!({"a": [{"b": format!("use {secret} now")}]})).await;
        assert!(message.contains("plugin `guard`") && message.contains("secret"), "{message}");
        assert!(!message.contains(&secret), "{message}");
    }
    let message = ready.failed("plugin:demo:echo", json!({KEY: 1})).await;
    assert!(message.contains("AWS access key"), "{message}");
    let plain = json!({"text": "skate-park AKIA ghp_short sk-learn"});
    assert_eq!(ready.value("plugin:demo:echo", plain.clone()).await["input"], plain);
    // Even the guard's own tool.
    ready.failed("plugin:guard:guard_check", json!({"text": KEY})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guard_redacts_and_asks_by_rules() {
    let place = Place::new().await;
    let rules = json!([
        {"tools": ["plugin:demo:echo"], "match": "project-[0-9]+", "action": "redact"},
        {"match": "(?i)drop table", "action": "ask", "message": "deletes a table"},
        {"match": "never", "action": "block", "message": "not allowed here"},
    ]);
    let ready = guarded(&place, json!({"secrets": "redact", "rules": rules})).await;
    let value = ready.value("plugin:demo:echo", json!({"text": format!("project-17 {KEY}")})).await;
    assert_eq!(value["input"], json!({"text": "[redacted] [redacted]"}));
    let other = ready.value("plugin:demo:other", json!({"text": "project-17"})).await;
    assert_eq!(other["input"], json!({"text": "project-17"}));
    let asked = ready.direct("plugin:demo:echo", json!({"sql": "DROP TABLE users"})).await;
    assert!(matches!(asked.end, CallEnd::Parked(_)), "{:?}", asked.end);
    let message = ready.failed("plugin:demo:echo", json!({"text": "never"})).await;
    assert!(message.contains("not allowed here"), "{message}");
    // A secret in a key cannot be redacted, so the call is blocked.
    ready.failed("plugin:demo:echo", json!({KEY: 1})).await;
    let matches = ready.value("plugin:guard:guard_check", json!({"text": "project-1"})).await;
    assert_eq!(matches, json!({"matches": ["rule 1"]}));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guard_denies_calls_if_its_rules_are_invalid() {
    let place = Place::new().await;
    let ready = guarded(&place, json!({"rules": [{"match": "(", "action": "block"}]})).await;
    let message = ready.failed("plugin:demo:echo", json!({})).await;
    assert!(message.contains("plugin `guard`") && message.contains("denied"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn git_read_reads_a_repository_and_refuses_options() {
    let place = Place::new().await;
    place.add(&shipped("git-read"));
    let folder = tempfile::tempdir().unwrap();
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.arg("-C").arg(folder.path()).args(["-c", "user.name=T", "-c", "user.email=t@example.org"]);
        let done = command.args(arguments).output().unwrap();
        assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    };
    git(&["init", "-q", "-b", "main"]);
    std::fs::write(folder.path().join("a.txt"), "one \"two\" \\ three\tfour\n\u{1b}[31m é\n").unwrap();
    git(&["add", "."]);
    git(&["commit", "-qm", "first \"commit\""]);
    std::fs::write(folder.path().join("a.txt"), b"binary \xff here\n").unwrap();
    let repository = folder.path().display().to_string();
    let ready = place.ready().await;
    let text = |value: Value| value.as_str().unwrap().to_owned();
    let status = text(ready.value("plugin:git-read:git_status", json!({"repository": repository})).await);
    assert!(status.contains("## main") && status.contains("M a.txt"), "{status}");
    let log = text(ready.value("plugin:git-read:git_log", json!({"repository": repository, "limit": 5})).await);
    assert!(log.contains("T: first \"commit\""), "{log}");
    let show = json!({"repository": repository, "revision": "main", "path": "a.txt"});
    let show = text(ready.value("plugin:git-read:git_show", show).await);
    assert_eq!(show, "one \"two\" \\ three\tfour\n[31m é");
    let diff = text(ready.value("plugin:git-read:git_diff", json!({"repository": repository})).await);
    assert!(diff.contains("+binary  here"), "{diff}");
    let branches = text(ready.value("plugin:git-read:git_branches", json!({"repository": repository})).await);
    assert!(branches.starts_with("main "), "{branches}");
    for bad in [
        json!({"repository": repository, "revision": "--output=/tmp/x"}),
        json!({"repository": "../x"}),
        json!({"repository": "/a\"b"}),
        json!({"repository": repository, "revision": "$(id)"}),
    ] {
        let message = ready.failed("plugin:git-read:git_log", bad.clone()).await;
        assert!(message.contains("cannot be called with this"), "{bad}: {message}");
    }
    let message = ready.failed("plugin:git-read:git_status", json!({"repository": "/nonexistent"})).await;
    assert!(message.contains("cannot change to"), "{message}");
    let catalog = ready.run.executor.catalog();
    let arguments = [json!(repository), Value::Null, json!(1)];
    let (id, input) = catalog.namespace_call("Git", &["log"], &arguments).unwrap();
    assert_eq!((id.as_str(), input), ("plugin:git-read:git_log", json!({"repository": repository, "limit": 1})));
}
