//! Applies the hunks of one file. Pure: bytes in, bytes out.

use contract::limits::MAX_EDITED_LINES;

use super::parse::{Hunk, HunkLine};
use crate::core::files::lines::{Haystack, Likeness, TooCostly, line_break, lines};
use crate::core::roots::shorten;

/// Why hunks cannot be applied.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// The line that `@@` names is not there.
    NoPlace {
        number: usize,
        line: String,
    },
    /// The lines of a hunk are not there. The first one that no line of the file equals is named.
    NoLines {
        number: usize,
        line: String,
        is_before: bool,
    },
    TooManyLines,
    TooCostly,
}

impl From<TooCostly> for Problem {
    fn from(_: TooCostly) -> Self {
        Self::TooCostly
    }
}

impl Problem {
    pub(super) fn explain(&self, path: &str) -> String {
        match self {
            Self::NoPlace { number, line } => format!(
                "line {number} of the patch: no line `{}` follows in `{path}`; read the file again. Nothing was changed",
                shorten(line)
            ),
            Self::NoLines { number, is_before: true, .. } => format!(
                "line {number} of the patch: the lines of this change are in `{path}` before those of the change above; put \
                 changes in the order of the file. Nothing was changed"
            ),
            Self::NoLines { number, line, is_before: false } => format!(
                "line {number} of the patch: the lines to keep and to remove are not together in `{path}`, for example `{}`; \
                 read the file again. Nothing was changed",
                shorten(line)
            ),
            Self::TooManyLines => format!("`{path}` has more than {MAX_EDITED_LINES} lines; change it with a program"),
            Self::TooCostly => format!(
                "finding the places of the changes in `{path}` takes too long, because its lines repeat; name fewer lines \
                 around each change"
            ),
        }
    }
}

/// Returns the content with all hunks applied. Lines that no hunk removes stay as they are, byte for byte.
pub(super) fn apply(content: &[u8], hunks: &[Hunk<'_>]) -> Result<Vec<u8>, Problem> {
    let split: Vec<_> = lines(content).take(MAX_EDITED_LINES + 1).collect();
    if split.len() > MAX_EDITED_LINES {
        return Err(Problem::TooManyLines);
    }
    let mut file = Haystack::new(split);
    let ending = line_break(content);
    let mut result = PatchedFile { bytes: Vec::with_capacity(content.len()), ending };
    let mut next = 0;
    for hunk in hunks {
        let (start, used) = place(&mut file, hunk, next)?;
        for line in file.lines.get(next..start).unwrap_or_default() {
            result.keep(line.text, line.end);
        }
        next = start;
        for line in used {
            match line {
                HunkLine::Add(text) => result.add(text.as_bytes()),
                HunkLine::Remove(_) => next += 1,
                HunkLine::Keep(_) | HunkLine::Blank => {
                    // The file's own line: the patch may have it with other space.
                    if let Some(line) = file.lines.get(next) {
                        result.keep(line.text, line.end);
                    }
                    next += 1;
                }
            }
        }
    }
    for line in file.lines.get(next..).unwrap_or_default() {
        result.keep(line.text, line.end);
    }
    Ok(result.bytes)
}

struct PatchedFile<'c> {
    bytes: Vec<u8>,
    ending: &'c [u8],
}

impl PatchedFile<'_> {
    /// Ends the last line if it has no line break, because another line follows.
    fn begin_line(&mut self) {
        if self.bytes.last().is_some_and(|last| *last != b'\n') {
            self.bytes.extend_from_slice(self.ending);
        }
    }

    fn keep(&mut self, text: &[u8], end: &[u8]) {
        self.begin_line();
        self.bytes.extend_from_slice(text);
        self.bytes.extend_from_slice(end);
    }

    fn add(&mut self, text: &[u8]) {
        self.begin_line();
        self.bytes.extend_from_slice(text);
        self.bytes.extend_from_slice(self.ending);
    }
}

/// Finds the place of a hunk at or after line `next`. Returns it with the lines of the hunk that are used there.
fn place<'h, 'p>(
    file: &mut Haystack<'_>,
    hunk: &'h Hunk<'p>,
    next: usize,
) -> Result<(usize, &'h [HunkLine<'p>]), Problem> {
    let (mut from, mut named) = (next, None);
    for line in &hunk.after {
        let found = file.find(&[line.as_bytes()], from, &Likeness::ALL)?;
        let found = found.ok_or_else(|| Problem::NoPlace { number: hunk.number, line: (*line).to_owned() })?;
        (from, named) = (found + 1, Some(found));
    }
    // Blank lines at the end may belong to the file or only separate sections.
    let blanks = hunk.lines.iter().rev().take_while(|line| **line == HunkLine::Blank).count();
    let without_blanks = hunk.lines.get(..hunk.lines.len() - blanks).unwrap_or_default();
    let variants = if blanks == 0 || old_lines(without_blanks).is_empty() {
        vec![without_blanks]
    } else {
        vec![hunk.lines.as_slice(), without_blanks]
    };
    for lines in variants {
        let old = old_lines(lines);
        if old.is_empty() {
            let is_after_a_line = named.is_some() && !hunk.is_at_end;
            return Ok((if is_after_a_line { from } else { file.lines.len() }, lines));
        }
        if hunk.is_at_end {
            let Some(start) = file.lines.len().checked_sub(old.len()).filter(|start| *start >= next) else { continue };
            if let Some(found) = file.find(&old, start, &Likeness::ALL)? {
                return Ok((found, lines));
            }
            continue;
        }
        // Models repeat the line that `@@` names as the first line of the hunk.
        let starts = [Some(from), named];
        for start in starts.into_iter().flatten() {
            if let Some(found) = file.find(&old, start, &Likeness::ALL)? {
                return Ok((found, lines));
            }
        }
    }
    let old = old_lines(without_blanks);
    let is_before = next > 0 && file.find(&old, 0, &[Likeness::Same])?.is_some();
    let mut absent = None;
    for line in &old {
        if file.find(&[line], 0, &Likeness::ALL)?.is_none() {
            absent = Some(*line);
            break;
        }
    }
    let line = absent.or(old.first().copied()).unwrap_or_default();
    Err(Problem::NoLines { number: hunk.number, line: String::from_utf8_lossy(line).into_owned(), is_before })
}

/// Returns the lines that must be in the file.
fn old_lines<'p>(lines: &[HunkLine<'p>]) -> Vec<&'p [u8]> {
    let old = lines.iter().filter_map(|line| match line {
        HunkLine::Keep(text) | HunkLine::Remove(text) => Some(text.as_bytes()),
        HunkLine::Blank => Some("".as_bytes()),
        HunkLine::Add(_) => None,
    });
    old.collect()
}

#[cfg(test)]
mod tests;
