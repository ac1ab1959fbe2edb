//! MCP, both ways. [`server`] is what we are to agents: two tools. The rest is what servers are to us: sources of
//! tools, a process per server, spoken to over its standard streams.
//!
//! A server is hostile until proven otherwise: whatever it sends is counted, bounded and parsed at the edge
//! (`client`), turned into our own types (`client::offer`, `client::convert`), and only then believed. The protocol library's
//! types stop in `client::wire`.
//!
//! Not yet: starting a dead server again, hearing that its tools changed, questions it asks on a tool's behalf, tasks,
//! servers over HTTP, and ending servers when we are killed outright (see `client::process`).

mod client;
pub mod server;

pub use client::{Closed, ConnectError, ConnectFailure, LeftOut, Limits, Server, ServerSpec, TooMuch};
