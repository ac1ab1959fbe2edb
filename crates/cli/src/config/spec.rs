//! From a configured server to the one that is started: the only file that knows both.

use mcp::{Limits, ServerSpec};

use super::server::{ServerEntry, TransportEntry};

/// Why a configured server cannot be started by this build.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreachable {
    #[error("it is reached over HTTP, which this version cannot do yet; use a server that is started as a command")]
    Http,
}

impl ServerEntry {
    pub(crate) fn spec(&self) -> Result<ServerSpec, Unreachable> {
        let TransportEntry::Stdio { command, args, env, cwd } = self.transport.clone() else {
            return Err(Unreachable::Http);
        };
        let limits = Limits {
            connect: self.startup.unwrap_or(Limits::DEFAULT.connect),
            call: self.call.unwrap_or(Limits::DEFAULT.call),
            ..Limits::DEFAULT
        };
        Ok(ServerSpec { name: self.name.clone(), command, args, env, cwd, trusted: self.trusted, limits })
    }
}
