//! The state folder: runs, the key that seals suspended cells, tokens and the user's secrets, readable only by its owner.
//!
//! Several processes may use it at once; the first one creates what is missing. Runs can be stored elsewhere:
//! `store_settings` decides where.

mod secret_file;
pub(crate) mod store_check;
mod store_settings;

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use client_config::ConfigError;
use contract::limits::MAX_CONFIG_FILE_BYTES;
use rustix::fs::{FlockOperation, flock};
use store::{BadLocation, KeyFileError, StoreError};

pub(crate) use secret_file::{SecretFile, SecretFileError, places_here};
pub(crate) use store::{create_private_file, replace_private_file};
pub(crate) use store_settings::{ConfiguredStore, StoreArguments, StoreSettings, configured_location};

#[derive(Debug, thiserror::Error)]
pub(crate) enum StateError {
    #[error("cannot find a folder for state; set HOME or XDG_STATE_HOME, or pass --state-dir")]
    NoHome,
    #[error("cannot use `{path}`: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error("`{0}` can be read by others; run `chmod 600` on it, and replace the secrets in it")]
    Exposed(PathBuf),
    #[error("others can write to the folder `{0}`; run `chmod 700` on it, or choose another with --state-dir")]
    Shared(PathBuf),
    #[error("`{0}` has more than {MAX_CONFIG_FILE_BYTES} bytes; shorten it")]
    TooLong(PathBuf),
    #[error(transparent)]
    Key(#[from] KeyFileError),
    #[error(transparent)]
    Location(#[from] BadLocation),
    #[error("configuration: {0}")]
    Settings(String),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("{location}: {error}")]
    Store { location: String, error: StoreError },
    #[error("cannot read system randomness: {0}")]
    Randomness(#[from] getrandom::Error),
}

#[derive(Clone, Debug)]
pub(crate) struct State {
    folder: PathBuf,
}

impl State {
    pub(crate) fn open(given: Option<&Path>) -> Result<Self, StateError> {
        let folder = match given {
            Some(folder) => folder.to_owned(),
            None => default_folder().ok_or(StateError::NoHome)?,
        };
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(|source| at(&folder, source))?;
        make_private(&folder)?;
        Ok(Self { folder })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Reads the secret of this name, 32 random bytes in hexadecimal digits; creates it if it does not exist.
    pub(crate) fn secret(&self, name: &str) -> Result<String, StateError> {
        let path = self.path(name);
        if !path.exists() {
            make_secret(&path)?;
        }
        read_secret(&path)
    }
}

/// Removes other users' access to the folder.
///
/// A folder that others can write to and whose mode we must not or cannot change, such as `/tmp`, is refused: others
/// could replace our files with theirs.
fn make_private(folder: &Path) -> Result<(), StateError> {
    let found = fs::metadata(folder).map_err(|source| at(folder, source))?;
    match privacy(found.mode()) {
        Privacy::Private => Ok(()),
        Privacy::Refused => Err(StateError::Shared(folder.to_owned())),
        Privacy::Tightened { is_writable } => {
            match fs::set_permissions(folder, Permissions::from_mode(0o700)) {
                // Another user's folder, which only that user can write to.
                Err(_) if !is_writable => Ok(()),
                Err(_) => Err(StateError::Shared(folder.to_owned())),
                Ok(()) => Ok(()),
            }
        }
    }
}

/// How a folder with a given mode is made private.
#[derive(Debug, PartialEq, Eq)]
enum Privacy {
    Private,
    /// Others can read the folder, and can write to it if `is_writable`; the mode is to be tightened.
    Tightened {
        is_writable: bool,
    },
    Refused,
}

fn privacy(mode: u32) -> Privacy {
    let (is_shared_by_design, is_writable) = (mode & 0o1000 != 0, mode & 0o022 != 0);
    match mode & 0o077 {
        0 => Privacy::Private,
        _ if is_shared_by_design => Privacy::Refused,
        _ => Privacy::Tightened { is_writable },
    }
}

/// Creates a file with a random secret, atomically: of two processes that do so at once, both use the first one's.
pub(crate) fn make_secret(path: &Path) -> Result<(), StateError> {
    let mut random = [0; 32];
    getrandom::fill(&mut random)?;
    create_private_file(path, format!("{}\n", hex::encode(random))).map_err(|source| at(path, source))
}

/// Locks a file for a change, until the returned lock file is closed: of two concurrent changes, one would be lost.
pub(crate) fn lock_beside(path: &Path) -> io::Result<fs::File> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".lock");
    let lock = path.with_file_name(name);
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(lock)?;
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}

/// Reads a file of at most [`MAX_CONFIG_FILE_BYTES`]; fails if others than its owner can read it.
pub(crate) fn read_secret(path: &Path) -> Result<String, StateError> {
    let file = fs::File::open(path).map_err(|source| at(path, source))?;
    let mode = file.metadata().map_err(|source| at(path, source))?.mode();
    if mode & 0o077 != 0 {
        return Err(StateError::Exposed(path.to_owned()));
    }
    let mut text = String::new();
    file.take(MAX_CONFIG_FILE_BYTES as u64 + 1).read_to_string(&mut text).map_err(|source| at(path, source))?;
    if text.len() > MAX_CONFIG_FILE_BYTES {
        return Err(StateError::TooLong(path.to_owned()));
    }
    Ok(text)
}

fn default_folder() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let states = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(states.join("cellmate"))
}

fn at(path: &Path, source: io::Error) -> StateError {
    StateError::File { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::{Privacy, privacy};

    #[test]
    fn a_folder_is_made_private_unless_it_is_meant_to_be_shared() {
        assert_eq!(privacy(0o40700), Privacy::Private);
        for mode in [0o40755, 0o40750, 0o40711] {
            assert_eq!(privacy(mode), Privacy::Tightened { is_writable: false }, "{mode:o}");
        }
        for mode in [0o40777, 0o40775, 0o40722] {
            assert_eq!(privacy(mode), Privacy::Tightened { is_writable: true }, "{mode:o}");
        }
        assert_eq!(privacy(0o41777), Privacy::Refused);
    }
}
