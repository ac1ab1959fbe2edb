//! Keys that are rotated or removed while servers run.

use std::path::Path;

use serde_json::{Value, json};

use super::clients::{Era, Streams, structured};
use super::place::Place;

const SLEEPS: &str = "const here = 'slept'; await yield_control(); return here";

fn wait(client: &mut Streams, run_id: &Value) -> Value {
    structured(&client.ask("tools/call", json!({"name": "wait", "arguments": {"runId": run_id}})))
}

fn listed(place: &Place) -> Value {
    let output = place.command(&["keys", "list", "--json"]);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

/// The lines of a key file that are keys.
fn lines(path: &str) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

fn put(path: &str, lines: &[String]) {
    let draft = format!("{path}.draft");
    std::fs::copy(path, &draft).unwrap();
    std::fs::write(&draft, lines.join("\n")).unwrap();
    std::fs::rename(draft, path).unwrap();
}

#[test]
fn running_servers_notice_a_rotation_and_older_keys_open_what_they_sealed() {
    let place = Place::new(json!([]));
    let mut running = Streams::plain(&place, Era::June2025);
    let before = running.exec(SLEEPS);
    assert_eq!(before["status"], "waiting", "{before}");
    // The file format from before keys had numbers: one line with only the key.
    let key = place.path("state/key");
    assert_eq!(lines(&key)[0].len(), 64);
    let rotated = place.command(&["keys", "rotate"]);
    assert_eq!(rotated.status.code(), Some(0), "{}", String::from_utf8_lossy(&rotated.stderr));

    let mut started_since = Streams::plain(&place, Era::July2026);
    let after = started_since.exec(SLEEPS);
    let keys = listed(&place);
    assert_eq!((&keys[0]["cells"], &keys[0]["seals"]), (&json!(1), &json!(false)), "{keys}");
    assert_eq!((&keys[1]["cells"], &keys[1]["seals"]), (&json!(1), &json!(true)), "{keys}");
    let pruned = place.command(&["keys", "prune", "--json"]);
    assert_eq!(serde_json::from_slice::<Value>(&pruned.stdout).unwrap(), json!({"removed": []}));

    assert_eq!(wait(&mut running, &after["runId"])["value"], "slept", "the running server reads the new key");
    assert_eq!(wait(&mut started_since, &before["runId"])["value"], "slept", "the new server has the old key");
    let since = running.exec(SLEEPS);
    assert_eq!(listed(&place)[1]["cells"], 1, "the running server now seals with the new key: {since}");
}

#[test]
fn a_cell_whose_key_was_removed_fails_with_a_reason_and_resumes_once_it_is_restored() {
    let place = Place::new(json!([]));
    let mut client = Streams::plain(&place, Era::June2025);
    let sleeping = client.exec(SLEEPS);
    drop(client);
    assert_eq!(place.command(&["keys", "rotate"]).status.code(), Some(0));
    let key = place.path("state/key");
    let both = lines(&key);
    put(&key, &both[1..]);
    let mut client = Streams::plain(&place, Era::June2025);
    let refused = wait(&mut client, &sleeping["runId"]);
    assert_eq!((&refused["status"], &refused["code"]), (&json!("failed"), &json!("snapshot_restore_failed")));
    assert!(refused["error"].as_str().unwrap().contains("sealed with key 1"), "{refused}");
    put(&key, &both);
    assert_eq!(wait(&mut client, &sleeping["runId"])["value"], "slept");
}

#[test]
fn key_files_that_are_invalid_or_readable_by_others_are_refused() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new(json!([]));
    let key = place.path("key");
    for (text, mode, expected) in [
        ("07".repeat(32), 0o644, "can be read by others"),
        ("nonsense".to_owned(), 0o600, "line 1"),
        (String::new(), 0o600, "holds no key"),
    ] {
        std::fs::write(&key, text).unwrap();
        std::fs::set_permissions(Path::new(&key), std::fs::Permissions::from_mode(mode)).unwrap();
        let refused = place.command(&["keys", "list", "--key-file", &key]);
        let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(2) && stderr.contains(expected), "{stderr}");
    }
    std::fs::remove_file(&key).unwrap();
    let missing = place.command(&["approvals", "list", "--key-file", &key]);
    assert!(String::from_utf8_lossy(&missing.stderr).contains("cellmate keys rotate"));
}
