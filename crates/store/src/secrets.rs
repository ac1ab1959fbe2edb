//! The user's secrets by name, sealed as a whole with the newest key of a key file.
//!
//! The file that holds them is not part of the store: secrets stay on one machine. Reading and writing it is up to the
//! caller.

use std::collections::BTreeMap;
use std::fmt;

use chacha20poly1305::{KeyInit, XChaCha20Poly1305};
use serde_json::{Map, Value, json};

use crate::Millis;
use crate::key_file::{Key, KeyFile};
use crate::seal::{self, SealError};

/// The most secrets in one file.
pub const MAX_SECRETS: usize = 1_000;
/// The most bytes of one secret's value.
pub const MAX_SECRET_BYTES: usize = 64 << 10;
/// The most bytes of all values together.
pub const MAX_SECRETS_BYTES: usize = 4 << 20;
/// The most bytes of the sealed file: a value of control characters takes six times its length in JSON.
pub const MAX_SEALED_BYTES: usize = 6 * MAX_SECRETS_BYTES + (1 << 20);

/// What sealed secrets are bound to. It differs from the binding of every snapshot, so that neither opens as the other.
const BINDING: &[u8] = b"cellmate secrets 1";

/// Why secrets cannot be opened, sealed or changed. Messages contain no values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretsError {
    #[error(
        "the file of secrets is damaged, or was sealed with another key file; restore both, or remove it and set the secrets again"
    )]
    Damaged,
    #[error("the secrets are sealed with key {id}, which is not in the key file; restore the key file")]
    UnknownKey { id: u32 },
    #[error("the key file holds no key; restore it")]
    NoKey,
    #[error("cannot read system randomness, so the secrets cannot be sealed")]
    NoRandomness,
    #[error("a secret has 1 to {MAX_SECRET_BYTES} bytes, and this one has {0}")]
    Length(usize),
    #[error("a secret cannot contain a null character, because no environment variable can")]
    Null,
    #[error("there are {MAX_SECRETS} secrets, which is the limit; remove one with `cellmate secrets rm NAME`")]
    TooMany,
    #[error("all secrets together have at most {MAX_SECRETS_BYTES} bytes; remove one with `cellmate secrets rm NAME`")]
    TooLarge,
}

/// A secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    value: String,
    /// When it was set.
    pub set_at: Millis,
}

impl Secret {
    pub fn value(&self) -> &str {
        &self.value
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").field("set_at", &self.set_at).finish_non_exhaustive()
    }
}

/// The secrets of one user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Secrets {
    by_name: BTreeMap<String, Secret>,
}

impl Secrets {
    /// Decrypts sealed secrets.
    pub fn open(sealed: &[u8], keys: &KeyFile) -> Result<Self, SecretsError> {
        let id = Self::sealing_key(sealed).ok_or(SecretsError::Damaged)?;
        let key = keys.keys().find(|key| key.id == id).ok_or(SecretsError::UnknownKey { id })?;
        let plain = seal::open_bytes(&cipher(key), sealed, &binding(id)).map_err(|_| SecretsError::Damaged)?;
        Self::from_json(&plain).ok_or(SecretsError::Damaged)
    }

    /// Returns the number of the key that sealed these bytes, without opening them. `None` if they are not sealed.
    pub fn sealing_key(sealed: &[u8]) -> Option<u32> {
        seal::key_id_of(sealed)
    }

    /// Encrypts the secrets with the newest key.
    pub fn seal(&self, keys: &KeyFile) -> Result<Vec<u8>, SecretsError> {
        let key = keys.newest().ok_or(SecretsError::NoKey)?;
        let sealed = seal::seal_bytes(&cipher(key), key.id, self.to_json().as_bytes(), &binding(key.id));
        sealed.map_err(|error| match error {
            SealError::NoRandomness => SecretsError::NoRandomness,
            SealError::Damaged | SealError::UnknownKey { .. } => SecretsError::Damaged,
        })
    }

    /// Sets a secret. Returns whether it replaced one.
    pub fn set(&mut self, name: &str, value: String, now: Millis) -> Result<bool, SecretsError> {
        if value.is_empty() || value.len() > MAX_SECRET_BYTES {
            return Err(SecretsError::Length(value.len()));
        }
        if value.contains('\0') {
            return Err(SecretsError::Null);
        }
        let replaced = self.by_name.get(name).map(|secret| secret.value.len());
        if replaced.is_none() && self.by_name.len() >= MAX_SECRETS {
            return Err(SecretsError::TooMany);
        }
        let total: usize = self.by_name.values().map(|secret| secret.value.len()).sum();
        if total - replaced.unwrap_or(0) + value.len() > MAX_SECRETS_BYTES {
            return Err(SecretsError::TooLarge);
        }
        self.by_name.insert(name.to_owned(), Secret { value, set_at: now });
        Ok(replaced.is_some())
    }

    /// Removes a secret. Returns whether there was one with this name.
    pub fn remove(&mut self, name: &str) -> bool {
        self.by_name.remove(name).is_some()
    }

    pub fn get(&self, name: &str) -> Option<&Secret> {
        self.by_name.get(name)
    }

    /// Returns all secrets by name, sorted.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Secret)> {
        self.by_name.iter().map(|(name, secret)| (name.as_str(), secret))
    }

    fn to_json(&self) -> String {
        let fields = |secret: &Secret| json!({"value": secret.value, "setAt": secret.set_at});
        let all: Map<String, Value> = self.by_name.iter().map(|(name, one)| (name.clone(), fields(one))).collect();
        Value::Object(all).to_string()
    }

    fn from_json(plain: &[u8]) -> Option<Self> {
        let Value::Object(all) = serde_json::from_slice(plain).ok()? else { return None };
        let secret = |fields: &Value| {
            let value = fields.get("value")?.as_str()?.to_owned();
            Some(Secret { value, set_at: fields.get("setAt")?.as_i64()? })
        };
        let by_name = all.iter().map(|(name, fields)| Some((name.clone(), secret(fields)?)));
        Some(Self { by_name: by_name.collect::<Option<_>>()? })
    }
}

fn cipher(key: &Key) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new(&key.secret.into())
}

fn binding(key_id: u32) -> Vec<u8> {
    [BINDING, &key_id.to_le_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{MAX_SECRET_BYTES, MAX_SECRETS, MAX_SECRETS_BYTES, Secrets, SecretsError};
    use crate::key_file::KeyFile;

    fn keys() -> KeyFile {
        KeyFile::parse(&"07".repeat(32), Path::new("key")).unwrap()
    }

    fn two_secrets() -> Secrets {
        let mut secrets = Secrets::default();
        assert_eq!(secrets.set("A", "first value".to_owned(), 5), Ok(false));
        assert_eq!(secrets.set("B", "zwei\n\"ü\"".to_owned(), 6), Ok(false));
        secrets
    }

    #[test]
    fn secrets_open_with_the_key_that_sealed_them_and_no_other() {
        let sealed = two_secrets().seal(&keys()).unwrap();
        assert!(!sealed.windows(5).any(|part| part == b"first"));
        assert_eq!(Secrets::open(&sealed, &keys()), Ok(two_secrets()));
        let other = KeyFile::parse(&"08".repeat(32), Path::new("key")).unwrap();
        assert_eq!(Secrets::open(&sealed, &other), Err(SecretsError::Damaged));
        for position in 0..sealed.len() {
            let mut flipped = sealed.clone();
            flipped[position] ^= 1;
            assert!(Secrets::open(&flipped, &keys()).is_err(), "byte {position}");
            assert!(Secrets::open(&sealed[..position], &keys()).is_err(), "cut at {position}");
        }
    }

    #[test]
    fn secrets_survive_a_rotation_and_need_the_old_key_until_they_are_sealed_again() {
        let sealed = two_secrets().seal(&keys()).unwrap();
        let rotated = keys().rotated([9; 32], 1);
        let opened = Secrets::open(&sealed, &rotated).unwrap();
        let pruned = rotated.clone().without(&[1]);
        assert_eq!(Secrets::open(&sealed, &pruned), Err(SecretsError::UnknownKey { id: 1 }));
        let again = opened.seal(&rotated).unwrap();
        assert_eq!(Secrets::sealing_key(&again), Some(2));
        assert_eq!(Secrets::open(&again, &pruned), Ok(two_secrets()));
    }

    #[test]
    fn a_snapshot_is_not_taken_for_secrets() {
        let run_id = "".into();
        let binding = crate::SnapshotBinding { run_id: &run_id, agent_id: "", session_id: "", leg: 0, definition: "" };
        let sealed = crate::Keys::new(1, [7; 32]).seal(b"{}", &binding).unwrap();
        assert_eq!(Secrets::open(&sealed, &keys()), Err(SecretsError::Damaged));
    }

    #[test]
    fn invalid_values_and_values_above_a_limit_are_refused() {
        let mut secrets = two_secrets();
        assert_eq!(secrets.set("A", "other".to_owned(), 7), Ok(true));
        assert_eq!(secrets.set("C", String::new(), 7), Err(SecretsError::Length(0)));
        assert_eq!(secrets.set("C", "a\0b".to_owned(), 7), Err(SecretsError::Null));
        let long = "x".repeat(MAX_SECRET_BYTES);
        let longer = format!("{long}x");
        assert_eq!(secrets.set("C", longer, 7), Err(SecretsError::Length(MAX_SECRET_BYTES + 1)));
        let mut large = Secrets::default();
        for number in 0..MAX_SECRETS_BYTES / MAX_SECRET_BYTES {
            assert_eq!(large.set(&format!("n{number}"), long.clone(), 7), Ok(false));
        }
        assert_eq!(large.set("more", "x".to_owned(), 7), Err(SecretsError::TooLarge));
        assert_eq!(large.set("n0", "x".to_owned(), 7), Ok(true));
        let mut many = Secrets::default();
        (0..MAX_SECRETS).for_each(|number| assert_eq!(many.set(&format!("n{number}"), "x".to_owned(), 7), Ok(false)));
        assert_eq!(many.set("more", "x".to_owned(), 7), Err(SecretsError::TooMany));
        assert!(many.remove("n0") && !many.remove("n0"));
        assert_eq!(many.set("more", "x".to_owned(), 7), Ok(false));
        assert!(!format!("{many:?}").contains("value"));
    }
}
