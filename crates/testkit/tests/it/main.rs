//! Integration tests: the promises of the contract with real components, and crash safety.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that meets what it does not expect has failed"
)]

// The crate's own name here, as in the other crates.
extern crate cellmate_testkit as testkit;

mod fake_tools;
mod recording_hook;
mod world;

mod activation;
mod contract_map;
mod layering;
mod visibility;

mod approvals;
mod budgets;
mod hooks;
mod retried_calls;
mod standing_rules;

mod codes;
mod ending;
mod expiry;
mod waiting;

mod effects;
mod namespaces;
mod results;
mod secrets;
mod session_values;
mod stored_outputs;
mod storm;
mod transcript;

mod crash;
mod faults;
mod host;
mod hostile;
mod journal;
mod lying_worker;
mod replaying;
mod simulation;
mod tls;
mod tool_search;
mod upgrade;
