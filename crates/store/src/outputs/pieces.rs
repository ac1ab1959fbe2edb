//! Cuts the data of an output into pieces and counts its characters and lines. Pure.

use contract::limits::OUTPUT_PIECE_BYTES;

use super::OutputKind;
use crate::error::StoreError;

/// A piece of an output, and where it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece<'a> {
    pub(super) number: u64,
    pub(super) start_byte: u64,
    pub(super) start_unit: u64,
    /// The line in which the piece begins.
    pub(super) start_line: u64,
    /// The first line that begins in this piece or after it.
    pub(super) next_line: u64,
    pub(super) data: &'a [u8],
}

/// Whether the data that is cut is the rest of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    Partial,
    Last,
}

/// Cuts an output into pieces, and holds its totals up to the place where it is cut. The pieces do not depend on the portions in which the data
/// arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PieceCutter {
    is_text: bool,
    pieces: u64,
    pub(super) bytes: u64,
    units: u64,
    line_ends: u64,
    is_in_line: bool,
}

impl PieceCutter {
    pub(super) fn new(kind: OutputKind) -> Self {
        Self { is_text: kind.is_text(), pieces: 0, bytes: 0, units: 0, line_ends: 0, is_in_line: false }
    }

    /// The length in UTF-16 code units; of data that is not text, in bytes.
    pub(super) fn units(&self) -> u64 {
        if self.is_text { self.units } else { self.bytes }
    }

    /// The number of lines. A line end at the end of the text begins no further line.
    pub(super) fn lines(&self) -> u64 {
        self.line_ends + u64::from(self.is_in_line)
    }

    /// Returns the first piece of the data; `None` if more data is needed for one, or nothing is left.
    pub(super) fn next<'a>(&mut self, data: &'a [u8], input: Input) -> Result<Option<Piece<'a>>, StoreError> {
        if data.is_empty() || input == Input::Partial && data.len() < OUTPUT_PIECE_BYTES {
            return Ok(None);
        }
        let (head, later) = data.split_at(data.len().min(OUTPUT_PIECE_BYTES));
        let head_input = if later.is_empty() { input } else { Input::Partial };
        let data = if self.is_text { text_of(head, head_input)? } else { head };
        let piece = Piece {
            number: self.pieces,
            start_byte: self.bytes,
            start_unit: self.units(),
            start_line: self.line_ends,
            next_line: self.lines(),
            data,
        };
        self.add(data);
        Ok(Some(piece))
    }

    fn add(&mut self, data: &[u8]) {
        self.pieces += 1;
        self.bytes += data.len() as u64;
        if self.is_text {
            self.units += utf16_units(data) as u64;
            self.line_ends += memchr::memchr_iter(b'\n', data).count() as u64;
            self.is_in_line = data.last() != Some(&b'\n');
        }
    }
}

/// Returns the length of UTF-8 text in UTF-16 code units.
fn utf16_units(text: &[u8]) -> usize {
    if text.is_ascii() {
        return text.len();
    }
    let count = |counts: fn(u8) -> bool| text.iter().filter(|byte| counts(**byte)).count();
    // A character of four bytes is a surrogate pair; every other one is a single unit.
    count(|byte| byte & 0xC0 != 0x80) + count(|byte| byte >= 0xF0)
}

/// Returns the data without a character that continues after it.
fn text_of(data: &[u8], input: Input) -> Result<&[u8], StoreError> {
    match std::str::from_utf8(data) {
        Ok(_) => Ok(data),
        Err(error) if error.error_len().is_none() && input == Input::Partial => {
            Ok(data.split_at(error.valid_up_to()).0)
        }
        Err(_) => Err(StoreError::InvalidText),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(data: &[u8], kind: OutputKind) -> (Vec<Piece<'_>>, PieceCutter) {
        let (mut cut, mut pieces, mut rest) = (PieceCutter::new(kind), Vec::new(), data);
        while let Some(piece) = cut.next(rest, Input::Last).unwrap() {
            rest = rest.split_at(piece.data.len()).1;
            pieces.push(piece);
        }
        (pieces, cut)
    }

    /// Returns texts with a long character at every position around the end of a piece.
    fn texts() -> Vec<String> {
        let long = ["\u{e4}", "\u{20ac}", "\u{1F980}", "\n", "\r\n"];
        let before = (OUTPUT_PIECE_BYTES - 5)..=(OUTPUT_PIECE_BYTES + 1);
        before
            .flat_map(|before| {
                long.map(|long| format!("{}{}{}", "x".repeat(before), long.repeat(4), "y".repeat(OUTPUT_PIECE_BYTES)))
            })
            .collect()
    }

    #[test]
    fn pieces_begin_and_end_at_characters_and_make_up_the_text() {
        for text in texts() {
            let (pieces, end) = cut(text.as_bytes(), OutputKind::Text);
            let mut bytes = 0_usize;
            for (number, piece) in (0..).zip(&pieces) {
                let before = text.split_at(bytes).0;
                let position = (piece.number, piece.start_byte, piece.start_unit, piece.start_line);
                let units = before.encode_utf16().count() as u64;
                assert_eq!(position, (number, bytes as u64, units, before.matches('\n').count() as u64));
                assert_eq!(piece.next_line, before.lines().count() as u64);
                assert!(std::str::from_utf8(piece.data).is_ok() && piece.data.len() <= OUTPUT_PIECE_BYTES);
                bytes += piece.data.len();
            }
            assert_eq!(pieces.iter().map(|piece| piece.data).collect::<Vec<_>>().concat(), text.as_bytes());
            let totals = (text.len() as u64, text.encode_utf16().count() as u64, text.lines().count() as u64);
            assert_eq!((end.bytes, end.units(), end.lines()), totals);
        }
    }

    #[test]
    fn lines_are_counted_without_an_empty_one_at_the_end() {
        for text in ["", "a", "\n", "a\n", "a\nb", "a\n\n", "\n\na"] {
            assert_eq!(cut(text.as_bytes(), OutputKind::Text).1.lines(), text.lines().count() as u64, "{text:?}");
        }
    }

    #[test]
    fn data_that_is_not_text_is_cut_at_bytes() {
        let data = vec![0xF0; OUTPUT_PIECE_BYTES + 1];
        let (pieces, end) = cut(&data, OutputKind::Binary);
        assert_eq!(pieces.iter().map(|piece| piece.data.len()).collect::<Vec<_>>(), [OUTPUT_PIECE_BYTES, 1]);
        assert_eq!((end.bytes, end.units(), end.lines()), (data.len() as u64, data.len() as u64, 0));
    }

    #[test]
    fn invalid_text_and_text_that_ends_within_a_character_are_rejected() {
        for data in [b"a\xFFb".as_slice(), b"a\xF0\x9F\xA6"] {
            assert!(matches!(PieceCutter::new(OutputKind::Text).next(data, Input::Last), Err(StoreError::InvalidText)));
        }
    }

    #[test]
    fn a_partial_input_is_cut_only_if_a_piece_is_full() {
        let data = vec![b'x'; OUTPUT_PIECE_BYTES];
        let mut cut = PieceCutter::new(OutputKind::Text);
        let (short, _) = data.split_at(OUTPUT_PIECE_BYTES - 1);
        assert_eq!(cut.next(short, Input::Partial).unwrap(), None);
        assert_eq!(cut.next(&data, Input::Partial).unwrap().unwrap().data.len(), OUTPUT_PIECE_BYTES);
    }
}
