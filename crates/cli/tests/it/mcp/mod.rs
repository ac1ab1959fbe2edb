//! `cellmate mcp` as agents meet it: raw JSON-RPC at the real binary, in every revision of the protocol.

mod approvals;
mod approving;
mod cancel;
mod clients;
mod eras;
mod http;
mod keys;
mod lost;
mod parked;
mod place;
mod questions;
mod runs;
mod sessions;
mod stores;
mod strangers;
