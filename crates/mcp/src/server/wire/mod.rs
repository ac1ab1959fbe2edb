//! The protocol implementation: one handler for every revision and both transports. The protocol library's types stop
//! here.

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

/// The instructions that the server sends in its `initialize` result.
const INSTRUCTIONS: &str = "Two tools give access to all others: `exec` runs a JavaScript or TypeScript cell that \
    finds and calls tools and returns only what matters; `wait` resumes a waiting cell, or recovers a lost result.";

/// The maximum size of one message from a client.
const MAX_MESSAGE_BYTES: usize = super::http::limits::MAX_BODY_BYTES;
