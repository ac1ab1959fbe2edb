//! How a snapshot begins: what it is, and the image it belongs to. All that follows is the sandbox's own.

use crate::ids::ImageId;

pub const MAGIC: [u8; 4] = *b"CMSS";
pub const VERSION: u16 = 3;

/// Magic, version, two zeros, the image's id.
const IMAGE_AT: usize = 4 + 2 + 2;

/// The image that a snapshot was taken of; nothing where this build does not read its format.
pub fn image_of(snapshot: &[u8]) -> Option<ImageId> {
    let (magic, rest) = snapshot.split_first_chunk::<4>()?;
    let (version, _) = rest.split_first_chunk::<2>()?;
    let image = snapshot.get(IMAGE_AT..)?.first_chunk::<32>()?;
    (*magic == MAGIC && u16::from_le_bytes(*version) == VERSION).then_some(ImageId(*image))
}

#[cfg(test)]
mod tests {
    use super::{MAGIC, VERSION, image_of};
    use crate::ids::ImageId;

    #[test]
    fn the_image_is_read_only_from_snapshots_of_this_format() {
        let head = |magic: [u8; 4], version: u16| [&magic[..], &version.to_le_bytes(), &[0; 2], &[7; 32]].concat();
        assert_eq!(image_of(&head(MAGIC, VERSION)), Some(ImageId([7; 32])));
        assert_eq!(image_of(&head(MAGIC, VERSION + 1)), None);
        assert_eq!(image_of(&head(*b"CMSX", VERSION)), None);
        for cut in 0..40 {
            assert_eq!(image_of(&head(MAGIC, VERSION)[..cut]), None, "cut at {cut}");
        }
    }
}
