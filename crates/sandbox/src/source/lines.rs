//! Places in a text, counted the way QuickJS counts them.
//!
//! QuickJS counts lines from 1 at LF, CR, CRLF, U+2028 and U+2029, and columns from 1 in bytes of
//! UTF-8 (`mark - eol` on its input buffer), so a column here is a byte, not a character. The one
//! difference: QuickJS does not count a lone CR in a comment, nor U+2028 and U+2029 in comments,
//! strings and templates.

use contract::frame::SourcePosition;

/// Returns the place of the byte at `offset`.
pub(super) fn place(text: &str, offset: usize) -> SourcePosition {
    let mut line = 1;
    let mut line_start = 0;
    for start in starts(text) {
        if start > offset {
            break;
        }
        line += 1;
        line_start = start;
    }
    SourcePosition { line, column: narrow(offset.saturating_sub(line_start)).saturating_add(1) }
}

/// Returns the offsets at which a line starts, without the first.
pub(super) fn starts(text: &str) -> impl Iterator<Item = usize> + '_ {
    let bytes = text.as_bytes();
    (0..bytes.len()).filter_map(move |offset| {
        let length = terminator(bytes, offset)?;
        Some(offset + length)
    })
}

/// Returns the length of the line terminator that ends just before the next line, if one starts here.
///
/// The CR of a CRLF is not a terminator, so that a CRLF counts once.
pub(super) fn terminator(bytes: &[u8], offset: usize) -> Option<usize> {
    match bytes.get(offset)? {
        b'\n' => Some(1),
        b'\r' if bytes.get(offset + 1) != Some(&b'\n') => Some(1),
        0xE2 if is_separator(bytes, offset) => Some(3),
        _ => None,
    }
}

/// Returns whether the three bytes at `offset` are U+2028 or U+2029.
pub(super) fn is_separator(bytes: &[u8], offset: usize) -> bool {
    matches!(bytes.get(offset..offset + 3), Some([0xE2, 0x80, 0xA8 | 0xA9]))
}

/// Source offsets fit: a source is at most `MAX_SOURCE_BYTES` long.
pub(super) fn narrow(offset: usize) -> u32 {
    u32::try_from(offset).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use contract::frame::SourcePosition;

    use super::place;

    #[test]
    fn counts_lines_like_quickjs_and_columns_in_bytes() {
        let cases = [
            ("", 0, (1, 1)),
            ("ab", 1, (1, 2)),
            ("a\nb", 2, (2, 1)),
            ("a\r\nb", 3, (2, 1)),
            ("a\rb", 2, (2, 1)),
            ("a\u{2028}b", 4, (2, 1)),
            ("a\u{2029}\n\nb", 6, (4, 1)),
            ("é = é", 6, (1, 7)),
            ("\"😀\"\n  x", 9, (2, 3)),
            ("a\nb", 99, (2, 98)),
        ];
        for (text, offset, (line, column)) in cases {
            assert_eq!(place(text, offset), SourcePosition { line, column }, "{text:?} at {offset}");
        }
    }
}
