//! A configured MCP server, with all variables expanded, and problems with the configuration of servers.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mcp::{Limits, ServerSpec, Transport};
use telemetry::Redactor;

use crate::clients::Client;
use crate::display;

/// A configured server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerEntry {
    pub name: String,
    pub transport: Transport,
    pub enabled: bool,
    /// Whether its statements about its tools, such as that they only read, are trusted. Only the user's own files can
    /// set this.
    pub trusted: bool,
    /// The tools that are offered; all if `None`.
    pub only_tools: Option<Vec<String>>,
    pub without_tools: Vec<String>,
    /// The time limit from its start to its tool list.
    pub startup: Option<Duration>,
    /// The time limit of a call.
    pub call: Option<Duration>,
    pub origin: Origin,
    /// The command or URL for people to read, as written: variables are not expanded and secrets are hidden.
    pub shown: String,
}

/// Shorter values are not masked: they are too common in other text.
const MIN_SECRET_BYTES: usize = 5;

impl ServerEntry {
    /// Returns the specification that the MCP client takes.
    pub fn spec(&self) -> ServerSpec {
        let default = Limits::for_transport(&self.transport);
        let limits = Limits {
            connect: self.startup.unwrap_or(default.connect),
            call: self.call.unwrap_or(default.call),
            ..default
        };
        ServerSpec { name: self.name.clone(), transport: self.transport.clone(), trusted: self.trusted, limits }
    }

    /// Masks the secrets that the server was given: servers repeat them in their error messages.
    pub fn without_secrets(&self, text: &str) -> String {
        let values: Vec<&String> = match &self.transport {
            Transport::Stdio { env, .. } => env.values().chain(self.hidden_arguments()).collect(),
            Transport::Http { headers, url, login } => {
                let secret = login.as_ref().and_then(|login| login.client_secret.as_ref());
                headers.values().chain([url]).chain(secret).collect()
            }
        };
        let words = values.into_iter().flat_map(|value| value.split(' '));
        let secrets = words.filter(|word| word.len() >= MIN_SECRET_BYTES);
        let masked = secrets.fold(text.to_owned(), |text, secret| text.replace(secret, display::HIDDEN));
        // Parts of values, such as a secret inside a URL.
        Redactor::global().redact(&masked).into_owned()
    }

    /// Returns the arguments that look like a secret or came from a variable, which `shown` leaves out. A path is
    /// neither.
    pub(crate) fn hidden_arguments(&self) -> impl Iterator<Item = &String> {
        let args = match &self.transport {
            Transport::Stdio { args, .. } => args.as_slice(),
            Transport::Http { .. } => &[],
        };
        args.iter().filter(|arg| !arg.starts_with('/') && !self.shown.contains(arg.as_str()))
    }

    /// Whether the command runs `cellmate mcp`, by name or by this program's path, directly or through a package runner
    /// or shell. Such a server would start itself recursively.
    pub(crate) fn starts_cellmate(&self) -> bool {
        let Transport::Stdio { command, args, .. } = &self.transport else { return false };
        let words: Vec<&str> = std::iter::once(command.as_str()).chain(args.iter().map(String::as_str)).collect();
        runs_cellmate(&words)
    }
}

/// Whether the words of a command line run `cellmate mcp`.
pub(crate) fn runs_cellmate(words: &[&str]) -> bool {
    words.array_windows::<2>().any(|[program, verb]| *verb == "mcp" && is_our_program(program))
}

fn is_our_program(program: &str) -> bool {
    let path = Path::new(program);
    let same_file = || Some(path.canonicalize().ok()? == std::env::current_exe().ok()?.canonicalize().ok()?);
    path.file_name().is_some_and(|name| name == "cellmate") || same_file().unwrap_or(false)
}

/// Where a server is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub file: PathBuf,
    /// The number of the line, counted from one.
    pub line: usize,
    pub source: Source,
}

/// The kind of file that a server comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Named with `--config` or `$CELLMATE_CONFIG`.
    Named,
    User,
    Project,
    Import(Client),
}

impl Source {
    /// Whether the file is the user's own, so that it may mark servers as trusted.
    pub fn is_the_users(self) -> bool {
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

    /// Returns the name of the source, which the commands print.
    pub fn as_str(self) -> &'static str {
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
        write!(f, "{}:{}", display::path(&self.file), self.line)
    }
}

/// A part of a file that cannot be used. The rest of the file is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub file: PathBuf,
    pub line: Option<usize>,
    pub server: Option<String>,
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", display::path(&self.file))?;
        self.line.iter().try_for_each(|line| write!(f, ":{line}"))?;
        self.server.iter().try_for_each(|server| write!(f, ": server `{}`", display::plain(server)))?;
        write!(f, ": {}", contract::text::line(&self.message, usize::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::runs_cellmate;

    #[test]
    fn commands_that_start_cellmate_are_recognised() {
        let us = |command: &str, args: &[&str]| runs_cellmate(&[&[command], args].concat());
        let me = std::env::current_exe().unwrap().display().to_string();
        assert!(us("cellmate", &["mcp"]) && us("/opt/cellmate", &["mcp", "--config", "x"]) && us(&me, &["mcp"]));
        assert!(us("env", &["A=1", "/opt/cellmate", "mcp"]));
        assert!(!us("cellmate", &["exec"]) && !us("npx", &["mcp"]) && !us("cellmates", &["mcp"]));
    }
}
