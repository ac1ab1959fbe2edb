//! A suspended cell as bytes: the compressed difference from the image.
//!
//! ```text
//! magic "CMSS" · u16 version · u16 zero · image id 32 · catalog hash 32
//! u32 wasm pages · u32 changed pages · u32 state bytes · u32 body bytes · u32 crc of all before and after
//! body: state · changed page numbers u32 each · for each of those pages its difference
//! ```
//!
//! The body consists of pieces, each of which is one zstd frame: the first has state, page numbers and the first
//! differences, the others have differences. No difference is in two pieces.
//!
//! QuickJS dirties pages by scattered reference counts, so most words of a changed page are unchanged: [`crate::page`]
//! omits those, and little is left to compress. The checksum detects accidental damage. Forgery is detected by the host,
//! which seals what it stores. A snapshot that passes both checks can harm only its own sandbox.

mod pieces;

use std::sync::Arc;

use contract::frame::Reader;
use contract::ids::{CatalogHash, ImageId};
use contract::snapshot::MAGIC;

use crate::host_calls::OutstandingCalls;
use crate::page::{MAX_DIFFERENCE_BYTES, PAGE_BYTES, apply_difference, page_at, write_difference};
use crate::source::Places;
use crate::spare_thread::SpareThread;
use pieces::{PIECE_BYTES, Pieces, split_frames};

pub use contract::snapshot::VERSION;

const HEADER_BYTES: usize = 4 + 2 + 2 + 32 + 32 + 4 + 4 + 4 + 4 + 4;
const CRC_OFFSET: usize = HEADER_BYTES - 4;
const WASM_PAGE_BYTES: usize = 64 << 10;
const MAX_STATE_BYTES: usize = OutstandingCalls::MAX_BYTES + Places::MAX_BYTES;

/// The estimated size of a changed page in a body, for the initial allocation only.
const USUAL_PAGE_BYTES: usize = 512;

/// Why a snapshot cannot be restored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSnapshot {
    #[error("the snapshot is truncated")]
    Truncated,
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

/// The input of a snapshot: the guest's memory, and the state of the cell that is outside it.
pub(crate) struct SnapshotInput<'a> {
    pub(crate) image: ImageId,
    pub(crate) catalog: CatalogHash,
    pub(crate) memory: &'a [u8],
    /// The memory of the image, which the snapshot stores the difference from.
    pub(crate) base: &'a [u8],
    /// The numbers of the pages in which `memory` differs from `base`, sorted.
    pub(crate) changed: &'a [u32],
    /// The state of the cell outside the guest's memory.
    pub(crate) state: &'a [u8],
}

/// A decoded snapshot that belongs to this image and catalog. `DecodedSnapshot::apply` checks the differences.
pub(crate) struct DecodedSnapshot {
    /// The size of the memory that the snapshot needs.
    pub(crate) wasm_pages: usize,
    /// The state of the cell outside the guest's memory.
    pub(crate) state: Vec<u8>,
    /// The numbers of the changed pages, sorted.
    changed: Vec<u32>,
    /// The first piece of the body.
    first: Vec<u8>,
    /// The offset in the first piece at which the pages' differences begin.
    differences: usize,
    /// The other pieces.
    others: Pieces,
}

/// The values that a snapshot must match before any of it is used.
pub(crate) struct SnapshotRequirements<'a> {
    pub(crate) image: ImageId,
    pub(crate) catalog: CatalogHash,
    pub(crate) base: &'a [u8],
    pub(crate) memory_limit: usize,
}

/// Encodes a snapshot, with its header. A spare thread compresses a part of a large one.
pub(crate) fn encode(input: &SnapshotInput<'_>, spare: &SpareThread) -> std::io::Result<Vec<u8>> {
    let first = input.state.len() + input.changed.len() * 4;
    let estimate = |pages: usize| (pages * USUAL_PAGE_BYTES).min(PIECE_BYTES) + MAX_DIFFERENCE_BYTES;
    let mut piece = Vec::with_capacity(first + estimate(input.changed.len()));
    piece.extend_from_slice(input.state);
    for page in input.changed {
        piece.extend_from_slice(&page.to_le_bytes());
    }
    let (mut pieces, mut body_bytes) = (Pieces::to_compress(), 0);
    for (done, &page) in input.changed.iter().enumerate() {
        if piece.len() >= PIECE_BYTES {
            let next = Vec::with_capacity(estimate(input.changed.len() - done));
            let full = std::mem::replace(&mut piece, next);
            body_bytes += full.len();
            pieces.push(full.into(), spare);
        }
        let now = page_at(input.memory, page as usize);
        let then = page_at(input.base, page as usize);
        write_difference(now, then, &mut piece);
    }
    if !piece.is_empty() {
        body_bytes += piece.len();
        pieces.push(piece.into(), spare);
    }
    pieces.complete();

    let mut bytes = Vec::with_capacity(HEADER_BYTES + 4096);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&[0; 2]);
    bytes.extend_from_slice(&input.image.0);
    bytes.extend_from_slice(&input.catalog.0);
    for count in [input.memory.len() / WASM_PAGE_BYTES, input.changed.len(), input.state.len(), body_bytes] {
        bytes.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
    }
    bytes.extend_from_slice(&[0; 4]);
    while let Some(compressed) = pieces.next() {
        bytes.extend_from_slice(&compressed?);
    }
    let crc = checksum(&bytes).to_le_bytes();
    if let Some(field) = bytes.get_mut(CRC_OFFSET..HEADER_BYTES) {
        field.copy_from_slice(&crc);
    }
    Ok(bytes)
}

/// Decodes a snapshot, and checks that it is intact and meets the requirements. A spare thread decompresses a part of a
/// large one.
pub(crate) fn decode(
    bytes: Vec<u8>,
    expected: &SnapshotRequirements<'_>,
    spare: &SpareThread,
) -> Result<DecodedSnapshot, BadSnapshot> {
    let header = Header::read(&bytes)?;
    if header.image != expected.image {
        return Err(BadSnapshot::OtherImage);
    }
    if header.catalog != expected.catalog {
        return Err(BadSnapshot::OtherCatalog);
    }
    if header.crc != checksum(&bytes) {
        return Err(BadSnapshot::Damaged);
    }
    // Check all sizes before anything is allocated.
    let needed = header.wasm_pages.saturating_mul(WASM_PAGE_BYTES);
    if needed > expected.memory_limit {
        return Err(BadSnapshot::TooLarge { needed, limit: expected.memory_limit });
    }
    let pages_in_memory = needed / PAGE_BYTES;
    if needed < expected.base.len() || header.changed_pages > pages_in_memory || header.state_bytes > MAX_STATE_BYTES {
        return Err(BadSnapshot::Damaged);
    }
    if header.body_bytes > header.state_bytes + header.changed_pages * (4 + MAX_DIFFERENCE_BYTES) {
        return Err(BadSnapshot::Damaged);
    }
    let frames = HEADER_BYTES..bytes.len();
    let frames = split_frames(&Arc::new(bytes), frames, header.body_bytes).ok_or(BadSnapshot::Damaged)?;
    header.read_body(Pieces::to_decompress(frames, spare), pages_in_memory)
}

impl DecodedSnapshot {
    /// Applies the differences to the memory of a fresh instance, which holds the image. If this fails, the memory is
    /// partly changed.
    pub(crate) fn apply(mut self, memory: &mut [u8]) -> Result<(), BadSnapshot> {
        let mut piece = self.first;
        let mut rest = piece.get(self.differences..).unwrap_or_default();
        for page in self.changed {
            if rest.is_empty() {
                piece = next_piece(&mut self.others)?.ok_or(BadSnapshot::Damaged)?;
                rest = &piece;
            }
            let start = page as usize * PAGE_BYTES;
            let now = memory.get_mut(start..start + PAGE_BYTES).ok_or(BadSnapshot::Damaged)?;
            rest = apply_difference(rest, now).ok_or(BadSnapshot::Damaged)?;
        }
        let is_whole = rest.is_empty() && next_piece(&mut self.others)?.is_none();
        if is_whole { Ok(()) } else { Err(BadSnapshot::Damaged) }
    }
}

fn next_piece(pieces: &mut Pieces) -> Result<Option<Vec<u8>>, BadSnapshot> {
    pieces.next().transpose().map_err(|_| BadSnapshot::Damaged)
}

/// The header of a snapshot, without its checked magic and version.
struct Header {
    image: ImageId,
    catalog: CatalogHash,
    wasm_pages: usize,
    changed_pages: usize,
    state_bytes: usize,
    body_bytes: usize,
    crc: u32,
}

impl Header {
    fn read(bytes: &[u8]) -> Result<Self, BadSnapshot> {
        let mut from = Reader::new(bytes);
        let truncated = |_| BadSnapshot::Truncated;
        if from.array::<4>().map_err(truncated)? != MAGIC {
            return Err(BadSnapshot::NotASnapshot);
        }
        let version = u16::from_le_bytes(from.array().map_err(truncated)?);
        if version != VERSION {
            return Err(BadSnapshot::Version(version));
        }
        from.array::<2>().map_err(truncated)?;
        Ok(Self {
            image: ImageId(from.array().map_err(truncated)?),
            catalog: CatalogHash(from.array().map_err(truncated)?),
            wasm_pages: from.u32().map_err(truncated)? as usize,
            changed_pages: from.u32().map_err(truncated)? as usize,
            state_bytes: from.u32().map_err(truncated)? as usize,
            body_bytes: from.u32().map_err(truncated)? as usize,
            crc: from.u32().map_err(truncated)?,
        })
    }

    /// Reads the state and the page numbers, which are in the first piece of the body.
    fn read_body(&self, mut pieces: Pieces, pages_in_memory: usize) -> Result<DecodedSnapshot, BadSnapshot> {
        let first = next_piece(&mut pieces)?.unwrap_or_default();
        let (state, rest) = first.split_at_checked(self.state_bytes).ok_or(BadSnapshot::Damaged)?;
        let (numbers, _) = rest.split_at_checked(self.changed_pages * 4).ok_or(BadSnapshot::Damaged)?;
        let changed: Vec<u32> = numbers.as_chunks().0.iter().map(|number| u32::from_le_bytes(*number)).collect();
        let ordered = changed.is_sorted_by(|a, b| a < b);
        let inside = changed.last().is_none_or(|&last| (last as usize) < pages_in_memory);
        if !ordered || !inside {
            return Err(BadSnapshot::Damaged);
        }
        let (state, differences) = (state.to_vec(), self.state_bytes + self.changed_pages * 4);
        Ok(DecodedSnapshot { wasm_pages: self.wasm_pages, state, changed, first, differences, others: pieces })
    }
}

/// Returns the checksum of all bytes except the checksum itself.
fn checksum(bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(bytes.get(..CRC_OFFSET).unwrap_or_default());
    hasher.update(bytes.get(HEADER_BYTES..).unwrap_or_default());
    hasher.finalize()
}
