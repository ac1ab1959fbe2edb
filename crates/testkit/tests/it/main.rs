//! What must hold when the host is killed, and when its cells are hostile.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that meets what it does not expect has failed"
)]

mod host;
mod hostile;
mod killed;
