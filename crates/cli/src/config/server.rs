//! One configured MCP server, with all variables expanded.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use mcp::Transport;

use super::clients::Client;
use super::shown;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ServerEntry {
    pub(crate) name: String,
    pub(crate) transport: Transport,
    pub(crate) enabled: bool,
    /// Whether its statements about its tools, such as that they only read, are trusted. Only the user's own files can
    /// set this.
    pub(crate) trusted: bool,
    /// If given, only these tools are offered.
    pub(crate) only_tools: Option<Vec<String>>,
    pub(crate) without_tools: Vec<String>,
    /// The time limit from its start to its tool list.
    pub(crate) startup: Option<Duration>,
    /// The time limit of a call.
    pub(crate) call: Option<Duration>,
    pub(crate) origin: Origin,
    /// The command or URL for people to read, as written: variables are not expanded and secrets are hidden.
    pub(crate) shown: String,
}

/// Where a server is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) file: PathBuf,
    /// Counted from one.
    pub(crate) line: usize,
    pub(crate) source: Source,
}

/// The kind of file that a server comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Named with `--config` or `$CELLMATE_CONFIG`.
    Named,
    User,
    Project,
    Import(Client),
}

impl Source {
    /// Whether the file is the user's own, so that it may mark servers as trusted.
    pub(crate) fn is_the_users(self) -> bool {
        match self {
            Self::Named | Self::User => true,
            Self::Project | Self::Import(_) => false,
        }
    }

    /// Whether the file is for cellmate, and not for another client.
    pub(crate) fn is_ours(self) -> bool {
        match self {
            Self::Named | Self::User | Self::Project => true,
            Self::Import(_) => false,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Named => "named",
            Self::User => "user",
            Self::Project => "project",
            Self::Import(client) => client.name(),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", shown::path(&self.file), self.line)
    }
}

/// A part of a file that cannot be used. The rest of the file is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) file: PathBuf,
    pub(crate) line: Option<usize>,
    pub(crate) server: Option<String>,
    pub(crate) message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", shown::path(&self.file))?;
        self.line.iter().try_for_each(|line| write!(f, ":{line}"))?;
        self.server.iter().try_for_each(|server| write!(f, ": server `{}`", shown::plain(server)))?;
        write!(f, ": {}", contract::text::line(&self.message, usize::MAX))
    }
}
