//! The memory that hostile servers can make the host use, over both transports.

use std::process::Command;
use std::time::Duration;

use executor::Outcome;
use mcp::{Limits, Server};
use serde_json::{Value, json};

use crate::fake::{AtAddress, Connected, Folder, connect, limits, tool};
use crate::large_results::large_text;

/// The tests to run and their memory limits in KiB: a message of maximum size for each of a few servers at once, plus
/// what allocators keep. The first test sends long messages, the second messages with very many values, the third and
/// fourth results with a text of 64 MiB.
const PARTS: [(&str, u64); 4] = [
    ("memory::floods_in_a_separate_process", 192 << 10),
    ("memory::values_in_a_separate_process", 288 << 10),
    ("memory::one_large_result_in_a_separate_process", 64 << 10),
    ("memory::four_large_results_in_a_separate_process", 128 << 10),
];

/// The memory that may remain when no call is in progress: what allocators keep.
const MOST_KEPT_KIB: u64 = 96 << 10;

/// Runs in separate processes, because other tests use memory too.
#[test]
fn memory_stays_bounded_whatever_servers_send() {
    let us = std::env::current_exe().unwrap();
    for (part, most) in PARTS {
        let mut child = Command::new(&us);
        // As in a real host: two cores need no more arenas, and each arena keeps freed memory.
        child.env("MALLOC_ARENA_MAX", "2");
        let child = child.args([part, "--exact", "--ignored", "--nocapture"]).output().unwrap();
        let said = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success(), "{said}\n{}", String::from_utf8_lossy(&child.stderr));
        let number =
            |name: &str| said.lines().find_map(|line| line.strip_prefix(name)).unwrap().parse::<u64>().unwrap();
        let (growth, kept) = (number("grown by "), number("kept "));
        println!("{part}: grown by {growth} KiB, kept {kept} KiB");
        assert!(growth < most, "{part}: {growth} KiB");
        assert!(kept < MOST_KEPT_KIB, "{part}: {kept} KiB");
    }
}

#[tokio::test]
#[ignore = "run by the test above"]
async fn floods_in_a_separate_process() {
    let limits = || Limits { connect: Duration::from_secs(60), call: Duration::from_secs(60), ..limits() };
    let before = MemoryBaseline::now();
    let note = |method: &str, params: Value| json!({"jsonrpc": "2.0", "method": method, "params": params});
    let many_values = |method: &str| {
        let before = format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{{"progressToken":1,"data":["#);
        json!({"repeated": [before, r#"{"a":0},"#, 985_000, "0]}}"]})
    };
    let flood = json!([
        {"sayTimes": [10_000, note("notifications/message", json!({"data": "x".repeat(500)}))]},
        {"sayTimes": [10_000, note("notifications/progress", json!({"progressToken": 1, "progress": 1, "message": "x".repeat(500)}))]},
        {"sayTimes": [10_000, note("notifications/tools/list_changed", json!({}))]},
        many_values("notifications/message"),
        many_values("notifications/progress"),
        many_values("notifications/tools/list_changed"),
        many_values("notifications/message"),
        {"sayTimes": [10_000, {"jsonrpc": "2.0", "id": 999_999, "result": {"x": "x".repeat(500)}}]},
        {"stderrBytes": 16 << 20},
        {"result": {}},
    ]);
    let endless = tool("endless", json!([{"print": "data: "}, {"endless": true}]));
    let floods = json!({"tools": [tool("flood", flood), endless]});
    for server in [Connected::with(floods.clone(), limits()).await, Connected::at_address(floods, limits()).await] {
        server.returned("flood", json!({})).await;
        let Outcome::Dropped(dropped) = server.call("endless", json!({})).await else { panic!() };
        let why = dropped.message;
        assert!(["8388608 bytes", "167772160 bytes"].iter().any(|limit| why.contains(limit)), "{why}");
    }
    let huge =
        json!({"tools": [{"name": "huge", "description": "x".repeat(10 << 20), "inputSchema": {"type": "object"}}]});
    let many = json!({"manyTools": 100_000, "pageSize": 1_000});
    let big_pages = json!({"manyTools": 100_000, "pageSize": 100_000});
    for script in [huge, many, big_pages] {
        for why in [refused(&script).await, refused_at_address(&script).await] {
            let known =
                ["8388608 bytes", "more than 2000 tools", "JSON values"].iter().any(|known| why.contains(known));
            assert!(known, "{why}");
        }
    }
    before.report().await;
}

/// A result whose `x` has many equal parts.
fn result_of(part: &str, times: usize, last: &str) -> Value {
    let before = r#"{"jsonrpc":"2.0","id":$ID,"result":{"content":[],"structuredContent":{"x":["#;
    json!([{"repeated": [before, part, times, format!("{last}]}}}}}}")]}])
}

/// Messages far below the size limit that would take hundreds of times their size once parsed.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "run by the test above"]
async fn values_in_a_separate_process() {
    let limits = || Limits { connect: Duration::from_secs(60), call: Duration::from_secs(60), ..limits() };
    let before = MemoryBaseline::now();
    // Results that exceed a limit, and the limit that the error must name.
    let too_much = [
        ("objects", result_of(r#"{"a":0},"#, 985_000, "0"), "JSON values"),
        ("numbers", result_of("0,", 3_900_000, "0"), "JSON values"),
        ("arrays", result_of("[],", 2_600_000, "0"), "JSON values"),
        ("texts", result_of(r#""","#, 2_600_000, "0"), "JSON values"),
        ("deep", result_of("[", 1_000_000, &format!("0{}", "]".repeat(1_000_000))), "JSON values"),
        ("levels", result_of("[", 200, &format!("0{}", "]".repeat(200))), "levels"),
    ];
    // Results just within the limits.
    let fits = [
        ("fit_objects", result_of(r#"{"a":0},"#, 66_000, "0")),
        ("fit_nested", result_of(r#"{"a":{"a":{"a":{}}}},"#, 28_000, "0")),
        ("fit_numbers", result_of("0,", 199_000, "0")),
        ("fit_escapes", escapes()),
        ("fit_content", content_of(60_000)),
    ];
    let mut tools: Vec<Value> = too_much.iter().map(|(name, does, _)| tool(name, does.clone())).collect();
    tools.extend(fits.iter().map(|(name, does)| tool(name, does.clone())));
    tools.push(tool("small", json!([{"result": {"content": []}}])));
    let script = json!({"tools": tools});
    let json_script = json!({"tools": tools, "http": {"json": true}});
    let servers = [
        Connected::with(script.clone(), limits()).await,
        Connected::at_address(script, limits()).await,
        Connected::at_address(json_script, limits()).await,
    ];
    for server in &servers {
        for (name, _, expected) in &too_much {
            // More at the same time exceed the limit on unfinished messages of one server, which ends the connection.
            let two = [server.failed(name), server.failed(name)];
            for why in futures_util::future::join_all(two).await {
                assert!(why.contains(expected) && why.contains("ask it for less"), "{name} {why}");
            }
            // The connection is still open.
            server.returned("small", json!({})).await;
        }
        for (name, _) in &fits {
            let two = [1, 2].map(|_| async { drop(server.returned(name, json!({})).await) });
            futures_util::future::join_all(two).await;
        }
    }
    // All servers together.
    let all = servers.iter().map(|server| async { drop(server.returned("fit_objects", json!({})).await) });
    futures_util::future::join_all(all).await;
    let page = json!({"on": {"tools/list": result_of("0,", 1_000_000, "0")}, "tools": []});
    for why in [refused(&page).await, refused_at_address(&page).await] {
        assert!(why.contains("JSON values"), "{why}");
    }
    drop(servers);
    before.report().await;
}

#[tokio::test]
#[ignore = "run by the test above"]
async fn one_large_result_in_a_separate_process() {
    large_results(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "run by the test above"]
async fn four_large_results_in_a_separate_process() {
    large_results(4).await;
}

/// Results with a text of 64 MiB, so many at once, over each transport.
async fn large_results(count: usize) {
    let limits = || Limits { call: Duration::from_secs(120), ..limits() };
    let script = json!({"tools": [tool("large", large_text(64 << 20))]});
    let json_script = json!({"tools": [tool("large", large_text(64 << 20))], "http": {"json": true}});
    let servers = [
        Connected::with(script.clone(), limits()).await.with_store_file(),
        Connected::at_address(script, limits()).await.with_store_file(),
        Connected::at_address(json_script, limits()).await.with_store_file(),
    ];
    for server in &servers {
        // The store's own memory does not belong to the results.
        server.store().await;
    }
    let before = MemoryBaseline::now();
    for server in &servers {
        let calls = (0..count).map(|_| server.returned("large", json!({})));
        for returned in futures_util::future::join_all(calls).await {
            assert_eq!(returned.content[0]["bytes"], 64 << 20);
        }
    }
    before.report().await;
}

/// Returns a text of nearly eight million bytes of escapes.
fn escapes() -> Value {
    let before = r#"{"jsonrpc":"2.0","id":$ID,"result":{"content":[],"structuredContent":{"x":""#;
    json!([{"repeated": [before, r"\u0041", 1_300_000, "\"}}}"]}])
}

/// A result whose content has this many blocks.
fn content_of(blocks: usize) -> Value {
    let before = r#"{"jsonrpc":"2.0","id":$ID,"result":{"content":["#;
    json!([{"repeated": [before, r#"{"a":0},"#, blocks, "{}]}}"]}])
}

async fn refused(script: &Value) -> String {
    connect(&Folder::new(), script.clone(), limits()).await.unwrap_err().to_string()
}

async fn refused_at_address(script: &Value) -> String {
    let folder = Folder::new();
    let at = AtAddress::start(&folder, script.clone());
    Server::connect(at.spec(limits())).await.unwrap_err().to_string()
}

/// The memory of this process before a test.
struct MemoryBaseline(u64);

impl MemoryBaseline {
    fn now() -> Self {
        Self(kib("VmHWM"))
    }

    /// Prints the peak growth, and the growth that remains after the test.
    async fn report(self) {
        println!("grown by {}", kib("VmHWM").saturating_sub(self.0));
        tokio::time::sleep(Duration::from_secs(2)).await;
        // As `cellmate mcp` does every few seconds.
        sandbox::release_free_memory();
        println!("kept {}", kib("VmRSS").saturating_sub(self.0));
    }
}

fn kib(field: &str) -> u64 {
    testkit::processes::memory(std::process::id(), field).unwrap() >> 10
}
