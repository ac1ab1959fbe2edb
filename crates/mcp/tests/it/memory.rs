//! How much memory servers that mean harm can take from us, over either transport.

use std::process::Command;
use std::time::Duration;

use executor::Outcome;
use mcp::{Limits, Server};
use serde_json::{Value, json};

use crate::fake::{AtAddress, Connected, Folder, connect, limits, tool};

/// One message of the longest, read and parsed, for each of a few servers at once, and what allocators keep.
const MOST_GROWTH_KIB: u64 = 192 << 10;

/// In a process of its own: other tests have memory, too.
#[test]
fn memory_stays_bounded_whatever_servers_send() {
    let us = std::env::current_exe().unwrap();
    let child = Command::new(us)
        .args(["memory::in_a_process_of_its_own", "--exact", "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{said}\n{}", String::from_utf8_lossy(&child.stderr));
    let growth = said.lines().find_map(|line| line.strip_prefix("grown by ")).unwrap().parse::<u64>().unwrap();
    println!("grown by {growth} KiB");
    assert!(growth < MOST_GROWTH_KIB, "{growth} KiB");
}

#[tokio::test]
#[ignore = "run by the test above"]
async fn in_a_process_of_its_own() {
    let limits = || Limits { connect: Duration::from_secs(60), call: Duration::from_secs(60), ..limits() };
    let before = peak_kib();
    let flood = json!({"sayTimes": [10_000, {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x".repeat(500)}}]});
    let tools = json!([
        tool("flood", json!([flood, {"stderrBytes": 16 << 20}, {"result": {}}])),
        tool("endless", json!([{"print": "data: "}, {"endless": true}])),
    ]);
    let floods = json!({"tools": tools});
    for server in [Connected::with(floods.clone(), limits()).await, Connected::at_address(floods, limits()).await] {
        server.returned("flood", json!({})).await;
        assert!(matches!(server.call("endless", json!({})).await, Outcome::Unknown));
        let why = server.server.closed().await.to_string();
        assert!(why.contains("8388608 bytes"), "{why}");
    }
    let huge =
        json!({"tools": [{"name": "huge", "description": "x".repeat(10 << 20), "inputSchema": {"type": "object"}}]});
    let many = json!({"manyTools": 100_000, "pageSize": 1_000});
    let big_pages = json!({"manyTools": 100_000, "pageSize": 100_000});
    for script in [huge, many, big_pages] {
        for why in [refused(&script).await, refused_at_address(&script).await] {
            assert!(why.contains("8388608 bytes") || why.contains("more than 2000 tools"), "{why}");
        }
    }
    println!("grown by {}", peak_kib() - before);
}

async fn refused(script: &Value) -> String {
    connect(&Folder::new(), script.clone(), limits()).await.unwrap_err().to_string()
}

async fn refused_at_address(script: &Value) -> String {
    let folder = Folder::new();
    let at = AtAddress::start(&folder, script.clone());
    Server::connect(at.spec(limits())).await.unwrap_err().to_string()
}

/// The most this process has ever held.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
