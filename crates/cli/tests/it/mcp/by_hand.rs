//! Cells that a user runs on the command line with the configured servers: `cellmate exec`, `wait`, `runs cancel` and
//! `runs rm`.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, getsid};
use serde_json::{Value, json};

use super::clients::{Era, Streams};
use super::place::{Place, on_terminal, reads, writes};

const PUSH: &str = "text('before');\nreturn (await MCP.s.push({ to: 'main' })).structuredContent.done";
const SLOW: &str = "return (await MCP.s.slow({})).structuredContent.done";

fn place() -> Place {
    let found = json!([{"result": {"content": [], "structuredContent": {"when": "now"}}}]);
    Place::new(json!([reads("look", found), writes("push")]))
}

/// A place whose tool `slow` takes this time and needs no approval.
fn place_with_slow_tool(ms: u64) -> Place {
    let slow = json!({
        "name": "slow",
        "inputSchema": {"type": "object"},
        "does": [{"sleepMs": ms}, {"result": {"content": [], "structuredContent": {"done": "slowly"}}}],
    });
    let place = Place::new(json!([slow]));
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(place.path("config.json")).unwrap()).unwrap();
    config["approvals"] = json!({"ask": "never"});
    place.configure(&config);
    place
}

impl Place {
    /// A command with this state folder and configuration, and no terminal.
    fn typed(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cellmate"));
        command.args(arguments).args(["--state-dir", &self.path("state"), "--config", &self.path("config.json")]);
        command.stdin(Stdio::null());
        command
    }

    fn json(&self, arguments: &[&str]) -> (Option<i32>, Value) {
        let output = self.typed(arguments).output().unwrap();
        let json = serde_json::from_slice(&output.stdout);
        (output.status.code(), json.unwrap_or_else(|error| panic!("{error}: {output:?}")))
    }

    fn refused(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.typed(arguments).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }

    /// Starts a cell that waits for an approval, and returns its run.
    fn waiting(&self) -> String {
        let (code, waiting) = self.json(&["exec", "-e", PUSH]);
        assert_eq!((code, &waiting["status"]), (Some(3), &json!("waiting")), "{waiting}");
        waiting["runId"].as_str().unwrap().to_owned()
    }

    /// Approves all pending calls, and returns what that prints to standard error.
    fn approve_all(&self) -> String {
        let listed: Value = serde_json::from_slice(&self.approvals(&["list", "--json"]).stdout).unwrap();
        let mut printed = String::new();
        for approval in listed.as_array().unwrap() {
            let approved = self.approvals(&["approve", approval["approvalId"].as_str().unwrap()]);
            assert!(approved.status.success());
            printed += &String::from_utf8(approved.stderr).unwrap();
        }
        printed
    }

    fn pushes(&self) -> usize {
        self.received().lines().filter(|line| line.contains("tools/call") && line.contains("push")).count()
    }

    fn listed(&self, more: &[&str]) -> Vec<Value> {
        let (_, listed) = self.json(&[&["runs", "list", "--json"], more].concat());
        listed.as_array().unwrap().clone()
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn exec_calls_the_tools_of_configured_servers_and_records_its_run() {
    let place = place();
    let (code, done) = place.json(&["exec", "-e", "return (await MCP.s.look({})).structuredContent.when"]);
    assert_eq!((code, &done["status"], &done["value"]), (Some(0), &json!("completed"), &json!("now")), "{done}");
    let listed = place.listed(&[]);
    assert_eq!(
        (listed.len(), &listed[0]["state"], &listed[0]["sessionId"], &listed[0]["code"]),
        (1, &json!("completed"), &json!("cli:local"), &json!("return (await MCP.s.look({})).structuredContent.when"))
    );
    // The configured limits apply, unless the command line has others.
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(place.path("config.json")).unwrap()).unwrap();
    config["tools"] = json!({"codeMode": {"timeoutMs": 300}});
    place.configure(&config);
    let (code, late) = place.json(&["exec", "-e", "for (;;);"]);
    assert_eq!((code, &late["code"]), (Some(1), &json!("timeout")), "{late}");
    config["tools"] = json!({"deny": ["mcp:s:look"]});
    place.configure(&config);
    let (code, denied) = place.json(&["exec", "-e", "return typeof MCP.s.look"]);
    assert_eq!((code, &denied["value"]), (Some(0), &json!("undefined")), "{denied}");
}

#[test]
fn exec_with_an_invalid_configuration_prints_a_result_with_its_code() {
    let place = place();
    let invalid = [json!({"tools": {"codeMode": {"timeoutMs": "soon"}}}).to_string(), "{ tools: {".to_owned()];
    for text in invalid {
        std::fs::write(place.path("config.json"), &text).unwrap();
        let output = place.typed(&["exec", "-e", "return 1"]).output().unwrap();
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            (&result["status"], &result["code"]),
            (&json!("failed"), &json!("invalid_config")),
            "{text}: {result}"
        );
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && error.starts_with("cellmate: "), "{text}: {error}");
    }
}

#[test]
fn without_a_terminal_a_cell_that_needs_approval_waits_and_another_process_continues_it() {
    let place = place();
    let output = place.typed(&["exec", "-e", PUSH]).output().unwrap();
    let waiting: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &waiting["status"]), (Some(3), &json!("waiting")), "{waiting}");
    let run = waiting["runId"].as_str().unwrap();
    let config = place.path("config.json");
    let message = format!(
        "a call of `mcp:s:push` needs approval; run `cellmate approvals --config {config}` in a terminal to decide, then \
         `cellmate wait {run} --config {config}` to continue the cell"
    );
    assert_eq!(waiting["message"], json!(message));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), format!("cellmate: {message}\n"));
    assert_eq!(waiting["output"], json!([{"type": "text", "text": "before"}]));
    // Nothing changes while the call is not approved.
    let (code, still) = place.json(&["wait", run]);
    assert_eq!((code, &still["status"], place.pushes()), (Some(3), &json!("waiting"), 0), "{still}");
    let printed = place.approve_all();
    let next = format!("cellmate: `cellmate wait {run}");
    assert!(printed.contains(&next), "{printed}");
    // The start of the id is enough.
    let (code, done) = place.json(&["wait", &run[..12]]);
    assert_eq!((code, &done["value"], place.pushes()), (Some(0), &json!("push"), 1), "{done}");
    // The result of a run that has ended stays available.
    let (code, again) = place.json(&["wait", run]);
    assert_eq!((code, &again["value"], place.pushes()), (Some(0), &json!("push"), 1), "{again}");
}

#[test]
fn on_a_terminal_exec_and_wait_ask_in_place() {
    for (answer, code, calls) in [("y\n", 0, 1), ("n\n", 1, 0)] {
        let place = place();
        let seen =
            on_terminal(&place.typed(&["exec", "-e", "return (await MCP.s.push({})).structuredContent.done"]), answer);
        let shown = text(&seen);
        assert!(shown.contains("mcp:s:push: this tool may change something"), "{shown}");
        assert_eq!((seen.status.code(), place.pushes()), (Some(code), calls), "{shown}");
    }
    let place = place();
    let run = place.waiting();
    let seen = on_terminal(&place.typed(&["wait", &run]), "a\n");
    assert_eq!((seen.status.code(), place.pushes()), (Some(0), 1), "{}", text(&seen));
    // "Always" is a standing approval, so the next cell does not ask.
    assert_eq!(place.json(&["exec", "-e", PUSH]).0, Some(0));
}

#[test]
fn a_prompt_that_is_withdrawn_ends_its_line() {
    let place = place();
    let cell = "await Promise.all([MCP.s.push({ n: 1 }), MCP.s.push({ n: 2 })])";
    let seen = on_terminal(&place.typed(&["exec", "-e", cell]), "n\n");
    let shown = text(&seen);
    assert!(seen.status.code() == Some(1) && shown.contains("\r\nfailed"), "{shown}");
}

#[test]
fn exec_on_a_terminal_says_that_it_reads_standard_input() {
    let place = place();
    let seen = text(&on_terminal(&place.typed(&["exec"]), "return 6 * 7\n\u{4}"));
    assert!(seen.contains("reading the cell from standard input; end it with Ctrl-D"), "{seen}");
    assert!(seen.contains("42\r\n"), "{seen}");
}

#[test]
fn wait_without_an_id_waits_for_the_only_live_run() {
    let place = place();
    let (code, error) = place.refused(&["wait"]);
    assert!(code == Some(2) && error.contains("no run is live"), "{error}");
    let first = place.waiting();
    let (code, waiting) = place.json(&["wait"]);
    assert_eq!((code, &waiting["runId"]), (Some(3), &json!(first)));
    let second = place.waiting();
    let (code, error) = place.refused(&["wait"]);
    assert_eq!(code, Some(2));
    assert!(error.contains("several runs are live") && error.contains(&first) && error.contains(&second), "{error}");
    assert!(error.contains("(waiting, ") && error.contains(" ago: text('before');)"), "{error}");
    let (code, error) = place.refused(&["runs", "show", "cm_"]);
    assert!(code == Some(2) && error.contains("is the start of several run ids"), "{error}");
}

#[test]
fn a_run_of_an_mcp_client_can_be_continued_on_the_command_line() {
    let place = place();
    let mut client = Streams::plain(&place, Era::July2026);
    let waiting = client.exec(PUSH);
    let run = waiting["runId"].as_str().unwrap();
    place.approve_all();
    let (code, done) = place.json(&["wait", run]);
    assert_eq!((code, &done["value"], place.pushes()), (Some(0), &json!("push"), 1), "{done}");
    assert_eq!(client.call("wait", json!({"runId": run}))["value"], "push");
    // A run of the command line is not one of the client's.
    let own = place.waiting();
    assert_eq!(client.call("wait", json!({"runId": own}))["code"], "invalid_input");
}

#[test]
fn no_wait_returns_early_and_lets_calls_that_are_under_way_finish() {
    let place = place_with_slow_tool(6000);
    // The first start of the server must not count.
    assert_eq!(place.json(&["exec", "-e", "return Object.keys(MCP.s).length > 0"]).0, Some(0));
    let began = Instant::now();
    let (exit, waiting) = place.json(&["exec", "-e", SLOW, "--no-wait", "--timeout-ms", "300"]);
    assert_eq!((exit, &waiting["status"]), (Some(3), &json!("waiting")), "{waiting}");
    assert!(began.elapsed() < Duration::from_millis(5_500), "{:?}", began.elapsed());
    let run = waiting["runId"].as_str().unwrap();
    let (exit, done) = place.json(&["wait", run]);
    assert_eq!((exit, &done["value"]), (Some(0), &json!("slowly")), "the call must not end as unknown: {done}");
    let calls = place.received().lines().filter(|line| line.contains("tools/call")).count();
    assert_eq!(calls, 1);
}

/// A terminal may be closed as soon as the command has ended, which is a signal for all processes of its session.
#[test]
fn the_background_process_of_no_wait_leaves_the_session_before_the_command_ends() {
    let place = place_with_slow_tool(1500);
    // The test acts as the command: it sends the cell, and receives the exit code.
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let mut command = place.typed(&["exec", "-e", SLOW, "--no-wait", "--timeout-ms", "300"]);
    command.env("CELLMATE_EXEC_BACKGROUND", "1").stdin(OwnedFd::from(theirs)).stdout(Stdio::null());
    let mut process = command.spawn().unwrap();
    drop(command);
    ours.write_all(json!({"source": SLOW, "language": "javascript"}).to_string().as_bytes()).unwrap();
    ours.shutdown(Shutdown::Write).unwrap();
    let mut code = [0];
    ours.read_exact(&mut code).unwrap();
    let pid = Pid::from_child(&process);
    assert_eq!((code, getsid(Some(pid)).unwrap()), ([3], pid));
    assert_eq!(process.wait().unwrap().code(), Some(3));
}

#[test]
fn a_cancelled_run_has_ended_and_its_call_is_never_made() {
    let place = place();
    let (first, second) = (place.waiting(), place.waiting());
    let (code, cancelled) = place.json(&["runs", "cancel", &first, &first[..12], "--json"]);
    assert_eq!((code, &cancelled["cancelled"]), (Some(0), &json!([first])), "{cancelled}");
    let (code, ended) = place.json(&["wait", &first]);
    assert_eq!((code, &ended["status"], &ended["code"]), (Some(1), &json!("failed"), &json!("aborted")), "{ended}");
    let pending: Value = serde_json::from_slice(&place.approvals(&["list", "--json"]).stdout).unwrap();
    assert_eq!((pending.as_array().map(Vec::len), &pending[0]["runId"]), (Some(1), &json!(second)), "{pending}");
    let (code, error) = place.refused(&["runs", "cancel", &first, &second]);
    assert_eq!(code, Some(1), "{error}");
    assert_eq!(error, format!("cellmate: run `{first}` has already ended (aborted)\n"));
    assert!(place.listed(&["--state", "live"]).is_empty(), "the second run is cancelled nevertheless");
    assert_eq!((place.listed(&["--state", "aborted"]).len(), place.pushes()), (2, 0));
}

#[test]
fn runs_are_deleted_only_if_they_have_ended_and_the_user_confirms() {
    let place = place();
    let live = place.waiting();
    for _ in 0..3 {
        assert_eq!(place.json(&["exec", "-e", "return 1"]).0, Some(0));
    }
    let ended: Vec<String> =
        place.listed(&["--state", "completed"]).iter().map(|run| run["runId"].as_str().unwrap().to_owned()).collect();
    let cases: [(&[&str], &str); 4] = [
        (&["runs", "rm", &ended[0]], "needs confirmation; run this in a terminal, or pass --yes"),
        (&["runs", "rm", &live, "--yes"], "is waiting; cancel it first"),
        (&["runs", "rm"], "required"),
        (&["runs", "rm", "--older-than", "soon"], "such as 30m, 12h or 7d"),
    ];
    for (arguments, reason) in cases {
        let (code, error) = place.refused(arguments);
        assert!(code == Some(2) && error.contains(reason), "{arguments:?}: {error}");
    }
    assert_eq!(place.listed(&[]).len(), 4);
    let seen = on_terminal(&place.typed(&["runs", "rm", &ended[0]]), "n\n");
    assert!(seen.status.code() == Some(1) && text(&seen).contains("delete 1 run? [y]es, [N]o:"), "{}", text(&seen));
    let seen = on_terminal(&place.typed(&["runs", "rm", &ended[0]]), "y\n");
    assert!(seen.status.code() == Some(0) && text(&seen).contains("deleted 1 run"), "{}", text(&seen));
    assert_eq!(place.refused(&["runs", "show", &ended[0]]).0, Some(2));
    assert_eq!(place.json(&["runs", "rm", &ended[1], "--transcript", "--yes", "--json"]).1, json!({"deleted": 1}));
    assert_eq!(place.json(&["exec", "-e", "return 1"]).0, Some(0));
    assert_eq!(place.json(&["runs", "rm", "--older-than", "1h", "--yes", "--json"]).1, json!({"deleted": 0}));
    assert_eq!(place.json(&["runs", "rm", "--older-than", "0s", "--yes", "--json"]).1, json!({"deleted": 2}));
    assert_eq!(place.listed(&[]).len(), 1, "a live run is never old");
    assert_eq!(place.json(&["runs", "rm", &live, "--force", "--yes", "--json"]).1, json!({"deleted": 1}));
    assert!(place.listed(&[]).is_empty());
}

#[test]
fn runs_are_listed_by_state_and_age_in_a_table_that_fits_the_terminal() {
    let place = place();
    let run = place.waiting();
    let long = format!("return '{}'", "x".repeat(200));
    assert_eq!(place.json(&["exec", "-e", &long]).0, Some(0));
    assert_eq!(place.listed(&["--limit", "1"]).len(), 1);
    assert_eq!(place.listed(&["--since", "1h"]).len(), 2);
    assert!(place.listed(&["--since", "0s"]).is_empty());
    assert_eq!(place.listed(&["--state", "failed,waiting"])[0]["runId"], json!(run));
    let output = place.typed(&["tools", "call", "s.look", "--yes"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(place.listed(&[])[0]["code"], "tools call mcp:s:look");

    // `stty` tells the terminal how wide it is.
    let cellmate = env!("CARGO_BIN_EXE_cellmate");
    let line = format!("stty cols 60; '{cellmate}' runs list --state-dir '{}'", place.path("state"));
    let output = Command::new("script").args(["-qefc", &line, "/dev/null"]).stdin(Stdio::null()).output().unwrap();
    let shown = text(&output).replace('\r', "");
    let mut lines = shown.lines();
    assert!(lines.next().is_some_and(|header| header.starts_with("RUN          STATE      AGE")), "{shown}");
    assert!(shown.contains(&run[..11]) && !shown.contains(&run) && shown.contains('…'), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 60), "{shown}");
}

#[test]
fn an_interrupted_exec_cancels_its_run() {
    let place = Place::new(json!([reads("slow", json!([{"sleepMs": 20_000}, {"result": {"content": []}}]))]));
    let child = place.typed(&["exec", "-e", "await MCP.s.slow({})"]).stderr(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    while !place.received().contains("tools/call") {
        assert!(began.elapsed() < Duration::from_secs(20), "the tool was not called");
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(130) && error.contains("is cancelled"), "{error}");
    assert_eq!(place.listed(&[])[0]["state"], "aborted");
}
