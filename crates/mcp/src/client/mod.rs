//! Connections to MCP servers.
//!
//! `spec` says how a server is reached, [`Server`] is one connection to it. `http` and, in the crate `process`, standard streams are the transports,
//! `wire` is the protocol session on top of them, `oauth` is the login. `catalog` converts the offered tools, their
//! calls and their results; `questions` and `tasks` handle calls that need a person or that continue later.

mod catalog;
mod disconnect;
mod downloads;
mod http;
mod oauth;
mod questions;
mod server;
mod spec;
mod stray;
mod tasks;
mod wire;

pub(crate) use catalog::Offer;
pub use catalog::{LeftOutTool, ListLimitError};
pub use disconnect::{DisconnectReason, UnreachableCause};
pub use http::{BadAddress, ClientBuildError};
pub use oauth::{BadCallback, Callback, LoginError, LoginGrant, LoginStatus, login, login_status, logout};
pub(crate) use server::Attempt;
pub use server::{CHECK_STDERR, ConnectError, ConnectFailure, Server};
pub(crate) use spec::{HintTrust, MAX_SHOWN_CHARS, MAX_SHOWN_NAME_CHARS, plain_url, shown};
pub use spec::{Limits, Login, ServerSpec, Transport};
pub(crate) use tasks::{FollowOutcome, TicketContent};
pub use wire::LoginFailure;
pub(crate) use wire::{Handshake, Request, RequestError, Session, Stdio};
