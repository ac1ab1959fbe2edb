//! Tests of the MCP client against a scripted server and real servers, and of the MCP server in process.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "an unexpected value fails the test")]

#[path = "../fake/request.rs"]
mod request;

mod address;
mod authority;
mod beginning;
mod cells;
mod fake;
mod group;
mod hostile;
mod isolation;
mod keeper;
mod kept;
mod login;
mod memory;
mod ordinary;
mod peers;
mod pinning;
mod remembered;
mod served;
mod tasks;
mod upstream;
