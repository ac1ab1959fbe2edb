//! The keys a store knows, by number: one to seal with, and older ones until nothing sealed with them is left.
//!
//! Keys out of a file are looked at again: where something is sealed with one that is not known, and every few seconds
//! before something is sealed. So a rotation needs no restart.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use chacha20poly1305::{KeyInit, XChaCha20Poly1305};

use crate::key_file::{Key, KeyFile, KeyFileError};
use crate::seal::{self, Sealed, Unsealable};

/// How old what is known of a key file may be when something is sealed.
const LOOK_EVERY: Duration = Duration::from_secs(2);

pub struct Keys {
    ring: RwLock<Ring>,
    file: Option<PathBuf>,
}

struct Ring {
    current: u32,
    keys: BTreeMap<u32, Known>,
    looked: Instant,
    /// What the file looked like then: another file has another.
    seen: Option<(u64, i64, i64, u64)>,
}

#[derive(Clone)]
struct Known {
    cipher: XChaCha20Poly1305,
    mark: String,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ring = self.ring.read().unwrap_or_else(PoisonError::into_inner);
        f.debug_struct("Keys").field("current", &ring.current).field("known", &ring.keys.len()).finish_non_exhaustive()
    }
}

impl Keys {
    pub fn new(id: u32, key: [u8; 32]) -> Self {
        let keys = BTreeMap::from([(id, known(&Key { id, secret: key, since: 0 }))]);
        Self { ring: RwLock::new(Ring { current: id, keys, looked: Instant::now(), seen: None }), file: None }
    }

    /// A key for this process alone: what it seals is lost with it.
    pub fn ephemeral() -> Result<Self, getrandom::Error> {
        let mut key = [0; 32];
        getrandom::fill(&mut key)?;
        Ok(Self::new(0, key))
    }

    /// Those of a file, now and as it changes.
    pub fn of_file(path: &Path) -> Result<Self, KeyFileError> {
        let seen = looks(path);
        let ring = Ring::of(&KeyFile::read(path)?, seen).ok_or_else(|| KeyFileError::Empty(path.to_owned()))?;
        Ok(Self { ring: RwLock::new(ring), file: Some(path.to_owned()) })
    }

    /// Knows another key too, for what was sealed with it.
    #[must_use]
    pub fn and_older(self, id: u32, key: [u8; 32]) -> Self {
        let older = known(&Key { id, secret: key, since: 0 });
        self.ring.write().unwrap_or_else(PoisonError::into_inner).keys.entry(id).or_insert(older);
        self
    }

    /// What tells each key from others of its number.
    pub(crate) fn marks(&self) -> Vec<(u32, String)> {
        let ring = self.ring.read().unwrap_or_else(PoisonError::into_inner);
        ring.keys.iter().map(|(id, known)| (*id, known.mark.clone())).collect()
    }

    pub(crate) fn seal(&self, snapshot: &[u8], to: &Sealed<'_>) -> Result<Vec<u8>, Unsealable> {
        self.look_again(LOOK_EVERY);
        let (id, key) = {
            let ring = self.ring.read().unwrap_or_else(PoisonError::into_inner);
            (ring.current, ring.keys.get(&ring.current).cloned())
        };
        let key = key.ok_or(Unsealable::UnknownKey { id })?;
        seal::seal(&key.cipher, id, snapshot, to)
    }

    pub(crate) fn open(&self, bytes: &[u8], to: &Sealed<'_>) -> Result<Vec<u8>, Unsealable> {
        let id = seal::key_of(bytes).ok_or(Unsealable::Damaged)?;
        let key = match self.get(id) {
            Some(key) => key,
            None => {
                self.look_again(Duration::ZERO);
                self.get(id).ok_or(Unsealable::UnknownKey { id })?
            }
        };
        seal::open(&key.cipher, id, bytes, to)
    }

    fn get(&self, id: u32) -> Option<Known> {
        self.ring.read().unwrap_or_else(PoisonError::into_inner).keys.get(&id).cloned()
    }

    /// A file that is away, or no good at the moment, changes nothing: what was known is known.
    fn look_again(&self, after: Duration) {
        let Some(file) = &self.file else { return };
        let (looked, seen) = {
            let ring = self.ring.read().unwrap_or_else(PoisonError::into_inner);
            (ring.looked, ring.seen)
        };
        if looked.elapsed() < after {
            return;
        }
        let now = looks(file);
        let read = if now.is_some() && now != seen { KeyFile::read(file).ok() } else { None };
        let mut ring = self.ring.write().unwrap_or_else(PoisonError::into_inner);
        ring.looked = Instant::now();
        if let Some(new) = read.and_then(|read| Ring::of(&read, now)) {
            *ring = new;
        }
    }
}

impl Ring {
    fn of(file: &KeyFile, seen: Option<(u64, i64, i64, u64)>) -> Option<Self> {
        let current = file.newest()?.id;
        Some(Self {
            current,
            keys: file.keys().map(|key| (key.id, known(key))).collect(),
            looked: Instant::now(),
            seen,
        })
    }
}

fn known(key: &Key) -> Known {
    Known { cipher: XChaCha20Poly1305::new(&key.secret.into()), mark: key.mark() }
}

fn looks(path: &Path) -> Option<(u64, i64, i64, u64)> {
    let found = fs::metadata(path).ok()?;
    Some((found.ino(), found.mtime(), found.mtime_nsec(), found.len()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::{KeyFile, KeyFileError, Keys, Sealed, Unsealable};

    const TO: Sealed<'_> = Sealed { run_id: "cm_1", agent_id: "a", session_id: "s", leg: 3, definition: "{}" };

    #[test]
    fn a_sealed_value_opens_only_in_the_context_it_was_sealed_to() {
        let keys = Keys::new(1, [7; 32]);
        let sealed = keys.seal(b"state", &TO).unwrap();
        assert_eq!(keys.open(&sealed, &TO).unwrap(), b"state");
        for other in [
            Sealed { run_id: "cm_2", ..TO },
            Sealed { agent_id: "b", ..TO },
            Sealed { session_id: "t", ..TO },
            Sealed { leg: 2, ..TO },
            Sealed { definition: "{ }", ..TO },
            Sealed { run_id: "cm_1a", agent_id: "", ..TO },
        ] {
            assert_eq!(keys.open(&sealed, &other), Err(Unsealable::Damaged), "{other:?}");
        }
        for position in 0..sealed.len() {
            let mut flipped = sealed.clone();
            flipped[position] ^= 1;
            let opened = keys.open(&flipped, &TO);
            // The number of the key is in the second to fifth byte.
            let expected = if (1..5).contains(&position) {
                let id = u32::from_le_bytes(flipped[1..5].try_into().unwrap());
                Unsealable::UnknownKey { id }
            } else {
                Unsealable::Damaged
            };
            assert_eq!(opened, Err(expected), "byte {position}");
            assert_eq!(keys.open(&sealed[..position], &TO), Err(Unsealable::Damaged), "cut at {position}");
        }
        assert_eq!(Keys::new(1, [8; 32]).open(&sealed, &TO), Err(Unsealable::Damaged));
    }

    #[test]
    fn an_older_key_opens_what_it_sealed() {
        let sealed = Keys::new(1, [7; 32]).seal(b"state", &TO).unwrap();
        assert_eq!(Keys::new(2, [9; 32]).open(&sealed, &TO), Err(Unsealable::UnknownKey { id: 1 }));
        assert_eq!(Keys::new(2, [9; 32]).and_older(1, [7; 32]).open(&sealed, &TO).unwrap(), b"state");
    }

    fn put(path: &Path, text: &str) {
        let draft = path.with_extension("new");
        fs::write(&draft, text).unwrap();
        fs::set_permissions(&draft, fs::Permissions::from_mode(0o600)).unwrap();
        fs::rename(draft, path).unwrap();
    }

    #[test]
    fn a_running_process_reloads_the_key_file_when_it_meets_an_unknown_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        put(&path, &"07".repeat(32));
        let running = Keys::of_file(&path).unwrap();
        let before = running.seal(b"before", &TO).unwrap();
        let rotated = KeyFile::read(&path).unwrap().rotated([9; 32], 1);
        put(&path, &rotated.text());
        let after = Keys::of_file(&path).unwrap().seal(b"after", &TO).unwrap();
        assert_eq!(after[1], 2);
        assert_eq!(running.open(&after, &TO).unwrap(), b"after");
        assert_eq!(running.open(&before, &TO).unwrap(), b"before");
        assert_eq!(running.seal(b"since", &TO).unwrap()[1], 2, "it now seals with the new key");
        // A removed key no longer opens anything, and a missing file changes nothing.
        put(&path, &rotated.clone().without(&[1]).text());
        assert_eq!(Keys::of_file(&path).unwrap().open(&before, &TO), Err(Unsealable::UnknownKey { id: 1 }));
        fs::remove_file(&path).unwrap();
        assert_eq!(running.open(&after, &TO).unwrap(), b"after");
    }

    #[test]
    fn a_key_file_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        put(&path, &"07".repeat(32));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(Keys::of_file(&path), Err(KeyFileError::Exposed(_))));
    }
}
