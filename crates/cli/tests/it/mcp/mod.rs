//! `cellmate mcp`, tested with raw JSON-RPC against the real binary, in every supported protocol revision.

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
