//! No process of a server outlives the host, however the host ends.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mcp::{ServerSpec, Transport, Upstream};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testkit::processes::{ListedProcess, all, descendants, is_alive};

use crate::fake::{Folder, limits, tool};
use crate::test_upstream::{eventually, options, scripted};

/// Processes, keepers included, whose command names something in the folder.
pub(crate) fn speaking_of(folder: &Folder) -> Vec<ListedProcess> {
    let here = folder.0.to_str().unwrap();
    all().into_iter().filter(|process| !process.is_zombie && process.names(here)).collect()
}

fn kill(process: &ListedProcess) {
    let pid = Pid::from_raw(i32::try_from(process.pid).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

/// A server that ignores the end of its input and SIGTERM, with one child in its group and one that has left it.
fn stubborn(folder: &Folder, name: &str) -> ServerSpec {
    let script = json!({
        "tools": [tool("fine", json!([{"result": {}}]))],
        "start": [{"spawn": ["sleep", "1000"]}, {"spawn": ["setsid", "sleep", "1001"]}],
        "afterEof": [{"sleepMs": 600_000}],
    });
    let mut spec = scripted(folder, name, script, limits());
    let Transport::Stdio { command, args, .. } = &mut spec.transport else { panic!("{spec:?}") };
    let line = "trap '' TERM HUP INT; exec \"$0\" \"$1\"".to_owned();
    *args = vec!["-c".to_owned(), line, command.clone(), args[0].clone()];
    *command = "sh".to_owned();
    spec
}

fn listed(spec: &ServerSpec) -> Value {
    let Transport::Stdio { command, args, .. } = &spec.transport else { panic!("{spec:?}") };
    json!({"name": spec.name, "command": command, "args": args})
}

fn start_host(folder: &Folder, servers: &[ServerSpec]) -> std::process::Child {
    let path = folder.0.join("servers");
    std::fs::write(&path, Value::from_iter(servers.iter().map(listed)).to_string()).unwrap();
    let mut host = Command::new(Path::new(env!("CARGO_BIN_EXE_mcp-host")));
    let mut host = host.arg(&path).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(host.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    host
}

#[test]
fn no_process_is_left_two_seconds_after_the_host_was_killed() {
    let folder = Folder::new();
    let fine = json!({"tools": [tool("fine", json!([{"result": {}}]))]});
    let deaf = json!({"tools": [], "afterEof": [{"sleepMs": 600_000}]});
    let servers = [
        scripted(&folder, "fine", fine, limits()),
        scripted(&folder, "deaf", deaf, limits()),
        stubborn(&folder, "stubborn"),
    ];
    let mut host = start_host(&folder, &servers);
    let is_asleep = |one: &&ListedProcess| one.command.first().is_some_and(|program| program == "sleep");
    let mut family = descendants(host.id());
    // One of them starts as `setsid`, which leaves the group before it executes `sleep`.
    let began = Instant::now();
    while family.iter().filter(is_asleep).count() < 2 && began.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(10));
        family = descendants(host.id());
    }
    assert_eq!(family.len(), 3 + 3 + 2, "keepers, servers, and the children of one: {family:#?}");
    let sleepers: Vec<&ListedProcess> = family.iter().filter(is_asleep).collect();
    assert_ne!(sleepers[0].group, sleepers[1].group, "one has left the group");
    host.kill().unwrap();
    let killed = Instant::now();
    host.wait().unwrap();
    let left = || family.iter().filter(|process| is_alive(process.pid)).cloned().collect::<Vec<_>>();
    while !left().is_empty() {
        assert!(killed.elapsed() < Duration::from_secs(2), "{:#?}", left());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Starts a stubborn server. Returns it, its keeper, and the keeper's descendants.
async fn kept(folder: &Folder) -> (Arc<Upstream>, ListedProcess, Vec<ListedProcess>) {
    let server = Upstream::new(stubborn(folder, "s"), options());
    server.listed().await.unwrap();
    let us = std::process::id();
    let here = folder.0.to_str().unwrap();
    let keeper = descendants(us).into_iter().find(|one| one.parent == us && one.names(here)).unwrap();
    let family = descendants(keeper.pid);
    assert_eq!(family.len(), 3, "{family:#?}");
    (server, keeper, family)
}

#[tokio::test]
async fn a_stop_kills_processes_that_ignore_it_and_leaves_no_zombie() {
    let folder = Folder::new();
    let (server, keeper, family) = kept(&folder).await;
    let began = Instant::now();
    server.stop().await;
    assert!(began.elapsed() < Duration::from_secs(4));
    for process in family.iter().chain([&keeper]) {
        assert!(ListedProcess::read(process.pid).is_none(), "{process:?}");
    }
}

#[tokio::test]
async fn a_killed_keeper_ends_its_server_and_group() {
    let folder = Folder::new();
    let (_server, keeper, family) = kept(&folder).await;
    kill(&keeper);
    let grouped: Vec<u32> = family.iter().filter(|one| one.group == keeper.pid).map(|one| one.pid).collect();
    assert_eq!(grouped.len(), 2, "{family:#?}");
    eventually("they are gone", || !grouped.iter().any(|pid| is_alive(*pid))).await;
    // A process that has left the group is not ended without its keeper, so the test ends it.
    for left in family.iter().filter(|one| one.group != keeper.pid && is_alive(one.pid)) {
        kill(left);
    }
}

#[tokio::test]
async fn a_command_that_the_keeper_cannot_start_is_reported_on_stderr() {
    let folder = Folder::new();
    let path = folder.0.join("not-executable");
    std::fs::write(&path, "no program").unwrap();
    let spec = crate::fake::spec(path.to_str().unwrap(), &[], limits());
    let error = mcp::Server::connect(spec).await.unwrap_err();
    assert!(error.stderr.starts_with(&format!("cannot start `{}`", path.display())), "{error:?}");
}
