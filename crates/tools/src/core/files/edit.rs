//! `edit`: replaces texts of a file. Everything else in it stays as it is, byte for byte.

use std::borrow::Cow;
use std::ops::Range;

use contract::limits::{MAX_DIFF_BYTES, MAX_EDITED_FILE_BYTES, MAX_EDITED_LINES, MAX_EDITS};
use contract::spelling::edits as distance;
use executor::ToolResult;
use memchr::memmem;
use serde_json::{Value, json};

use super::CancelFlag;
use super::failure::Failure;
use super::input::Input;
use super::lines::{Haystack, Likeness, line_break, lines};
use super::replace::{Step, Target, commit};
use super::text::{boundary, is_binary};
use crate::core::roots::{Roots, shorten};

/// A text to replace.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Replacement<'v> {
    old: &'v str,
    new: &'v str,
}

pub(super) fn edit(roots: &Roots, input: &Input<'_>, cancel: &CancelFlag) -> Result<ToolResult, Failure> {
    let place = roots.locate_for_change(input.required_text("path")?)?;
    let replacements = replacements(input)?;
    let target = Target::find(roots, place)?;
    let original = target.read(cancel)?;
    let path = shorten(&target.place.shown);
    if is_binary(&original.content) {
        return Err(Failure::new(format!("`{path}` is a binary file; `edit` changes only text")));
    }
    let failed = |problem: Problem| Failure::new(problem.explain(&path, &original.content, &replacements));
    let spans = plan(&original.content, &replacements).map_err(failed)?;
    let changed = splice(&original.content, 0..original.content.len(), &spans);
    if changed.len() > MAX_EDITED_FILE_BYTES {
        return Err(Failure::new(format!("`{path}` would have more than {MAX_EDITED_FILE_BYTES} bytes")));
    }
    cancel.check()?;
    let staged = target.stage(&changed, &original.permissions(), cancel)?;
    commit(vec![Step::Replace(staged, &original)], cancel)?;
    let first = spans.first().map_or(0, |span| line_of(&original.content, span.range.start)) + 1;
    let details = json!({
        "path": target.place.shown,
        "replacements": spans.len(),
        "firstChangedLine": first,
        "diff": diff(&original.content, &spans),
    });
    let count = spans.len();
    let text = format!("`{path}` was changed: {count} replacement{}", if count == 1 { "" } else { "s" });
    Ok(ToolResult { details: Some(details), ..ToolResult::text(text) })
}

/// Reads `oldText` and `newText`, beside `path` or in each object of `edits`.
fn replacements<'v>(input: &Input<'v>) -> Result<Vec<Replacement<'v>>, Failure> {
    let read = |fields: &Input<'v>| -> Result<Replacement<'v>, Failure> {
        let old = fields.required_text("oldText")?;
        Ok(Replacement { old: old.strip_prefix('\u{feff}').unwrap_or(old), new: fields.required_text("newText")? })
    };
    let list: Vec<Replacement<'v>> = match input.list("edits")? {
        None => vec![read(input)?],
        Some(list) => {
            let mut all: Vec<_> =
                list.iter().map(|item: &'v Value| read(&Input::of(item))).collect::<Result<_, _>>()?;
            if input.text("oldText")?.is_some() {
                all.push(read(input)?);
            }
            all
        }
    };
    match list.as_slice() {
        [] => Err(Failure::new("`edits` is empty; give at least one object with `oldText` and `newText`")),
        list if list.len() > MAX_EDITS => {
            Err(Failure::new(format!("at most {MAX_EDITS} edits are possible in one call")))
        }
        list if list.iter().any(|one| one.old.is_empty()) => {
            Err(Failure::new("`oldText` is empty; give the text to replace, or use `write` for a new file"))
        }
        _ => Ok(list),
    }
}

/// A part of the file, and the bytes that replace it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Span {
    range: Range<usize>,
    new: Vec<u8>,
}

/// Why replacements cannot be made. The numbers are positions in the list of replacements.
#[derive(Debug, PartialEq, Eq)]
enum Problem {
    NotFound(usize),
    Ambiguous(usize, Vec<usize>),
    NoChange(usize),
    Overlap(usize, usize),
}

/// Finds the parts of the file that are replaced, in the order of the file. All texts are looked for in the file as it
/// is before any replacement.
fn plan(content: &[u8], replacements: &[Replacement<'_>]) -> Result<Vec<Span>, Problem> {
    let file = NormalizedText::of(content);
    let ending = line_break(content);
    let mut spans = Vec::new();
    for (position, one) in replacements.iter().enumerate() {
        let old = one.old.replace("\r\n", "\n");
        let range = match file.find(old.as_bytes()) {
            Occurrence::Once(range) => range,
            Occurrence::Often(places) => return Err(Problem::Ambiguous(position, places)),
            Occurrence::Never => find_lines(content, &old).ok_or(Problem::NotFound(position))?,
        };
        let new = with_line_breaks(one.new, ending);
        if content.get(range.clone()) == Some(new.as_slice()) {
            return Err(Problem::NoChange(position));
        }
        spans.push((position, Span { range, new }));
    }
    spans.sort_by_key(|(_, span)| span.range.start);
    for pair in spans.windows(2) {
        if let [(one, first), (other, second)] = pair
            && first.range.end > second.range.start
        {
            return Err(Problem::Overlap(*one.min(other), *one.max(other)));
        }
    }
    Ok(spans.into_iter().map(|(_, span)| span).collect())
}

/// Returns a text with the line breaks of the file.
fn with_line_breaks(text: &str, ending: &[u8]) -> Vec<u8> {
    let text = text.replace("\r\n", "\n");
    if ending == b"\r\n" { text.replace('\n', "\r\n").into_bytes() } else { text.into_bytes() }
}

/// A file with each `\r\n` as `\n`, so that texts are found whatever line breaks the caller writes.
struct NormalizedText<'c> {
    content: Cow<'c, [u8]>,
    /// Positions of the `\n` in `content` that had a `\r` before it.
    removed: Vec<usize>,
}

/// How often a text is in a file.
enum Occurrence {
    Never,
    Once(Range<usize>),
    /// The lines where it begins, the first few of them, counted from 0.
    Often(Vec<usize>),
}

/// Places of an ambiguous text that an error names.
const MAX_PLACES: usize = 5;

impl<'c> NormalizedText<'c> {
    fn of(content: &'c [u8]) -> Self {
        if memmem::find(content, b"\r\n").is_none() {
            return Self { content: Cow::Borrowed(content), removed: Vec::new() };
        }
        let (mut plain, mut removed) = (Vec::with_capacity(content.len()), Vec::new());
        for line in lines(content) {
            plain.extend_from_slice(line.text);
            if line.end == b"\r\n" {
                removed.push(plain.len());
            }
            plain.extend_from_slice(line.end.strip_prefix(b"\r").unwrap_or(line.end));
        }
        Self { content: Cow::Owned(plain), removed }
    }

    fn find(&self, text: &[u8]) -> Occurrence {
        let Some(first) = memmem::find(&self.content, text) else { return Occurrence::Never };
        let after = |start: usize| {
            let rest = self.content.get(start + 1..)?;
            memmem::find(rest, text).map(|found| start + 1 + found)
        };
        if after(first).is_none() {
            return Occurrence::Once(self.original(first)..self.original(first + text.len()));
        }
        let places = std::iter::successors(Some(first), |start| after(*start)).take(MAX_PLACES);
        Occurrence::Often(places.map(|start| line_of(&self.content, start)).collect())
    }

    /// Returns the position in the file of a position in the normalized text.
    fn original(&self, position: usize) -> usize {
        position + self.removed.partition_point(|removed| *removed < position)
    }
}

/// Finds a text as whole lines, which may differ in space at their ends and in typographic characters. `None` if it is
/// not there exactly once.
fn find_lines(content: &[u8], old: &str) -> Option<Range<usize>> {
    let wanted: Vec<&[u8]> = old.lines().map(str::as_bytes).collect();
    if wanted.iter().all(|line| line.trim_ascii().is_empty()) {
        return None;
    }
    let split: Vec<_> = lines(content).take(MAX_EDITED_LINES + 1).collect();
    if split.len() > MAX_EDITED_LINES {
        return None;
    }
    let mut file = Haystack::new(split);
    // Not at the beginning of lines: what replaces them would have a wrong indentation.
    let level = [Likeness::SpaceAtEnd, Likeness::Punctuation];
    for level in level {
        let Ok(Some(first)) = file.find_at(&wanted, 0, level) else { continue };
        let Ok(None) = file.find_at(&wanted, first + 1, level) else { return None };
        let found = file.lines.get(first..first + wanted.len())?;
        let is_indented_alike =
            found.iter().zip(&wanted).all(|(line, wanted)| indentation(line.text) == indentation(wanted));
        if !is_indented_alike {
            return None;
        }
        let length = |lines: &[super::lines::Line<'_>]| -> usize {
            lines.iter().map(|line| line.text.len() + line.end.len()).sum()
        };
        let start = length(file.lines.get(..first)?);
        let last_end = found.last().map_or(0, |line| line.end.len());
        let kept = if old.ends_with('\n') { 0 } else { last_end };
        return Some(start..start + length(found) - kept);
    }
    None
}

fn indentation(line: &[u8]) -> &[u8] {
    let text = line.trim_ascii_start();
    // A blank line has none.
    if text.is_empty() { b"" } else { line.get(..line.len() - text.len()).unwrap_or_default() }
}

/// Returns a part of the content with the spans inside it replaced.
fn splice(content: &[u8], part: Range<usize>, spans: &[Span]) -> Vec<u8> {
    let (mut result, mut at) = (Vec::new(), part.start);
    for span in spans {
        result.extend_from_slice(content.get(at..span.range.start).unwrap_or_default());
        result.extend_from_slice(&span.new);
        at = span.range.end;
    }
    result.extend_from_slice(content.get(at..part.end).unwrap_or_default());
    result
}

/// Returns the number of lines before a position.
fn line_of(content: &[u8], position: usize) -> usize {
    memchr::memchr_iter(b'\n', content.get(..position).unwrap_or_default()).count()
}

/// Returns the changed lines as a unified diff without context.
fn diff(content: &[u8], spans: &[Span]) -> String {
    let mut text = String::new();
    let mut shift = 0_isize;
    let mut rest = spans;
    while let Some(first) = rest.first() {
        let mut part = whole_lines(content, &first.range);
        // Spans on the same lines are shown together.
        let mut count = 1;
        while let Some(next) = rest.get(count).filter(|next| next.range.start < part.end) {
            part.end = part.end.max(whole_lines(content, &next.range).end);
            count += 1;
        }
        let (together, others) = rest.split_at(count);
        rest = others;
        let old = content.get(part.clone()).unwrap_or_default();
        let new = splice(content, part.clone(), together);
        let (old_count, new_count) = (lines(old).count(), lines(&new).count());
        let line = line_of(content, part.start) + 1;
        let new_line = line.saturating_add_signed(shift);
        text.push_str(&format!("@@ -{line},{old_count} +{new_line},{new_count} @@\n"));
        for (sign, side) in [('-', old), ('+', new.as_slice())] {
            for line in lines(side) {
                text.push(sign);
                text.push_str(&String::from_utf8_lossy(line.text));
                text.push('\n');
            }
        }
        shift += isize::try_from(new_count).unwrap_or(0) - isize::try_from(old_count).unwrap_or(0);
        if text.len() > MAX_DIFF_BYTES {
            text.truncate(boundary(&text, MAX_DIFF_BYTES));
            text.push_str("\n… (shortened)\n");
            break;
        }
    }
    text
}

/// Returns the lines that a range touches.
fn whole_lines(content: &[u8], range: &Range<usize>) -> Range<usize> {
    let before = content.get(..range.start).unwrap_or_default();
    let start = memchr::memrchr(b'\n', before).map_or(0, |found| found + 1);
    let ends_a_line = range.end > range.start && content.get(range.end - 1) == Some(&b'\n');
    let rest = content.get(range.end..).unwrap_or_default();
    let end = if ends_a_line {
        range.end
    } else {
        memchr::memchr(b'\n', rest).map_or(content.len(), |found| range.end + found + 1)
    };
    start..end
}

/// Lines of the file that are compared to find the one that was probably meant.
const MAX_COMPARED_LINES: usize = 5_000;

impl Problem {
    fn explain(&self, path: &str, content: &[u8], replacements: &[Replacement<'_>]) -> String {
        let which = |position: usize| match replacements.len() {
            1 => "`oldText`".to_owned(),
            _ => format!("`edits[{position}].oldText`"),
        };
        match self {
            Self::NotFound(position) => {
                let near = replacements.get(*position).and_then(|one| nearest_line(content, one.old));
                let near =
                    near.map(|(line, text)| format!(" The most similar line is {line}: `{text}`.")).unwrap_or_default();
                format!(
                    "{} is not in `{path}`; it must be the exact text of the file, with its indentation.{near} Read the \
                     file again, then repeat the call. Nothing was changed",
                    which(*position)
                )
            }
            Self::Ambiguous(position, lines) => {
                let lines: Vec<String> = lines.iter().map(|line| (line + 1).to_string()).collect();
                let more = if lines.len() == MAX_PLACES { ", …" } else { "" };
                format!(
                    "{} is in `{path}` several times (lines {}{more}); include more of the text around it, so that it is \
                     there once. Nothing was changed",
                    which(*position),
                    lines.join(", ")
                )
            }
            Self::NoChange(position) => {
                format!("{} and its new text are the same; nothing was changed in `{path}`", which(*position))
            }
            Self::Overlap(one, other) => format!(
                "{} and {} overlap in `{path}`; make them one edit. Nothing was changed",
                which(*one),
                which(*other)
            ),
        }
    }
}

/// Returns the line that is most similar to the first line of a text, and its number.
fn nearest_line(content: &[u8], old: &str) -> Option<(usize, String)> {
    let wanted = old.lines().map(str::trim).find(|line| !line.is_empty())?;
    let wanted: String = wanted.chars().take(100).collect();
    let mut best: Option<(usize, usize, String)> = None;
    for (number, line) in lines(content).take(MAX_COMPARED_LINES).enumerate() {
        let text = String::from_utf8_lossy(line.text);
        let text: String = text.trim().chars().take(100).collect();
        if text.is_empty() || text.len().abs_diff(wanted.len()) * 2 > wanted.len() {
            continue;
        }
        let edits = distance(&wanted, &text);
        if edits * 2 <= wanted.chars().count() && best.as_ref().is_none_or(|(least, ..)| edits < *least) {
            best = Some((edits, number + 1, shorten(&text)));
        }
    }
    best.map(|(_, number, text)| (number, text))
}

#[cfg(test)]
mod tests;
