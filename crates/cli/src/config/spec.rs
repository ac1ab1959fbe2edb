//! From a configured server to the one that is started or reached: the only file that knows both.

use mcp::{Limits, Login, ServerSpec, Transport};

use super::places::Places;
use super::server::{ServerEntry, TransportEntry};

impl ServerEntry {
    pub(crate) fn spec(&self) -> ServerSpec {
        let limits = Limits {
            connect: self.startup.unwrap_or(Limits::DEFAULT.connect),
            call: self.call.unwrap_or(Limits::DEFAULT.call),
            ..Limits::DEFAULT
        };
        let transport = match self.transport.clone() {
            TransportEntry::Stdio { command, args, env, cwd } => Transport::Stdio { command, args, env, cwd },
            TransportEntry::Http { url, headers } => {
                let tokens = Places::here(&[]).state_home.map(|state| state.join("cellmate/tokens"));
                Transport::Http { url, headers, login: tokens.map(Login::new) }
            }
        };
        ServerSpec { name: self.name.clone(), transport, trusted: self.trusted, limits }
    }
}
