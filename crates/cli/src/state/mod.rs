//! What outlives a command: runs, the key their cells are sealed with, and tokens, in a folder only its owner can read.
//!
//! Several processes use it at once. Whoever comes first makes what is not there; the others find it. Runs can be kept
//! elsewhere: `place` decides where.

pub(crate) mod look;
mod place;

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use contract::limits::MAX_CONFIG_FILE_BYTES;
use store::{BadLocation, KeyFileError, StoreError};

use crate::config::ConfigError;

pub(crate) use place::{ConfiguredStore, StoreArguments, StoreSettings};

#[derive(Debug, thiserror::Error)]
pub(crate) enum StateError {
    #[error("there is no home to keep state in; set XDG_STATE_HOME, or give --state-dir")]
    NoHome,
    #[error("cannot use `{path}`: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error("`{0}` can be read by others; `chmod 600` it, and replace what it holds")]
    Exposed(PathBuf),
    #[error("others can write to the folder `{0}`; `chmod 700` it, or choose another with --state-dir")]
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
    #[error("the system has no randomness to give: {0}")]
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
            None => usual_folder().ok_or(StateError::NoHome)?,
        };
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(|source| at(&folder, source))?;
        keep_from_others(&folder)?;
        Ok(Self { folder })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A secret of 32 random bytes in hexadecimal digits, made where there is none.
    pub(crate) fn secret(&self, name: &str) -> Result<String, StateError> {
        let path = self.path(name);
        if !path.exists() {
            make_secret(&path)?;
        }
        read_secret(&path)
    }
}

/// A folder of ours is taken from everybody else. One that others can write to and that is not ours alone to change,
/// such as `/tmp`, is refused: they could put files of theirs in the place of ours.
fn keep_from_others(folder: &Path) -> Result<(), StateError> {
    let found = fs::metadata(folder).map_err(|source| at(folder, source))?;
    match privacy(found.mode()) {
        Privacy::Private => Ok(()),
        Privacy::Refused => Err(StateError::Shared(folder.to_owned())),
        Privacy::Tightened { is_writable } => {
            match fs::set_permissions(folder, Permissions::from_mode(0o700)) {
                // Somebody else's folder, in which nobody but them can do harm.
                Err(_) if !is_writable => Ok(()),
                Err(_) => Err(StateError::Shared(folder.to_owned())),
                Ok(()) => Ok(()),
            }
        }
    }
}

/// What is to be done about a folder with this mode.
#[derive(Debug, PartialEq, Eq)]
enum Privacy {
    Private,
    /// Others than its owner can look into it, or even write to it.
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

/// Written beside its place and put there whole: who looks in between finds nothing or all of it, and of two who
/// come at once the second takes what the first made.
fn make_secret(path: &Path) -> Result<(), StateError> {
    let mut random = [0; 32];
    getrandom::fill(&mut random)?;
    put_new(path, &format!("{}\n", hex(&random))).map_err(|source| at(path, source))
}

/// Puts a file of its owner's alone where none is. One that is there already stays.
pub(crate) fn put_new(path: &Path, text: &str) -> io::Result<()> {
    let draft = draft(path, text.as_bytes())?;
    let put = match fs::hard_link(&draft, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    };
    drop(fs::remove_file(&draft));
    put
}

/// Puts a file of its owner's alone in the place of another, whole.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let draft = draft(path, text.as_bytes())?;
    fs::rename(&draft, path).inspect_err(|_| drop(fs::remove_file(&draft)))
}

/// A new file beside `path`, written through to the disk.
fn draft(path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let draft = path.with_file_name(format!(".secret-{}-{}", std::process::id(), hex(&random)));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    Ok(draft)
}

/// A file that only its owner can read, of at most [`MAX_CONFIG_FILE_BYTES`].
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

fn usual_folder() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let states = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(states.join("cellmate"))
}

fn at(path: &Path, source: io::Error) -> StateError {
    StateError::File { path: path.to_owned(), source }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
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
