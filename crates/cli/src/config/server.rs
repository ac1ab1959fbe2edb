//! One MCP server as somebody configured it, every variable filled in.

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
    /// Whether what it says about its own tools is believed. Only the user's own files can say so.
    pub(crate) trusted: bool,
    /// Where given, no other tool of it is offered.
    pub(crate) only_tools: Option<Vec<String>>,
    pub(crate) without_tools: Vec<String>,
    /// From starting it to having its tools.
    pub(crate) startup: Option<Duration>,
    /// From sending a call to its answer.
    pub(crate) call: Option<Duration>,
    pub(crate) origin: Origin,
    /// The command or address as it was written, variables not filled in and secrets left out: for people to read.
    pub(crate) shown: String,
}

/// Where a server is written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) file: PathBuf,
    /// Counted from one.
    pub(crate) line: usize,
    pub(crate) source: Source,
}

/// Why a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// By `--config` or `$CELLMATE_CONFIG`.
    Named,
    User,
    Project,
    Import(Client),
}

impl Source {
    /// Whether the file is the user's own word, so that it may say which servers are believed about their own tools.
    pub(crate) fn is_the_users(self) -> bool {
        match self {
            Self::Named | Self::User => true,
            Self::Project | Self::Import(_) => false,
        }
    }

    /// Whether the file is written for us, and not for another client.
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

/// Something in a file that cannot be used. Everything else in it can.
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
