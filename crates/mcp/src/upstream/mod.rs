//! The servers that a user has configured, running or not. They are started when needed, restarted after a failure, and
//! stopped when idle; the last listing of their tools is cached. `lifecycle` decides; the other modules act.

mod cache;
mod call;
mod follow;
mod group;
mod lifecycle;
mod listing;
mod mind;
mod one;
mod remember;
mod start;
mod status;

pub use group::{UnknownServer, Upstreams};
pub use lifecycle::Restart;
pub use one::{Unavailable, Upstream, UpstreamOptions};
pub use remember::remember;
pub use status::{LastFailure, ServerState, Status};
