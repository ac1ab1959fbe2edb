//! What servers have heard, as they wrote it down.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Result;
use crate::fleet::Fleet;

/// How long a call may take to reach a server.
const REACHED: Duration = Duration::from_secs(10);

const LOOK: Duration = Duration::from_millis(2);

/// Does something that makes a server hear a call of this tool, and waits until it has.
pub(crate) fn until_heard<T>(fleet: &Fleet, server: usize, tool: &str, done: impl FnOnce() -> Result<T>) -> Result<T> {
    let before = times_heard(fleet, server, tool);
    let came_to = done()?;
    let began = Instant::now();
    while times_heard(fleet, server, tool) == before {
        if began.elapsed() > REACHED {
            return Err(format!("a call of {tool} did not reach its server").into());
        }
        std::thread::sleep(LOOK);
    }
    Ok(came_to)
}

pub(crate) fn times_heard(fleet: &Fleet, server: usize, tool: &str) -> usize {
    let heard = std::fs::read_to_string(fleet.heard(server)).unwrap_or_default();
    let calls = |line: &str| {
        let message: Value = serde_json::from_str(line).unwrap_or_default();
        message.pointer("/params/name").and_then(Value::as_str) == Some(tool)
    };
    heard.lines().filter(|line| line.contains("tools/call") && calls(line)).count()
}
