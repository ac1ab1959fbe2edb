//! The shell and `web_fetch` as clients of `cellmate mcp` use them: with approval, progress and cancellation.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::clients::{Era, PATIENCE, Streams, structured};
use super::place::Place;

/// Returns a place whose shell is enabled, with one root.
fn with_shell(more: &Value) -> Place {
    let place = Place::new(json!([]));
    fs::create_dir_all(place.path("root")).unwrap();
    let mut config = json!({"tools": {"fs": {"roots": [place.path("root")]}, "exec": {"enabled": true}}});
    for (key, value) in more.as_object().unwrap() {
        config[key] = value.clone();
    }
    place.configure(&config);
    place
}

fn shell_cell(command: &str) -> String {
    format!("return await tools.call('openclaw:core:exec', {{ command: {} }})", json!(command))
}

/// Returns how many processes have this text in their command line, without keepers.
fn processes_with(text: &str) -> usize {
    testkit::processes::all().iter().filter(|process| process.names(text)).count()
}

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_command_runs_after_a_person_approved_it() {
    let place = with_shell(&json!({}));
    for (decision, status) in [("deny", "failed"), ("approve once", "completed")] {
        let mut client = Streams::start(&place, Era::July2026, json!({"elicitation": {"form": {}}}), &[]);
        let code = shell_cell("echo made > file; echo $((6 * 7)); pwd; exit 5");
        let params = json!({"name": "exec", "arguments": {"code": code}});
        let asked = client.ask("tools/call", params.clone())["result"].clone();
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        assert!(!fs::exists(place.path("root/file")).unwrap());
        let (id, request) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
        let message = request["params"]["message"].as_str().unwrap();
        assert!(message.contains("exec") && message.contains("echo made > file"), "{message}");
        let mut again = params;
        again["requestState"] = asked["requestState"].clone();
        again["inputResponses"] = json!({ id: {"action": "accept", "content": {"decision": decision}} });
        let done = structured(&client.ask("tools/call", again));
        assert_eq!(done["status"], status, "{done}");
        if status == "completed" {
            assert_eq!(done["value"]["exitCode"], 5, "{done}");
            let root = fs::canonicalize(place.path("root")).unwrap();
            assert_eq!(done["value"]["stdout"], format!("42\n{}\n", root.display()), "{done}");
        }
        assert_eq!(fs::exists(place.path("root/file")).unwrap(), status == "completed");
    }
}

#[test]
fn progress_of_a_command_arrives_while_it_runs() {
    let place = with_shell(&json!({"approvals": {"ask": "never"}}));
    let mut client = Streams::plain(&place, Era::November2025);
    let code = shell_cell("for i in 1 2 3 4 5 6 7 8; do echo step $i; sleep 0.3; done");
    let params = json!({"name": "exec", "arguments": {"code": code}, "_meta": {"progressToken": "t"}});
    let id = client.send("tools/call", params);
    let is_step = |message: &Value| {
        message["method"] == "notifications/progress"
            && message["params"]["message"].as_str().is_some_and(|text| text.contains("core.exec: step "))
    };
    client.next("progress of the command", is_step);
    client.next("more progress of the command", is_step);
    assert_eq!(structured(&client.answer(id))["value"]["exitCode"], 0);
}

#[test]
fn cancelling_the_call_ends_the_command_with_everything_that_it_started() {
    let place = with_shell(&json!({"approvals": {"ask": "never"}}));
    let mut client = Streams::plain(&place, Era::November2025);
    let code = shell_cell("setsid sleep 7201.75 & touch started; sleep 7201.75");
    let id = client.send("tools/call", json!({"name": "exec", "arguments": {"code": code}}));
    eventually("the command starts", || fs::exists(place.path("root/started")).unwrap());
    assert!(processes_with("7201.75") > 0);
    client.notify("notifications/cancelled", json!({"requestId": id, "reason": "changed my mind"}));
    eventually("the command ends", || processes_with("7201.75") == 0);
}

#[test]
fn killing_the_server_ends_its_commands() {
    let place = with_shell(&json!({"approvals": {"ask": "never"}}));
    let mut client = Streams::plain(&place, Era::November2025);
    let code = shell_cell("setsid sleep 7202.75 & touch started; sleep 7202.75");
    client.send("tools/call", json!({"name": "exec", "arguments": {"code": code}}));
    eventually("the command starts", || fs::exists(place.path("root/started")).unwrap());
    client.child.kill().unwrap();
    eventually("the command ends", || processes_with("7202.75") == 0);
}

#[test]
fn a_command_sees_neither_secrets_of_the_environment_nor_cellmates_own_files() {
    let place = with_shell(&json!({"approvals": {"ask": "never"}}));
    let mut command = place.server(&[]);
    command.env("OPENAI_API_KEY", "key-in-environment").env("SSH_AUTH_SOCK", "/run/agent-in-environment");
    command.env("HTTPS_PROXY", "http://me:pass-in-environment@proxy:1").env("CELLMATE_TOKEN", "token-in-environment");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let state = place.path("state");
    let code = shell_cell(&format!(
        "env; cat {state}/* {}; ls -a {state}; cat /proc/{}/environ; true",
        place.path("config.json"),
        child.id()
    ));
    let meta = Era::July2026.meta(&json!({}));
    let params = json!({"name": "exec", "arguments": {"code": code}, "_meta": meta});
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{request}").unwrap();
    let mut reader = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut reader, &mut line).unwrap();
    drop(stdin);
    child.wait().unwrap();
    let answer: Value = serde_json::from_str(&line).unwrap();
    let value = &answer["result"]["structuredContent"]["value"];
    assert_eq!(value["exitCode"], 0, "{answer}");
    let stdout = value["stdout"].as_str().unwrap();
    assert!(stdout.contains("PATH=") && stdout.contains("TMPDIR="), "{stdout}");
    for secret in ["in-environment", "sqlite", "mcpServers", "\"tools\"", "runs.db"] {
        assert!(!stdout.to_ascii_lowercase().contains(secret), "{secret}: {stdout}");
    }
}

#[test]
fn without_being_enabled_there_is_no_shell_and_no_web_fetch() {
    let place = Place::new(json!([]));
    place.configure(
        &json!({"tools": {"fs": {"roots": [place.path("")]}, "exec": {"unconfined": true}, "web": {"fetch": {}}}}),
    );
    let mut client = Streams::plain(&place, Era::November2025);
    for tool in ["exec", "web_fetch"] {
        let code = format!("return await tools.call('openclaw:core:{tool}', {{}}).catch((error) => error.message)");
        let found = client.exec(&code);
        let message = found["value"].as_str().map_or_else(|| found.to_string(), str::to_owned);
        assert!(
            message.contains("openclaw:core:") || message.contains("not_found") || message.contains("no tool"),
            "{found}"
        );
    }
}

#[test]
fn web_fetch_fetches_a_host_that_the_user_allows_and_no_other() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 4096];
            drop(stream.read(&mut request));
            let page = "<h1>Inner</h1>";
            let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n", page.len());
            drop(stream.write_all(format!("{head}{page}").as_bytes()));
        }
    });
    let code = format!("return await tools.call('openclaw:core:web_fetch', {{ url: 'http://127.0.0.1:{port}/' }})");
    let place = Place::new(json!([]));
    place.configure(&json!({"tools": {"web": {"fetch": {"enabled": true, "allowPrivate": ["127.0.0.1"]}}}}));
    // It only reads, so it needs no approval.
    let found = Streams::plain(&place, Era::November2025).exec(&code);
    assert_eq!(found["value"]["text"], "# Inner", "{found}");
    place.configure(&json!({"tools": {"web": {"fetch": {"enabled": true}}}}));
    let refused = Streams::plain(&place, Era::November2025).exec(&code);
    assert!(refused["error"].as_str().unwrap().contains("allowPrivate"), "{refused}");
}
