//! What must hold when the host is killed.

mod host;
mod killed;
