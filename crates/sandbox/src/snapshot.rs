//! A suspended cell as bytes: the compressed difference from the image.
//!
//! ```text
//! magic "CMSS" · u16 version · u16 zero · image id 32 · catalog hash 32
//! u32 wasm pages · u32 changed pages · u32 state bytes · u32 body bytes · u32 crc of all before and after
//! zstd( body: state · changed page numbers u32 each · for each of those pages its difference )
//! ```
//!
//! QuickJS dirties pages by scattered reference counts, so most words of a changed page are unchanged: [`crate::page`]
//! omits those, and little is left to compress. The checksum detects accidents. Forgery is detected by the host, which
//! seals what it stores. A snapshot that passes both checks can harm only its own sandbox.

use std::cell::RefCell;

use contract::frame::Reader;
use contract::ids::{CatalogHash, ImageId};
use contract::snapshot::MAGIC;

use zstd::bulk::{Compressor, Decompressor};

use crate::page::{MAX_DIFFERENCE_BYTES, PAGE_BYTES, apply_difference, page_at, write_difference};

pub use contract::snapshot::VERSION;

const HEADER_BYTES: usize = 4 + 2 + 2 + 32 + 32 + 4 + 4 + 4 + 4 + 4;
const CRC_OFFSET: usize = HEADER_BYTES - 4;
const WASM_PAGE_BYTES: usize = 64 << 10;
const MAX_STATE_BYTES: usize = 1 << 20;
const COMPRESSION_LEVEL: i32 = 1;

/// The estimated size of a changed page in a body, for the initial allocation only.
const USUAL_PAGE_BYTES: usize = 512;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSnapshot {
    #[error("the snapshot is truncated")]
    Cut,
    #[error("the data is not a snapshot")]
    NotASnapshot,
    #[error("the snapshot has format {0}, this build reads {VERSION}")]
    Version(u16),
    #[error("the snapshot was taken by another build of the engine")]
    OtherImage,
    #[error("the snapshot belongs to another catalog")]
    OtherCatalog,
    #[error("the snapshot is damaged")]
    Damaged,
    #[error("the worker has too little memory left for the snapshot")]
    NoMemory,
    #[error("the snapshot needs {needed} bytes of memory, the limit is {limit}")]
    TooLarge { needed: usize, limit: usize },
}

/// The input of a snapshot: a memory, its changed pages, and the host's notes about the cell.
pub(crate) struct SnapshotInput<'a> {
    pub(crate) image: ImageId,
    pub(crate) catalog: CatalogHash,
    pub(crate) memory: &'a [u8],
    pub(crate) base: &'a [u8],
    pub(crate) changed: &'a [u32],
    pub(crate) state: &'a [u8],
}

/// A decoded snapshot, validated against the image, but not yet applied to a memory.
#[derive(Debug)]
pub(crate) struct DecodedSnapshot {
    pub(crate) wasm_pages: usize,
    pub(crate) state: Vec<u8>,
    changed: Vec<u32>,
    body: Vec<u8>,
    /// The offset in the body at which the pages' differences begin.
    differences: usize,
}

/// The values that a snapshot must match before any of it is used.
pub(crate) struct SnapshotRequirements<'a> {
    pub(crate) image: ImageId,
    pub(crate) catalog: CatalogHash,
    pub(crate) base: &'a [u8],
    pub(crate) memory_limit: usize,
}

pub(crate) fn encode(frozen: &SnapshotInput<'_>) -> std::io::Result<Vec<u8>> {
    let mut body = Vec::with_capacity(frozen.state.len() + frozen.changed.len() * USUAL_PAGE_BYTES);
    body.extend_from_slice(frozen.state);
    for page in frozen.changed {
        body.extend_from_slice(&page.to_le_bytes());
    }
    for &page in frozen.changed {
        let now = page_at(frozen.memory, page as usize);
        let then = page_at(frozen.base, page as usize);
        write_difference(now, then, &mut body);
    }

    let mut bytes = Vec::with_capacity(HEADER_BYTES + 4096);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&[0; 2]);
    bytes.extend_from_slice(&frozen.image.0);
    bytes.extend_from_slice(&frozen.catalog.0);
    for count in [frozen.memory.len() / WASM_PAGE_BYTES, frozen.changed.len(), frozen.state.len(), body.len()] {
        bytes.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
    }
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&pack(&body)?);
    let crc = checksum(&bytes).to_le_bytes();
    if let Some(field) = bytes.get_mut(CRC_OFFSET..HEADER_BYTES) {
        field.copy_from_slice(&crc);
    }
    Ok(bytes)
}

pub(crate) fn decode(bytes: &[u8], expected: &SnapshotRequirements<'_>) -> Result<DecodedSnapshot, BadSnapshot> {
    let header = Header::read(bytes)?;
    if header.image != expected.image {
        return Err(BadSnapshot::OtherImage);
    }
    if header.catalog != expected.catalog {
        return Err(BadSnapshot::OtherCatalog);
    }
    if header.crc != checksum(bytes) {
        return Err(BadSnapshot::Damaged);
    }
    // Check all sizes before anything is allocated.
    let needed = header.wasm_pages.saturating_mul(WASM_PAGE_BYTES);
    if needed > expected.memory_limit {
        return Err(BadSnapshot::TooLarge { needed, limit: expected.memory_limit });
    }
    let pages_in_memory = needed / PAGE_BYTES;
    if needed < expected.base.len() || header.changed > pages_in_memory || header.state > MAX_STATE_BYTES {
        return Err(BadSnapshot::Damaged);
    }
    if header.body > header.state + header.changed * (4 + MAX_DIFFERENCE_BYTES) {
        return Err(BadSnapshot::Damaged);
    }
    let packed = bytes.get(HEADER_BYTES..).unwrap_or_default();
    let body = unpack(packed, header.body)?;
    header.unpack(body, pages_in_memory)
}

impl DecodedSnapshot {
    /// Writes the changed pages over the memory of a fresh instance, which holds the image.
    pub(crate) fn apply(&self, memory: &mut [u8]) -> Result<(), BadSnapshot> {
        let mut rest = self.body.get(self.differences..).unwrap_or_default();
        for &page in &self.changed {
            let start = page as usize * PAGE_BYTES;
            let now = memory.get_mut(start..start + PAGE_BYTES).ok_or(BadSnapshot::Damaged)?;
            rest = apply_difference(rest, now).ok_or(BadSnapshot::Damaged)?;
        }
        if rest.is_empty() { Ok(()) } else { Err(BadSnapshot::Damaged) }
    }
}

struct Header {
    image: ImageId,
    catalog: CatalogHash,
    wasm_pages: usize,
    changed: usize,
    state: usize,
    body: usize,
    crc: u32,
}

impl Header {
    fn read(bytes: &[u8]) -> Result<Self, BadSnapshot> {
        let mut from = Reader::new(bytes);
        let cut = |_| BadSnapshot::Cut;
        if from.array::<4>().map_err(cut)? != MAGIC {
            return Err(BadSnapshot::NotASnapshot);
        }
        let version = u16::from_le_bytes(from.array().map_err(cut)?);
        if version != VERSION {
            return Err(BadSnapshot::Version(version));
        }
        from.array::<2>().map_err(cut)?;
        Ok(Self {
            image: ImageId(from.array().map_err(cut)?),
            catalog: CatalogHash(from.array().map_err(cut)?),
            wasm_pages: from.u32().map_err(cut)? as usize,
            changed: from.u32().map_err(cut)? as usize,
            state: from.u32().map_err(cut)? as usize,
            body: from.u32().map_err(cut)? as usize,
            crc: from.u32().map_err(cut)?,
        })
    }

    fn unpack(&self, body: Vec<u8>, pages_in_memory: usize) -> Result<DecodedSnapshot, BadSnapshot> {
        let (state, rest) = body.split_at_checked(self.state).ok_or(BadSnapshot::Damaged)?;
        let (numbers, _) = rest.split_at_checked(self.changed * 4).ok_or(BadSnapshot::Damaged)?;
        let changed: Vec<u32> = numbers.as_chunks().0.iter().map(|number| u32::from_le_bytes(*number)).collect();
        let ordered = changed.is_sorted_by(|a, b| a < b);
        let inside = changed.last().is_none_or(|&last| (last as usize) < pages_in_memory);
        if body.len() != self.body || !ordered || !inside {
            return Err(BadSnapshot::Damaged);
        }
        let (state, differences) = (state.to_vec(), self.state + self.changed * 4);
        Ok(DecodedSnapshot { wasm_pages: self.wasm_pages, state, changed, body, differences })
    }
}

thread_local! {
    // Creating a context costs several times as much as compressing a small cell, so each thread keeps one.
    static PACKER: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static UNPACKER: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

fn pack(body: &[u8]) -> std::io::Result<Vec<u8>> {
    PACKER.with_borrow_mut(|packer| match packer {
        Some(packer) => packer.compress(body),
        None => packer.insert(Compressor::new(COMPRESSION_LEVEL)?).compress(body),
    })
}

fn unpack(packed: &[u8], body_bytes: usize) -> Result<Vec<u8>, BadSnapshot> {
    let unpacked = UNPACKER.with_borrow_mut(|unpacker| match unpacker {
        Some(unpacker) => unpacker.decompress(packed, body_bytes),
        None => unpacker.insert(Decompressor::new()?).decompress(packed, body_bytes),
    });
    unpacked.map_err(|_| BadSnapshot::Damaged)
}

/// Returns the checksum of all bytes except the checksum itself.
fn checksum(bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(bytes.get(..CRC_OFFSET).unwrap_or_default());
    hasher.update(bytes.get(HEADER_BYTES..).unwrap_or_default());
    hasher.finalize()
}
