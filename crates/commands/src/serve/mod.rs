//! The commands that serve clients until they are stopped: `cellmate mcp` and `cellmate gateway`.

mod arguments;
mod gateway;
mod http_port;
mod mcp;
mod models;
mod reload;
mod startup;
mod tokens;

pub(crate) use arguments::{GatewayArguments, McpArguments};
pub(crate) use gateway::run as run_gateway;
pub(crate) use mcp::run as run_mcp;
pub(crate) use models::Models;
