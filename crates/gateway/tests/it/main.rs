//! Tests of the gateway through HTTP: a scripted model behind it, a plain HTTP client in front of it, and the real code
//! between them.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that meets what it does not expect has failed"
)]

// The crate's own name here, as in the other crates.
extern crate cellmate_gateway as gateway;

mod answer;
mod api_client;
mod api_events;
mod api_fuzz;
mod api_invoke;
mod api_routes;
mod api_sessions;
mod api_turns;
mod checker;
mod clients;
mod compaction;
mod continuations;
mod errors;
mod faults;
mod headers;
mod limits;
mod mandatory;
mod nodes;
mod parallel;
mod reasoning;
mod streams;
mod turns;
mod world;
