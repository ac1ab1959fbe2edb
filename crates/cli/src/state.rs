//! What outlives a command: runs, the key their cells are sealed with, and tokens, in a folder only its owner can read.
//!
//! Several processes use it at once. Whoever comes first makes what is not there; the others find it.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use store::{Keys, Location, Store, StoreError};

/// The key's number in what is sealed with it; another key would be another number.
const KEY_ID: u32 = 1;

#[derive(Debug, thiserror::Error)]
pub(crate) enum StateError {
    #[error("there is no home to keep state in; set XDG_STATE_HOME, or give --state-dir")]
    NoHome,
    #[error("cannot use `{path}`: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error("`{0}` can be read by others; `chmod 600` it, and replace what it holds")]
    Exposed(PathBuf),
    #[error("`{0}` does not hold a key of 64 hexadecimal digits; restore it, or remove it together with runs.db")]
    BadKey(PathBuf),
    #[error(transparent)]
    Store(#[from] StoreError),
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
        Ok(Self { folder })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(crate) async fn store(&self, key: &[u8; 32]) -> Result<Store, StateError> {
        Ok(Store::open(&Location::File(self.path("runs.db")), Keys::new(KEY_ID, *key)).await?)
    }

    pub(crate) fn key(&self) -> Result<[u8; 32], StateError> {
        let path = self.path("key");
        let text = self.secret("key")?;
        from_hex(text.trim()).ok_or(StateError::BadKey(path))
    }

    /// A secret of 32 random bytes in hexadecimal digits, made where there is none.
    pub(crate) fn secret(&self, name: &str) -> Result<String, StateError> {
        let path = self.path(name);
        if !path.exists() {
            self.make_secret(&path)?;
        }
        read_secret(&path)
    }

    /// Written beside its place and put there whole: who looks in between finds nothing or all of it, and of two who
    /// come at once the second takes what the first made.
    fn make_secret(&self, path: &Path) -> Result<(), StateError> {
        let mut random = [0; 32];
        getrandom::fill(&mut random)?;
        let draft = self.path(&format!(".secret-{}-{}", std::process::id(), hex(random.get(..8).unwrap_or_default())));
        getrandom::fill(&mut random)?;
        let written = (|| {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
            file.write_all(format!("{}\n", hex(&random)).as_bytes())?;
            file.sync_all()?;
            match fs::hard_link(&draft, path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                other => other,
            }
        })();
        drop(fs::remove_file(&draft));
        written.map_err(|source| at(path, source))
    }
}

/// A file that only its owner can read.
pub(crate) fn read_secret(path: &Path) -> Result<String, StateError> {
    let mode = fs::metadata(path).map_err(|source| at(path, source))?.mode();
    if mode & 0o077 != 0 {
        return Err(StateError::Exposed(path.to_owned()));
    }
    fs::read_to_string(path).map_err(|source| at(path, source))
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

fn from_hex(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    let mut key = [0; 32];
    for (position, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(position * 2..position * 2 + 2)?, 16).ok()?;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::{from_hex, hex};

    #[test]
    fn a_key_is_read_as_it_was_written() {
        let key: [u8; 32] = std::array::from_fn(|n| n as u8 * 7);
        assert_eq!(from_hex(&hex(&key)), Some(key));
        for bad in ["", "00", &"g".repeat(64), &"ä".repeat(32)] {
            assert_eq!(from_hex(bad), None, "{bad}");
        }
    }
}
