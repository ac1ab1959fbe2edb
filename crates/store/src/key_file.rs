//! The key file: one line per key. The newest key seals new snapshots.
//!
//! A file with a single line that is only a key predates key numbers; that key is key 1.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use hex::FromHex;
use sha2::{Digest, Sha256};

use crate::Millis;
use crate::private_file::create_private_file;

/// Enough for weekly rotation over a year.
const MAX_KEYS: usize = 64;
const MAX_FILE_BYTES: u64 = 16 << 10;

const FIRST_LINE: &str =
    "# Cellmate keys: number, key, creation time in milliseconds since 1970. The last key seals.\n";

/// A key. Its secret is written only to the key file, never to logs or `Debug` output.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    pub id: u32,
    pub secret: [u8; 32],
    /// When the key was created; 0 if unknown.
    pub since: Millis,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("id", &self.id).field("since", &self.since).finish_non_exhaustive()
    }
}

impl Key {
    /// Returns a fingerprint that identifies the key without revealing it.
    pub fn fingerprint(&self) -> String {
        let digest = Sha256::new().chain_update(b"cellmate key mark 1").chain_update(self.secret).finalize();
        hex::encode(digest.get(..16).unwrap_or_default())
    }
}

/// Why a key file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    #[error("cannot read key file `{path}`: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error("cannot create key file `{path}`: {source}; choose a path in a folder where you may create files")]
    Create { path: PathBuf, source: io::Error },
    #[error(
        "key file `{0}` does not exist; copy it from a machine that uses the store, or create the first key with `cellmate keys rotate`"
    )]
    Missing(PathBuf),
    #[error("key file `{0}` can be read by others; run `chmod 600` on it, and replace its keys")]
    Exposed(PathBuf),
    #[error(
        "key file `{path}`, line {line}: expected a number that is not yet used, a key of 64 hexadecimal digits and a time; restore the file, or remove it together with the store"
    )]
    Line { path: PathBuf, line: usize },
    #[error("key file `{0}` holds no key; restore it, or remove it together with the store")]
    Empty(PathBuf),
    #[error("key file `{0}` holds more than {MAX_KEYS} keys; remove unneeded keys with `cellmate keys prune`")]
    TooMany(PathBuf),
}

/// The keys of a key file by number; there is at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFile {
    keys: BTreeMap<u32, Key>,
}

impl KeyFile {
    /// Reads a key file. Fails if users other than its owner can access it.
    pub fn read(path: &Path) -> Result<Self, KeyFileError> {
        let at = |source| KeyFileError::File { path: path.to_owned(), source };
        let found = match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(KeyFileError::Missing(path.to_owned()));
            }
            found => found.map_err(at)?,
        };
        if found.mode() & 0o077 != 0 {
            return Err(KeyFileError::Exposed(path.to_owned()));
        }
        if found.len() > MAX_FILE_BYTES {
            return Err(KeyFileError::TooMany(path.to_owned()));
        }
        let mut text = String::new();
        fs::File::open(path).map_err(at)?.take(MAX_FILE_BYTES).read_to_string(&mut text).map_err(at)?;
        Self::parse(&text, path)
    }

    /// Creates a key file with one new key, unless the file exists: of two processes that do so at once, both use the
    /// first one's.
    pub fn create_if_missing(path: &Path, now: Millis) -> Result<(), KeyFileError> {
        if path.exists() {
            return Ok(());
        }
        let at = |source| KeyFileError::Create { path: path.to_owned(), source };
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(|error| at(io::Error::other(error)))?;
        let first = Self { keys: BTreeMap::from([(1, Key { id: 1, secret, since: now })]) };
        create_private_file(path, first.text()).map_err(at)
    }

    /// Parses the text of a key file. `path` is used only in errors.
    pub fn parse(text: &str, path: &Path) -> Result<Self, KeyFileError> {
        let mut keys = BTreeMap::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let bad = || KeyFileError::Line { path: path.to_owned(), line: number + 1 };
            let key = key(line).ok_or_else(bad)?;
            if keys.insert(key.id, key).is_some() {
                return Err(bad());
            }
        }
        match keys.len() {
            0 => Err(KeyFileError::Empty(path.to_owned())),
            count if count > MAX_KEYS => Err(KeyFileError::TooMany(path.to_owned())),
            _ => Ok(Self { keys }),
        }
    }

    /// Returns the text of the key file.
    pub fn text(&self) -> String {
        let lines = self.keys.values().map(|key| format!("{} {} {}\n", key.id, hex::encode(key.secret), key.since));
        lines.fold(FIRST_LINE.to_owned(), |text, line| text + &line)
    }

    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.keys.values()
    }

    /// Returns the key that seals new snapshots.
    pub fn newest(&self) -> Option<&Key> {
        self.keys.values().next_back()
    }

    /// Adds a new key, which seals from now on.
    #[must_use]
    pub fn rotated(mut self, secret: [u8; 32], now: Millis) -> Self {
        let id = self.newest().map_or(0, |key| key.id).saturating_add(1);
        self.keys.insert(id, Key { id, secret, since: now });
        self
    }

    /// Removes keys. The newest key always stays.
    #[must_use]
    pub fn without(mut self, ids: &[u32]) -> Self {
        let newest = self.newest().map(|key| key.id);
        self.keys.retain(|id, _| Some(*id) == newest || !ids.contains(id));
        self
    }

    /// Returns the keys that have sealed nothing since `then`, because a newer key existed by that time.
    pub fn replaced_before(&self, then: Millis) -> Vec<u32> {
        let younger = self.keys.values().skip(1).map(|key| key.since);
        let replaced = self.keys.values().zip(younger);
        replaced.filter(|(_, since)| *since <= then).map(|(key, _)| key.id).collect()
    }
}

fn key(line: &str) -> Option<Key> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        [secret] => Some(Key { id: 1, secret: secret_of(secret)?, since: 0 }),
        [id, secret, since] => {
            let since = since.parse().ok().filter(|since| *since >= 0)?;
            Some(Key { id: id.parse().ok().filter(|id| *id > 0)?, secret: secret_of(secret)?, since })
        }
        _ => None,
    }
}

fn secret_of(text: &str) -> Option<[u8; 32]> {
    <[u8; 32]>::from_hex(text).ok()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{KeyFile, KeyFileError};

    fn parse(text: &str) -> Result<KeyFile, KeyFileError> {
        KeyFile::parse(text, Path::new("key"))
    }

    #[test]
    fn a_single_key_without_a_number_is_key_1_and_can_be_rotated() {
        let old = parse(&format!("{}\n", "07".repeat(32))).unwrap();
        assert_eq!(old.newest().map(|key| (key.id, key.secret, key.since)), Some((1, [7; 32], 0)));
        let new = old.rotated([9; 32], 500);
        assert_eq!(new.newest().map(|key| (key.id, key.secret)), Some((2, [9; 32])));
        assert_eq!(parse(&new.text()).unwrap(), new);
    }

    #[test]
    fn only_replaced_keys_can_be_removed_and_never_the_newest() {
        let keys = parse(&"01".repeat(32)).unwrap().rotated([2; 32], 100).rotated([3; 32], 200);
        assert_eq!(keys.replaced_before(99), [0_u32; 0]);
        assert_eq!(keys.replaced_before(100), [1]);
        assert_eq!(keys.replaced_before(9_000), [1, 2]);
        let left = keys.without(&[1, 2, 3]);
        assert_eq!(left.keys().map(|key| key.id).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn an_invalid_key_file_is_rejected_with_its_line_number() {
        let good = hex::encode([5; 32]);
        for bad in ["xx", "1 00 0", &format!("0 {good} 1"), &format!("1 {good} -1"), &format!("{good} {good}")] {
            assert!(matches!(parse(bad), Err(KeyFileError::Line { line: 1, .. })), "{bad}");
        }
        assert!(matches!(parse(&format!("1 {good} 1\n1 {good} 2")), Err(KeyFileError::Line { line: 2, .. })));
        assert!(matches!(parse("# none\n\n"), Err(KeyFileError::Empty(_))));
        let many: String = (1..=65).map(|id| format!("{id} {good} 1\n")).collect();
        assert!(matches!(parse(&many), Err(KeyFileError::TooMany(_))));
        assert!(!format!("{:?}", parse(&good).unwrap()).contains(&good[..8]));
    }
}
