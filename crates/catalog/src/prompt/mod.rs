//! The descriptions of the control tools: all that a model knows before it writes its first cell.
//!
//! Equal catalogs and limits give equal bytes, so that providers can cache the prompt.

mod amount;
mod exec;
mod namespaces;
mod tool_search;

use contract::config::CodeMode;

use amount::{size, time};

pub use exec::exec;
pub use tool_search::{tool_call, tool_describe, tool_search, tool_search_code};

pub fn wait(config: &CodeMode) -> String {
    let limits = &config.limits;
    format!(
        "\
Resumes a cell that `exec` or an earlier `wait` left at status \"waiting\". Pass its `runId`; the result has the same \
shape as that of `exec`.

The cell keeps its variables, and its tool calls continue between your turns. `wait` returns when the cell completes, \
fails or yields, when only a person's answer is missing, or after {wait}; while the status is still \"waiting\", call \
it again. The cell's own code has {timeout} in each `wait`.
A cell can be resumed only by the run and session that started it, for {ttl} after its last activity. Suspended, it \
may take {snapshot}, compressed. A completed or failed cell cannot be resumed; start a new one with `exec`.",
        wait = time(limits.max_wait_ms),
        timeout = time(limits.timeout_ms),
        ttl = time(config.snapshot_ttl_seconds.saturating_mul(1000)),
        snapshot = size(limits.snapshot_bytes),
    )
}

#[cfg(test)]
mod tests;
