//! Lines of a text that arrives in pieces.

use contract::limits::MAX_PAGE_UNITS;

/// Collects some lines of a text from its pieces. Lines are counted from 0, and have no `\n` or `\r\n` at their end.
#[derive(Debug)]
pub(crate) struct Lines {
    from: u64,
    count: usize,
    /// The number of the line that is being read.
    line: u64,
    /// The beginning of that line, if it is one of those to collect.
    started: String,
    lines: Vec<String>,
    bytes: usize,
}

/// The lines are longer than one reply may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinesTooLong {
    /// The line in which the limit was reached.
    pub(crate) line: u64,
}

impl Lines {
    /// Starts with a piece that begins in line `line`. The line `from` must not begin before that piece.
    pub(crate) fn new(line: u64, from: u64, count: usize) -> Self {
        Self { from, count, line, started: String::new(), lines: Vec::new(), bytes: 0 }
    }

    pub(crate) fn push(&mut self, piece: &str) -> Result<(), LinesTooLong> {
        for part in piece.split_inclusive('\n') {
            if self.is_complete() {
                break;
            }
            let is_ended = part.ends_with('\n');
            if self.line >= self.from {
                self.bytes += part.len();
                if self.bytes > MAX_PAGE_UNITS {
                    return Err(LinesTooLong { line: self.line });
                }
                self.started += part;
                if is_ended {
                    self.end_line();
                }
            }
            self.line += u64::from(is_ended);
        }
        Ok(())
    }

    fn end_line(&mut self) {
        let mut line = std::mem::take(&mut self.started);
        line.truncate(without_break(&line).len());
        self.lines.push(line);
    }

    /// Whether all lines were found, so that no more pieces are needed.
    pub(crate) fn is_complete(&self) -> bool {
        self.lines.len() >= self.count
    }

    /// Returns the lines after the last piece that is needed or exists.
    pub(crate) fn finish(mut self) -> Vec<String> {
        if !self.started.is_empty() && !self.is_complete() {
            self.end_line();
        }
        self.lines
    }
}

/// Returns a line without the `\n` or `\r\n` at its end.
pub(super) fn without_break(line: &str) -> &str {
    match line.strip_suffix('\n') {
        Some(line) => line.strip_suffix('\r').unwrap_or(line),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use contract::limits::MAX_PAGE_UNITS;

    use super::{Lines, LinesTooLong};

    fn lines(text: &str, piece_bytes: usize, from: u64, count: usize) -> Vec<String> {
        let mut lines = Lines::new(0, from, count);
        let mut rest = text;
        while !rest.is_empty() && !lines.is_complete() {
            let (piece, after) = rest.split_at(rest.ceil_char_boundary(piece_bytes));
            lines.push(piece).unwrap();
            rest = after;
        }
        lines.finish()
    }

    #[test]
    fn lines_are_read_across_pieces() {
        let text = "zero\none\r\n\nthrée\n";
        let cases: [(u64, usize, &[&str]); 6] = [
            (0, 100, &["zero", "one", "", "thrée"]),
            (1, 1, &["one"]),
            (2, 2, &["", "thrée"]),
            (3, 5, &["thrée"]),
            (4, 5, &[]),
            (1, 0, &[]),
        ];
        for (from, count, expected) in cases {
            for piece_bytes in [1, 2, 3, 5, 100] {
                assert_eq!(lines(text, piece_bytes, from, count), expected, "{from} {count} {piece_bytes}");
            }
        }
        assert_eq!(lines("a\nb", 1, 1, 5), ["b"], "the last line may have no line break");
        assert_eq!(lines("", 1, 0, 5), Vec::<String>::new());
    }

    #[test]
    fn lines_that_are_too_long_are_refused_and_skipped_ones_are_not_counted() {
        let long = "x".repeat(MAX_PAGE_UNITS + 1);
        let mut lines = Lines::new(0, 0, 2);
        lines.push("short\n").unwrap();
        assert_eq!(lines.push(&long), Err(LinesTooLong { line: 1 }));
        let mut lines = Lines::new(0, 1, 1);
        lines.push(&long).unwrap();
        lines.push("\nnext\n").unwrap();
        assert_eq!(lines.finish(), ["next"]);
    }
}
