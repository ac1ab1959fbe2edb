//! `cellmate mcp` as agents use it: raw JSON-RPC to the real binary, in every revision of the protocol.

mod approvals;
mod approving;
mod batches;
mod by_hand;
mod cancel;
mod clients;
mod core_files;
mod core_tools;
mod eras;
mod http;
mod keys;
mod lean;
mod log;
mod lost;
mod models;
mod parked;
mod place;
mod questions;
mod reload;
mod runs;
mod sessions;
mod starting;
mod stores;
mod strangers;
mod totals;
