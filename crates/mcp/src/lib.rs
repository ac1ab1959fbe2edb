//! MCP servers as sources of tools: processes of ours, spoken to over their standard streams, and servers at an address,
//! over streamable HTTP.
//!
//! A server is hostile until proven otherwise: whatever it sends is counted, bounded and parsed at the edge
//! (`client`), turned into our own types (`client::offer`, `client::convert`), and only then believed. The protocol library's
//! types stop in `client::wire`.
//!
//! Not yet: starting a dead server again, questions it asks on a tool's behalf (they are declined), tasks that outlive
//! this process, and ending servers when we are killed outright (see `client::process`).

mod client;

pub use client::{
    BadAddress, Closed, ConnectError, ConnectFailure, LeftOut, Limits, LoggedIn, Login, LoginError, LoginRefused,
    NotBuilt, Server, ServerSpec, TooMuch, Transport, login, logout,
};
