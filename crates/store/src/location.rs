//! The location of a store, its display form without passwords, and the permissions of its file.

use std::fmt;
use std::fs::{self, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use url::Url;

use crate::tls;

/// The location of a store.
#[derive(Clone, PartialEq, Eq)]
pub enum Location {
    /// An in-memory database that ends with the process.
    Memory,
    /// An SQLite file, created if it does not exist.
    File(PathBuf),
    /// The address of a Postgres database, `postgres://…`.
    Postgres(String),
}

/// Why a location is invalid. The message never contains the given text, which may include a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadLocation {
    #[error("invalid store location; expected `postgres://user@host/database` or the path of a file")]
    Scheme,
    #[error(
        "invalid Postgres address; expected `postgres://user:password@host:port/database`, with special characters of the password written as %XX"
    )]
    Address,
}

impl Location {
    /// Parses a Postgres address or a file path.
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

    /// Returns the location with the `sslmode` to connect with: see [`tls::verified`].
    pub(crate) fn secured(&self) -> Result<Self, tls::AddressError> {
        match self {
            Self::Postgres(url) => Ok(Self::Postgres(tls::verified(url)?)),
            Self::Memory | Self::File(_) => Ok(self.clone()),
        }
    }
}

/// For people and logs: user, host and database, without secrets.
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
    // Only the socket directory is taken from the parameters: others may be secrets.
    let socket = url.query_pairs().find(|(name, _)| name == "host").map(|(_, folder)| folder.into_owned());
    let host = socket.unwrap_or_else(|| url.host_str().unwrap_or_default().to_owned());
    format!("postgres://{user}{host}{port}{}", url.path())
}

/// Returns the driver's address for a file, with special characters of the path escaped.
pub(crate) fn sqlite_url(path: &Path, mode: &str) -> String {
    let path = path.display().to_string().replace('%', "%25").replace('?', "%3F").replace('#', "%23");
    format!("sqlite://{path}?mode={mode}")
}

const OWNER_ONLY: u32 = 0o600;
const OTHERS: u32 = 0o077;

/// Suffixes of the files that SQLite creates beside the database, with the database's own permissions.
const COMPANIONS: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Creates the file if it does not exist, and removes the permissions of group and others from it and its companions:
/// a store contains the sources, arguments and results of every run.
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(OWNER_ONLY).open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    tighten(path)?;
    for suffix in COMPANIONS {
        let mut companion = path.as_os_str().to_owned();
        companion.push(suffix);
        match tighten(&PathBuf::from(companion)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn tighten(path: &Path) -> io::Result<()> {
    let found = fs::metadata(path)?;
    let mode = found.permissions().mode();
    // The permissions of a device or pipe are left alone.
    if !found.is_file() || mode & OTHERS == 0 {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(mode & 0o7777 & !OTHERS))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};

    use super::{BadLocation, Location, make_private};

    #[test]
    fn only_postgres_addresses_and_paths_are_accepted() {
        assert_eq!(Location::parse("runs.db"), Ok(Location::File(PathBuf::from("runs.db"))));
        let url = "postgresql://app:pa%23ss@db.example:6432/cellmate?sslmode=require";
        assert_eq!(Location::parse(url), Ok(Location::Postgres(url.to_owned())));
        for bad in ["", "  ", "mysql://db/x", "http://x"] {
            assert_eq!(Location::parse(bad), Err(BadLocation::Scheme), "{bad}");
        }
        assert_eq!(Location::parse("postgres://app:se#cret@:x:y/"), Err(BadLocation::Address));
    }

    #[test]
    fn display_and_debug_never_contain_the_password() {
        for url in [
            "postgres://app:hunter2@db.example:6432/cellmate?sslmode=require",
            "postgres://app@db.example:6432/cellmate?password=hunter2",
            "postgres://hunter2:hunter2@[::bad",
        ] {
            let location = Location::Postgres(url.to_owned());
            let (display, debug) = (location.to_string(), format!("{location:?}"));
            assert!(!display.contains("hunter2") && !debug.contains("hunter2"), "{display} {debug}");
        }
        let location = Location::parse("postgres://app:hunter2@db.example:6432/cellmate").unwrap();
        assert_eq!(location.to_string(), "postgres://app@db.example:6432/cellmate");
        let socket = Location::parse("postgres://postgres@localhost/x?host=/run/pg").unwrap();
        assert_eq!(socket.to_string(), "postgres://postgres@/run/pg/x");
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn new_and_existing_files_become_accessible_to_their_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let (file, wal) = (folder.path().join("runs.db"), folder.path().join("runs.db-wal"));
        make_private(&file).unwrap();
        assert_eq!(mode(&file), 0o600);
        for path in [&file, &wal] {
            fs::write(path, "x").unwrap();
            fs::set_permissions(path, Permissions::from_mode(0o664)).unwrap();
        }
        make_private(&file).unwrap();
        assert_eq!((mode(&file), mode(&wal)), (0o600, 0o600));
        assert_eq!(fs::read(&file).unwrap(), b"x");
    }
}
