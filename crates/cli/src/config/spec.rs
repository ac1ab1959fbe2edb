//! Converts a configured server to the specification that the MCP client takes.

use mcp::{Limits, ServerSpec};

use super::server::ServerEntry;

impl ServerEntry {
    pub(crate) fn spec(&self) -> ServerSpec {
        let limits = Limits {
            connect: self.startup.unwrap_or(Limits::DEFAULT.connect),
            call: self.call.unwrap_or(Limits::DEFAULT.call),
            ..Limits::DEFAULT
        };
        ServerSpec { name: self.name.clone(), transport: self.transport.clone(), trusted: self.trusted, limits }
    }
}
