//! The keys of a store, by number: the current key seals snapshots, older keys open snapshots sealed earlier.
//!
//! The key file is checked for changes when a snapshot is sealed with an unknown key, and at most every two seconds
//! before a snapshot is sealed. So a key rotation needs no restart.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use chacha20poly1305::{KeyInit, XChaCha20Poly1305};
use parking_lot::RwLock;

use crate::key_file::{Key, KeyFile, KeyFileError};
use crate::seal::{self, SealError, SnapshotBinding};

/// How long ago the key file may have been checked when a snapshot is sealed.
const CHECK_EVERY: Duration = Duration::from_secs(2);

/// The keys that seal and open snapshots, reloaded when their file changes.
pub struct Keys {
    ring: RwLock<Ring>,
    file: Option<PathBuf>,
}

struct Ring {
    current: u32,
    keys: BTreeMap<u32, LoadedKey>,
    /// When the file was last checked.
    checked_at: Instant,
    /// Inode, modification time and length of the file that was read; a changed file differs in one of them.
    stamp: Option<(u64, i64, i64, u64)>,
}

#[derive(Clone)]
struct LoadedKey {
    cipher: XChaCha20Poly1305,
    fingerprint: String,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ring = self.ring.read();
        f.debug_struct("Keys").field("current", &ring.current).field("known", &ring.keys.len()).finish_non_exhaustive()
    }
}

impl Keys {
    /// Returns a single key that is not backed by a file.
    pub fn new(id: u32, key: [u8; 32]) -> Self {
        let keys = BTreeMap::from([(id, load(&Key { id, secret: key, since: 0 }))]);
        Self { ring: RwLock::new(Ring { current: id, keys, checked_at: Instant::now(), stamp: None }), file: None }
    }

    /// Generates a random key for this process. Snapshots that it seals cannot be opened after the process ends.
    pub fn ephemeral() -> Result<Self, getrandom::Error> {
        let mut key = [0; 32];
        getrandom::fill(&mut key)?;
        Ok(Self::new(0, key))
    }

    /// Loads the keys of a file and follows its changes.
    pub fn of_file(path: &Path) -> Result<Self, KeyFileError> {
        let stamp = file_stamp(path);
        let ring = Ring::of(&KeyFile::read(path)?, stamp).ok_or_else(|| KeyFileError::Empty(path.to_owned()))?;
        Ok(Self { ring: RwLock::new(ring), file: Some(path.to_owned()) })
    }

    /// Returns the number and fingerprint of each key.
    pub(crate) fn fingerprints(&self) -> Vec<(u32, String)> {
        let ring = self.ring.read();
        ring.keys.iter().map(|(id, key)| (*id, key.fingerprint.clone())).collect()
    }

    pub(crate) fn seal(&self, snapshot: &[u8], binding: &SnapshotBinding<'_>) -> Result<Vec<u8>, SealError> {
        self.reload_if_changed(CHECK_EVERY);
        let (id, key) = {
            let ring = self.ring.read();
            (ring.current, ring.keys.get(&ring.current).cloned())
        };
        let key = key.ok_or(SealError::UnknownKey { id })?;
        seal::seal(&key.cipher, id, snapshot, binding)
    }

    pub(crate) fn open(&self, bytes: &[u8], binding: &SnapshotBinding<'_>) -> Result<Vec<u8>, SealError> {
        let id = seal::key_id_of(bytes).ok_or(SealError::Damaged)?;
        let key = match self.get(id) {
            Some(key) => key,
            None => {
                self.reload_if_changed(Duration::ZERO);
                self.get(id).ok_or(SealError::UnknownKey { id })?
            }
        };
        seal::open(&key.cipher, id, bytes, binding)
    }

    fn get(&self, id: u32) -> Option<LoadedKey> {
        self.ring.read().keys.get(&id).cloned()
    }

    /// Reads the file again if it has changed and was not checked within `after`. If the file is missing or invalid,
    /// the loaded keys stay.
    fn reload_if_changed(&self, after: Duration) {
        let Some(file) = &self.file else { return };
        let (checked_at, stamp) = {
            let ring = self.ring.read();
            (ring.checked_at, ring.stamp)
        };
        if checked_at.elapsed() < after {
            return;
        }
        let now = file_stamp(file);
        let read = (now.is_some() && now != stamp).then(|| KeyFile::read(file)).and_then(|read| match read {
            Ok(read) => Some(read),
            Err(error) => {
                tracing::warn!(%error, "cannot reload the key file; the loaded keys stay in use");
                None
            }
        });
        let mut ring = self.ring.write();
        ring.checked_at = Instant::now();
        if let Some(new) = read.and_then(|read| Ring::of(&read, now)) {
            *ring = new;
        }
    }
}

impl Ring {
    fn of(file: &KeyFile, stamp: Option<(u64, i64, i64, u64)>) -> Option<Self> {
        let current = file.newest()?.id;
        Some(Self {
            current,
            keys: file.keys().map(|key| (key.id, load(key))).collect(),
            checked_at: Instant::now(),
            stamp,
        })
    }
}

fn load(key: &Key) -> LoadedKey {
    LoadedKey { cipher: XChaCha20Poly1305::new(&key.secret.into()), fingerprint: key.fingerprint() }
}

fn file_stamp(path: &Path) -> Option<(u64, i64, i64, u64)> {
    let found = fs::metadata(path).ok()?;
    Some((found.ino(), found.mtime(), found.mtime_nsec(), found.len()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use contract::ids::RunId;

    use super::{KeyFile, KeyFileError, Keys, SealError, SnapshotBinding};

    fn binding(run_id: &RunId) -> SnapshotBinding<'_> {
        SnapshotBinding { run_id, agent_id: "a", session_id: "s", leg: 3, definition: "{}" }
    }

    #[test]
    fn a_snapshot_opens_only_with_the_binding_it_was_sealed_with() {
        let keys = Keys::new(1, [7; 32]);
        let [run_id, other_run, longer_run] = ["cm_1", "cm_2", "cm_1a"].map(RunId::from);
        let bound = binding(&run_id);
        let sealed = keys.seal(b"state", &bound).unwrap();
        assert_eq!(keys.open(&sealed, &bound).unwrap(), b"state");
        for other in [
            SnapshotBinding { run_id: &other_run, ..bound },
            SnapshotBinding { agent_id: "b", ..bound },
            SnapshotBinding { session_id: "t", ..bound },
            SnapshotBinding { leg: 2, ..bound },
            SnapshotBinding { definition: "{ }", ..bound },
            SnapshotBinding { run_id: &longer_run, agent_id: "", ..bound },
        ] {
            assert_eq!(keys.open(&sealed, &other), Err(SealError::Damaged), "{other:?}");
        }
        for position in 0..sealed.len() {
            let mut flipped = sealed.clone();
            flipped[position] ^= 1;
            let opened = keys.open(&flipped, &bound);
            // Bytes 1 to 4 are the key's number.
            let expected = if (1..5).contains(&position) {
                let id = u32::from_le_bytes(flipped[1..5].try_into().unwrap());
                SealError::UnknownKey { id }
            } else {
                SealError::Damaged
            };
            assert_eq!(opened, Err(expected), "byte {position}");
            assert_eq!(keys.open(&sealed[..position], &bound), Err(SealError::Damaged), "cut at {position}");
        }
        assert_eq!(Keys::new(1, [8; 32]).open(&sealed, &bound), Err(SealError::Damaged));
    }

    fn put(path: &Path, text: &str) {
        let draft = path.with_extension("new");
        fs::write(&draft, text).unwrap();
        fs::set_permissions(&draft, fs::Permissions::from_mode(0o600)).unwrap();
        fs::rename(draft, path).unwrap();
    }

    #[test]
    fn a_running_process_loads_a_new_key_when_it_opens_a_snapshot_sealed_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        put(&path, &"07".repeat(32));
        let running = Keys::of_file(&path).unwrap();
        let run_id = RunId::from("cm_1");
        let bound = binding(&run_id);
        let before = running.seal(b"before", &bound).unwrap();
        let rotated = KeyFile::read(&path).unwrap().rotated([9; 32], 1);
        put(&path, &rotated.text());
        let after = Keys::of_file(&path).unwrap().seal(b"after", &bound).unwrap();
        assert_eq!(Keys::new(1, [7; 32]).open(&after, &bound), Err(SealError::UnknownKey { id: 2 }));
        assert_eq!(after[1], 2);
        assert_eq!(running.open(&after, &bound).unwrap(), b"after");
        assert_eq!(running.open(&before, &bound).unwrap(), b"before");
        assert_eq!(running.seal(b"since", &bound).unwrap()[1], 2, "the new key seals from now on");
        // A removed key opens nothing, and a missing file leaves the loaded keys as they are.
        put(&path, &rotated.clone().without(&[1]).text());
        assert_eq!(Keys::of_file(&path).unwrap().open(&before, &bound), Err(SealError::UnknownKey { id: 1 }));
        fs::remove_file(&path).unwrap();
        assert_eq!(running.open(&after, &bound).unwrap(), b"after");
    }

    #[test]
    fn a_key_file_that_others_can_read_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        put(&path, &"07".repeat(32));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(Keys::of_file(&path), Err(KeyFileError::Exposed(_))));
    }
}
