//! Snapshots at rest: encrypted, and bound to the run they belong to.
//!
//! A snapshot is machine state. What is stored opens only with the key, and only for the same run, agent,
//! session, image, configuration and place in the run's sequence; anything else is refused alike.

use std::collections::BTreeMap;
use std::fmt;

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};

const VERSION: u8 = 1;
const NONCE_BYTES: usize = 24;
const HEADER_BYTES: usize = 1 + 4 + NONCE_BYTES;

/// The keys a store knows, by id: one to seal with, and older ones until nothing sealed with them is left.
#[derive(Clone)]
pub struct Keys {
    current: u32,
    keys: BTreeMap<u32, XChaCha20Poly1305>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("current", &self.current).field("known", &self.keys.len()).finish()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stored cell does not open: it is damaged, belongs to another run, or its key is gone")]
pub struct Unsealable;

/// What a sealed snapshot is bound to. Every field counts.
#[derive(Clone, Copy, Debug)]
pub struct Sealed<'a> {
    pub run_id: &'a str,
    pub agent_id: &'a str,
    pub session_id: &'a str,
    pub leg: i64,
    pub definition: &'a str,
}

impl Keys {
    pub fn new(id: u32, key: [u8; 32]) -> Self {
        Self { current: id, keys: BTreeMap::from([(id, XChaCha20Poly1305::new(&key.into()))]) }
    }

    /// A key for this process alone: what it seals is lost with it.
    pub fn ephemeral() -> Result<Self, getrandom::Error> {
        let mut key = [0; 32];
        getrandom::fill(&mut key)?;
        Ok(Self::new(0, key))
    }

    /// Knows another key too, for what was sealed with it.
    #[must_use]
    pub fn and_older(mut self, id: u32, key: [u8; 32]) -> Self {
        self.keys.entry(id).or_insert_with(|| XChaCha20Poly1305::new(&key.into()));
        self
    }

    pub(crate) fn seal(&self, snapshot: &[u8], to: &Sealed<'_>) -> Result<Vec<u8>, Unsealable> {
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).map_err(|_| Unsealable)?;
        let key = self.keys.get(&self.current).ok_or(Unsealable)?;
        let aad = to.bound(self.current);
        let sealed =
            key.encrypt(XNonce::from_slice(&nonce), Payload { msg: snapshot, aad: &aad }).map_err(|_| Unsealable)?;
        let mut bytes = Vec::with_capacity(HEADER_BYTES + sealed.len());
        bytes.push(VERSION);
        bytes.extend_from_slice(&self.current.to_le_bytes());
        bytes.extend_from_slice(&nonce);
        bytes.extend_from_slice(&sealed);
        Ok(bytes)
    }

    pub(crate) fn open(&self, bytes: &[u8], to: &Sealed<'_>) -> Result<Vec<u8>, Unsealable> {
        let (version, rest) = bytes.split_first().ok_or(Unsealable)?;
        let (id, rest) = rest.split_first_chunk::<4>().ok_or(Unsealable)?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_BYTES>().ok_or(Unsealable)?;
        let id = u32::from_le_bytes(*id);
        let key = self.keys.get(&id).filter(|_| *version == VERSION).ok_or(Unsealable)?;
        let aad = to.bound(id);
        key.decrypt(XNonce::from_slice(nonce), Payload { msg: sealed, aad: &aad }).map_err(|_| Unsealable)
    }
}

impl Sealed<'_> {
    /// Lengths first, so that no two bindings look alike.
    fn bound(&self, key: u32) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(&key.to_le_bytes());
        bytes.extend_from_slice(&self.leg.to_le_bytes());
        for text in [self.run_id, self.agent_id, self.session_id, self.definition] {
            bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::{Keys, Sealed, Unsealable};

    const TO: Sealed<'_> = Sealed { run_id: "cm_1", agent_id: "a", session_id: "s", leg: 3, definition: "{}" };

    #[test]
    fn it_opens_for_what_it_was_sealed_to_and_for_nothing_else() {
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
            assert_eq!(keys.open(&sealed, &other), Err(Unsealable), "{other:?}");
        }
        for position in 0..sealed.len() {
            let mut flipped = sealed.clone();
            flipped[position] ^= 1;
            assert_eq!(keys.open(&flipped, &TO), Err(Unsealable), "byte {position}");
            assert_eq!(keys.open(&sealed[..position], &TO), Err(Unsealable), "cut at {position}");
        }
        assert_eq!(Keys::new(1, [8; 32]).open(&sealed, &TO), Err(Unsealable));
    }

    #[test]
    fn an_older_key_opens_what_it_sealed() {
        let sealed = Keys::new(1, [7; 32]).seal(b"state", &TO).unwrap();
        assert_eq!(Keys::new(2, [9; 32]).open(&sealed, &TO), Err(Unsealable));
        assert_eq!(Keys::new(2, [9; 32]).and_older(1, [7; 32]).open(&sealed, &TO).unwrap(), b"state");
    }
}
