//! `web_fetch` with real HTTP servers on this machine and a resolver that the tests control.
//!
//! The servers are reachable only because the tests name their hosts in `allowPrivate`, as a user would.
#![expect(clippy::unwrap_used, clippy::panic, reason = "an unexpected value fails the test")]

// The crate's own name here, as in the other crates.
extern crate cellmate_tools as tools;

mod attacks;
mod pages;
mod site;
