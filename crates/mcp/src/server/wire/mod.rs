//! The protocol, spoken: one handler for every revision and both transports. The protocol library's types end here.

mod asked;
mod calls;
mod cancels;
mod handler;
mod http;
mod pump;
mod sessions;
mod shown;
mod state;
mod streams;

pub(crate) use http::{endpoint, is_modern_version, session_of};
pub use streams::{ServeError, serve_streams};

/// What a server says of itself before anybody has asked for its tools.
const INSTRUCTIONS: &str = "Two tools stand for all others: `exec` runs a JavaScript or TypeScript cell that finds and \
    calls tools and returns only what matters; `wait` goes on with a cell that waits, or finds one whose answer was lost.";

/// One message from a client.
const MAX_MESSAGE_BYTES: usize = super::http::limits::MAX_BODY_BYTES;
