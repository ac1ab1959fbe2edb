//! Configured stores: a Postgres server that several processes share, and backups restored into another store.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::{Value, json};
use testkit::postgres::Server;

use super::clients::{Era, Streams, structured};
use super::place::{Place, writes};

const CELL: &str = "return (await MCP.s.push({ to: 'main' })).structuredContent.done";
const PASSWORD: &str = "hunter2";

fn pushes() -> Place {
    Place::new(json!([writes("push")]))
}

/// The URL of a new schema on the server. It contains a password, which the server ignores.
fn schema_url(server: &Server) -> String {
    server.schemas(1).unwrap().remove(0).replacen("postgres@", &format!("postgres:{PASSWORD}@"), 1)
}

fn printed(output: &Output) -> String {
    let printed = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!printed.contains(PASSWORD), "{printed}");
    printed
}

fn wait(client: &mut Streams, run_id: &Value) -> Value {
    structured(&client.ask("tools/call", json!({"name": "wait", "arguments": {"runId": run_id}})))
}

fn exit(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), printed(output))
}

#[test]
fn two_servers_on_one_postgres_are_one_service() {
    let server = Server::start().unwrap();
    let (url, here, there, third) = (schema_url(&server), pushes(), pushes(), pushes());
    let key = here.path("shared-key");
    let made = here.command(&["keys", "rotate", "--key-file", &key]);
    assert_eq!(exit(&made).0, Some(0), "{}", printed(&made));
    let arguments = ["--store", &url, "--key-file", &key];
    let mut one = Streams::start(&here, Era::June2025, json!({}), &arguments);
    let mut two = Streams::start(&there, Era::July2026, json!({}), &arguments);
    assert_eq!(two.exec("return 1")["value"], 1);
    let waiting = one.exec(CELL);
    assert_eq!(waiting["status"], "waiting", "{waiting}");
    let id = waiting["approvals"][0]["approvalId"].as_str().unwrap().to_owned();

    // A process with another key is refused before it can write anything.
    let (code, text) = exit(&third.command(&["approvals", "list", "--store", &url]));
    assert!(code == Some(2) && text.contains("--key-file"), "{text}");

    let asked = two.send("tools/call", json!({"name": "wait", "arguments": {"runId": waiting["runId"]}}));
    std::thread::sleep(Duration::from_millis(500));
    let decided = Command::new(env!("CARGO_BIN_EXE_cellmate"))
        .args(["approvals", "approve", &id, "--state-dir", &third.path("state")])
        .env("CELLMATE_STORE", &url)
        .env("CELLMATE_KEY_FILE", &key)
        .env("XDG_CONFIG_HOME", third.path("own"))
        .output()
        .unwrap();
    assert_eq!(exit(&decided).0, Some(0), "{}", printed(&decided));
    let done = structured(&two.answer(asked));
    assert_eq!((&done["status"], &done["value"]), (&json!("completed"), &json!("push")), "{done}");
    let received = here.received() + &there.received();
    assert_eq!(received.matches("\"tools/call\"").count(), 1, "one of the servers made the call, once");
    assert_eq!(wait(&mut one, &waiting["runId"])["value"], "push");

    third.configure(&json!({"store": {"url": url, "keyFile": key}}));
    let doctor = third.command(&["doctor", "--json"]);
    let report: Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let location = report["store"]["location"].as_str().unwrap();
    assert!(location.starts_with("postgres://postgres@/") && printed(&doctor).contains("answers in"), "{report}");
}

#[test]
fn an_unreachable_store_is_reported_without_its_password() {
    let place = pushes();
    for url in [
        "postgres://me:hunter2@localhost/x?host=/no/such/folder",
        "postgres://me:hunter2@127.0.0.1:1/x",
        "mysql://me:hunter2@localhost/x",
        "postgres://me:hunter2@:bad:/x",
    ] {
        for command in ["approvals list", "doctor", "keys list", "backup /tmp/never"] {
            let words: Vec<&str> = command.split(' ').chain(["--store", url]).collect();
            let (code, text) = exit(&place.command(&words));
            assert!(code != Some(0) && !text.is_empty(), "{command}: {text}");
        }
    }
}

#[test]
fn a_backup_taken_while_in_use_is_restored_on_another_engine_and_back() {
    let server = Server::start().unwrap();
    let (url, here, there) = (schema_url(&server), pushes(), pushes());
    let mut client = Streams::plain(&here, Era::June2025);
    let waiting = client.exec(CELL);
    let (run, id) = (&waiting["runId"], waiting["approvals"][0]["approvalId"].as_str().unwrap());
    let sleeping = client.exec("await yield_control(); return 'slept'");
    let file = here.path("first.backup");
    let taken = here.command(&["backup", &file]);
    assert_eq!(exit(&taken).0, Some(0), "{}", printed(&taken));
    assert!(printed(&taken).contains("it does not contain the key file"));
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(exit(&here.command(&["backup", &file])).0, Some(2), "an existing backup is not overwritten");

    // Without the key the restore is refused; with it the runs resume on the other engine.
    let (code, text) = exit(&there.command(&["restore", &file, "--store", &url]));
    assert!(code == Some(2) && text.contains("key 1"), "{text}");
    let key = here.path("state/key");
    let arguments = ["--store", &url, "--key-file", &key];
    let restore = |more: &[&str]| {
        let words: Vec<&str> = ["restore", &file].iter().chain(&arguments).chain(more).copied().collect();
        there.command(&words)
    };
    assert_eq!(exit(&restore(&[])).0, Some(0));
    let (code, text) = exit(&restore(&[]));
    assert!(code == Some(2) && text.contains("--replace"), "{text}");
    let mut client = Streams::start(&there, Era::July2026, json!({}), &arguments);
    assert_eq!(wait(&mut client, &sleeping["runId"])["value"], "slept");
    let words: Vec<&str> = ["approve", id].iter().chain(&arguments).copied().collect();
    assert_eq!(exit(&there.approvals(&words)).0, Some(0));
    assert_eq!(wait(&mut client, run)["value"], "push");

    // Back into a file, with the key, on a machine that has neither the store nor the key.
    let (third, second) = (pushes(), here.path("second.backup"));
    let words: Vec<&str> = ["backup", &second, "--with-key"].iter().chain(&arguments).copied().collect();
    assert_eq!(exit(&there.command(&words)).0, Some(0));
    assert_eq!(exit(&third.command(&["restore", &second])).0, Some(0));
    let mut client = Streams::plain(&third, Era::June2025);
    assert_eq!(wait(&mut client, run)["value"], "push", "the recorded result is returned again");

    let bytes = std::fs::read(&second).unwrap();
    std::fs::write(&second, &bytes[..bytes.len() / 2]).unwrap();
    let (code, text) = exit(&third.command(&["restore", &second, "--replace"]));
    assert!(code == Some(2) && text.contains("truncated"), "{text}");
    assert_eq!(wait(&mut client, run)["value"], "push", "nothing was changed");
}

#[test]
fn a_principal_with_too_many_waiting_cells_gets_an_error_that_names_one() {
    let place = pushes();
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(place.path("config.json")).unwrap()).unwrap();
    config["store"] = json!({"perPrincipal": {"maxWaitingRuns": 2, "maxOpenApprovals": 1}});
    place.configure(&config);
    let mut client = Streams::plain(&place, Era::June2025);
    let asks = client.exec(CELL);
    assert_eq!(asks["status"], "waiting", "{asks}");
    let refused = client.exec(&format!("text('kept'); try {{ {CELL} }} catch (error) {{ return String(error) }}"));
    assert!(refused["value"].as_str().is_some_and(|text| text.contains("too many pending approvals")), "{refused}");
    let sleeps = "text('printed'); await yield_control(); return 1";
    let second = client.exec(sleeps);
    assert_eq!(second["status"], "waiting", "{second}");
    let third = client.exec(sleeps);
    assert_eq!((&third["status"], &third["code"]), (&json!("failed"), &json!("runtime_unavailable")), "{third}");
    assert!(third["error"].as_str().unwrap().contains(asks["runId"].as_str().unwrap()), "{third}");
    assert_eq!(third["output"][0]["text"], "printed", "{third}");
    // A finished run no longer counts.
    assert_eq!(wait(&mut client, &second["runId"])["value"], 1);
    assert_eq!(client.exec(sleeps)["status"], "waiting");
}
