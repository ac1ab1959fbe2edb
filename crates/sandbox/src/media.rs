//! Images and sounds that a cell outputs. Their data is decoded here, so that the host handles no base64 of a cell.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use contract::cell::{Media, MediaKind};
use contract::ids::OutputHandle;
use contract::limits::{MAX_LEG_MEDIA_BLOCKS, MAX_LEG_MEDIA_BYTES};

/// Base64 as MCP has it. Some servers leave out the padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The longest media type or handle in a message, in characters.
const MAX_SHOWN_CHARS: usize = 80;

/// Why an image or a sound is not output. The cell can catch it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MediaRefusal {
    #[error("{kind}() needs the media type of the data in `mimeType`, such as {kind}/{example}; it is `{shown}`", example = example(*kind))]
    Type { kind: MediaKind, shown: String },
    #[error("{0}() needs data; the block has none")]
    Empty(MediaKind),
    #[error("the data of {0}() is not base64; pass the `data` of a content block unchanged, or a Uint8Array")]
    Base64(MediaKind),
    #[error("`{0}` is not a handle; `await output.list()` lists them")]
    Handle(String),
    #[error(
        "a cell can output at most {MAX_LEG_MEDIA_BLOCKS} images and sounds at a time; choose the most useful ones"
    )]
    Blocks,
    #[error("the cell's images and sounds take {total} bytes, the limit is {limit}; choose fewer or smaller ones")]
    Bytes { total: u64, limit: u64 },
}

impl MediaRefusal {
    /// Returns the code of the error in the guest, a space and the message, as `guest/prelude/media.js` reads it.
    pub(crate) fn guest_error(&self) -> String {
        let code = match self {
            Self::Type { .. } | Self::Empty(_) | Self::Base64(_) | Self::Handle(_) => "invalid_input",
            Self::Blocks | Self::Bytes { .. } => "value_too_large",
        };
        format!("{code} {self}")
    }
}

/// Counts the images and sounds, and their bytes, of one leg (the execution between two suspensions).
#[derive(Debug, Default)]
pub(crate) struct MediaTotals {
    blocks: usize,
    bytes: u64,
}

impl MediaTotals {
    /// Decodes an image or a sound and counts it. `budget` is the cell's budget for output.
    pub(crate) fn decode(
        &mut self,
        kind: MediaKind,
        mime_type: &[u8],
        data: &[u8],
        budget: u64,
    ) -> Result<Media, MediaRefusal> {
        let mime_type = str::from_utf8(mime_type)
            .ok()
            .filter(|text| kind.has(text))
            .ok_or_else(|| MediaRefusal::Type { kind, shown: shown(mime_type) })?;
        if data.is_empty() {
            return Err(MediaRefusal::Empty(kind));
        }
        // Nothing of data over the limit is decoded.
        self.check((data.len() as u64).saturating_mul(3) / 4, budget)?;
        let data = BASE64.decode(data).map_err(|_| MediaRefusal::Base64(kind))?;
        if data.is_empty() {
            return Err(MediaRefusal::Empty(kind));
        }
        self.blocks += 1;
        self.bytes += data.len() as u64;
        Ok(Media { mime_type: mime_type.to_owned(), data: data.into(), handle: None })
    }

    /// Counts a stored image or sound. Only the host has its data.
    pub(crate) fn add_reference(&mut self, handle: &[u8], budget: u64) -> Result<Media, MediaRefusal> {
        self.check(0, budget)?;
        let handle = str::from_utf8(handle)
            .ok()
            .filter(|text| text.len() <= OutputHandle::MAX_BYTES)
            .map(OutputHandle::new)
            .filter(|handle| handle.parts().is_some())
            .ok_or_else(|| MediaRefusal::Handle(shown(handle)))?;
        self.blocks += 1;
        Ok(Media::reference(handle))
    }

    fn check(&self, more: u64, budget: u64) -> Result<(), MediaRefusal> {
        if self.blocks >= MAX_LEG_MEDIA_BLOCKS {
            return Err(MediaRefusal::Blocks);
        }
        let (total, limit) = (self.bytes.saturating_add(more), budget.min(MAX_LEG_MEDIA_BYTES as u64));
        if total > limit { Err(MediaRefusal::Bytes { total, limit }) } else { Ok(()) }
    }
}

fn example(kind: MediaKind) -> &'static str {
    match kind {
        MediaKind::Image => "png",
        MediaKind::Audio => "wav",
    }
}

fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes.get(..bytes.len().min(4 * MAX_SHOWN_CHARS)).unwrap_or_default());
    text.chars().take(MAX_SHOWN_CHARS).map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use contract::cell::MediaKind;
    use contract::limits::{MAX_LEG_MEDIA_BLOCKS, MAX_LEG_MEDIA_BYTES};

    use super::{MediaRefusal, MediaTotals};

    const BUDGET: u64 = 1 << 20;

    fn decode(mime_type: &str, data: &str) -> Result<Vec<u8>, MediaRefusal> {
        let media = MediaTotals::default().decode(MediaKind::Image, mime_type.as_bytes(), data.as_bytes(), BUDGET)?;
        assert_eq!((media.mime_type.as_str(), &media.handle), (mime_type, &None));
        Ok(media.data.to_vec())
    }

    #[test]
    fn base64_is_decoded_strictly_with_or_without_padding() {
        for (data, bytes) in [("AQID", &[1, 2, 3][..]), ("AQI=", &[1, 2]), ("AQI", &[1, 2]), ("/+8=", &[255, 239])] {
            assert_eq!(decode("image/png", data), Ok(bytes.to_vec()), "{data}");
        }
        for data in ["A", "AQI==", "AQ I", "AQI\n", "_-8", "AQJ", "AQID=", "====", "é", "AQID\0"] {
            assert_eq!(decode("image/png", data), Err(MediaRefusal::Base64(MediaKind::Image)), "{data}");
        }
        assert_eq!(decode("image/png", ""), Err(MediaRefusal::Empty(MediaKind::Image)));
    }

    #[test]
    fn the_media_type_must_be_of_the_kind() {
        let long = format!("image/{}", "x".repeat(200));
        for mime_type in ["", "image", "image/", "audio/wav", "text/html", "image/png; a=b", "image/a\nb", &long] {
            assert!(matches!(decode(mime_type, "AQID"), Err(MediaRefusal::Type { .. })), "{mime_type}");
        }
        let refused = decode("audio/wav", "AQID").unwrap_err();
        let expected = "invalid_input image() needs the media type of the data in `mimeType`, such as image/png; it is \
                        `audio/wav`";
        assert_eq!(refused.guest_error(), expected);
        assert!(decode(&long, "AQID").unwrap_err().guest_error().len() < 300);
    }

    #[test]
    fn blocks_and_bytes_of_a_leg_are_bounded_by_the_budget_and_by_the_limit() {
        let mut totals = MediaTotals::default();
        let data = "A".repeat(4 << 18);
        let decode = |totals: &mut MediaTotals, budget: u64| {
            totals.decode(MediaKind::Audio, b"audio/wav", data.as_bytes(), budget).map(|media| media.data.len())
        };
        let bytes = 3 << 18;
        assert_eq!(decode(&mut totals, 2 * bytes - 1), Ok(bytes as usize));
        let refused = MediaRefusal::Bytes { total: 2 * bytes, limit: 2 * bytes - 1 };
        assert_eq!(decode(&mut totals, 2 * bytes - 1), Err(refused.clone()));
        assert!(
            refused.guest_error().starts_with("value_too_large the cell's images and sounds take 1572864 bytes, the ")
        );
        let max = MAX_LEG_MEDIA_BYTES / bytes as usize;
        for _ in 1..max {
            assert!(decode(&mut totals, u64::MAX).is_ok());
        }
        assert!(matches!(decode(&mut totals, u64::MAX), Err(MediaRefusal::Bytes { .. })));

        let mut totals = MediaTotals::default();
        for _ in 0..MAX_LEG_MEDIA_BLOCKS {
            assert!(totals.add_reference(b"out_cm_1_l0n0", 0).is_ok());
        }
        assert_eq!(totals.add_reference(b"out_cm_1_l0n0", 0).unwrap_err(), MediaRefusal::Blocks);
    }

    #[test]
    fn a_reference_has_a_valid_handle_and_no_data() {
        let media = MediaTotals::default().add_reference(b"out_cm_1_l0n0", 0).unwrap();
        assert!(media.is_reference() && media.data.is_empty() && media.mime_type.is_empty());
        let long = format!("out_{}_l0n0", "x".repeat(4096));
        for handle in ["", "out_", "cm_1_l0n0", "out_cm_1_L0", "out_cm_1_../x", &long] {
            let refused = MediaTotals::default().add_reference(handle.as_bytes(), 0).unwrap_err();
            assert!(matches!(refused, MediaRefusal::Handle(_)) && refused.guest_error().len() < 500, "{handle}");
        }
    }
}
