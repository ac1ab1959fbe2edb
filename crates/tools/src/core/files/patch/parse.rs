//! Parses patches in the envelope that models know from `apply_patch`.

use contract::limits::{MAX_PATCH_BYTES, MAX_PATCH_LINES};

use crate::core::roots::shorten;

const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";
const ADD: &str = "*** Add File:";
const DELETE: &str = "*** Delete File:";
const UPDATE: &str = "*** Update File:";
const MOVE: &str = "*** Move to:";
const END_OF_FILE: &str = "*** End of File";

/// The part of a patch that changes one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Section<'p> {
    Add { path: &'p str, content: String },
    Delete { path: &'p str },
    Update { path: &'p str, new_path: Option<&'p str>, hunks: Vec<Hunk<'p>> },
}

/// Changes at one place of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Hunk<'p> {
    /// Lines of the file after which the place is, such as the head of a function; from `@@`.
    pub(super) after: Vec<&'p str>,
    pub(super) lines: Vec<HunkLine<'p>>,
    /// Whether the place is the end of the file.
    pub(super) is_at_end: bool,
    /// The line of the patch where the hunk begins, counted from 1.
    pub(super) number: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HunkLine<'p> {
    Keep(&'p str),
    /// A line without a sign. It is probably a blank line of the file, or separates sections.
    Blank,
    Remove(&'p str),
    Add(&'p str),
}

/// Parses a patch.
pub(super) fn parse(patch: &str) -> Result<Vec<Section<'_>>, String> {
    if patch.len() > MAX_PATCH_BYTES {
        return Err(format!("the patch has more than {MAX_PATCH_BYTES} bytes; split it"));
    }
    let lines: Vec<&str> = patch.trim().lines().take(MAX_PATCH_LINES + 1).collect();
    if lines.len() > MAX_PATCH_LINES {
        return Err(format!("the patch has more than {MAX_PATCH_LINES} lines; split it"));
    }
    let body = body(&lines)?;
    let mut parser = Parser { lines: body, at: 0 };
    let mut sections = Vec::new();
    while let Some(line) = parser.peek() {
        if line.trim().is_empty() {
            parser.at += 1;
        } else {
            sections.push(parser.section()?);
        }
    }
    if sections.is_empty() {
        return Err(format!("the patch names no file; write `{ADD} PATH`, `{UPDATE} PATH` or `{DELETE} PATH`"));
    }
    Ok(sections)
}

/// Returns the lines between the marks. Models put patches into here-documents and code blocks, which are removed.
fn body<'a, 'p>(lines: &'a [&'p str]) -> Result<&'a [&'p str], String> {
    let inner = match lines {
        [first, inner @ .., last] if first.starts_with("<<") && last.trim_end().ends_with("EOF") => inner,
        [first, inner @ .., last] if first.starts_with("```") && last.trim() == "```" => inner,
        _ => lines,
    };
    match inner {
        [] => Err(format!("the patch is empty; its first line must be `{BEGIN}`")),
        [first, body @ .., last] if first.trim() == BEGIN && last.trim() == END => Ok(body),
        [first, ..] if first.trim() != BEGIN => {
            Err(format!("the first line of the patch must be `{BEGIN}`, and it is `{}`", shorten(first)))
        }
        _ => Err(format!("the last line of the patch must be `{END}`")),
    }
}

struct Parser<'a, 'p> {
    /// The lines between the marks.
    lines: &'a [&'p str],
    at: usize,
}

impl<'p> Parser<'_, 'p> {
    fn peek(&self) -> Option<&'p str> {
        self.lines.get(self.at).copied()
    }

    /// Returns the number of the current line in the patch.
    fn number(&self) -> usize {
        self.at + 2
    }

    fn section(&mut self) -> Result<Section<'p>, String> {
        let number = self.number();
        let line = self.peek().unwrap_or_default().trim();
        self.at += 1;
        if let Some(path) = line.strip_prefix(ADD) {
            Ok(Section::Add { path: named(path, number)?, content: self.new_content()? })
        } else if let Some(path) = line.strip_prefix(DELETE) {
            Ok(Section::Delete { path: named(path, number)? })
        } else if let Some(path) = line.strip_prefix(UPDATE) {
            self.update(named(path, number)?, number)
        } else {
            Err(format!(
                "line {number} of the patch is `{}`; a section begins with `{ADD} PATH`, `{UPDATE} PATH` or `{DELETE} PATH`",
                shorten(line)
            ))
        }
    }

    fn new_content(&mut self) -> Result<String, String> {
        let mut content = String::new();
        while let Some(line) = self.peek().filter(|line| !is_header(line)) {
            match line.strip_prefix('+') {
                Some(text) => {
                    content.push_str(text);
                    content.push('\n');
                }
                None if line.trim().is_empty() && self.rest_is_blank() => {}
                None => {
                    let number = self.number();
                    return Err(format!("line {number} of the patch is in a new file and must begin with `+`"));
                }
            }
            self.at += 1;
        }
        Ok(content)
    }

    /// Whether only blank lines follow until the next section.
    fn rest_is_blank(&self) -> bool {
        let rest = self.lines.get(self.at..).unwrap_or_default();
        rest.iter().take_while(|line| !is_header(line)).all(|line| line.trim().is_empty())
    }

    fn update(&mut self, path: &'p str, number: usize) -> Result<Section<'p>, String> {
        let mut new_path = None;
        if let Some(target) = self.peek().and_then(|line| line.trim().strip_prefix(MOVE)) {
            new_path = Some(named(target, self.number())?);
            self.at += 1;
        }
        let mut hunks: Vec<Hunk<'p>> = Vec::new();
        while let Some(line) = self.peek().filter(|line| !is_header(line)) {
            let number = self.number();
            self.at += 1;
            if line.trim_end() == END_OF_FILE {
                let last = hunks
                    .last_mut()
                    .ok_or_else(|| format!("line {number} of the patch: `{END_OF_FILE}` must follow a change"))?;
                last.is_at_end = true;
            } else if let Some(head) = line.strip_prefix("@@") {
                let is_open = hunks.last().is_some_and(|hunk| hunk.lines.is_empty() && !hunk.is_at_end);
                if !is_open {
                    hunks.push(Hunk { number, ..Hunk::default() });
                }
                let after = place_of(head);
                if let Some(hunk) = hunks.last_mut().filter(|_| !after.is_empty()) {
                    hunk.after.push(after);
                }
            } else {
                let line = hunk_line(line).ok_or_else(|| {
                    let line = shorten(line);
                    format!("line {number} of the patch must begin with a space, `-`, `+` or `@@`, and it is `{line}`")
                })?;
                if hunks.last().is_none_or(|hunk| hunk.is_at_end) {
                    if line == HunkLine::Blank {
                        continue;
                    }
                    hunks.push(Hunk { number, ..Hunk::default() });
                }
                if let Some(hunk) = hunks.last_mut() {
                    hunk.lines.push(line);
                }
            }
        }
        hunks.retain(|hunk| hunk.lines.iter().any(|line| *line != HunkLine::Blank));
        if hunks.is_empty() && new_path.is_none() {
            return Err(format!("line {number} of the patch: the section changes nothing; add lines with `-` and `+`"));
        }
        Ok(Section::Update { path, new_path, hunks })
    }
}

/// Whether a line begins a section.
fn is_header(line: &str) -> bool {
    [ADD, DELETE, UPDATE].iter().any(|header| line.starts_with(header))
}

fn named(path: &str, number: usize) -> Result<&str, String> {
    match path.trim() {
        "" => Err(format!("line {number} of the patch names no file")),
        path => Ok(path),
    }
}

fn hunk_line(line: &str) -> Option<HunkLine<'_>> {
    match line.as_bytes().first() {
        None => Some(HunkLine::Blank),
        Some(b' ') => line.get(1..).map(HunkLine::Keep),
        Some(b'-') => line.get(1..).map(HunkLine::Remove),
        Some(b'+') => line.get(1..).map(HunkLine::Add),
        Some(_) => None,
    }
}

/// Returns the line of the file that `@@` names. Line numbers as in other patch formats (`-1,2 +1,3 @@`) are ignored.
fn place_of(head: &str) -> &str {
    let head = head.trim();
    let is_range = |word: &str| {
        word.strip_prefix(['-', '+'])
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b','))
    };
    match head.split_once(' ') {
        Some((one, rest)) if is_range(one) => {
            let (other, rest) = rest.split_once(' ').unwrap_or((rest, ""));
            if !is_range(other) {
                return head;
            }
            rest.trim_start().strip_prefix("@@").unwrap_or(rest).trim()
        }
        Some(_) | None => {
            if head == "@@" {
                ""
            } else {
                head
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Hunk, HunkLine, Section, parse, place_of};

    #[test]
    fn all_kinds_of_sections_are_parsed() {
        let patch = "*** Begin Patch\n*** Add File: new.txt\n+one\n+\n*** Update File: src/a.py\n*** Move to: src/b.py\n\
                     @@ class A:\n@@ def f():\n keep\n-old\n+new\n\n@@\n-last\n*** End of File\n*** Delete File: gone.txt\n\
                     *** End Patch\n";
        let hunk = Hunk {
            after: vec!["class A:", "def f():"],
            lines: vec![HunkLine::Keep("keep"), HunkLine::Remove("old"), HunkLine::Add("new"), HunkLine::Blank],
            is_at_end: false,
            number: 7,
        };
        let last = Hunk { lines: vec![HunkLine::Remove("last")], is_at_end: true, number: 13, ..Hunk::default() };
        let expected = [
            Section::Add { path: "new.txt", content: "one\n\n".to_owned() },
            Section::Update { path: "src/a.py", new_path: Some("src/b.py"), hunks: vec![hunk, last] },
            Section::Delete { path: "gone.txt" },
        ];
        assert_eq!(parse(patch).unwrap(), expected);
        let wrapped = format!("<<'EOF'\n{patch}EOF");
        assert_eq!(parse(&wrapped).unwrap(), expected);
        let fenced = format!("```\n{patch}```\n");
        assert_eq!(parse(&fenced).unwrap(), expected);
        let windows = patch.replace('\n', "\r\n");
        assert_eq!(parse(&windows).unwrap(), expected);
    }

    #[test]
    fn a_wrong_patch_is_refused_with_its_line() {
        let cases = [
            ("", "first line"),
            ("*** Begin Patch", "last line"),
            ("*** Begin Patch\n*** End Patch", "names no file"),
            ("*** Begin Patch\nhello\n*** End Patch", "line 2"),
            ("*** Begin Patch\n*** Add File: a\nhello\n*** End Patch", "line 3"),
            ("*** Begin Patch\n*** Add File:   \n*** End Patch", "line 2"),
            ("*** Begin Patch\n*** Update File: a\n*** End Patch", "changes nothing"),
            ("*** Begin Patch\n*** Update File: a\n@@\n\n*** End Patch", "changes nothing"),
            ("*** Begin Patch\n*** Update File: a\n@@\n*keep\n*** End Patch", "line 4"),
            ("*** Begin Patch\n*** Update File: a\n*** End of File\n*** End Patch", "must follow"),
        ];
        for (patch, expected) in cases {
            let error = parse(patch).unwrap_err();
            assert!(error.contains(expected), "{patch:?}: {error}");
        }
        assert!(parse(&"x".repeat((4 << 20) + 1)).unwrap_err().contains("bytes"));
        assert!(parse(&"\nx".repeat(200_001)).unwrap_err().contains("lines"));
    }

    #[test]
    fn line_numbers_of_other_formats_are_ignored() {
        for (head, expected) in [
            ("", ""),
            (" fn main() {", "fn main() {"),
            (" -1,2 +1,3 @@", ""),
            (" -1 +1 @@ impl A", "impl A"),
            (" -1,2 x", "-1,2 x"),
            (" @@", ""),
        ] {
            assert_eq!(place_of(head), expected, "{head:?}");
        }
    }
}
