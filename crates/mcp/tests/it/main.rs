//! The client against servers: one that follows a script, and real ones.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that meets what it does not expect has failed")]

mod cells;
mod fake;
mod hostile;
mod ordinary;
mod peers;
mod served;
