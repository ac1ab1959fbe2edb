//! Encryption of stored snapshots, each bound to its run.
//!
//! A snapshot is the machine state of a cell. A stored snapshot opens only with its key, and only for the same run,
//! agent, session, leg and definition (source and limits). Every mismatch of these fails with the same error. The image
//! that a snapshot needs is in the snapshot itself and is checked when it is restored.

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use contract::ids::RunId;

const VERSION: u8 = 1;
const NONCE_BYTES: usize = 24;
const HEADER_BYTES: usize = 1 + 4 + NONCE_BYTES;

/// Why a snapshot cannot be sealed or opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    #[error("cannot open the stored cell: it is damaged, belongs to another run, or its key was replaced")]
    Damaged,
    /// The snapshot is intact, but its key is not loaded. A process that has the key can open it.
    #[error("the stored cell is sealed with key {id}, which is not in the key file")]
    UnknownKey { id: u32 },
    #[error("cannot read system randomness, so the cell cannot be sealed")]
    NoRandomness,
}

/// The run and leg that a sealed snapshot is bound to. The snapshot opens only if every field is the same.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotBinding<'a> {
    pub run_id: &'a RunId,
    pub agent_id: &'a str,
    pub session_id: &'a str,
    pub leg: i64,
    pub definition: &'a str,
}

/// Returns the number of the key that sealed these bytes, from their header. `None` if they have no such header.
pub(crate) fn key_id_of(bytes: &[u8]) -> Option<u32> {
    let (version, rest) = bytes.split_first()?;
    let (id, _) = rest.split_first_chunk::<4>()?;
    (*version == VERSION).then(|| u32::from_le_bytes(*id))
}

/// Encodes the number of a key as sealed bytes contain it, from their second byte on.
pub(crate) fn key_id_bytes(id: u32) -> [u8; 4] {
    id.to_le_bytes()
}

/// Encrypts a snapshot with the key of number `id`, and binds it to its run and leg.
pub(crate) fn seal(
    key: &XChaCha20Poly1305,
    id: u32,
    snapshot: &[u8],
    binding: &SnapshotBinding<'_>,
) -> Result<Vec<u8>, SealError> {
    seal_bytes(key, id, snapshot, &binding.encode(id))
}

/// Encrypts bytes with the key of number `id`, and binds them to the additional authenticated data `aad`.
pub(crate) fn seal_bytes(key: &XChaCha20Poly1305, id: u32, plain: &[u8], aad: &[u8]) -> Result<Vec<u8>, SealError> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(|_| SealError::NoRandomness)?;
    let sealed =
        key.encrypt(XNonce::from_slice(&nonce), Payload { msg: plain, aad }).map_err(|_| SealError::Damaged)?;
    let mut bytes = Vec::with_capacity(HEADER_BYTES + sealed.len());
    bytes.push(VERSION);
    bytes.extend_from_slice(&key_id_bytes(id));
    bytes.extend_from_slice(&nonce);
    bytes.extend_from_slice(&sealed);
    Ok(bytes)
}

/// Decrypts a snapshot that was sealed with the same key and binding.
pub(crate) fn open(
    key: &XChaCha20Poly1305,
    id: u32,
    bytes: &[u8],
    binding: &SnapshotBinding<'_>,
) -> Result<Vec<u8>, SealError> {
    open_bytes(key, bytes, &binding.encode(id))
}

/// Decrypts bytes that were sealed with the same key and `aad`.
pub(crate) fn open_bytes(key: &XChaCha20Poly1305, bytes: &[u8], aad: &[u8]) -> Result<Vec<u8>, SealError> {
    let (_, rest) = bytes.split_first_chunk::<5>().ok_or(SealError::Damaged)?;
    let (nonce, sealed) = rest.split_first_chunk::<NONCE_BYTES>().ok_or(SealError::Damaged)?;
    key.decrypt(XNonce::from_slice(nonce), Payload { msg: sealed, aad }).map_err(|_| SealError::Damaged)
}

impl SnapshotBinding<'_> {
    /// Encodes the binding and the number of the key. Each text is preceded by its length, so that different bindings
    /// never encode alike.
    fn encode(&self, key_id: u32) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(&key_id.to_le_bytes());
        bytes.extend_from_slice(&self.leg.to_le_bytes());
        for text in [self.run_id.as_str(), self.agent_id, self.session_id, self.definition] {
            bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        bytes
    }
}
