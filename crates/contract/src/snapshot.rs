//! The header of a snapshot: magic, version and image id. Only the sandbox reads the rest.

use crate::ids::ImageId;

pub const MAGIC: [u8; 4] = *b"CMSS";
pub const VERSION: u16 = 3;

/// The offset of the image id, after the magic, the version and two zero bytes.
const IMAGE_AT: usize = 4 + 2 + 2;

/// The offset of the number of pages of WebAssembly memory, after the image id and the hash of the catalog.
const PAGES_AT: usize = IMAGE_AT + 32 + 32;

const WASM_PAGE_BYTES: u64 = 64 << 10;

/// Returns the image that a snapshot was taken of; `None` if this build cannot read its format.
pub fn image_of(snapshot: &[u8]) -> Option<ImageId> {
    let (magic, rest) = snapshot.split_first_chunk::<4>()?;
    let (version, _) = rest.split_first_chunk::<2>()?;
    let image = snapshot.get(IMAGE_AT..)?.first_chunk::<32>()?;
    (*magic == MAGIC && u16::from_le_bytes(*version) == VERSION).then_some(ImageId(*image))
}

/// Returns the bytes of memory that the cell has when it is restored, including the image; `None` if this build cannot
/// read the snapshot's format.
pub fn memory_of(snapshot: &[u8]) -> Option<u64> {
    image_of(snapshot)?;
    let pages = snapshot.get(PAGES_AT..)?.first_chunk::<4>()?;
    Some(u64::from(u32::from_le_bytes(*pages)) * WASM_PAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::{MAGIC, VERSION, image_of, memory_of};
    use crate::ids::ImageId;

    #[test]
    fn the_image_id_is_read_only_from_a_snapshot_of_this_version() {
        let head = |magic: [u8; 4], version: u16| [&magic[..], &version.to_le_bytes(), &[0; 2], &[7; 32]].concat();
        assert_eq!(image_of(&head(MAGIC, VERSION)), Some(ImageId([7; 32])));
        assert_eq!(image_of(&head(MAGIC, VERSION + 1)), None);
        assert_eq!(image_of(&head(*b"CMSX", VERSION)), None);
        let whole = [&head(MAGIC, VERSION)[..], &[0; 32], &3_u32.to_le_bytes()].concat();
        assert_eq!(memory_of(&whole), Some(3 << 16));
        assert_eq!(memory_of(&whole[..whole.len() - 1]), None);
        for cut in 0..40 {
            assert_eq!(image_of(&head(MAGIC, VERSION)[..cut]), None, "cut at {cut}");
        }
    }
}
