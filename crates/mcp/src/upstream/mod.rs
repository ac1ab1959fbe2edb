//! The servers that a user has configured, running or not. They are started when needed, restarted after a failure, and
//! stopped when idle; the last listing of their tools is cached.
//!
//! `process::Lifecycle` decides. `supervisor` holds the state of one server, and `start`, `monitor` and `calls` act on it.
//! [`Upstream`] is the public handle of one server, [`Upstreams`] of all of them.

mod cache;
mod calls;
mod group;
mod monitor;
mod server;
mod start;
mod status;
mod supervisor;

pub use cache::{LastFailure, remember};
pub use group::{UnknownServer, Upstreams};
pub use process::Restart;
pub use server::Upstream;
pub use start::Unavailable;
pub use status::{ServerState, Status};
pub use supervisor::UpstreamOptions;
