//! The arguments of `cellmate mcp`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use contract::config::pattern::Pattern;
use http_server::{TlsError, TlsFiles, Transport};
use mcp::server::ToolPrefix;

use crate::shared_arguments::{ConfigArguments, JailArguments, PolicyArguments, SurfaceArgument};
use crate::state::StoreArguments;

#[derive(Debug, Args)]
pub(crate) struct McpArguments {
    /// Serve HTTP at this address instead of stdio; the endpoint is /mcp.
    #[arg(long, value_name = "ADDR", num_args = 0..=1, default_missing_value = "127.0.0.1:8620")]
    pub(crate) http: Option<SocketAddr>,
    /// Serve HTTPS with the certificate chain in this PEM file.
    #[arg(long, value_name = "FILE", requires = "http", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// PEM file with the private key of --tls-cert.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Allow addresses that other machines can reach without TLS, because a proxy in front of this server speaks it.
    #[arg(long, requires = "http", conflicts_with = "tls_cert")]
    pub(crate) behind_proxy: bool,
    /// Additional host name that HTTP clients may use; may be repeated.
    #[arg(long = "allow-host", value_name = "NAME", requires = "http")]
    pub(crate) hosts: Vec<String>,
    /// File with named tokens for HTTP, one `NAME TOKEN` per line; only its owner may be able to read it.
    #[arg(long, value_name = "FILE", requires = "http")]
    pub(crate) tokens: Option<PathBuf>,
    /// Accept clients on this machine without a token. Refused if other machines can connect.
    #[arg(long, requires = "http", conflicts_with = "tokens")]
    pub(crate) no_token: bool,
    #[command(flatten)]
    pub(crate) config: ConfigArguments,
    #[command(flatten)]
    pub(crate) store: StoreArguments,
    /// How tools are shown to the model, instead of as `tools.codeMode` and `tools.toolSearch` say.
    #[arg(long, value_enum, value_name = "SURFACE")]
    pub(crate) surface: Option<SurfaceArgument>,
    #[command(flatten)]
    pub(crate) policy: PolicyArguments,
    /// Prefix for the names of all tools.
    #[arg(long, value_name = "PREFIX", default_value = "", value_parser = ToolPrefix::parse, hide_default_value = true)]
    pub(crate) tool_prefix: ToolPrefix,
    /// Require approval only for tools that match this pattern; may be repeated.
    #[arg(long = "ask", value_name = "PATTERN", value_parser = pattern)]
    pub(crate) ask: Vec<Pattern>,
    /// Never require approval.
    #[arg(long, conflicts_with = "ask")]
    pub(crate) ask_nobody: bool,
    /// Stop a server's process after this time without a call; 0 keeps it running.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    idle_stop: u64,
    #[command(flatten)]
    pub(crate) jail: JailArguments,
}

impl McpArguments {
    pub(crate) fn idle_stop(&self) -> Option<Duration> {
        (self.idle_stop > 0).then(|| Duration::from_secs(self.idle_stop))
    }

    /// Returns how HTTP connections are protected.
    pub(crate) fn transport(&self) -> Result<Transport, TlsError> {
        match (&self.tls_cert, &self.tls_key) {
            (Some(cert), Some(key)) => Transport::tls(&TlsFiles { cert: cert.clone(), key: key.clone() }),
            _ if self.behind_proxy => Ok(Transport::BehindProxy),
            _ => Ok(Transport::Plain),
        }
    }
}

fn pattern(text: &str) -> Result<Pattern, String> {
    Pattern::parse(text).map_err(|bad| format!("expected {bad}"))
}
