//! The descriptions of the control tools: all that a model knows before it writes its first cell.
//!
//! Clients cut long descriptions, so the most important part comes first, and every list is bounded. Equal catalogs and
//! limits give equal bytes, so that providers can cache the prompt.

mod amount;
mod example;
mod exec;
mod namespaces;
mod servers;
mod tool_search;
mod units;
mod wait;

pub use exec::{ExecTexts, exec};
pub use tool_search::{tool_call, tool_describe, tool_search, tool_search_code};
pub use wait::wait;

use contract::config::CodeMode;

/// How long an `exec` of the contract waits for the tool calls of its cell before it returns "waiting".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExecHold {
    /// `timeoutMs`, which then limits the code and its calls together.
    #[default]
    Timeout,
    /// `maxWaitMs`, as long as a `wait`, unless `timeoutMs` is configured.
    MaxWait,
}

impl ExecHold {
    pub fn ms(self, config: &CodeMode) -> u64 {
        match self {
            Self::MaxWait if !config.has_own_timeout => config.limits.max_wait_ms,
            Self::MaxWait | Self::Timeout => config.limits.timeout_ms,
        }
    }
}

/// How the model reaches `exec` and `wait`: it determines what results contain, and how long a call takes.
#[derive(Clone, Copy, Debug)]
pub enum Channel<'a> {
    /// The host program shows the tools and results of the contract.
    Contract(ExecHold),
    Mcp(McpChannel<'a>),
}

/// The two tools over MCP, where clients may rename them.
#[derive(Clone, Copy, Debug)]
pub struct McpChannel<'a> {
    /// The name of `exec`.
    pub exec: &'a str,
    /// The name of `wait`.
    pub wait: &'a str,
    /// How long an `exec` waits for pending calls.
    pub hold_ms: u64,
}

impl Channel<'_> {
    fn exec_name(&self) -> &str {
        match self {
            Self::Contract(_) => "exec",
            Self::Mcp(channel) => channel.exec,
        }
    }

    fn wait_name(&self) -> &str {
        match self {
            Self::Contract(_) => "wait",
            Self::Mcp(channel) => channel.wait,
        }
    }
}

#[cfg(test)]
mod tests;
