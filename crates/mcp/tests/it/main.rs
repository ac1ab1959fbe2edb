//! Tests of the client with a scripted server and with real ones.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that meets what it does not expect has failed"
)]

// The crate's own name here, as in the other crates.
extern crate cellmate_mcp as mcp;

#[path = "../fake/request.rs"]
mod request;

mod address;
mod authority;
mod cells;
mod definition_approvals;
mod fake;
mod group;
mod handshake;
mod hostile;
mod isolation;
mod keeper;
mod large_results;
mod list_cache;
mod login;
mod memory;
mod ordinary;
mod outputs;
mod peers;
mod served;
mod tasks;
mod test_upstream;
mod upstream;
