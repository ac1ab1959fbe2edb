//! What must hold when the host is killed, and what Tool Search promises.

mod host;
mod killed;
mod tool_search;
