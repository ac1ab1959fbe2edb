//! What can be typed after `cellmate mcp`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use contract::config::pattern::Pattern;
use mcp::server::ToolPrefix;

use crate::config::ConfigArguments;
use crate::jail::JailArguments;
use crate::state::StoreArguments;

#[derive(Debug, Args)]
pub(crate) struct McpArguments {
    /// Serve HTTP at this address in place of standard streams; the endpoint is /mcp.
    #[arg(long, value_name = "ADDR", num_args = 0..=1, default_missing_value = "127.0.0.1:8620")]
    pub(crate) http: Option<SocketAddr>,
    /// A further name under which HTTP clients may reach the server.
    #[arg(long = "allow-host", value_name = "NAME", requires = "http")]
    pub(crate) hosts: Vec<String>,
    /// Named tokens for HTTP, a line each: a name, a blank, the token. Only its owner may read the file.
    #[arg(long, value_name = "FILE", requires = "http")]
    pub(crate) tokens: Option<PathBuf>,
    /// Let everybody on this machine in without a token. Refused where other machines could come in, too.
    #[arg(long, requires = "http", conflicts_with = "tokens")]
    pub(crate) no_token: bool,
    #[command(flatten)]
    pub(crate) config: ConfigArguments,
    #[command(flatten)]
    pub(crate) store: StoreArguments,
    /// Put this before the names of both tools.
    #[arg(long, value_name = "PREFIX", default_value = "", value_parser = ToolPrefix::parse, hide_default_value = true)]
    pub(crate) tool_prefix: ToolPrefix,
    /// Ask a person only about tools that these patterns name.
    #[arg(long = "ask", value_name = "PATTERN", value_parser = pattern)]
    pub(crate) ask: Vec<Pattern>,
    /// Ask nobody about anything.
    #[arg(long, conflicts_with = "ask")]
    pub(crate) ask_nobody: bool,
    /// Stop a server's process after so long without a call; 0 lets it run.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    idle_stop: u64,
    #[command(flatten)]
    pub(crate) jail: JailArguments,
}

impl McpArguments {
    pub(crate) fn idle_stop(&self) -> Option<Duration> {
        (self.idle_stop > 0).then(|| Duration::from_secs(self.idle_stop))
    }
}

fn pattern(text: &str) -> Result<Pattern, String> {
    Pattern::parse(text).map_err(|bad| format!("expected {bad}"))
}
