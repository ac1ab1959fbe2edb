//! The lines of a file, and a search for a sequence of lines that tolerates small differences, because models do not copy
//! lines exactly.

use std::borrow::Cow;
use std::cell::OnceCell;

use contract::limits::MAX_PATCH_STEPS;

/// A line of a file: its text, and the line break after it, which the last line may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line<'t> {
    pub(super) text: &'t [u8],
    pub(super) end: &'t [u8],
}

/// Splits a text into lines.
pub(super) fn lines(content: &[u8]) -> impl Iterator<Item = Line<'_>> {
    content.split_inclusive(|byte| *byte == b'\n').map(|line| {
        let end = match line {
            [.., b'\r', b'\n'] => 2,
            [.., b'\n'] => 1,
            _ => 0,
        };
        let (text, end) = line.split_at(line.len() - end);
        Line { text, end }
    })
}

/// Returns the line break of a text: that of its first line.
pub(super) fn line_break(content: &[u8]) -> &'static [u8] {
    match lines(content).next() {
        Some(Line { end: b"\r\n", .. }) => b"\r\n",
        _ => b"\n",
    }
}

/// How much two lines may differ and still count as equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Likeness {
    /// Not at all.
    Same,
    /// In space at the end.
    SpaceAtEnd,
    /// In space at both ends.
    SpaceAround,
    /// In space at both ends, and in typographic quotes, dashes and spaces.
    Punctuation,
}

impl Likeness {
    /// All levels, the strictest first.
    pub(super) const ALL: [Self; 4] = [Self::Same, Self::SpaceAtEnd, Self::SpaceAround, Self::Punctuation];

    /// Normalizes a line: lines that count as equal have the same normalized form.
    fn normalize(self, line: &[u8]) -> Cow<'_, [u8]> {
        match self {
            Self::Same => Cow::Borrowed(line),
            Self::SpaceAtEnd => Cow::Borrowed(line.trim_ascii_end()),
            Self::SpaceAround => Cow::Borrowed(line.trim_ascii()),
            Self::Punctuation if line.is_ascii() => Cow::Borrowed(line.trim_ascii()),
            Self::Punctuation => {
                let text: String = String::from_utf8_lossy(line).chars().map(without_typography).collect();
                Cow::Owned(text.trim_ascii().as_bytes().to_vec())
            }
        }
    }
}

/// Returns the ASCII character for a typographic quote, dash or space. Other characters stay.
fn without_typography(character: char) -> char {
    match character {
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{2018}'..='\u{201b}' => '\'',
        '\u{201c}'..='\u{201f}' => '"',
        '\u{a0}' | '\u{2002}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => ' ',
        other => other,
    }
}

/// The error that the searches in a file took too many steps.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooCostly;

/// The lines of a file, to find sequences in.
#[derive(Debug)]
pub(super) struct Haystack<'t> {
    pub(super) lines: Vec<Line<'t>>,
    /// The normalized lines at each level, which are computed when they are needed first.
    normalized: [OnceCell<Vec<Cow<'t, [u8]>>>; 4],
    /// How many comparisons of lines all further searches together may take.
    steps_left: usize,
}

impl<'t> Haystack<'t> {
    pub(super) fn new(lines: Vec<Line<'t>>) -> Self {
        Self { lines, normalized: Default::default(), steps_left: MAX_PATCH_STEPS }
    }

    /// Returns the first position from `from` on where these lines are, at the first of the levels that finds any.
    pub(super) fn find(
        &mut self,
        wanted: &[&[u8]],
        from: usize,
        levels: &[Likeness],
    ) -> Result<Option<usize>, TooCostly> {
        for level in levels {
            if let Some(found) = self.find_at(wanted, from, *level)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Returns the first position from `from` on where these lines are, at one level.
    pub(super) fn find_at(
        &mut self,
        wanted: &[&[u8]],
        from: usize,
        level: Likeness,
    ) -> Result<Option<usize>, TooCostly> {
        let wanted: Vec<Cow<'_, [u8]>> = wanted.iter().map(|line| level.normalize(line)).collect();
        let cell = self.normalized.get(level as usize);
        let Some(cell) = cell else { return Ok(None) };
        let normalized = cell.get_or_init(|| self.lines.iter().map(|line| level.normalize(line.text)).collect());
        let Some(last) = normalized.len().checked_sub(wanted.len()) else { return Ok(None) };
        for position in from..=last {
            let here = normalized.get(position..).unwrap_or_default();
            let equal = here.iter().zip(&wanted).take_while(|(one, other)| one == other).count();
            self.steps_left = self.steps_left.checked_sub(equal + 1).ok_or(TooCostly)?;
            if equal == wanted.len() {
                return Ok(Some(position));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::{Haystack, Likeness, Line, TooCostly, line_break, lines};

    #[test]
    fn lines_keep_their_breaks() {
        let split: Vec<Line<'_>> = lines(b"a\r\nb\n\nc").collect();
        let line = |text, end| Line { text, end };
        let expected: [Line<'_>; 4] = [line(b"a", b"\r\n"), line(b"b", b"\n"), line(b"", b"\n"), line(b"c", b"")];
        assert_eq!(split, expected);
        assert_eq!(
            (line_break(b"a\r\nb\n"), line_break(b"a\nb\r\n"), line_break(b"a")),
            (&b"\r\n"[..], &b"\n"[..], &b"\n"[..])
        );
    }

    #[test]
    fn the_strictest_level_that_matches_decides_the_position() {
        let text = "  x\nx  \n\u{201c}x\u{201d}\nx\n";
        let find = |wanted: &str, from| {
            Haystack::new(lines(text.as_bytes()).collect()).find(&[wanted.as_bytes()], from, &Likeness::ALL).unwrap()
        };
        assert_eq!(find("x", 0), Some(3));
        assert_eq!(find("x ", 0), Some(1));
        assert_eq!(find("\tx ", 2), Some(3));
        assert_eq!(find("\"x\"", 0), Some(2));
        assert_eq!(find("y", 0), None);
    }

    #[test]
    fn a_search_that_takes_too_many_steps_fails() {
        let text = "a\n".repeat(60_000);
        let mut wanted = vec![b"a".as_slice(); 30_000];
        wanted.push(b"b");
        let mut haystack = Haystack::new(lines(text.as_bytes()).collect());
        assert_eq!(haystack.find(&wanted, 0, &Likeness::ALL), Err(TooCostly));
    }
}
