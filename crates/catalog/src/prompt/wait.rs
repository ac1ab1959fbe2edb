//! The description of `wait`.

use contract::config::CodeMode;
use contract::limits::MAX_WAIT_DESCRIPTION_UNITS;

use super::Channel;
use super::amount::{size, time};
use super::units::cut;

pub fn wait(config: &CodeMode, channel: Channel<'_>) -> String {
    let limits = &config.limits;
    let exec = channel.exec_name();
    let wait = time(limits.max_wait_ms);
    let (without_id, until, with_message) = match channel {
        Channel::Contract(_) => ("", format!("when only a person's answer is missing, or after {wait}"), ""),
        // The person may be at another terminal, and a client without forms has no other way to wait.
        Channel::Mcp(_) => {
            (WITHOUT_RUN_ID, format!("or after {wait}, also if only a person's answer is missing"), WITH_MESSAGE)
        }
    };
    let text = format!(
        "\
Resumes a cell whose status is \"waiting\" and returns its next result, in the shape that `{exec}` returns. Pass its \
`runId`.{without_id}
The cell keeps its variables, and its calls continue between your turns. This returns when the cell completes, fails \
or yields, {until}; while the status is \"waiting\", call it \
again.{with_message}
A completed or failed cell cannot be resumed. A waiting one can be for {ttl} after its last activity; its own code may \
run for {timeout} in each call, and its suspended state may take {snapshot}.",
        timeout = time(limits.timeout_ms),
        ttl = time(config.snapshot_ttl_seconds.saturating_mul(1000)),
        snapshot = size(limits.snapshot_bytes),
    );
    // The text is shorter; this guards against later changes.
    cut(text, MAX_WAIT_DESCRIPTION_UNITS)
}

/// Over MCP a `runId` can be lost with the connection.
const WITHOUT_RUN_ID: &str = " Without it, this waits for your only live cell, or lists them. If a result was lost, \
    call this before you run the cell again: it may already have taken effect.";

const WITH_MESSAGE: &str = " If the result has a `message`, pass it on to your user first.";
