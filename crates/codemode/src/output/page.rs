//! A page of a text, counted in UTF-16 units as JavaScript counts.

/// Collects a page from consecutive pieces of a text.
///
/// The page is what `text.slice(start, end)` is in JavaScript, except that no character is cut in two: a pair of
/// surrogates that straddles the start is left to the page before, and one that straddles the end is included. So
/// consecutive pages together are the text.
#[derive(Debug)]
pub(crate) struct Page {
    start: u64,
    end: u64,
    text: String,
    is_complete: bool,
}

impl Page {
    pub(crate) fn new(start: u64, length: u64) -> Self {
        Self { start, end: start.saturating_add(length), text: String::new(), is_complete: length == 0 }
    }

    /// Adds a piece that starts at this unit of the text.
    pub(crate) fn push(&mut self, start_unit: u64, piece: &str) {
        let skipped = self.start.saturating_sub(start_unit);
        let wanted = self.end.saturating_sub(start_unit);
        let (from, to, has_end) = if piece.is_ascii() {
            let at = |units: u64| usize::try_from(units).unwrap_or(usize::MAX).min(piece.len());
            (at(skipped), at(wanted), wanted <= piece.len() as u64)
        } else {
            let mut unit = 0_u64;
            let (mut from, mut to) = (piece.len(), piece.len());
            for (at, letter) in piece.char_indices() {
                if unit >= skipped {
                    from = from.min(at);
                }
                if unit >= wanted {
                    to = at;
                    break;
                }
                unit += letter.len_utf16() as u64;
            }
            (from, to, unit >= wanted)
        };
        self.is_complete |= has_end;
        self.text += piece.get(from..to).unwrap_or_default();
    }

    /// Whether the pieces so far contain the whole page.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::Page;

    /// Reads a page of a text that is cut into pieces of about this many bytes.
    fn page(text: &str, piece_bytes: usize, start: u64, length: u64) -> String {
        let mut page = Page::new(start, length);
        let (mut rest, mut unit) = (text, 0);
        while !rest.is_empty() && !page.is_complete() {
            let (piece, after) = rest.split_at(rest.ceil_char_boundary(piece_bytes));
            page.push(unit, piece);
            unit += piece.encode_utf16().count() as u64;
            rest = after;
        }
        page.into_text()
    }

    #[test]
    fn a_page_is_a_slice_that_cuts_no_character() {
        let cases = [
            ("abcdef", 0, 3, "abc"),
            ("abcdef", 3, 3, "def"),
            ("abcdef", 4, 100, "ef"),
            ("abcdef", 6, 1, ""),
            ("abcdef", 9, 1, ""),
            ("abcdef", 2, 0, ""),
            ("aä日b", 1, 2, "ä日"),
            // The pair has the units 1 and 2.
            ("a\u{1F600}b", 0, 2, "a\u{1F600}"),
            ("a\u{1F600}b", 2, 1, ""),
            ("a\u{1F600}b", 2, 2, "b"),
            ("a\u{1F600}b", 1, 1, "\u{1F600}"),
        ];
        for (text, start, length, expected) in cases {
            for piece_bytes in [1, 2, 3, 100] {
                assert_eq!(page(text, piece_bytes, start, length), expected, "{text:?} {start} {length} {piece_bytes}");
            }
        }
    }

    #[test]
    fn consecutive_pages_are_the_text() {
        let text = "plain ascii, \u{1F600}\u{1F601} ä\n日本 \u{10FFFF}end".repeat(20);
        for length in 1..40 {
            for piece_bytes in [7, 64, 1000] {
                let units = text.encode_utf16().count() as u64;
                let pages = (0..units).step_by(length).map(|start| page(&text, piece_bytes, start, length as u64));
                assert_eq!(pages.collect::<String>(), text, "{length} {piece_bytes}");
            }
        }
    }
}
