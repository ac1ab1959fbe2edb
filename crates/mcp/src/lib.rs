//! MCP in both directions. [`server`] offers the tools `exec` and `wait` to agents. The other modules call upstream MCP
//! servers, which are the sources of tools: child processes over standard streams, and remote servers over streamable
//! HTTP.
//!
//! An upstream server is not trusted: everything it sends is counted, bounded and parsed at the edge (`client`), and
//! converted into Cellmate's own types (`client::catalog`) before anything else uses it. The protocol
//! library's types stop in `client::wire` and `server::wire`.
//!
//! `upstream` manages the servers a user configured, running or not; `client` is one connection to one of them.

#![cfg_attr(not(test), warn(clippy::print_stdout))]

mod client;
pub mod server;
mod upstream;

pub use client::{
    BadAddress, BadCallback, CHECK_STDERR, Callback, ClientBuildError, ConnectError, ConnectFailure, DisconnectReason,
    LeftOutTool, Limits, ListLimitError, Login, LoginError, LoginFailure, LoginGrant, LoginStatus, Server, ServerSpec,
    Transport, UnreachableCause, login, login_status, logout,
};
pub use upstream::{
    LastFailure, Restart, ServerState, Status, Unavailable, UnknownServer, Upstream, UpstreamOptions, Upstreams,
    remember,
};
