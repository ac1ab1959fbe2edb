//! MCP, both ways. [`server`] is what we are to agents: two tools. The rest is what servers are to us: sources of tools,
//! processes of ours, spoken to over their standard streams, and servers at an address, over streamable HTTP.
//!
//! A server is hostile until proven otherwise: whatever it sends is counted, bounded and parsed at the edge
//! (`client`), turned into our own types (`client::offer`, `client::convert`), and only then believed. The protocol library's
//! types stop in `client::wire`.
//!
//! `upstream` has the servers a user configured, running or not; `client` is one connection to one of them; `keeper`
//! sees to it that a server does not outlive us.
//!
//! Not yet: questions a server asks on a tool's behalf (they are declined), tasks that outlive this process.

mod client;
mod keeper;
pub mod server;
mod upstream;

pub use client::{
    BadAddress, BadCallback, Callback, Closed, ConnectError, ConnectFailure, LeftOut, Limits, LoggedIn, Login,
    LoginError, LoginRefused, LoginStatus, NotBuilt, Server, ServerSpec, TooMuch, Transport, login, logout, standing,
};
#[doc(hidden)]
pub use keeper::keep_with;
pub use keeper::keeper_main;
pub use upstream::{
    LastFailure, Restart, ServerState, Status, Unavailable, UnknownServer, Upstream, UpstreamOptions, Upstreams,
    remember,
};
