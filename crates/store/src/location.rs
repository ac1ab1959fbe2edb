//! Where a store lives, and how that is told to people: never with a password.

use std::fmt;
use std::path::{Path, PathBuf};

use url::Url;

use crate::tls;

/// Where a store lives.
#[derive(Clone, PartialEq, Eq)]
pub enum Location {
    /// Gone with the process.
    Memory,
    /// An SQLite file, made if it is not there.
    File(PathBuf),
    /// `postgres://…`
    Postgres(String),
}

/// Says nothing of what was given: it may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadLocation {
    #[error("a store is `postgres://user@host/database`, or the path of a file")]
    Scheme,
    #[error(
        "the store's address cannot be read; it is `postgres://user:password@host:port/database`, and signs in a password are written as %XX"
    )]
    Address,
}

impl Location {
    /// An address of Postgres, or a path.
    pub fn parse(text: &str) -> Result<Self, BadLocation> {
        let text = text.trim();
        match text.split_once("://") {
            None if text.is_empty() => Err(BadLocation::Scheme),
            None => Ok(Self::File(PathBuf::from(text))),
            Some(("postgres" | "postgresql", _)) => {
                Url::parse(text).map_err(|_| BadLocation::Address)?;
                Ok(Self::Postgres(text.to_owned()))
            }
            Some(_) => Err(BadLocation::Scheme),
        }
    }

    /// The same place, with what its address leaves open about TLS decided.
    pub(crate) fn secured(&self) -> Result<Self, tls::Problem> {
        match self {
            Self::Postgres(url) => Ok(Self::Postgres(tls::verified(url)?)),
            Self::Memory | Self::File(_) => Ok(self.clone()),
        }
    }
}

/// For people and logs: who, where and which, and nothing that opens anything.
impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Postgres(url) => f.write_str(&shown(url)),
        }
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Location({self})")
    }
}

fn shown(url: &str) -> String {
    let Ok(url) = Url::parse(url) else { return "postgres".to_owned() };
    let user = if url.username().is_empty() { String::new() } else { format!("{}@", url.username()) };
    let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
    // A socket's folder is written as a parameter; others may be secrets.
    let socket = url.query_pairs().find(|(name, _)| name == "host").map(|(_, folder)| folder.into_owned());
    let host = socket.unwrap_or_else(|| url.host_str().unwrap_or_default().to_owned());
    format!("postgres://{user}{host}{port}{}", url.path())
}

/// A file's address for the driver, in which some signs mean something else.
pub(crate) fn sqlite_url(path: &Path, mode: &str) -> String {
    let path = path.display().to_string().replace('%', "%25").replace('?', "%3F").replace('#', "%23");
    format!("sqlite://{path}?mode={mode}")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{BadLocation, Location};

    #[test]
    fn only_an_address_or_a_path_is_accepted() {
        assert_eq!(Location::parse("runs.db"), Ok(Location::File(PathBuf::from("runs.db"))));
        let url = "postgresql://app:pa%23ss@db.example:6432/cellmate?sslmode=require";
        assert_eq!(Location::parse(url), Ok(Location::Postgres(url.to_owned())));
        for bad in ["", "  ", "mysql://db/x", "http://x"] {
            assert_eq!(Location::parse(bad), Err(BadLocation::Scheme), "{bad}");
        }
        assert_eq!(Location::parse("postgres://app:se#cret@:x:y/"), Err(BadLocation::Address));
    }

    #[test]
    fn a_password_is_never_shown() {
        for url in [
            "postgres://app:hunter2@db.example:6432/cellmate?sslmode=require",
            "postgres://app@db.example:6432/cellmate?password=hunter2",
            "postgres://hunter2:hunter2@[::bad",
        ] {
            let location = Location::Postgres(url.to_owned());
            let (said, debugged) = (location.to_string(), format!("{location:?}"));
            assert!(!said.contains("hunter2") && !debugged.contains("hunter2"), "{said} {debugged}");
        }
        let location = Location::parse("postgres://app:hunter2@db.example:6432/cellmate").unwrap();
        assert_eq!(location.to_string(), "postgres://app@db.example:6432/cellmate");
        let socket = Location::parse("postgres://postgres@localhost/x?host=/run/pg").unwrap();
        assert_eq!(socket.to_string(), "postgres://postgres@/run/pg/x");
    }
}
