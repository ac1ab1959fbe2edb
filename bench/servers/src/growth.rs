//! Measures one size of fleet: the time until all servers are ready, memory, and the time of a cell with one call.

use std::time::{Duration, Instant};

use figures::machine::{mebibytes, resident_bytes};
use figures::{Facts, Samples};
use serde_json::json;

use crate::fleet::Fleet;
use crate::report::milliseconds;
use crate::{Result, cells};

/// Longer than any fleet may take to start.
const READY_TIMEOUT: Duration = Duration::from_secs(120);

const LOOK: Duration = Duration::from_millis(20);

const CALLS: usize = 50;

/// Prints the figures as one line of JSON.
pub(crate) fn measure(fleet: &Fleet, servers: usize) -> Result<bool> {
    let mut facts = Facts::default();
    let (client, began) = (fleet.serve(&fleet.new_state())?, Instant::now());
    loop {
        // The catalog itself says how many servers it lists; those that are starting are not among them.
        let (listed, answer) = client.exec("return (await MCP.$api()).servers.length")?;
        if listed == json!(servers) {
            facts.add("ready_ms", milliseconds(client.since_start(&answer)));
            break;
        }
        if began.elapsed() > READY_TIMEOUT {
            return Err(format!("only {listed} of {servers} servers are ready").into());
        }
        std::thread::sleep(LOOK);
    }
    facts.add("memory_mib", mebibytes(resident_bytes(&client.pid().to_string())?));
    // The first call of a connection is not measured.
    cells::ask_one(&client, servers - 1)?;
    let mut calls = Samples::default();
    for _ in 0..CALLS {
        let sent = Instant::now();
        let answer = cells::ask_one(&client, servers - 1)?;
        calls.push(milliseconds(answer.received.saturating_duration_since(sent)));
    }
    facts.add("call_p50_ms", calls.p50());
    facts.add("call_p99_ms", calls.p99());
    client.end()?;
    facts.verdict::<&str>(&[])
}
