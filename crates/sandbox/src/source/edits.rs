//! Edits of a text that keep its lines: blanks in place, and recorded insertions.

use super::lines::{is_separator, narrow, terminator};
use contract::frame::SourcePosition;

/// On `line`, from generated `column` on, subtract `delta` to get the model's column.
///
/// Lines are the model's and columns are bytes, both from 1. Entries are in order, and the last one
/// on the line at or before a column applies. Each insertion is followed by one, so a position
/// inside inserted text would be mapped to after the place of the insertion: `original` prevents that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shift {
    pub line: u32,
    pub column: u32,
    pub delta: i32,
}

impl Shift {
    /// Its size in a snapshot.
    pub(crate) const BYTES: usize = 12;
}

/// Returns the place in the model's source for a place in the script.
pub(super) fn original(shifts: &[Shift], line: u32, column: u32) -> SourcePosition {
    let following = shifts.partition_point(|shift| (shift.line, shift.column) <= (line, column));
    let on_line = |shift: &&Shift| shift.line == line;
    let delta = shifts.get(..following).and_then(<[Shift]>::last).filter(on_line);
    let moved = column.saturating_add_signed(-delta.map_or(0, |shift| shift.delta));
    let limit = shifts.get(following).filter(on_line);
    let limit = limit.map_or(u32::MAX, |shift| shift.column.saturating_add_signed(-shift.delta));
    SourcePosition { line, column: moved.min(limit).max(1) }
}

/// A text that is being edited. Offsets refer to the original text.
#[derive(Debug)]
pub(super) struct Edits {
    bytes: Vec<u8>,
    insertions: Vec<(usize, String)>,
}

impl Edits {
    pub(super) fn new(text: &str) -> Self {
        Self { bytes: text.as_bytes().to_vec(), insertions: Vec::new() }
    }

    /// Turns every byte from `start` to `end` into a space, except line terminators.
    pub(super) fn blank(&mut self, start: u32, end: u32) {
        let mut offset = start as usize;
        while offset < end as usize {
            if is_separator(&self.bytes, offset) {
                offset += 3;
                continue;
            }
            if let Some(byte) = self.bytes.get_mut(offset)
                && !matches!(byte, b'\n' | b'\r')
            {
                *byte = b' ';
            }
            offset += 1;
        }
    }

    /// Writes an ASCII byte over one that is blank or ASCII.
    pub(super) fn put(&mut self, offset: u32, byte: u8) {
        if let Some(found) = self.bytes.get_mut(offset as usize)
            && found.is_ascii()
        {
            *found = byte;
        }
    }

    /// Inserts text without line terminators before `offset`, after anything inserted there earlier.
    pub(super) fn insert(&mut self, offset: u32, text: impl Into<String>) {
        self.insertions.push((offset as usize, text.into()));
    }

    /// Returns the edited text, and the columns that insertions moved.
    ///
    /// The first line belongs to the wrapper: `Shift` counts lines from the second.
    pub(super) fn finish(mut self) -> (String, Vec<Shift>) {
        // The sort is stable, so insertions at the same offset keep their order.
        self.insertions.sort_by_key(|(offset, _)| *offset);
        let mut insertions = self.insertions.iter().peekable();
        let mut shifts: Vec<Shift> = Vec::with_capacity(insertions.len());
        let mut generated = Vec::with_capacity(self.bytes.len());
        let (mut line, mut line_start, mut delta) = (0_u32, 0_usize, 0_usize);
        for (offset, byte) in self.bytes.iter().enumerate() {
            while let Some((_, text)) = insertions.next_if(|(at, _)| *at <= offset) {
                generated.extend_from_slice(text.as_bytes());
                delta += text.len();
                shifts.push(Shift {
                    line,
                    column: narrow(generated.len() - line_start) + 1,
                    delta: i32::try_from(delta).unwrap_or(i32::MAX),
                });
            }
            generated.push(*byte);
            // A terminator of several bytes ends with the byte that `terminator` points behind.
            let ends_line = match byte {
                b'\n' | b'\r' => terminator(&self.bytes, offset).is_some(),
                0xA8 | 0xA9 => offset >= 2 && is_separator(&self.bytes, offset - 2),
                _ => false,
            };
            if ends_line {
                (line, line_start, delta) = (line + 1, generated.len(), 0);
            }
        }
        (String::from_utf8_lossy(&generated).into_owned(), shifts)
    }
}

#[cfg(test)]
mod tests {
    use super::{Edits, Shift, SourcePosition, original};

    #[test]
    fn blanks_keep_lines_and_columns() {
        let mut edits = Edits::new("a\né\r\n\u{2028}z😀y");
        edits.blank(1, 14);
        let (text, shifts) = edits.finish();
        assert_eq!(text, "a\n  \r\n\u{2028}     y");
        assert_eq!(shifts, []);
    }

    #[test]
    fn insertions_are_recorded() {
        let mut edits = Edits::new("(\nab c\nd");
        edits.insert(3, "X");
        edits.insert(3, "YZ");
        edits.insert(5, "12345");
        edits.insert(7, "!");
        let (text, shifts) = edits.finish();
        assert_eq!(text, "(\naXYZb 12345c\n!d");
        let shift = |line, column, delta| Shift { line, column, delta };
        let expected = [shift(1, 3, 1), shift(1, 5, 3), shift(1, 12, 8), shift(2, 2, 1)];
        assert_eq!(shifts, expected);

        // The generated columns of each line, and the model's.
        let lines: [(u32, &[u32]); 2] = [(1, &[1, 2, 2, 2, 2, 3, 4, 4, 4, 4, 4, 4]), (2, &[1, 1])];
        for (line, columns) in lines {
            for (column, expected) in (1..).zip(columns) {
                let place = SourcePosition { line, column: *expected };
                assert_eq!(original(&shifts, line, column), place, "{line}:{column}");
            }
        }
        assert_eq!(original(&shifts, 9, 7), SourcePosition { line: 9, column: 7 });
    }
}
