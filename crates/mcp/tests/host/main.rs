//! A host process that tests can kill: `mcp-host servers.json`, a list of `{name, command, args}`. It starts the
//! servers, prints `ready`, and waits. Tests also use it as the keeper program.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a list that is wrong ends the host, and its test")]

// The crate's own name here, as in the other crates.
extern crate cellmate_mcp as mcp;

use std::collections::BTreeMap;

use mcp::{Limits, ServerSpec, Transport, UpstreamOptions, Upstreams};
use serde_json::Value;

fn main() {
    process::keeper_main();

    let path = std::env::args().nth(1).expect("usage: mcp-host servers.json");
    let servers: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let upstreams = Upstreams::new(servers.iter().map(spec).collect(), &UpstreamOptions::DEFAULT);
        let missing = upstreams.listed().await;
        assert!(missing.is_empty(), "{missing:?}");
        println!("ready");
        std::future::pending::<()>().await;
    });
}

fn spec(server: &Value) -> ServerSpec {
    let text = |key: &str| server.get(key).and_then(Value::as_str).unwrap().to_owned();
    let args = server.get("args").and_then(Value::as_array).unwrap();
    ServerSpec {
        name: text("name"),
        transport: Transport::Stdio {
            command: text("command"),
            args: args.iter().map(|arg| arg.as_str().unwrap().to_owned()).collect(),
            env: BTreeMap::new(),
            cwd: None,
        },
        trusted: false,
        limits: Limits::DEFAULT,
    }
}
