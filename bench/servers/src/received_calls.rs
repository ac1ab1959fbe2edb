//! Counts the calls that servers have received, from the files in which they record their input.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Result;
use crate::fleet::Fleet;

/// Timeout for a call to reach its server.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(10);

const LOOK: Duration = Duration::from_millis(2);

/// Runs `start`, which starts a call of this tool, and waits until the server has received the call.
pub(crate) fn until_received<T>(
    fleet: &Fleet,
    server: usize,
    tool: &str,
    start: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let before = times_received(fleet, server, tool);
    let started = start()?;
    let began = Instant::now();
    while times_received(fleet, server, tool) == before {
        if began.elapsed() > ARRIVAL_TIMEOUT {
            return Err(format!("a call of {tool} did not reach its server").into());
        }
        std::thread::sleep(LOOK);
    }
    Ok(started)
}

pub(crate) fn times_received(fleet: &Fleet, server: usize, tool: &str) -> usize {
    let record = std::fs::read_to_string(fleet.record(server)).unwrap_or_default();
    let calls = |line: &str| {
        let message: Value = serde_json::from_str(line).unwrap_or_default();
        message.pointer("/params/name").and_then(Value::as_str) == Some(tool)
    };
    record.lines().filter(|line| line.contains("tools/call") && calls(line)).count()
}
