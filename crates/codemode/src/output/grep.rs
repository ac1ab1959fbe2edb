//! Searches a text that arrives in pieces, line by line.

use regex::{Regex, RegexBuilder};
use serde::Serialize;

use super::escaped_bytes;
use super::lines::without_break;

/// The maximum length of a pattern.
const MAX_PATTERN_BYTES: usize = 4 << 10;

/// The maximum memory of the compiled pattern, and of its automaton.
const MAX_COMPILED_BYTES: usize = 1 << 20;

/// Lines up to this length are returned whole, once. Of longer ones, the surroundings of every match are returned.
const MAX_LINE_BYTES: usize = 2_000;

/// Bytes that are shown on each side of a match in a long line.
const AROUND_BYTES: usize = 200;

/// Bytes that are shown of a match in a long line.
const MAX_MATCH_BYTES: usize = 1_000;

/// A line of which this many bytes have arrived without its end is searched in parts of at least this length. A line
/// that ends within a piece is searched whole.
///
/// Parts overlap, so that only a match that is longer than the overlap can be missed. `^` also matches at the start of
/// each part.
const PART_BYTES: usize = 1 << 20;

/// Bytes of a part that are searched again with the next part.
const OVERLAP_BYTES: usize = 4 << 10;

/// Bytes of all matches together, as JSON. The search stops there.
const MAX_RESULT_BYTES: usize = 1 << 20;

/// Bytes of a match as JSON without its text: the field names and numbers.
const MATCH_OVERHEAD_BYTES: usize = 64;

/// Whether a letter matches only in its own case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LetterCase {
    Significant,
    Ignored,
}

/// A search in progress.
#[derive(Debug)]
pub(crate) struct Grep {
    pattern: Regex,
    limit: usize,
    matches: Vec<Match>,
    bytes: usize,
    /// The number of the current line, counted from 0.
    line: u64,
    /// The text of the current line that was not searched yet, with the overlap.
    buffered: String,
    /// Where `buffered` begins in the whole text, in UTF-16 code units.
    offset_utf16: u64,
    /// Whether a part of the current line was searched already.
    is_partly_searched: bool,
}

/// A line that matches, or a match in a long line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Match {
    /// Counted from 0, as `output.lines` counts.
    pub(crate) line: u64,
    /// Where the match begins in the text, in UTF-16 code units, as `output.read` counts.
    pub(crate) offset: u64,
    pub(crate) text: String,
}

impl Grep {
    /// Creates a search, or returns why the pattern cannot be used.
    pub(crate) fn new(pattern: &str, case: LetterCase, limit: usize) -> Result<Self, String> {
        if pattern.len() > MAX_PATTERN_BYTES {
            return Err(format!(
                "the pattern has {} bytes, but at most {MAX_PATTERN_BYTES} are allowed",
                pattern.len()
            ));
        }
        let built = RegexBuilder::new(pattern)
            .case_insensitive(case == LetterCase::Ignored)
            .size_limit(MAX_COMPILED_BYTES)
            .dfa_size_limit(MAX_COMPILED_BYTES)
            .build();
        let pattern = built.map_err(|error| {
            format!(
                "the pattern cannot be used: {error}; patterns have no look-around and no backreferences, read the text \
                 and use a RegExp for these"
            )
        })?;
        Ok(Self {
            pattern,
            limit,
            matches: Vec::new(),
            bytes: 0,
            line: 0,
            buffered: String::new(),
            offset_utf16: 0,
            is_partly_searched: false,
        })
    }

    /// Searches the next piece of the text.
    pub(crate) fn push(&mut self, piece: &str) {
        for part in piece.split_inclusive('\n') {
            if self.is_complete() {
                return;
            }
            self.buffered += part;
            if part.ends_with('\n') {
                self.end_line();
            } else if self.buffered.len() >= PART_BYTES {
                self.search_part();
            }
        }
    }

    /// Whether no more matches are wanted.
    pub(crate) fn is_complete(&self) -> bool {
        self.matches.len() >= self.limit || self.bytes >= MAX_RESULT_BYTES
    }

    /// Searches the last line, and returns the matches.
    pub(crate) fn finish(mut self) -> Vec<Match> {
        if !self.buffered.is_empty() && !self.is_complete() {
            self.end_line();
        }
        self.matches
    }

    fn end_line(&mut self) {
        let whole = std::mem::take(&mut self.buffered);
        let line = without_break(&whole);
        if self.is_partly_searched || line.len() > MAX_LINE_BYTES {
            self.search_long(line, line.len());
        } else if let Some(found) = self.pattern.find(line) {
            let offset = self.offset_utf16 + utf16_len(line.get(..found.start()).unwrap_or_default());
            self.add(offset, line.to_owned());
        }
        self.offset_utf16 += utf16_len(&whole);
        self.line += 1;
        self.is_partly_searched = false;
    }

    /// Searches the beginning of a long line, and keeps the overlap with its next part.
    fn search_part(&mut self) {
        let mut part = std::mem::take(&mut self.buffered);
        let end = part.floor_char_boundary(part.len().saturating_sub(OVERLAP_BYTES));
        self.search_long(&part, end);
        self.offset_utf16 += utf16_len(part.get(..end).unwrap_or_default());
        self.buffered = part.split_off(end);
        self.is_partly_searched = true;
    }

    /// Adds all matches that begin before `end`, or at the end of the line.
    fn search_long(&mut self, line: &str, end: usize) {
        let (mut at, mut offset) = (0, self.offset_utf16);
        let pattern = self.pattern.clone();
        for found in pattern.find_iter(line) {
            if self.is_complete() || (found.start() >= end && end < line.len()) {
                return;
            }
            offset += utf16_len(line.get(at..found.start()).unwrap_or_default());
            at = found.start();
            let from = line.floor_char_boundary(at.saturating_sub(AROUND_BYTES));
            let to = found.end().min(at + MAX_MATCH_BYTES) + AROUND_BYTES;
            let to = line.ceil_char_boundary(to.min(line.len()));
            self.add(offset, line.get(from..to).unwrap_or_default().to_owned());
        }
    }

    fn add(&mut self, offset: u64, text: String) {
        self.bytes += escaped_bytes(&text) + MATCH_OVERHEAD_BYTES;
        self.matches.push(Match { line: self.line, offset, text });
    }
}

fn utf16_len(text: &str) -> u64 {
    if text.is_ascii() { text.len() as u64 } else { text.chars().map(|letter| letter.len_utf16() as u64).sum() }
}

#[cfg(test)]
mod tests {
    use super::{Grep, LetterCase, MAX_RESULT_BYTES, Match, PART_BYTES};

    fn grep(text: &str, piece_bytes: usize, pattern: &str, limit: usize) -> Vec<Match> {
        let mut grep = Grep::new(pattern, LetterCase::Significant, limit).unwrap();
        let mut rest = text;
        while !rest.is_empty() && !grep.is_complete() {
            let (piece, after) = rest.split_at(rest.ceil_char_boundary(piece_bytes));
            grep.push(piece);
            rest = after;
        }
        grep.finish()
    }

    #[test]
    fn matching_lines_are_found_across_pieces() {
        let text = "alpha\nbeta \u{1F600} gamma\r\n\ngamma alpha\nlast";
        for piece_bytes in [1, 3, 7, 1000] {
            let found = grep(text, piece_bytes, "gam+a", 10);
            let lines: Vec<_> = found.iter().map(|one| (one.line, one.offset, one.text.as_str())).collect();
            assert_eq!(lines, [(1, 14, "beta \u{1F600} gamma"), (3, 22, "gamma alpha")], "{piece_bytes}");
            assert_eq!(grep(text, piece_bytes, "^a|t$", 10).len(), 2);
            assert_eq!(grep(text, piece_bytes, "a", 2).len(), 2);
            assert_eq!(grep(text, piece_bytes, "^$", 10), [Match { line: 2, offset: 21, text: String::new() }]);
        }
        let mut ignoring = Grep::new("LAST", LetterCase::Ignored, 1).unwrap();
        ignoring.push(text);
        assert_eq!(ignoring.finish().len(), 1);
    }

    #[test]
    fn every_match_of_a_long_line_is_returned_with_what_surrounds_it() {
        let mut text = "x".repeat(3 * PART_BYTES);
        let positions = [10, PART_BYTES - 2, PART_BYTES + 5_000, 3 * PART_BYTES - 4];
        for position in positions {
            text.replace_range(position..position + 3, "key");
        }
        let text = format!("first\n{text}\nkey");
        let found = grep(&text, 256 << 10, "key", 100);
        let offsets: Vec<u64> = found.iter().map(|one| one.offset).collect();
        let expected = positions.map(|position| position as u64 + 6).into_iter().chain([6 + 3 * PART_BYTES as u64 + 1]);
        assert_eq!(offsets, expected.collect::<Vec<_>>());
        assert!(found.iter().all(|one| one.text.len() <= 403 && one.text.contains("key")));
        assert_eq!(found.iter().map(|one| one.line).collect::<Vec<_>>(), [1, 1, 1, 1, 2]);
    }

    #[test]
    fn invalid_patterns_are_refused() {
        for pattern in ["(", "(?=a)", r"(a)\1", &"a".repeat(5_000), r"\w{1000}{1000}"] {
            assert!(Grep::new(pattern, LetterCase::Significant, 1).is_err(), "{pattern:.20}");
        }
    }

    #[test]
    fn results_stop_at_the_byte_limit() {
        let lines = format!("{}\n", "y".repeat(1_999)).repeat(10_000);
        let found = grep(&lines, 256 << 10, "y", 10_000);
        let bytes = serde_json::to_string(&found).unwrap().len();
        assert!((MAX_RESULT_BYTES / 2..MAX_RESULT_BYTES + 4_000).contains(&bytes), "{bytes}");
    }
}
