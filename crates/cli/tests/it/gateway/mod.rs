//! `cellmate gateway` as applications use it: the real binary with a scripted model and a scripted MCP server, over the
//! three wires.

mod client_tools;
mod contract;
mod operating;
mod running;
mod turns;
mod wires;
