//! The servers a user has configured, running or not: started when needed, started again when they fall, stopped when
//! idle, and known by what they last listed. `lifecycle` decides; the rest acts.

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
