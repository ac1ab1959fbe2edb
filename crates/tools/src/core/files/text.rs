//! Text blocks for models that see a tool directly, and recognition of text, binary files and images.

use std::borrow::Cow;

use contract::limits::{MAX_FILE_TEXT_BYTES, MAX_FILE_TEXT_LINES};
use contract::text::is_unsafe;
use executor::ToolResult;
use serde_json::{Value, json};

/// The mark at the beginning of some UTF-8 files.
pub(super) const BOM: &[u8] = b"\xef\xbb\xbf";

/// Bytes at the beginning of a file that decide whether it is binary.
pub(super) const SNIFFED_BYTES: usize = 8 << 10;

/// Whether the beginning of a file is not text: no text in UTF-8 contains NUL.
pub(super) fn is_binary(beginning: &[u8]) -> bool {
    beginning.iter().take(SNIFFED_BYTES).any(|byte| *byte == 0)
}

/// Returns the media type of an image that models can see.
pub(super) fn image_type(beginning: &[u8]) -> Option<&'static str> {
    const SIGNATURES: [(&[u8], &str); 4] = [
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff", "image/jpeg"),
        (b"GIF87a", "image/gif"),
        (b"GIF89a", "image/gif"),
    ];
    let signed = SIGNATURES.iter().find(|(signature, _)| beginning.starts_with(signature));
    let is_webp = || beginning.starts_with(b"RIFF") && beginning.get(8..12) == Some(b"WEBP");
    signed.map(|(_, media_type)| *media_type).or_else(|| is_webp().then_some("image/webp"))
}

/// Whether a file begins like UTF-16, which has NUL bytes and therefore counts as binary.
pub(super) fn is_utf16(beginning: &[u8]) -> bool {
    beginning.starts_with(b"\xff\xfe") || beginning.starts_with(b"\xfe\xff")
}

/// Returns a result with details for cells, and a text block for models, to which notes are added in brackets.
pub(super) fn result(details: Value, body: &str, mut notes: Vec<String>) -> ToolResult {
    let (shown, is_cut) = first_lines(body);
    if is_cut {
        let lines = shown.lines().count();
        notes.push(format!("only the first {lines} lines of the result are shown; ask for less, or use a cell"));
    }
    let text = match notes.as_slice() {
        [] => shown.to_owned(),
        notes => format!("{shown}\n\n[{}]", notes.join(". ")),
    };
    ToolResult { content: vec![json!({"type": "text", "text": text})], details: Some(details), ..ToolResult::default() }
}

/// Returns the beginning of a text within the limits of a text block, and whether that is not all.
pub(super) fn first_lines(text: &str) -> (&str, bool) {
    let mut end = 0;
    for (count, line) in text.split_inclusive('\n').enumerate() {
        if count >= MAX_FILE_TEXT_LINES || end + line.len() > MAX_FILE_TEXT_BYTES {
            // Of a single long line, show as much as fits.
            let end = if end == 0 { boundary(text, MAX_FILE_TEXT_BYTES) } else { end };
            return (text.get(..end).unwrap_or_default(), true);
        }
        end += line.len();
    }
    (text, false)
}

/// Returns the last position at or before `at` that is between two characters.
pub(super) fn boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0)
}

/// Returns a file name for a list of one name a line: a name that contains line breaks or invisible characters is quoted
/// and escaped, so that it cannot pass for several entries.
pub(super) fn name_on_a_line(name: &str) -> Cow<'_, str> {
    if name.chars().any(is_unsafe) { Cow::Owned(format!("{name:?}")) } else { Cow::Borrowed(name) }
}

#[cfg(test)]
mod tests {
    use contract::limits::{MAX_FILE_TEXT_BYTES, MAX_FILE_TEXT_LINES};

    use super::{first_lines, image_type, is_binary, name_on_a_line};

    #[test]
    fn a_text_block_is_cut_at_a_line_or_inside_a_single_long_line() {
        assert_eq!(first_lines("a\nb"), ("a\nb", false));
        let many = "x\n".repeat(MAX_FILE_TEXT_LINES + 1);
        let (shown, is_cut) = first_lines(&many);
        assert!(is_cut && shown.lines().count() == MAX_FILE_TEXT_LINES);
        let long = "é".repeat(MAX_FILE_TEXT_BYTES);
        let (shown, is_cut) = first_lines(&long);
        assert!(is_cut && shown.len() == MAX_FILE_TEXT_BYTES);
        let wide = format!("{}\n{}", "y".repeat(MAX_FILE_TEXT_BYTES - 1), "z");
        assert_eq!(first_lines(&wide).0.len(), MAX_FILE_TEXT_BYTES);
    }

    #[test]
    fn images_and_binary_files_are_recognized_by_their_first_bytes() {
        assert_eq!(image_type(b"\x89PNG\r\n\x1a\nrest"), Some("image/png"));
        assert_eq!(image_type(b"\xff\xd8\xff\xe0"), Some("image/jpeg"));
        assert_eq!(image_type(b"RIFF\x01\x02\x03\x04WEBPVP8 "), Some("image/webp"));
        assert_eq!(image_type(b"RIFF\x01\x02\x03\x04WAVEfmt "), None);
        assert_eq!(image_type(b"GIF"), None);
        assert!(is_binary(b"ELF\0") && !is_binary("Grüße".as_bytes()) && !is_binary(b""));
    }

    #[test]
    fn a_name_with_a_line_break_stays_on_one_line() {
        assert_eq!(name_on_a_line("plain name.txt"), "plain name.txt");
        assert_eq!(name_on_a_line("a\nb"), "\"a\\nb\"");
        assert!(!name_on_a_line("a\u{202e}b").contains('\u{202e}'));
    }
}
