//! Connections to MCP servers: their processes and transports, and the conversion of their tools to Cellmate's types.

mod asked;
mod callback;
mod closed;
mod convert;
mod envelope;
mod follow;
mod http;
mod intake;
mod lines;
mod login;
mod offer;
mod process;
mod promoted;
mod server;
mod spec;
mod stderr;
mod task;
mod ticket;
mod tokens;
mod wire;

pub use callback::{BadCallback, Callback};
pub use closed::Closed;
pub(crate) use follow::Followed;
pub use http::{BadAddress, NotBuilt};
pub use login::{LoggedIn, LoginError, LoginStatus, login, logout, standing};
pub(crate) use offer::Offer;
pub use offer::{LeftOut, TooMuch};
pub(crate) use process::{Gone, Process, Started};
pub(crate) use server::Attempt;
pub use server::{ConnectError, ConnectFailure, Server};
pub use spec::{Limits, Login, ServerSpec, Transport};
pub(crate) use spec::{MAX_SHOWN_CHARS, MAX_SHOWN_NAME_CHARS, plain_url, shown};
pub(crate) use stderr::{Draining, Tail};
pub(crate) use ticket::Ticket;
pub use wire::LoginRefused;
pub(crate) use wire::{Handshake, Request, RequestError, Session, Stdio};
