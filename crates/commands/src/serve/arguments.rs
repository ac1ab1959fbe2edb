//! The arguments of `cellmate mcp` and `cellmate gateway`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use catalog::SurfaceChoice;
use clap::Args;
use contract::config::pattern::Pattern;
use http_server::{TlsError, TlsFiles, Transport};
use mcp::server::{ApprovalPolicy, ToolPrefix};

use crate::shared_arguments::{ConfigArguments, JailArguments, PolicyArguments, SurfaceArgument};
use crate::state::StoreArguments;

#[derive(Debug, Args)]
#[command(
    mut_arg("tls_cert", |argument| argument.requires("http")),
    mut_arg("behind_proxy", |argument| argument.requires("http")),
    mut_arg("hosts", |argument| argument.requires("http")),
    mut_arg("tokens", |argument| argument.requires("http")),
    mut_arg("no_token", |argument| argument.requires("http")),
)]
pub(crate) struct McpArguments {
    /// Serve HTTP at this address (127.0.0.1:8620 if none is given) instead of stdio; the endpoint is /mcp.
    #[arg(long, value_name = "ADDR", num_args = 0..=1, default_missing_value = "127.0.0.1:8620")]
    pub(super) http: Option<SocketAddr>,
    #[command(flatten)]
    pub(super) http_port: HttpPortArguments,
    #[command(flatten)]
    pub(super) serving: ServingArguments,
    /// Prefix for the names of all tools.
    #[arg(long, value_name = "PREFIX", default_value = "", value_parser = ToolPrefix::parse, hide_default_value = true)]
    pub(super) tool_prefix: ToolPrefix,
}

#[derive(Debug, Args)]
pub(crate) struct GatewayArguments {
    /// Serve HTTP at this address.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:18789")]
    pub(super) listen: SocketAddr,
    #[command(flatten)]
    pub(super) http_port: HttpPortArguments,
    #[command(flatten)]
    pub(super) serving: ServingArguments,
}

/// Who may connect over HTTP, and how.
#[derive(Debug, Args)]
pub(crate) struct HttpPortArguments {
    /// Serve HTTPS with the certificate chain in this PEM file.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// PEM file with the private key of --tls-cert.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Allow addresses that other machines can reach without TLS, because a proxy in front of this server speaks it.
    #[arg(long, conflicts_with = "tls_cert")]
    behind_proxy: bool,
    /// Additional host name that HTTP clients may use; may be repeated.
    #[arg(long = "allow-host", alias = "host", value_name = "NAME")]
    pub(super) hosts: Vec<String>,
    /// File with named tokens for HTTP, one `NAME TOKEN [PERMISSIONS]` per line (`execute,read` if none are given);
    /// only its owner may be able to read it.
    #[arg(long, value_name = "FILE")]
    pub(super) tokens: Option<PathBuf>,
    /// Accept clients on this machine without a token. Refused if other machines can connect.
    #[arg(long, conflicts_with = "tokens")]
    pub(super) no_token: bool,
}

impl HttpPortArguments {
    /// Returns how HTTP connections are protected.
    pub(super) fn transport(&self) -> Result<Transport, TlsError> {
        match (&self.tls_cert, &self.tls_key) {
            (Some(cert), Some(key)) => Transport::tls(&TlsFiles { cert: cert.clone(), key: key.clone() }),
            _ if self.behind_proxy => Ok(Transport::BehindProxy),
            _ => Ok(Transport::Plain),
        }
    }
}

/// What runs of the clients may use, and where they are kept.
#[derive(Debug, Args)]
pub(crate) struct ServingArguments {
    #[command(flatten)]
    pub(super) config: ConfigArguments,
    #[command(flatten)]
    pub(super) store: StoreArguments,
    /// How tools are shown to the model, instead of as `tools.codeMode` and `tools.toolSearch` say.
    #[arg(long, value_enum, value_name = "SURFACE")]
    surface: Option<SurfaceArgument>,
    #[command(flatten)]
    pub(super) policy: PolicyArguments,
    /// Also require approval for tools that match this pattern, even if they only read; may be repeated.
    #[arg(long = "ask", value_name = "PATTERN", value_parser = pattern)]
    ask: Vec<Pattern>,
    /// Never require approval.
    #[arg(long, conflicts_with = "ask")]
    ask_nobody: bool,
    /// Stop a server's process after this time without a call; 0 keeps it running.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    idle_stop: u64,
    #[command(flatten)]
    pub(super) jail: JailArguments,
}

impl ServingArguments {
    pub(super) fn idle_stop(&self) -> Option<Duration> {
        (self.idle_stop > 0).then(|| Duration::from_secs(self.idle_stop))
    }

    pub(super) fn surface(&self) -> Option<SurfaceChoice> {
        self.surface.map(SurfaceArgument::into)
    }

    /// Returns what the command line says about approvals.
    pub(super) fn approvals(&self) -> ApprovalArguments {
        if self.ask_nobody {
            ApprovalArguments::AskNobody
        } else if self.ask.is_empty() {
            ApprovalArguments::AsConfigured
        } else {
            ApprovalArguments::AlsoAsk(self.ask.clone())
        }
    }
}

/// How the command line changes the configured approval policy.
#[derive(Clone, Debug)]
pub(super) enum ApprovalArguments {
    AsConfigured,
    /// Tools that match these patterns need approval, too.
    AlsoAsk(Vec<Pattern>),
    /// No tool needs approval.
    AskNobody,
}

impl ApprovalArguments {
    /// Returns the policy that applies.
    pub(super) fn apply_to(&self, configured: ApprovalPolicy) -> ApprovalPolicy {
        match self {
            Self::AsConfigured => configured,
            Self::AlsoAsk(patterns) => configured.and(patterns.clone()),
            Self::AskNobody => ApprovalPolicy::Never,
        }
    }
}

fn pattern(text: &str) -> Result<Pattern, String> {
    Pattern::parse(text).map_err(|bad| format!("expected {bad}"))
}
