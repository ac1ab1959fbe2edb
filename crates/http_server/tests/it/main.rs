//! Tests of the request gate at the wire: a client that writes bytes to a socket.
#![expect(clippy::unwrap_used, clippy::panic, clippy::expect_used, reason = "an unexpected value fails the test")]

// The crate's own name here, as in the other crates.
extern crate cellmate_http_server as http_server;

mod bodies;
mod bursts;
mod permissions;
mod revocation;
mod served;
mod tls;
